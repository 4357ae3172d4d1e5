"""The checker itself is proved: whatever is spoilt in a database that was clean, it says so, by its right name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import delete, func, select, text, update

from tests.concurrency.planting import prepare_ground
from tests.doctor.hands import do
from tests.proof import ledger, wall_oracle
from tests.proof.ground import plant_variety
from tests.support.databases import START, let_go
from webapp.audit import AuditEntry
from webapp.clock import FrozenClock
from webapp.events.models import Event
from webapp.ids import task_id_of_run
from webapp.nodes.lifecycle import TaskStatus
from webapp.nodes.models import Task, TaskEvent
from webapp.scheduling.models import Run, ScheduleDue
from webapp.scheduling.tick import tick
from webapp.store import reading
from webapp.targets import node as bridge
from webapp.worker import new_worker


def one(column: object, *conditions: object) -> int:
    """The lowest key with these properties."""
    with reading() as session:
        found = session.scalars(select(func.min(column)).where(*conditions)).one()
    assert found is not None, "there is nothing to spoil"
    return found


def _lose_a_skipped_run() -> None:
    do(delete(Run).where(Run.id == one(Run.id, Run.status == "skipped", Run.missed_count == 0)))


def _lose_a_run_and_keep_its_task() -> None:
    do(text("PRAGMA foreign_keys=OFF"))
    do(
        text("PRAGMA defer_foreign_keys=ON"),
        update(Task).where(Task.run_pk == one(Task.run_pk)).values(run_pk=None),
    )


def _double_a_run() -> None:
    columns = ", ".join(
        column.name for column in Run.__table__.columns if column.name not in ("id", "run_id")
    )
    key = one(Run.id, Run.status == "skipped")
    do(
        text("DROP INDEX uq_runs_slot"),
        text(
            f"INSERT INTO runs (run_id, {columns}) SELECT run_id || 'x', {columns} FROM runs WHERE id = {key}"
        ),
    )


def _miscount_what_a_run_stands_for() -> None:
    do(
        update(Run)
        .where(Run.id == one(Run.id, Run.missed_count > 0))
        .values(missed_count=Run.missed_count - 1)
    )


def _lose_a_task() -> None:
    key = one(Task.id)
    do(delete(TaskEvent).where(TaskEvent.task_pk == key), delete(Task).where(Task.id == key))


def _name_a_task_by_chance() -> None:
    key = one(Task.run_pk)
    new = task_id_of_run("srun_another")
    do(
        update(Task).where(Task.run_pk == key).values(task_id=new),
        update(Run).where(Run.id == key).values(task_id=new),
    )


def _name_a_run_by_chance() -> None:
    do(update(Run).where(Run.id == one(Run.id, Run.status == "skipped")).values(run_id="srun_by_chance"))


def _lose_an_event() -> None:
    do(delete(Event).where(Event.seq == 2))


def _lose_the_newest_event() -> None:
    do(delete(Event).where(Event.seq == select(func.max(Event.seq)).scalar_subquery()))


def _lose_an_audit_entry() -> None:
    do(delete(AuditEntry).where(AuditEntry.seq == one(AuditEntry.seq, AuditEntry.subject_kind == "mandate")))


def _speak_of_other_runs() -> None:
    made = select(Run.created_at).where(Run.status == "skipped").limit(1).scalar_subquery()
    do(update(Event).where(Event.type == "run", Event.at == made).values(data={}))


def _step_over_a_slot() -> None:
    with reading() as session:
        at = session.scalars(select(ScheduleDue.next_run_at).where(ScheduleDue.schedule_pk == 1)).one()
    later = at + timedelta(minutes=1)
    do(update(ScheduleDue).where(ScheduleDue.schedule_pk == 1).values(next_run_at=later, due_at=later))


def _wait_for_what_is_no_slot() -> None:
    with reading() as session:
        at = session.scalars(select(ScheduleDue.next_run_at).where(ScheduleDue.schedule_pk == 1)).one()
    later = at + timedelta(seconds=7)
    do(update(ScheduleDue).where(ScheduleDue.schedule_pk == 1).values(next_run_at=later, due_at=later))


def _leave_a_slot_lying() -> None:
    with reading() as session:
        at = session.scalars(select(ScheduleDue.claimed_through).where(ScheduleDue.schedule_pk == 1)).one()
    do(update(ScheduleDue).where(ScheduleDue.schedule_pk == 1).values(next_run_at=at, due_at=at))


def _count_a_dispatch_twice() -> None:
    do(
        update(ScheduleDue)
        .where(ScheduleDue.schedule_pk == 1)
        .values(dispatched_count=ScheduleDue.dispatched_count + 1)
    )


FAULTS: dict[Callable[[], None], str] = {
    _lose_a_skipped_run: "unaccounted",
    _lose_a_run_and_keep_its_task: "not_one_task",
    _double_a_run: "accounted_twice",
    _miscount_what_a_run_stands_for: "stands_wrong",
    _lose_a_task: "not_one_task",
    _name_a_task_by_chance: "id_not_derived",
    _name_a_run_by_chance: "id_not_derived",
    _lose_an_event: "gap",
    _lose_the_newest_event: "gap",
    _lose_an_audit_entry: "gap",
    _speak_of_other_runs: "unheard",
    _step_over_a_slot: "unaccounted",
    _wait_for_what_is_no_slot: "next_is_no_slot",
    _leave_a_slot_lying: "left_due",
    _count_a_dispatch_twice: "miscounted",
}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_every_fault_that_is_seeded_is_found(
    app: Flask, clock: FrozenClock, database_url: str, tmp_path: Path
) -> None:
    file, kept = Path(database_url.removeprefix("sqlite:///")), tmp_path / "clean.db"
    with app.app_context():
        ground = prepare_ground(START)
        plant_variety(ground, 20, now=START)
        worker = new_worker(app)
        for minutes in (2, 1, 1, 3, 1, 1):
            clock.advance(minutes=minutes)
            tick(worker, clock)
            for task in bridge.fetch(ground.node_pk, 12, now=clock.now()):
                bridge.reply(task.node_pk, task.task_id, TaskStatus.REPLIED, "done", None, now=clock.now())
        audited = ledger.assert_clean(app)
        assert audited.slots > 150
        assert audited.tasks > 30
        let_go(app)
        shutil.copyfile(file, kept)
        for spoil, code in FAULTS.items():
            spoil()
            found, _ = ledger.look(app)
            assert any(fault.startswith(code) for fault in found), (spoil.__name__, found)
            let_go(app)
            shutil.copyfile(kept, file)
    ledger.assert_clean(app)


def test_the_oracle_refuses_what_it_has_no_rule_for() -> None:
    for cron in ("0 0 L * *", "0 0 15W * *", "0 0 * * MON#2"):
        with pytest.raises(wall_oracle.Unknown):
            wall_oracle.slots({"type": "cron", "cron": cron}, "UTC", START, START + timedelta(hours=1))
