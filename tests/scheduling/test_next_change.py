"""The next slot, skipped or moved by a person, and what becomes of that when something else happens first."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import JSON, select, type_coerce, update

from tests.doctor.hands import do
from tests.factories import actor_of
from tests.scheduling.stage import Stage, code_of
from tests.support.races import at_once
from webapp import doctor
from webapp.audit import AuditEntry
from webapp.errors import AppError
from webapp.identity.access import Actor
from webapp.mandates.models import Mandate
from webapp.scheduling import maintenance, next_slot, queries
from webapp.scheduling.fields import MoveRequest, SkipRequest
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Run, Schedule, ScheduleDue
from webapp.scheduling.next_change import ChangeKind, NextChange, change_of, falls_due_at
from webapp.store import reading

DAILY = {"type": "daily", "time": "18:00"}


def skip(stage: Stage, schedule: Schedule, actor: Actor | None = None, **fields: Any) -> Schedule:
    return next_slot.skip_next(
        actor or stage.alice, schedule.schedule_id, lambda: SkipRequest(**fields), now=stage.clock.now()
    )


def move(
    stage: Stage, schedule: Schedule, to: datetime, actor: Actor | None = None, **fields: Any
) -> Schedule:
    return next_slot.move_next(
        actor or stage.alice,
        schedule.schedule_id,
        lambda: MoveRequest(to=to, **fields),
        now=stage.clock.now(),
    )


def undo(stage: Stage, schedule: Schedule, actor: Actor | None = None) -> Schedule:
    return next_slot.undo_next_change(actor or stage.alice, schedule.schedule_id, now=stage.clock.now())


def change(stage: Stage, schedule: Schedule) -> NextChange | None:
    saved = stage.schedule(schedule)
    return change_of(saved.next_change, saved.due.next_run_at)


def refused(stage: Stage, call: Any, *args: Any, **kwargs: Any) -> tuple[str, int]:
    with pytest.raises(AppError) as error:
        call(stage, *args, **kwargs)
    return code_of(error.value)


# --- Skip ---


def test_a_skipped_slot_becomes_a_run_when_it_falls_due_and_the_next_one_fires(stage: Stage) -> None:
    schedule = stage.create()
    saved = skip(stage, schedule)
    assert saved.next_change == {"kind": "skip", "slot": "2026-11-30T09:00:00.000Z", "to": None}
    assert saved.revision == schedule.revision + 1
    stage.clock.set(stage.at(8, 59))
    assert stage.tick()["schedules"] == 0
    assert stage.told(schedule) == []
    stage.clock.set(stage.at(9))
    stage.tick()
    assert stage.told(schedule) == [("09:00", "skipped", "skipped_by_person")]
    after = stage.schedule(schedule)
    assert (after.next_change, after.due.next_run_at, after.due.last_run_at) == (None, stage.at(10), None)
    # What the engine does counts no revision.
    assert after.revision == saved.revision
    stage.tick(hours=1)
    assert stage.told(schedule)[1] == ("10:00", "queued", None)


def test_a_skipped_slot_stands_for_itself_alone_after_an_outage(stage: Stage) -> None:
    schedule = stage.create()
    skip(stage, schedule)
    stage.clock.set(stage.at(12, 30))
    stage.tick()
    runs = [(run.scheduled_for.hour, run.error_code, run.missed_count) for run in stage.runs(schedule)]
    assert runs == [(9, "skipped_by_person", 0), (12, None, 2)]


def test_a_skipped_once_is_completed_by_that(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"})
    skip(stage, schedule)
    stage.tick(hours=1)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.COMPLETED, "skipped_by_person")


def test_a_skip_takes_nothing_of_max_runs_and_the_last_slot_ends_the_schedule(stage: Stage) -> None:
    limited = stage.create(max_runs=1)
    ending = stage.create(ends_at=stage.at(9, 30))
    skip(stage, limited)
    skip(stage, ending)
    stage.tick(hours=1)
    saved = stage.schedule(ending)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.COMPLETED, "ends_at_reached")
    assert stage.schedule(limited).due.dispatched_count == 0
    stage.tick(hours=1)
    assert [run.error_code for run in stage.runs(limited)] == ["skipped_by_person", None]


def test_a_skip_of_a_slot_that_is_due_already_and_not_claimed_holds(stage: Stage) -> None:
    schedule = stage.create()
    stage.clock.set(stage.at(9))
    skip(stage, schedule)
    stage.tick()
    assert stage.told(schedule) == [("09:00", "skipped", "skipped_by_person")]


# --- Move ---


@pytest.mark.parametrize(("hour", "minute"), [(8, 30), (9, 30)])
def test_a_moved_slot_falls_due_at_its_new_time_and_keeps_its_own(
    stage: Stage, hour: int, minute: int
) -> None:
    schedule = stage.create()
    move(stage, schedule, stage.at(hour, minute))
    stage.clock.set(stage.at(hour, minute) - timedelta(milliseconds=1))
    assert stage.tick()["schedules"] == 0
    stage.clock.set(stage.at(hour, minute))
    counts = stage.tick()
    assert (counts["dispatched"], stage.worker.lag_ms) == (1, 0)
    saved = stage.schedule(schedule)
    assert stage.told(schedule) == [("09:00", "queued", None)]
    assert (saved.due.last_run_at, saved.due.next_run_at, saved.next_change) == (
        stage.at(9),
        stage.at(10),
        None,
    )


@pytest.mark.parametrize(
    ("late", "told"),
    [(timedelta(seconds=60), ("18:00", "queued", None)),
     (timedelta(seconds=61), ("18:00", "skipped", "misfire_skipped"))],
)  # fmt: skip
@pytest.mark.parametrize("hour", [10, 22])
def test_a_moved_slot_is_late_counted_from_its_new_time(
    stage: Stage, hour: int, late: timedelta, told: tuple[str, str, str | None]
) -> None:
    schedule = stage.create(schedule=DAILY, misfire_policy="skip", misfire_grace_seconds=60)
    move(stage, schedule, stage.at(hour))
    stage.clock.set(stage.at(hour) + late)
    stage.tick()
    assert stage.told(schedule) == [told]
    assert stage.schedule(schedule).due.next_run_at == stage.at(18) + timedelta(days=1)


def test_a_moved_slot_is_caught_up_with_the_others(stage: Stage) -> None:
    schedule = stage.create(misfire_policy="catch_up_all", overlap_policy="allow")
    move(stage, schedule, stage.at(9, 30))
    stage.clock.set(stage.at(11, 10))
    stage.tick()
    assert [run.scheduled_for.hour for run in stage.runs(schedule)] == [9, 10, 11]
    early = stage.create(schedule=DAILY, misfire_policy="catch_up_all")
    move(stage, early, stage.at(12))
    stage.clock.set(stage.at(13))
    stage.tick()
    assert [run.scheduled_for.hour for run in stage.runs(early)] == [18]


def test_a_once_may_be_put_off_and_ends_with_its_run(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"})
    move(stage, schedule, stage.at(9, day=30) + timedelta(days=40))
    stage.clock.set(stage.at(9) + timedelta(days=40))
    stage.tick()
    stage.serve()
    assert stage.told(schedule) == [("09:00", "completed", None)]
    assert stage.schedule(schedule).status is ScheduleStatus.COMPLETED


def test_a_slot_before_the_end_may_fall_due_after_it(stage: Stage) -> None:
    schedule = stage.create(ends_at=stage.at(9, 10), max_runs=1)
    move(stage, schedule, stage.at(9, 40))
    stage.clock.set(stage.at(9, 40))
    stage.tick()
    stage.serve()
    assert stage.told(schedule) == [("09:00", "completed", None)]
    assert stage.schedule(schedule).status is ScheduleStatus.COMPLETED


@pytest.mark.parametrize(
    ("hour", "minute", "allowed"), [(8, 12, False), (8, 13, True), (9, 59, True), (10, 0, False)]
)
def test_a_slot_moves_to_after_now_and_before_the_slot_after_it(
    stage: Stage, hour: int, minute: int, allowed: bool
) -> None:
    schedule = stage.create()
    stage.clock.set(stage.at(8, 12))
    if allowed:
        assert move(stage, schedule, stage.at(hour, minute)).due.due_at == stage.at(hour, minute)
    else:
        assert refused(stage, move, schedule, stage.at(hour, minute)) == ("invalid_to", 400)
        assert stage.schedule(schedule).revision == schedule.revision


# --- Taking it back, and what drops it ---


def test_an_undone_change_leaves_the_slot_to_its_timetable(stage: Stage) -> None:
    schedule = stage.create()
    skip(stage, schedule)
    saved = undo(stage, schedule)
    assert (saved.next_change, saved.revision) == (None, schedule.revision + 2)
    move(stage, schedule, stage.at(9, 30))
    assert undo(stage, schedule).due.due_at == stage.at(9)
    # Repeating it changes nothing.
    assert undo(stage, schedule).revision == schedule.revision + 4
    stage.clock.set(stage.at(9))
    stage.tick()
    assert stage.told(schedule) == [("09:00", "queued", None)]


def test_a_move_that_is_undone_after_the_slot_has_passed_makes_it_due_at_once(stage: Stage) -> None:
    schedule = stage.create()
    move(stage, schedule, stage.at(9, 30))
    stage.clock.set(stage.at(9, 10))
    undo(stage, schedule)
    stage.tick()
    assert stage.told(schedule) == [("09:00", "queued", None)]


def test_pause_stop_and_a_new_timetable_drop_it_and_a_rename_does_not(stage: Stage) -> None:
    kept, paused, changed, rezoned = (stage.create(schedule=DAILY) for _ in range(4))
    for schedule in (kept, paused, changed, rezoned):
        move(stage, schedule, stage.at(17))
    stage.edit(kept, name="Renamed", task="Other words.", overlap_policy="allow")
    stage.pause(paused)
    stage.resume(paused)
    stage.edit(changed, schedule={"type": "daily", "time": "19:00"})
    stage.edit(rezoned, timezone="Europe/Berlin")
    assert change(stage, kept) is not None
    assert [change(stage, one) for one in (paused, changed, rezoned)] == [None, None, None]
    due = [stage.schedule(one).due.due_at for one in (kept, paused, changed, rezoned)]
    assert due == [stage.at(17), stage.at(18), stage.at(19), stage.at(17)]


@pytest.mark.parametrize(
    ("to", "at", "told"),
    [
        # Put off, and paused in between: it had its time, so it is accounted for.
        ((9, 30), (9, 10), [("09:00", "skipped", "schedule_paused")]),
        # Brought forward, due, not claimed yet.
        ((8, 30), (8, 40), [("09:00", "skipped", "schedule_paused")]),
        # Neither has come.
        ((8, 30), (8, 20), []),
        ((9, 30), (8, 40), []),
    ],
)
def test_a_pause_accounts_for_a_moved_slot_whose_time_has_come(
    stage: Stage, to: tuple[int, int], at: tuple[int, int], told: list[Any]
) -> None:
    schedule = stage.create()
    move(stage, schedule, stage.at(*to))
    stage.clock.set(stage.at(*at))
    stage.pause(schedule)
    assert stage.told(schedule) == told
    stage.resume(schedule)
    stage.clock.set(stage.at(11, 30))
    stage.tick()
    assert stage.told(schedule)[len(told) :] == [("11:00", "queued", None)]


def test_a_pause_accounts_for_a_skipped_slot_apart_from_the_others(stage: Stage) -> None:
    schedule = stage.create()
    skip(stage, schedule)
    stage.clock.set(stage.at(11, 30))
    stage.pause(schedule)
    runs = [(run.scheduled_for.hour, run.error_code, run.missed_count) for run in stage.runs(schedule)]
    assert runs == [(9, "skipped_by_person", 0), (11, "schedule_paused", 1)]


def test_a_new_timetable_accounts_for_a_slot_that_was_put_off(stage: Stage) -> None:
    schedule = stage.create()
    move(stage, schedule, stage.at(9, 30))
    stage.clock.set(stage.at(9, 10))
    stage.edit(schedule, schedule=DAILY)
    assert stage.told(schedule) == [("09:00", "skipped", "schedule_changed")]
    stage.clock.set(stage.at(9, 30))
    assert stage.tick()["schedules"] == 0


def test_a_schedule_that_is_held_back_keeps_that_and_its_move(stage: Stage) -> None:
    schedule = stage.create()
    held = update(ScheduleDue).where(ScheduleDue.schedule_pk == schedule.id)
    do(held.values(claim_not_before=stage.at(9, 20), due_at=stage.at(9, 20), claim_failures=1))
    assert move(stage, schedule, stage.at(9, 10)).due.due_at == stage.at(9, 20)
    assert undo(stage, schedule).due.due_at == stage.at(9, 20)
    assert move(stage, schedule, stage.at(9, 50)).due.due_at == stage.at(9, 50)


def test_a_mandate_that_ends_before_the_new_time_is_seen_ahead(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "once", "run_at": "2026-12-01T09:00:00Z"})
    ends = update(Mandate).where(Mandate.id == schedule.mandate_pk)
    do(ends.values(expires_at=stage.at(9) + timedelta(days=2)))
    assert maintenance.look_ahead(now=stage.clock.now()) == 0
    move(stage, schedule, stage.at(9) + timedelta(days=3))
    assert maintenance.look_ahead(now=stage.clock.now()) == 1
    undo(stage, schedule)
    skip(stage, schedule)
    assert maintenance.look_ahead(now=stage.clock.now()) == 0


def test_a_change_of_another_slot_than_the_next_is_none(stage: Stage) -> None:
    stored = NextChange(ChangeKind.MOVE, stage.at(9), stage.at(9, 30)).to_json()
    assert change_of(stored, stage.at(9)) == NextChange(ChangeKind.MOVE, stage.at(9), stage.at(9, 30))
    assert change_of(stored, stage.at(10)) is None
    assert falls_due_at(stored, stage.at(10)) == stage.at(10)
    assert change_of(None, stage.at(9)) is None


def test_what_falls_due_next_is_listed_by_when_it_does(stage: Stage) -> None:
    first, second = stage.create(), stage.create(schedule={"type": "daily", "time": "18:00"})
    move(stage, second, stage.at(8, 40))
    networks = [first.network_pk]
    with reading() as session:
        listed = queries.upcoming_schedules(session, networks, until=stage.at(17), limit=9)
        assert [row.id for row in listed] == [second.id, first.id]
    undo(stage, second)
    with reading() as session:
        listed = queries.upcoming_schedules(session, networks, until=stage.at(17), limit=9)
        assert [row.id for row in listed] == [first.id]


# --- Who, when, twice ---


def test_it_is_for_those_who_may_edit(stage: Stage) -> None:
    schedule = stage.create()
    for call in (skip, undo):
        assert refused(stage, call, schedule, stage.bob) == ("permission_denied", 403)
    assert refused(stage, move, schedule, stage.at(9, 30), stage.bob) == ("permission_denied", 403)
    stranger = actor_of(stage.cast.charlie)
    assert refused(stage, skip, schedule, stranger) == ("schedule_not_found", 404)
    # An admin's change of the slot moves no sponsor.
    of_bob = stage.create(stage.bob)
    assert skip(stage, of_bob, stage.alice).sponsor_pk == stage.cast.bob.id


def test_one_change_at_a_time_of_the_slot_that_is_meant(stage: Stage) -> None:
    schedule = stage.create()
    assert refused(stage, skip, schedule, slot=stage.at(10)) == ("slot_not_next", 409)
    assert refused(stage, move, schedule, stage.at(9, 30), slot=stage.at(8)) == ("slot_not_next", 409)
    skip(stage, schedule, slot=stage.at(9))
    assert refused(stage, skip, schedule) == ("next_change_exists", 409)
    assert refused(stage, move, schedule, stage.at(9, 30)) == ("next_change_exists", 409)
    with pytest.raises(AppError) as stale:
        next_slot.undo_next_change(
            stage.alice, schedule.schedule_id, revision=lambda: 1, now=stage.clock.now()
        )
    assert code_of(stale.value) == ("revision_conflict", 409)


def test_of_two_at_once_one_is_told_that_the_other_was_first(stage: Stage) -> None:
    for _ in range(5):
        schedule = stage.create()
        slot = stage.schedule(schedule).due.next_run_at
        assert slot is not None
        to = slot + timedelta(minutes=10)
        calls = [lambda schedule=schedule, to=to: move(stage, schedule, to) for _ in range(2)]
        calls += [lambda schedule=schedule: skip(stage, schedule) for _ in range(2)]
        outcomes = at_once(stage.app, calls)
        codes = [one.code for one in outcomes if isinstance(one, AppError)]
        assert codes == ["next_change_exists"] * 3
        assert stage.schedule(schedule).revision == 2


def test_a_skip_and_the_pass_that_claims_the_slot_leave_one_run_each(stage: Stage) -> None:
    for _ in range(4):
        schedule = stage.create(overlap_policy="allow")
        slot = stage.schedule(schedule).due.next_run_at
        assert slot is not None
        stage.clock.set(slot)
        outcomes = at_once(
            stage.app,
            [lambda schedule=schedule, slot=slot: skip(stage, schedule, slot=slot), stage.tick],
        )
        assert not isinstance(outcomes[1], Exception)
        if isinstance(outcomes[0], AppError):
            assert outcomes[0].code == "slot_not_next"
        stage.tick()
        (run,) = stage.runs(schedule)
        assert (run.error_code == "skipped_by_person") == (not isinstance(outcomes[0], Exception))
        stage.cancel(schedule)


def test_only_an_active_schedule_has_a_next_slot(stage: Stage) -> None:
    paused, cancelled = stage.create(), stage.create()
    stage.pause(paused)
    stage.cancel(cancelled)
    assert refused(stage, skip, paused) == ("schedule_has_no_future_occurrence", 409)
    with pytest.raises(AppError, match="no_future") as said:
        skip(stage, paused)
    assert said.value.message.startswith("It is not active")
    assert undo(stage, paused).revision == 2
    for call in (skip, undo):
        assert refused(stage, call, cancelled) == ("schedule_cancelled", 409)
    once = stage.create(schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"})
    stage.tick(hours=1)
    assert refused(stage, skip, once) == ("schedule_has_no_future_occurrence", 409)
    assert refused(stage, move, once, stage.at(23)) == ("schedule_has_no_future_occurrence", 409)


def test_each_step_is_audited_with_the_definition_in_force(stage: Stage) -> None:
    schedule = stage.create()
    move(stage, schedule, stage.at(9, 30))
    undo(stage, schedule)
    with reading() as session:
        entries = session.scalars(
            select(AuditEntry)
            .where(AuditEntry.verb == "schedule.next_change", AuditEntry.subject_id == schedule.schedule_id)
            .order_by(AuditEntry.seq)
        ).all()
    moved = {"kind": "move", "slot": "2026-11-30T09:00:00.000Z", "to": "2026-11-30T09:30:00.000Z"}
    assert [entry.detail["next_change"] for entry in entries] == [moved, None]
    assert {entry.actor for entry in entries} == {"Alice"}
    assert entries[0].detail["next_run_at"] == "2026-11-30T09:00:00.000Z"


# --- What the doctor sees ---


def found(_: Stage) -> set[str]:
    return {str(one["code"]) for one in doctor.examine()}


def test_the_doctor_sees_a_change_that_was_not_kept(stage: Stage) -> None:
    skipped, moved, asked = stage.create(), stage.create(schedule=DAILY), stage.create()
    skip(stage, skipped)
    move(stage, moved, stage.at(19))
    stage.clock.set(stage.at(19))
    stage.tick()
    runs = Run.__table__
    of_skipped = (runs.c.schedule_pk == skipped.id, runs.c.scheduled_for == stage.at(9))
    of_asked = (runs.c.schedule_pk == asked.id,)
    for table, where, wrong, right, code in (
        (runs, of_skipped, {"error_code": "misfire_skipped"}, {"error_code": "skipped_by_person"},
         "skip_not_kept"),
        (runs, (runs.c.schedule_pk == moved.id,), {"created_at": stage.at(18)}, {"created_at": stage.at(19)},
         "move_not_kept"),
        (runs, of_asked, {"error_code": "skipped_by_person"}, {"error_code": None}, "skipped_by_nobody"),
    ):  # fmt: skip
        do(update(table).where(*where).values(**wrong))
        assert code in found(stage)
        do(update(table).where(*where).values(**right))
    assert found(stage) == set()


def test_the_doctor_sees_a_moved_slot_that_is_looked_at_at_another_time(stage: Stage) -> None:
    schedule = stage.create()
    move(stage, schedule, stage.at(9, 30))
    due = update(ScheduleDue).where(ScheduleDue.schedule_pk == schedule.id)
    do(due.values(due_at=stage.at(9)))
    assert found(stage) == {"next_slot_not_looked_at"}
    do(due.values(due_at=stage.at(9, 30)))
    forgotten = update(Schedule.__table__).where(Schedule.__table__.c.id == schedule.id)
    whole = stage.schedule(schedule).next_change
    do(forgotten.values(next_change=type_coerce(None, JSON)))
    assert found(stage) == {"next_slot_not_looked_at"}
    do(forgotten.values(next_change=type_coerce(whole, JSON)))
    assert found(stage) == set()
