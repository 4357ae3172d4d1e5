"""A file that may not grow, as on a full disk; run in a herd's child, because the limit is the process's own."""

from __future__ import annotations

import resource
from datetime import timedelta
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from tests.concurrency.planting import once_at, plant, prepare_ground
from tests.proof import ledger
from tests.proof.nursery import Nursery, leave_report
from webapp.scheduling.models import Run
from webapp.scheduling.tick import BatchSize, Worker, tick
from webapp.store import reading

_DUE = 600
_ROOM_BYTES = 200_000


def fill_and_free(database_url: str, clock_file: str, report: str) -> None:
    """Claim until the file may not grow, go on in vain, then have room again; leaves how often it was refused."""
    nursery = Nursery(database_url, clock_file)
    now = nursery.clock.now()
    plant(prepare_ground(now), _DUE, once_at(now + timedelta(minutes=1)), now=now)
    file = Path(database_url.removeprefix("sqlite:///"))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + _ROOM_BYTES, hard))
    nursery.clock.advance(minutes=1)
    worker = Worker(BatchSize(40, fixed=True), started_at=now)
    refused = 0
    for _ in range(6):
        try:
            tick(worker, nursery.clock)
        except OperationalError:
            refused += 1
    with reading() as session:
        claimed = session.scalar(select(func.count()).select_from(Run))
    found, _ = ledger.look(nursery.app, calm=False)
    assert not found, found
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    while tick(worker, nursery.clock)["more"]:
        pass
    audited = ledger.assert_clean(nursery.app)
    assert audited.runs == _DUE
    leave_report(report, {"due": _DUE, "refused": refused, "claimed_while_full": claimed})
