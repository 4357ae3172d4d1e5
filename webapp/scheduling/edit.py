"""What an edit of a schedule changes, keeps, recomputes and takes back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from webapp.errors import AppError
from webapp.identity.access import Actor, Verb, may
from webapp.scheduling import authority, steps
from webapp.scheduling.fields import ScheduleChanges
from webapp.scheduling.lifecycle import OverlapPolicy, ScheduleStatus, TargetKind
from webapp.scheduling.models import Schedule
from webapp.scheduling.plans import is_once
from webapp.scheduling.rights import facts_about
from webapp.scheduling.target import target_for
from webapp.store.texts import keep_text
from webapp.store.transaction import Tx
from webapp.timetable import (
    ZONE_DATA_VERSION,
    Plan,
    Timetable,
    TimetableError,
    canonical_zone,
    from_stored,
    parse_timetable,
    rezone,
    same_timetable,
    to_stored,
)

# An admin who edits one of these on somebody's schedule becomes its sponsor.
_POLICIES = (
    "misfire_policy",
    "misfire_grace_seconds",
    "catch_up_limit",
    "overlap_policy",
    "failure_threshold",
    "ttl_seconds",
    "max_run_seconds",
)
PRIORITY_RANK = {"high": 0, "normal": 1, "low": 2}


def read_timetable(
    spec: Any, timezone: Any, *, previous: Timetable | None, now: datetime
) -> tuple[Timetable, str]:
    """Read an untrusted timetable with its zone; returns both. Raises AppError with the timetable's code."""
    try:
        zone = canonical_zone(timezone)
        return parse_timetable(spec, zone, now=now, previous=previous), zone
    except TimetableError as error:
        raise AppError(error.code, field=error.field, message=error.message) from error


def check_bounds(starts_at: datetime | None, ends_at: datetime | None) -> None:
    """Raise AppError `invalid_ends_at` when the end lies before the start."""
    if starts_at is not None and ends_at is not None and ends_at < starts_at:
        raise AppError("invalid_ends_at", field="ends_at")


def apply_changes(
    tx: Tx, schedule: Schedule, actor: Actor, changes: ScheduleChanges, *, may_resume: bool, now: datetime
) -> None:
    """Apply an edit to a locked schedule; one that changes nothing leaves the revision alone.

    Raises AppError with the code of the field that is refused.
    """
    _check_kind(schedule, changes)
    timing = _new_timing(schedule, changes, now=now)
    before = _values(schedule)
    was = schedule.status
    heals = was is ScheduleStatus.NEEDS_ATTENTION and may_resume
    changed: dict[str, Any] = {}
    if timing is not None and timing.moves:
        changed["schedule"] = to_stored(timing.timetable)
        if was is ScheduleStatus.ACTIVE:
            # What was due under the old timetable is recorded before the new one takes force.
            steps.account_for_due(tx, schedule, "schedule_changed", now=now)
        steps.withdraw(tx, schedule, "schedule_changed", actor=actor.name, scheduled_only=True, now=now)
    elif was is ScheduleStatus.ACTIVE and _cuts_off(schedule, changes, now=now):
        # The new bound leaves out what was due before it was set.
        steps.account_for_due(tx, schedule, "schedule_changed", now=now)
    _set_plain_fields(tx, schedule, changes)
    target_moved = _set_target(tx, schedule, changes)
    if timing is not None:
        _set_timing(schedule, timing)
    after = _values(schedule)
    changed |= {field: after[field] for field in after if after[field] != before[field]}
    if not changed:
        return
    sponsor_moved = _move_sponsor(tx, schedule, actor, changed, now=now)
    if target_moved and not sponsor_moved:
        authority.aim(tx, schedule, actor=actor.name, now=now)
    if target_moved or sponsor_moved:
        steps.withdraw(tx, schedule, "schedule_changed", actor=actor.name, now=now)
    steps.touch(schedule, now=now)
    if was is ScheduleStatus.ACTIVE:
        _recompute(schedule, moved=timing is not None and timing.moves, now=now)
    change = {"changed": sorted(changed), **steps.definition_in_force(schedule)}
    steps.record(tx, schedule, "schedule.edit", change, actor=actor.name, now=now)
    steps.tell(tx, schedule, now=now)
    if was is ScheduleStatus.COMPLETED:
        if timing is not None and timing.moves:
            _arm_again(tx, schedule, actor, now=now)
        return
    healed = heals and _can_heal(changed)
    if healed and steps.resume_refusal(tx, schedule, mended_by=actor, now=now) is None:
        steps.activate(tx, schedule, actor=actor.name, mended_by=actor, now=now)
    elif was is ScheduleStatus.ACTIVE:
        _end_if_nothing_is_left(tx, schedule, rebased=target_moved or sponsor_moved, now=now)


