"""Between the slots: zone data that changes, cards before the day, passes that go on whatever fails."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from tests.scheduling.stage import Stage
from webapp.audit import AuditEntry
from webapp.clock import SystemClock
from webapp.nodes import operations as node_operations
from webapp.nodes.bodies import NodeChanges
from webapp.scheduling import maintenance
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule, ScheduleDue, WorkerSeen, ZoneData
from webapp.store import reading
from webapp.store.transaction import Tx, operation
from webapp.worker import new_worker, run

OLDER, NEWER = "2020a", "2999a"


@operation
def _other_worker_had(tx: Tx, version: str, *, next_run_at: object = None) -> None:
    """The database as a worker with other zone data left it; every schedule's slot computed by that."""
    tx.session.merge(ZoneData(id=1, version=version, changed_at=SystemClock().now()))
    tx.session.execute(update(Schedule).values(zone_version=version))
    if next_run_at is not None:
        tx.session.execute(update(ScheduleDue).values(next_run_at=next_run_at, due_at=next_run_at))


def test_a_worker_with_older_zone_data_does_not_claim(stage: Stage) -> None:
    schedule = stage.create()
    _other_worker_had(NEWER)
    counts = stage.tick(hours=1)
    assert counts["schedules"] == 0
    assert stage.told(schedule) == []
    _other_worker_had(OLDER)
    stage.worker = new_worker(stage.app)
    stage.tick()
    assert stage.told(schedule) == [("09:00", "queued", None)]


def test_newer_zone_data_moves_what_it_must_and_says_so(stage: Stage) -> None:
    moved = stage.create(schedule={"type": "daily", "time": "12:00"}, timezone="America/Vancouver")
    right = stage.schedule(moved).due.next_run_at
    assert right is not None
    _other_worker_had(OLDER, next_run_at=right + timedelta(hours=1))
    counts = stage.tick()
    assert counts["moved_by_zone_data"] == 1
    assert stage.schedule(moved).due.next_run_at == right
    assert stage.schedule(moved).revision == 1
    with reading() as session:
        entry = session.scalars(select(AuditEntry).where(AuditEntry.verb == "schedule.zone_data")).one()
    assert entry.subject_id == moved.schedule_id
    stage.worker = new_worker(stage.app)
    assert stage.tick()["moved_by_zone_data"] == 0


def test_due_slots_are_claimed_before_new_zone_data_moves_anything(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "daily", "time": "08:30"})
    _other_worker_had(OLDER)
    stage.tick(hours=1)
    assert stage.told(schedule) == [("08:30", "queued", None)]


def test_new_zone_data_never_fires_the_same_local_slot_twice(stage: Stage) -> None:
    """Under the old rules 09:00 local was at 08:00 UTC; the new rules put it at 09:00 UTC."""
    schedule = stage.create(schedule={"type": "daily", "time": "09:00"})
    fired = stage.at(8, 20)
    _other_worker_had(OLDER, next_run_at=fired)
    stage.worker.zone_checked = True
    stage.tick(minutes=10)
    assert stage.told(schedule) == [("08:20", "queued", None)]
    _other_worker_had(OLDER, next_run_at=stage.at(8, 20).replace(month=12, day=1))
    stage.worker = new_worker(stage.app)
    stage.tick(minutes=1)
    assert stage.schedule(schedule).due.next_run_at == stage.at(9).replace(month=12, day=1)
    stage.serve()


def test_a_schedule_that_would_be_refused_within_a_week_gets_a_card_and_loses_it_again(
    stage: Stage,
) -> None:
    schedule = stage.create(schedule={"type": "weekly", "time": "09:00", "weekdays": [0]})
    _set(stage, "stopped")
    stage.tick(hours=1)
    assert stage.open_alerts() == [("would_not_fire", schedule.schedule_id, "target_not_active")]
    _set(stage, "active")
    stage.tick(hours=1)
    assert stage.open_alerts() == []
    assert stage.schedule(schedule).status is ScheduleStatus.ACTIVE


def _set(stage: Stage, state: str) -> None:
    node_operations.update_node(
        stage.alice, stage.node.node_id, NodeChanges(lifecycle_state=state), now=stage.clock.now()
    )


def test_one_failing_step_does_not_keep_a_pass_from_its_other_steps(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = stage.create()

    def broken(*, now: object) -> int:
        raise ValueError(now)

    monkeypatch.setattr(maintenance, "resume_due", broken)
    monkeypatch.setattr(maintenance, "unblock", broken)
    assert stage.tick(hours=1)["dispatched"] == 1
    assert stage.told(schedule) == [("09:00", "queued", None)]


def test_the_loop_wakes_for_a_slot_and_for_a_change_and_leaves_when_told(stage: Stage) -> None:
    """Real time: the tick is far away, so only the slot and the bell can have woken it."""
    stage.app.extensions["carillon_clock"] = clock = SystemClock()
    stop = threading.Event()
    worker = threading.Thread(target=run, args=(stage.app, stop))
    worker.start()
    try:
        _until(lambda: _seen() == 1)
        stage.clock.set(clock.now())
        slot = clock.now() + timedelta(seconds=1.2)
        schedule = stage.create(schedule={"type": "once", "run_at": slot.isoformat()})
        _until(lambda: bool(stage.tasks()))
        (task,) = stage.tasks()
        assert timedelta(0) <= task.created_at - slot < timedelta(seconds=3)
    finally:
        stop.set()
        worker.join(timeout=10)
    assert not worker.is_alive()
    with reading() as session:
        assert session.scalars(select(WorkerSeen)).one().stopped_at is not None
    stage.clock.set(clock.now())
    stage.serve()
    assert stage.schedule(schedule).status is ScheduleStatus.COMPLETED


def _seen() -> int:
    with reading() as session:
        return len(session.scalars(select(WorkerSeen)).all())


def _until(true: object) -> None:
    assert callable(true)
    for _ in range(400):
        if true():
            return
        time.sleep(0.025)
    raise AssertionError("it did not happen within ten seconds")
