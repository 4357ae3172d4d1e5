"""What a person can do to the next slot of a schedule: skip it, move it, take either back. One transaction each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from webapp.errors import AppError
from webapp.identity.access import Actor, Verb, demand
from webapp.scheduling import steps
from webapp.scheduling.fields import MoveRequest, SkipRequest
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.scheduling.next_change import ChangeKind, NextChange, may_move_to
from webapp.scheduling.rights import check_revision, facts_about, lock_visible, refuse_ended
from webapp.store.transaction import Tx, operation
from webapp.timetable import Plan, utc_text


@operation
def skip_next(
    tx: Tx,
    actor: Actor,
    schedule_id: str,
    read_fields: Callable[[], SkipRequest],
    *,
    revision: Callable[[], int | None] = lambda: None,
    now: datetime,
) -> Schedule:
    """Have the next slot skipped: when it falls due it becomes a skipped run, and the timetable goes on.

    Raises AppError: `schedule_not_found`, `permission_denied`, `schedule_cancelled`, `schedule_completed`,
    `schedule_proposed`, `revision_conflict`, `schedule_has_no_future_occurrence` (409; also where it is not
    active), `next_change_exists`, `slot_not_next`, `unreadable_timetable`, `invalid_slot`.
    """
    schedule = _changeable(tx, actor, schedule_id, revision)
    slot, _ = _next_of(schedule, read_fields().slot)
    _set(tx, schedule, NextChange(ChangeKind.SKIP, slot), actor=actor.name, now=now)
    return schedule


@operation
def move_next(
    tx: Tx,
    actor: Actor,
    schedule_id: str,
    read_fields: Callable[[], MoveRequest],
    *,
    revision: Callable[[], int | None] = lambda: None,
    now: datetime,
) -> Schedule:
    """Have the next slot fall due at another time, after now and before the slot that follows it.

    It keeps its `scheduled_for`, and is late counted from `to`. Raises AppError as `skip_next`, and `invalid_to`.
    """
    schedule = _changeable(tx, actor, schedule_id, revision)
    wish = read_fields()
    slot, plan = _next_of(schedule, wish.slot)
    if not may_move_to(plan, slot, wish.to, now):
        following = plan.next_after(slot)
        before = "" if following is None else f", and before the slot after it ({utc_text(following)})"
        raise AppError("invalid_to", field="to", message=f"to must lie after now{before}.")
    _set(tx, schedule, NextChange(ChangeKind.MOVE, slot, wish.to), actor=actor.name, now=now)
    return schedule


@operation
def undo_next_change(
    tx: Tx,
    actor: Actor,
    schedule_id: str,
    *,
    revision: Callable[[], int | None] = lambda: None,
    now: datetime,
) -> Schedule:
    """Take a skip or a move back: the slot falls due at its own time, at once if that has passed. Repeatable.

    Raises AppError: `schedule_not_found`, `permission_denied`, `schedule_cancelled`, `schedule_completed`,
    `schedule_proposed`, `revision_conflict`.
    """
    schedule = _locked(tx, actor, schedule_id)
    check_revision(schedule, revision())
    if schedule.next_change is None:
        return schedule
    _set(tx, schedule, None, actor=actor.name, now=now)
    return schedule


def _locked(tx: Tx, actor: Actor, schedule_id: str) -> Schedule:
    schedule = lock_visible(tx, actor, schedule_id)
    demand(actor, Verb.EDIT_SCHEDULE, facts_about(schedule))
    refuse_ended(schedule)
    return schedule


def _changeable(tx: Tx, actor: Actor, schedule_id: str, revision: Callable[[], int | None]) -> Schedule:
    schedule = _locked(tx, actor, schedule_id)
    check_revision(schedule, revision())
    if schedule.status is not ScheduleStatus.ACTIVE:
        message = "It is not active, so no slot comes next. Resume it first."
        raise AppError("schedule_has_no_future_occurrence", message=message)
    if schedule.due.next_run_at is None:
        raise AppError("schedule_has_no_future_occurrence")
    if schedule.next_change is not None:
        raise AppError("next_change_exists")
    return schedule


def _next_of(schedule: Schedule, meant: datetime | None) -> tuple[datetime, Plan]:
    """The next slot, which is the one that was `meant` (None: whichever it is), and the plan behind it."""
    plan, slot = steps.plan_or_none(schedule), schedule.due.next_run_at
    if plan is None or slot is None:
        raise AppError("unreadable_timetable")
    if meant is not None and meant != slot:
        raise AppError("slot_not_next")
    return slot, plan


def _set(tx: Tx, schedule: Schedule, change: NextChange | None, *, actor: str, now: datetime) -> None:
    steps.set_next_change(schedule, change)
    steps.touch(schedule, now=now)
    steps.record(
        tx, schedule, "schedule.next_change", steps.definition_in_force(schedule), actor=actor, now=now
    )
    steps.tell(tx, schedule, now=now)