@dataclass(frozen=True)
class PlannedEdit:
    """What an edit would change, decided without doing it; `plan` None: what is stored cannot be read.

    `changed`: the fields that differ, as PATCH names them. `slots_move`, `cuts_off`, `heals` and the others are what
    `apply_changes` goes by. Columns are as they would be.
    """

    changed: tuple[str, ...]
    slots_move: bool
    cuts_off: bool
    heals: bool
    target_moves: bool
    sponsor_moves: bool
    target_pk: int
    model: str | None
    max_runs: int | None
    plan: Plan | None


def plan_changes(
    session: Session, schedule: Schedule, actor: Actor, changes: ScheduleChanges, *, now: datetime
) -> PlannedEdit:
    """Decide what `apply_changes` would do to a schedule with its parts loaded; writes nothing.

    Raises AppError with the code of the field that is refused.
    """
    _check_kind(schedule, changes)
    timing = _new_timing(schedule, changes, now=now)
    moves = timing is not None and timing.moves
    target_pk = _new_target(session, schedule, changes)
    plain = [
        field
        for field in ("name", "max_runs", "model", *_POLICIES)
        if changes.has(field) and getattr(changes, field) != getattr(schedule, field)
    ]
    if changes.has("priority") and PRIORITY_RANK[changes.priority] != schedule.priority_rank:
        plain.append("priority")
    if changes.has("task") and changes.task != schedule.text.body:
        plain.append("task")
    if target_pk != schedule.target_pk:
        plain.append("target_node_id")
    if timing is not None:
        plain += [
            field
            for field in ("timezone", "starts_at", "ends_at")
            if getattr(timing, field) != getattr(schedule, field)
        ]
    changed = tuple(["schedule"] * moves + plain)
    owned = ("task", "target_node_id", "priority", *_POLICIES)
    return PlannedEdit(
        changed=changed,
        slots_move=moves,
        cuts_off=not moves and _cuts_off(schedule, changes, now=now),
        heals=may(actor, Verb.RESUME_SCHEDULE, facts_about(schedule))
        and any(field not in ("name", "priority") for field in changed),
        target_moves=target_pk != schedule.target_pk,
        sponsor_moves=actor.user_pk != schedule.sponsor_pk and any(field in changed for field in owned),
        target_pk=target_pk,
        model=getattr(changes, "model", None) if changes.has("model") else schedule.model,
        max_runs=changes.max_runs if changes.has("max_runs") else schedule.max_runs,
        plan=steps.plan_or_none(schedule)
        if timing is None
        else Plan(timing.timetable, timing.starts_at, timing.ends_at),
    )


def _check_kind(schedule: Schedule, changes: ScheduleChanges) -> None:
    """Refuse what this kind of target does not know. Raises AppError."""
    if schedule.target_kind is TargetKind.CHAT:
        if changes.has("target_node_id"):
            raise AppError("invalid_target_node_id", field="target_node_id")
        if changes.has("overlap_policy") and changes.overlap_policy is OverlapPolicy.ALLOW:
            raise AppError("invalid_overlap_policy", field="overlap_policy")
    if changes.has("model") and getattr(changes, "model", None) != schedule.model:
        target_for(schedule.target_kind).check_model(getattr(changes, "model", None))


