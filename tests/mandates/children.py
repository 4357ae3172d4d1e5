"""What the children of a herd do to one schedule at the same time."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

from tests.support.databases import config_for
from webapp import create_app
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.identity import queries
from webapp.scheduling import operations
from webapp.store import reading


def run_by_hand(
    database_url: str, user_pk: int, schedule_id: str, times: int, instant: str, starting_gun: str
) -> None:
    """Try so many runs by hand once the file `starting_gun` is there; says how each ended."""
    now = datetime.fromisoformat(instant)
    app = create_app(config_for(database_url), FrozenClock(now), serves_web=False)
    with app.app_context():
        with reading() as session:
            person = queries.person_of(session, user_pk=user_pk)
        assert person is not None
        print("ready", flush=True)
        while not Path(starting_gun).exists():
            time.sleep(0.002)
        for _ in range(times):
            try:
                operations.run_now(person.actor, schedule_id, now=now)
            except AppError as refused:
                print(refused.code, flush=True)
            else:
                print("dispatched", flush=True)
