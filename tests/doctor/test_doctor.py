"""The doctor finds nothing where all is well, and names exactly what was broken where something was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from time import process_time
from typing import Any, cast

import pytest
from sqlalchemy import Executable, delete, insert, select, text, update

from tests.concurrency.planting import every, fill_history, plant, prepare_ground
from tests.doctor.conftest import Life
from tests.doctor.hands import do
from tests.factories import actor_of
from tests.scheduling.stage import Stage
from webapp.audit import AuditCounter, AuditEntry
from webapp.doctor import examine
from webapp.events.models import Event, EventCounter
from webapp.ids import scheduled_run_id
from webapp.nodes.lifecycle import TaskStatus
from webapp.nodes.models import Task, TaskEvent
from webapp.scheduling import operations
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus, WaitReason
from webapp.scheduling.models import DailyCount, Run, Schedule, ScheduleDue, WorkerSeen, ZoneData
from webapp.store import dialect, reading
from webapp.store.transaction import Tx, operation
from webapp.timetable import ZONE_DATA_VERSION

HOUR = timedelta(hours=1)


def codes() -> list[str]:
    return [found["code"] for found in examine()]


def seen(stage: Stage, **values: Any) -> Executable:
    """A worker that makes its passes for an hour."""
    now = stage.clock.now()
    row = {"worker_id": "wrk_other", "started_at": now - HOUR, "last_tick_at": now, "lag_ms": 0}
    return insert(WorkerSeen).values(**(row | {"zone_version": ZONE_DATA_VERSION} | values))


def test_life_has_seen_everything(life: Life) -> None:
    with reading() as session:
        runs = session.scalars(select(Run)).all()
    assert {run.status for run in runs} >= {
        RunStatus.COMPLETED,
        RunStatus.SKIPPED,
        RunStatus.QUEUED,
        RunStatus.CANCELLED,
    }
    assert {run.wait_reason for run in runs} >= {WaitReason.NOT_FETCHED, WaitReason.PREVIOUS_RUN_ACTIVE}
    assert any(run.missed_count for run in runs)


# --- 1 ---


def test_a_slot_that_nobody_claims_is_overdue_while_a_worker_lives(life: Life) -> None:
    life.stage.clock.advance(minutes=60)
    assert codes() == []
    do(seen(life.stage))
    assert set(codes()) == {"overdue"}
    overdue = {found["schedule_id"] for found in examine()}
    assert overdue == {life.served.schedule_id, life.blocked.schedule_id}


def test_a_slot_that_is_set_aside_is_not_overdue(life: Life) -> None:
    life.stage.clock.advance(minutes=60)
    now, later = life.stage.clock.now(), life.stage.clock.now() + timedelta(minutes=1)
    due = update(ScheduleDue).where(ScheduleDue.next_run_at <= now)
    do(seen(life.stage), due.values(claim_not_before=later, due_at=later))
    assert codes() == []


@pytest.mark.parametrize(
    "worker",
    [
        {"zone_version": "2026a"},
        {"started_at": datetime.fromisoformat("2026-12-01T08:12:00Z")},
        {"last_tick_at": datetime.fromisoformat("2026-12-01T01:00:00Z")},
        {"stopped_at": datetime.fromisoformat("2026-12-01T01:00:00Z")},
    ],
    ids=["older zone data", "just started", "silent", "stopped"],
)
def test_a_worker_that_cannot_have_claimed_is_not_blamed(life: Life, worker: dict[str, Any]) -> None:
    life.stage.clock.set(datetime.fromisoformat("2026-12-01T08:12:30Z"))
    do(seen(life.stage, **worker))
    assert codes() == []


# --- 2 ---


def _without_run(run: Run) -> Sequence[Executable]:
    task = select(Task.id).where(Task.run_pk == run.id)
    return (
        delete(TaskEvent).where(TaskEvent.task_pk.in_(task)),
        delete(Task).where(Task.run_pk == run.id),
        delete(Run).where(Run.id == run.id),
    )


def test_a_lost_run_is_a_slot_without_run(life: Life) -> None:
    run = life.run(life.served, RunStatus.COMPLETED)
    do(*_without_run(run))
    (found,) = examine()
    assert (found["code"], found["schedule_id"]) == ("slot_without_run", life.served.schedule_id)
    assert run.scheduled_for.isoformat() in found["message"]


def test_a_lost_stand_in_is_as_many_slots_without_run(life: Life) -> None:
    run = next(run for run in life.stage.runs(life.served) if run.missed_count)
    do(*_without_run(run))
    (found,) = examine()
    assert (found["code"], found["count"]) == ("slot_without_run", run.missed_count + 1)


def test_a_next_slot_that_was_moved_on_by_itself_leaves_a_slot_without_run(life: Life) -> None:
    due = life.stage.schedule(life.served).due
    later = cast(datetime, due.next_run_at) + HOUR
    do(
        update(ScheduleDue)
        .where(ScheduleDue.schedule_pk == due.schedule_pk)
        .values(next_run_at=later, due_at=later)
    )
    assert codes() == []
    life.stage.clock.set(later)
    assert codes() == ["slot_without_run"]


def test_a_slot_of_a_definition_that_is_no_longer_in_force_counts_too(life: Life) -> None:
    skipped = next(
        run
        for run in life.stage.runs(life.stopped)
        if run.error_code == "schedule_paused" and run.missed_count
    )
    do(*_without_run(skipped))
    (found,) = examine()
    assert (found["code"], found["schedule_id"], found["count"]) == (
        "slot_without_run",
        life.stopped.schedule_id,
        2,
    )


def test_a_slot_that_two_runs_stand_for_is_accounted_twice(life: Life) -> None:
    second = life.stage.runs(life.served)[1]
    do(
        update(Run)
        .where(Run.id == second.id)
        .values(missed_count=1, missed_since=second.scheduled_for - HOUR)
    )
    assert codes() == ["slot_accounted_twice"]


def test_a_run_between_two_slots_stands_for_a_slot_that_never_was(life: Life) -> None:
    run = life.run(life.served, RunStatus.SKIPPED)
    do(
        insert(Run).values(
            **_copy(
                run,
                scheduled_for=run.scheduled_for + timedelta(minutes=30),
                missed_count=0,
                missed_since=None,
            )
        )
    )
    assert codes() == ["slot_never_was"]


def test_a_stand_in_that_counts_wrongly_is_told(life: Life) -> None:
    run = next(run for run in life.stage.runs(life.served) if run.missed_count)
    do(update(Run).where(Run.id == run.id).values(missed_count=run.missed_count - 1))
    assert codes() == ["stand_in_miscounts"]


def test_runs_of_a_schedule_that_the_audit_does_not_know(life: Life) -> None:
    do(
        update(AuditEntry)
        .where(AuditEntry.subject_id == life.served.schedule_id)
        .values(subject_id="sched_another")
    )
    assert codes() == ["definition_unknown"]


def test_history_that_was_pruned_is_not_missed(life: Life) -> None:
    first = life.stage.runs(life.served)[0]
    do(*_without_run(first))
    assert codes() == ["slot_without_run"]
    day = first.scheduled_for.date()
    do(insert(DailyCount).values(schedule_pk=life.served.id, day=day, status=first.status, count=1))
    assert codes() == []


def test_slots_on_a_clock_of_other_zone_data_are_left_out(life: Life) -> None:
    berlin = life.stage.create(schedule={"type": "daily", "time": "09:00"}, timezone="Europe/Berlin")
    life.stage.tick(hours=24)
    do(*_without_run(life.stage.runs(berlin)[0]))
    assert codes() == ["slot_without_run"]
    entries = select(AuditEntry).where(AuditEntry.subject_id == berlin.schedule_id)
    with reading() as session:
        entry = session.scalars(entries).one()
    do(
        update(AuditEntry)
        .where(AuditEntry.network_pk == entry.network_pk, AuditEntry.seq == entry.seq)
        .values(detail=entry.detail | {"zone_version": "2025a"}),
        update(ZoneData).values(changed_at=life.stage.clock.now()),
    )
    assert codes() == []


# --- 3 ---


def _copy(run: Run, **changes: Any) -> dict[str, Any]:
    """The columns of a run as those of another one that nobody dispatched."""
    row = {column.key: getattr(run, column.key) for column in Run.__table__.columns}
    row |= {"run_id": scheduled_run_id("sched_copy", run.scheduled_for), "task_id": None} | changes
    del row["id"]
    return row


def test_two_runs_of_one_slot_are_told(life: Life) -> None:
    run = life.run(life.served, RunStatus.SKIPPED)
    do(text("DROP INDEX uq_runs_slot"))
    do(insert(Run).values(**_copy(run)))
    assert codes() == ["slot_with_two_runs"]


def test_two_tasks_of_one_run_are_told(life: Life) -> None:
    run = life.run(life.served, RunStatus.COMPLETED)
    _without_unique_tasks()
    with reading() as session:
        task = session.execute(select(Task.__table__).where(Task.run_pk == run.id)).mappings().one()
    do(insert(Task).values(**{**task, "id": 100_000}))
    assert codes() == ["run_with_two_tasks"]


@operation
def _without_unique_tasks(tx: Tx) -> None:
    if dialect.is_sqlite(tx.session.get_bind()):
        for statement in (
            "CREATE TABLE copied AS SELECT * FROM tasks",
            "DELETE FROM task_events",
            "DROP TABLE tasks",
            "ALTER TABLE copied RENAME TO tasks",
        ):
            tx.session.execute(text(statement))
    else:
        for name in ("uq_tasks_run_pk", "uq_tasks_task_id"):
            tx.session.execute(text(f"ALTER TABLE tasks DROP CONSTRAINT {name}"))


# --- 4 ---


@pytest.mark.parametrize(
    ("of_run", "task_becomes"),
    [
        (RunStatus.COMPLETED, TaskStatus.ACKED),
        (RunStatus.COMPLETED, TaskStatus.FAILED),
        (RunStatus.QUEUED, TaskStatus.REPLIED),
        (RunStatus.QUEUED, TaskStatus.DELIVERED),
        (RunStatus.CANCELLED, TaskStatus.CREATED),
    ],
)
def test_a_run_and_a_task_that_tell_two_stories(
    life: Life, of_run: RunStatus, task_becomes: TaskStatus
) -> None:
    with reading() as session:
        run = session.scalars(select(Run).where(Run.status == of_run, Run.task_id.is_not(None))).first()
    assert run is not None
    do(update(Task).where(Task.run_pk == run.id).values(status=task_becomes))
    (found,) = examine()
    assert (found["code"], found["run_id"]) == ("run_and_task_disagree", run.run_id)


def test_a_run_whose_task_is_gone(life: Life) -> None:
    run = life.run(life.served, RunStatus.COMPLETED)
    do(*_without_run(run)[:2])
    assert codes() == ["run_without_its_task"]


def test_a_run_that_names_another_task(life: Life) -> None:
    run = life.run(life.served, RunStatus.COMPLETED)
    do(update(Run).where(Run.id == run.id).values(task_id="task_another"))
    assert codes() == ["run_without_its_task"]


@pytest.mark.parametrize("reason", [None, WaitReason.NOT_FETCHED])
def test_an_open_run_that_waits_for_nothing(life: Life, reason: WaitReason | None) -> None:
    waiting = update(Run).where(Run.status == RunStatus.QUEUED, Run.task_id.is_(None))
    do(waiting.values(wait_reason=reason))
    assert codes() == ["run_waits_for_nothing"]


# --- 5 ---


def test_a_paused_schedule_with_a_next_slot(life: Life) -> None:
    do(update(Schedule).where(Schedule.id == life.served.id).values(status=ScheduleStatus.PAUSED))
    assert codes() == ["next_slot_though_not_active"]


def test_an_active_schedule_that_nothing_will_ever_wake(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    stage.serve()
    do(update(ScheduleDue).values(next_run_at=None, due_at=None))
    (found,) = examine()
    assert (found["code"], found["schedule_id"]) == ("active_without_next_slot", schedule.schedule_id)


@pytest.mark.parametrize("shift", [None, -HOUR, HOUR], ids=["never", "earlier", "later"])
def test_a_next_slot_at_which_the_engine_does_not_look(life: Life, shift: timedelta | None) -> None:
    due = life.stage.schedule(life.served).due
    assert due.next_run_at is not None
    looks_at = None if shift is None else due.next_run_at + shift
    do(update(ScheduleDue).where(ScheduleDue.schedule_pk == life.served.id).values(due_at=looks_at))
    assert codes() == ["next_slot_not_looked_at"]


# --- 6 ---


def _middle(model: Any, *conditions: Any) -> Executable:
    with reading() as session:
        seqs = session.scalars(select(model.seq).where(*conditions).order_by(model.seq)).all()
    return delete(model).where(model.seq == seqs[len(seqs) // 2], *conditions)


@pytest.mark.parametrize(
    ("code", "breaks"),
    [
        ("audit_gap", lambda: _middle(AuditEntry, AuditEntry.verb == "node.create")),
        ("audit_gap", lambda: update(AuditCounter).values(seq=AuditCounter.seq + 1)),
        ("event_gap", lambda: _middle(Event)),
        ("event_gap", lambda: update(EventCounter).values(seq=EventCounter.seq + 1)),
    ],
    ids=["an entry is gone", "the newest entry is gone", "an event is gone", "the newest event is gone"],
)
def test_a_sequence_with_a_gap(life: Life, code: str, breaks: Callable[[], Executable]) -> None:
    do(breaks())
    assert codes() == [code]


def test_a_sequence_may_have_lost_its_head(life: Life) -> None:
    do(delete(Event).where(Event.seq < 4))
    assert codes() == []


# --- How it looks ---


def test_a_violation_carries_its_number_a_sentence_and_ids(life: Life) -> None:
    do(update(Schedule).where(Schedule.id == life.served.id).values(status=ScheduleStatus.PAUSED))
    assert examine() == [
        {
            "invariant": 5,
            "code": "next_slot_though_not_active",
            "message": "It is paused and has a next slot.",
            "schedule_id": life.served.schedule_id,
        }
    ]


def test_the_command_prints_what_it_finds_and_leaves_with_1(life: Life) -> None:
    call = life.stage.app.test_cli_runner().invoke
    assert (result := call(args=["doctor"])).exit_code == 0
    assert result.output.strip() == '{"ok": true, "violations": []}'
    do(update(ScheduleDue).where(ScheduleDue.schedule_pk == life.served.id).values(due_at=None))
    assert (result := call(args=["doctor"])).exit_code == 1
    assert '"ok": false' in result.output
    assert life.served.schedule_id in result.output


def test_twenty_thousand_runs_are_looked_at_in_seconds(stage: Stage) -> None:
    now = stage.clock.now()
    first = now.replace(minute=0) + HOUR
    ground = prepare_ground(now)
    keys = plant(ground, 200, every(60, first), now=now)
    fill_history(keys, first, 100)
    stage.clock.set(first + timedelta(minutes=99, seconds=30))
    began = process_time()
    assert examine() == []
    # Far above what it takes: only a look at the database for each run would cost as much.
    assert process_time() - began < 6
    with reading() as session:
        run = session.scalars(select(Run).where(Run.schedule_pk == keys[77])).all()[50]
    do(delete(Run).where(Run.id == run.id))
    assert codes() == ["slot_without_run"]


def test_a_cancelled_schedule_owes_nothing_after_its_end(stage: Stage) -> None:
    schedule = stage.create()
    stage.clock.advance(hours=3)
    operations.cancel(actor_of(stage.cast.alice), schedule.schedule_id, now=stage.clock.now())
    stage.tick(hours=3)
    assert stage.told(schedule) == [("11:00", "skipped", "schedule_cancelled")]
    assert codes() == []