def _arm_again(tx: Tx, schedule: Schedule, actor: Actor, *, now: datetime) -> None:
    """A new timetable makes a completed schedule active, with its mandate mended. Raises AppError (409)."""
    code = steps.resume_refusal(tx, schedule, mended_by=actor, now=now)
    if code is not None:
        raise AppError(code, status=409)
    steps.activate(tx, schedule, actor=actor.name, mended_by=actor, now=now)


# --- Timetable, zone and bounds ---


class _Timing:
    """A schedule's timing as it would be after the edit."""

    def __init__(
        self,
        timetable: Timetable,
        timezone: str,
        starts_at: datetime | None,
        ends_at: datetime | None,
        *,
        moves: bool,
    ) -> None:
        self.timetable = timetable
        self.timezone = timezone
        self.starts_at = starts_at
        self.ends_at = ends_at
        # Whether slots really change; another spelling of the same is no change.
        self.moves = moves


def _new_timing(schedule: Schedule, changes: ScheduleChanges, *, now: datetime) -> _Timing | None:
    if not any(changes.has(field) for field in ("schedule", "timezone", "starts_at", "ends_at")):
        return None
    stored = _stored_timetable(schedule)
    timezone = _new_zone(schedule, changes)
    if changes.has("schedule"):
        timetable, _ = read_timetable(changes.schedule, timezone, previous=stored, now=now)
    elif stored is None:
        raise AppError("unreadable_timetable", field="schedule")
    else:
        timetable = _rezoned(stored, timezone)
    starts_at = changes.starts_at if changes.has("starts_at") else schedule.starts_at
    ends_at = changes.ends_at if changes.has("ends_at") else schedule.ends_at
    check_bounds(starts_at, ends_at)
    moves = stored is None or not same_timetable(stored, timetable) or starts_at != schedule.starts_at
    if moves and Plan(timetable, starts_at, ends_at).next_after(now) is None:
        raise AppError("schedule_has_no_future_occurrence", field="schedule", status=400)
    return _Timing(timetable, timezone, starts_at, ends_at, moves=moves)


def _stored_timetable(schedule: Schedule) -> Timetable | None:
    try:
        return from_stored(schedule.timetable, schedule.timezone)
    except TimetableError:
        return None


def _new_zone(schedule: Schedule, changes: ScheduleChanges) -> str:
    if not changes.has("timezone"):
        return schedule.timezone
    try:
        return canonical_zone(changes.timezone)
    except TimetableError as error:
        raise AppError(error.code, field=error.field, message=error.message) from error


def _rezoned(timetable: Timetable, timezone: str) -> Timetable:
    try:
        return rezone(timetable, timezone)
    except TimetableError as error:
        raise AppError(error.code, field=error.field, message=error.message) from error


def _set_timing(schedule: Schedule, timing: _Timing) -> None:
    schedule.timezone = timing.timezone
    schedule.starts_at = timing.starts_at
    schedule.ends_at = timing.ends_at
    if timing.moves:
        # Another spelling of the same timetable is no change: the stored one stays.
        schedule.timetable = to_stored(timing.timetable)
        schedule.zone_version = ZONE_DATA_VERSION
        schedule.timetable_version += 1


def _cuts_off(schedule: Schedule, changes: ScheduleChanges, *, now: datetime) -> bool:
    """Whether new bounds end the timetable before now: what is due and not claimed must not fall under them."""
    ends_at = changes.ends_at if changes.has("ends_at") else schedule.ends_at
    max_runs = changes.max_runs if changes.has("max_runs") else schedule.max_runs
    ended = ends_at != schedule.ends_at and ends_at is not None and ends_at < now
    return ended or (
        max_runs != schedule.max_runs and max_runs is not None and schedule.due.dispatched_count >= max_runs
    )


