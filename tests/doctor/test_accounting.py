"""Slots that are due when something else happens to their schedule: each still gets its one record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask
from sqlalchemy import JSON, select, type_coerce, update

from tests.doctor.hands import do
from tests.scheduling.stage import Stage, set_stage
from tests.support.doctor import assert_doctor_clean
from webapp.audit import AuditEntry
from webapp.clock import FrozenClock
from webapp.scheduling.lifecycle import MisfirePolicy, OverlapPolicy, ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.store import reading


@pytest.fixture
def stage(app: Flask, clock: FrozenClock) -> Iterator[Stage]:
    for stage in set_stage(app, clock):
        yield stage
        assert_doctor_clean(app)


def covered(stage: Stage, schedule: Schedule) -> list[tuple[str, int, str | None]]:
    """Slot, how many slots the run stands for, and its code; oldest first."""
    return [
        (run.scheduled_for.strftime("%H:%M"), run.missed_count + 1, run.error_code)
        for run in stage.runs(schedule)
    ]


def test_an_end_that_is_set_into_the_past_records_what_was_due_before(stage: Stage) -> None:
    schedule = stage.create()
    stage.clock.set(stage.at(12, 30))
    saved = stage.edit(schedule, ends_at=stage.at(10, 30))
    assert covered(stage, schedule) == [("12:00", 4, "schedule_changed")]
    assert (saved.status, saved.status_reason) == (ScheduleStatus.COMPLETED, "ends_at_reached")
    assert stage.tick()["schedules"] == 0


def test_an_end_in_the_past_that_is_no_change_records_nothing(stage: Stage) -> None:
    schedule = stage.create(ends_at=stage.at(10, 30))
    stage.clock.set(stage.at(12, 30))
    stage.edit(schedule, ends_at=stage.at(10, 30), name="Renamed")
    assert stage.runs(schedule) == []
    stage.tick()
    assert covered(stage, schedule) == [("10:00", 2, None)]


def test_an_end_that_lies_ahead_leaves_what_is_due_alone(stage: Stage) -> None:
    schedule = stage.create()
    stage.clock.set(stage.at(9, 30))
    stage.edit(schedule, ends_at=stage.at(10))
    stage.tick()
    assert covered(stage, schedule) == [("09:00", 1, None)]


def test_fewer_runs_than_were_made_record_what_was_due_before(stage: Stage) -> None:
    schedule = stage.create(max_runs=9)
    stage.tick(hours=1)
    stage.serve()
    stage.clock.set(stage.at(11, 30))
    saved = stage.edit(schedule, max_runs=1)
    assert covered(stage, schedule) == [("09:00", 1, None), ("11:00", 2, "schedule_changed")]
    assert (saved.status, saved.status_reason) == (ScheduleStatus.COMPLETED, "max_runs_reached")


def test_the_last_run_by_late_delivery_records_what_was_due_meanwhile(stage: Stage) -> None:
    schedule = stage.create(overlap_policy=OverlapPolicy.QUEUE_ONE, max_runs=2)
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.tick(hours=1)
    stage.clock.set(stage.at(11, 30))
    stage.reply(task)
    assert covered(stage, schedule) == [
        ("09:00", 1, None),
        ("10:00", 1, None),
        ("11:00", 1, "max_runs_reached"),
    ]
    assert stage.schedule(schedule).due.next_run_at is None
    stage.serve()
    assert stage.schedule(schedule).status is ScheduleStatus.COMPLETED


def test_a_damaged_timetable_is_accounted_for_by_what_the_audit_wrote_down(stage: Stage) -> None:
    schedule = stage.create(misfire_policy=MisfirePolicy.SKIP)
    stage.edit(schedule, schedule={"type": "cron", "cron": "*/30 * * * *"})
    with reading() as session:
        whole = session.scalars(select(Schedule.timetable).where(Schedule.id == schedule.id)).one()
    spoiled = update(Schedule.__table__).where(Schedule.__table__.c.id == schedule.id)
    do(spoiled.values(timetable=type_coerce({"v": 99}, JSON)))
    stage.clock.set(stage.at(10, 45))
    stage.pause(schedule)
    assert covered(stage, schedule) == [("10:30", 5, "schedule_paused")]
    do(spoiled.values(timetable=whole))


def test_the_audit_of_a_resume_names_the_slot_that_takes_force(stage: Stage) -> None:
    schedule = stage.create()
    stage.pause(schedule)
    stage.clock.set(stage.at(9, 30))
    stage.resume(schedule)
    entries = select(AuditEntry.detail).where(AuditEntry.verb == "schedule.active")
    with reading() as session:
        (detail,) = session.scalars(entries)
    assert (detail["status"], detail["next_run_at"]) == ("active", "2026-11-30T10:00:00.000Z")
