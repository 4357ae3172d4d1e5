"""Deaths at named points and at every step of a transaction, each healed by the living; run in a herd's child."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import func, select, text

from tests.proof import ledger
from tests.proof.deeds import DEEDS, Scene, set_scene
from tests.proof.hurt import Steps, die_at, die_at_step
from tests.proof.nursery import Nursery, leave_report
from webapp.scheduling.models import Schedule
from webapp.store import engine, reading, schema

_MOST_STEPS = 400

# Where a process dies: deed -> module:function, and whether before or after it was called. A function that was
# renamed, or that its deed does not come to any more, fails the proof.
POINTS: dict[str, tuple[tuple[str, str], ...]] = {
    "claim": (
        ("webapp.scheduling.claim:_networks_with_due", "before"),
        ("webapp.scheduling.claim:_lock_due_batch", "after"),
        ("webapp.scheduling.usual:dispatch", "before"),
        ("webapp.scheduling.usual:dispatch", "after"),
        ("webapp.mandates.steps:use_runs_given", "before"),
        ("webapp.mandates.steps:use_runs_given", "after"),
        ("webapp.nodes.steps:write_tasks_given", "before"),
        ("webapp.nodes.steps:write_tasks_given", "after"),
        ("webapp.scheduling.claim:load_facts", "after"),
        ("webapp.scheduling.claim:decide", "after"),
        ("webapp.scheduling.claim:write", "before"),
        ("webapp.scheduling.claim:write", "after"),
        ("webapp.store.dialect:insert_new", "after"),
        ("webapp.scheduling.claim:_advance", "before"),
        ("webapp.scheduling.claim:_advance", "after"),
        ("webapp.scheduling.claim:_follow_up", "after"),
        ("webapp.events.outbox:emit", "before"),
        ("webapp.events.outbox:_write", "before"),
        ("webapp.events.outbox:_write", "after"),
        ("webapp.audit:_write", "before"),
        ("webapp.audit:_write", "after"),
        ("webapp.store.dialect:raise_counter", "after"),
        ("webapp.store.dialect:announce", "after"),
        ("webapp.store.transaction:Tx.finish", "before"),
        ("webapp.store.transaction:Tx.finish", "after"),
        ("webapp.store.transaction:Tx.ring", "before"),
    ),
    "fetch": (
        ("webapp.nodes.steps:take_from_inbox", "after"),
        ("webapp.scheduling.settle:delivered", "before"),
        ("webapp.scheduling.settle:delivered", "after"),
        ("webapp.nodes.steps:touch_presence", "after"),
    ),
    "acknowledge": (
        ("webapp.nodes.steps:acknowledge", "after"),
        ("webapp.scheduling.settle:started", "after"),
    ),
    "settle": (
        ("webapp.scheduling.settle:lock_run", "after"),
        ("webapp.nodes.steps:end", "before"),
        ("webapp.nodes.steps:end", "after"),
        ("webapp.scheduling.settle:finish", "before"),
        ("webapp.scheduling.settle:finish", "after"),
        ("webapp.scheduling.steps:close_run", "after"),
        ("webapp.scheduling.steps:after_end", "before"),
        ("webapp.scheduling.steps:after_end", "after"),
    ),
    "deliver": (
        ("webapp.scheduling.deliver:deliver_waiting", "before"),
        ("webapp.scheduling.deliver:_next_waiting", "after"),
        ("webapp.scheduling.deliver:dispatch", "before"),
        ("webapp.scheduling.authority:use", "before"),
        ("webapp.scheduling.authority:use", "after"),
        ("webapp.nodes.steps:write_tasks", "after"),
        ("webapp.scheduling.deliver:dispatch", "after"),
        ("webapp.scheduling.deliver:deliver_waiting", "after"),
    ),
    "unblock": (
        ("webapp.scheduling.maintenance:_unblock_one", "before"),
        ("webapp.scheduling.maintenance:_unblock_one", "after"),
    ),
    "pass": (
        ("webapp.scheduling.maintenance:judge_zone_data", "after"),
        ("webapp.scheduling.maintenance:resume_due", "before"),
        ("webapp.scheduling.steps:activate", "after"),
        ("webapp.scheduling.maintenance:resume_due", "after"),
        ("webapp.scheduling.maintenance:adopt_zone_data", "before"),
        ("webapp.scheduling.maintenance:_adopt", "after"),
        ("webapp.scheduling.maintenance:_adopt_page", "after"),
        ("webapp.scheduling.maintenance:_store_zone_version", "before"),
        ("webapp.scheduling.maintenance:adopt_zone_data", "after"),
        ("webapp.targets.node:expire_overdue", "before"),
        ("webapp.targets.node:expire_overdue", "after"),
        ("webapp.scheduling.maintenance:unblock", "before"),
        ("webapp.scheduling.maintenance:look_ahead", "after"),
        ("webapp.scheduling.maintenance:drop_old_proposals", "after"),
        ("webapp.scheduling.maintenance:forget_old_workers", "after"),
        ("webapp.scheduling.maintenance:worker_seen", "before"),
        ("webapp.scheduling.maintenance:worker_seen", "after"),
    ),
    "prune": (
        ("webapp.retention:_lock_schedules", "after"),
        ("webapp.retention:_count_days", "before"),
        ("webapp.retention:_count_days", "after"),
        ("webapp.retention:_delete_tasks", "after"),
        ("webapp.retention:_delete", "after"),
        ("webapp.retention:_forget_runs", "after"),
    ),
    "prune all": (
        ("webapp.retention:_forget_tasks_of_people", "after"),
        ("webapp.retention:_forget_request_keys", "after"),
        ("webapp.retention:_forget_texts", "after"),
        ("webapp.retention:_forget_head", "after"),
        ("webapp.retention:prune", "after"),
    ),
}
STEPPED = ("claim", "settle", "deliver", "prune")


def every_point(database_url: str, clock_file: str, report: str) -> None:
    """Die once at each named point; leaves which were hit, and how much the ledger looked at."""
    nursery, scene = _opened(database_url, clock_file)
    missed = []
    # What forgets history comes last: the ledger sees less after it.
    for deed, points in POINTS.items():
        for place, when in points:
            if not _die(nursery, scene, deed, partial(die_at, place, when)):
                missed.append(f"{deed}: {when} {place}")
    _close(nursery, scene, report, points=sum(map(len, POINTS.values())), missed=missed)


def every_step(database_url: str, clock_file: str, report: str) -> None:
    """Die at every statement, before and after every COMMIT of each deed; leaves how many steps each has."""
    nursery, scene = _opened(database_url, clock_file)
    steps = {}
    for deed in STEPPED:
        number = 1
        while _die(nursery, scene, deed, lambda number=number: die_at_step(engine(), number)):
            number += 1
            assert number < _MOST_STEPS, f"{deed} does not come to an end"
        steps[deed] = number - 1
    _close(nursery, scene, report, steps=steps)


def every_migration_step(database_url: str, clock_file: str, report: str, most: int, seed: int) -> None:
    """Die at `most` steps of a migration from nothing, chosen by `seed`; whoever comes next finishes it."""
    nursery = Nursery(database_url, clock_file)
    _empty(database_url)
    steps = Steps(engine(), lambda _count, _what: None)
    schema.upgrade()
    total = steps.count
    # The last ones are the COMMIT: always among them.
    chosen = {*random.Random(seed).sample(range(1, total - 2), min(most, total - 3)), total - 1, total}
    died = 0
    for number in sorted(chosen):
        _empty(database_url)
        died += nursery.dies(partial(die_at_step, engine(), number), schema.upgrade)
        schema.upgrade()
        with reading() as session:
            assert session.scalar(select(func.count()).select_from(Schedule)) == 0
    scene = set_scene(nursery.clock)
    DEEDS["claim"].prepare(scene)
    _close(nursery, scene, report, total=total, tried=len(chosen), died=died)


def _empty(database_url: str) -> None:
    """Take everything out of the database, the schema too."""
    engine().dispose()
    if database_url.startswith("sqlite"):
        file = Path(database_url.removeprefix("sqlite:///"))
        for part in file.parent.glob(f"{file.name}*"):
            part.unlink()
        return
    with engine().connect() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))


def _opened(database_url: str, clock_file: str) -> tuple[Nursery, Scene]:
    nursery = Nursery(database_url, clock_file)
    return nursery, set_scene(nursery.clock)


def _die(nursery: Nursery, scene: Scene, name: str, arm: Callable[[], object]) -> bool:
    """Have a child die in a deed, then have the deed done by the living; returns whether it died."""
    deed = DEEDS[name]
    needed = deed.prepare(scene)
    died = nursery.dies(arm, partial(deed.do, scene, needed))
    deed.do(scene, needed)
    return died


def _close(nursery: Nursery, scene: Scene, report: str, **outcome: Any) -> None:
    DEEDS["pass"].do(scene, None)
    audited = ledger.assert_clean(nursery.app)
    leave_report(
        report, {"storage": nursery.storage(), "slots": audited.slots, "runs": audited.runs, **outcome}
    )