def _recompute(schedule: Schedule, *, moved: bool, now: datetime) -> None:
    """Set the next slot anew where the timetable moved; otherwise only clear or restore it by its bounds."""
    due = schedule.due
    plan = steps.plan_or_none(schedule)
    if plan is None:
        # An unreadable timetable keeps its slot: the engine sets the schedule aside and says why.
        return
    if moved:
        steps.set_next(schedule, steps.next_slot(plan, due, max_runs=schedule.max_runs, now=now))
        return
    spent = schedule.max_runs is not None and due.dispatched_count >= schedule.max_runs
    held = due.next_run_at
    if held is not None:
        accounted = due.claimed_through is not None and held <= due.claimed_through
        if spent or accounted or (schedule.ends_at is not None and held > schedule.ends_at):
            steps.set_next(schedule, steps.next_slot(plan, due, max_runs=schedule.max_runs, now=now))
        return
    if not is_once(schedule) or due.claimed_through is None:
        steps.set_next(schedule, steps.next_slot(plan, due, max_runs=schedule.max_runs, now=now))


# --- Everything else ---


def _values(schedule: Schedule) -> dict[str, Any]:
    fields = (
        "name",
        "text_pk",
        "target_pk",
        "priority_rank",
        "timetable",
        "timezone",
        "starts_at",
        "ends_at",
        "max_runs",
        "model",
        *_POLICIES,
    )
    return {field: getattr(schedule, field) for field in fields}


def _set_plain_fields(tx: Tx, schedule: Schedule, changes: ScheduleChanges) -> None:
    for field in ("name", "max_runs", "model", *_POLICIES):
        if changes.has(field):
            setattr(schedule, field, getattr(changes, field))
    if changes.has("priority"):
        schedule.priority_rank = PRIORITY_RANK[changes.priority]
    if changes.has("task") and changes.task != schedule.text.body:
        schedule.text = keep_text(tx.session, changes.task)
        schedule.text_pk = schedule.text.id


def _new_target(session: Session, schedule: Schedule, changes: ScheduleChanges) -> int:
    """The key of the target after the edit. Raises AppError `target_node_not_found` (404)."""
    if not changes.has("target_node_id") or changes.target_node_id == schedule.target_id:
        return schedule.target_pk
    target_pk = target_for(schedule.target_kind).find(session, schedule.network_pk, changes.target_node_id)
    if target_pk is None:
        raise AppError("target_node_not_found", field="target_node_id", status=404)
    return target_pk


def _set_target(tx: Tx, schedule: Schedule, changes: ScheduleChanges) -> bool:
    target_pk = _new_target(tx.session, schedule, changes)
    if target_pk == schedule.target_pk:
        return False
    target = target_for(schedule.target_kind)
    schedule.target_pk = target_pk
    schedule.target_id = changes.target_node_id
    schedule.target_alias = target.load(tx.session, [target_pk])[target_pk].alias
    return True


def _move_sponsor(
    tx: Tx, schedule: Schedule, actor: Actor, changed: dict[str, Any], *, now: datetime
) -> bool:
    """An admin's words, target or policies run on the admin's own authority."""
    owned = ("text_pk", "target_pk", "priority_rank", *_POLICIES)
    if actor.user_pk == schedule.sponsor_pk or not any(field in changed for field in owned):
        return False
    authority.change_sponsor(tx, schedule, actor, now=now)
    changed["sponsor"] = actor.name
    return True


def _can_heal(changed: dict[str, Any]) -> bool:
    return any(field not in ("name", "priority_rank", "sponsor") for field in changed)


def _end_if_nothing_is_left(tx: Tx, schedule: Schedule, *, rebased: bool, now: datetime) -> None:
    if schedule.due.next_run_at is not None or steps.open_runs(tx, schedule.id):
        return
    if is_once(schedule) and rebased:
        steps.stop(tx, schedule, "schedule_changed", now=now)
    else:
        steps.complete_if_over(tx, schedule, now=now)
