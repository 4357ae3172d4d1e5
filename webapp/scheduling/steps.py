"""What may be done to a schedule and its runs inside somebody else's transaction.

The row in `schedule_due` is the schedule's lock: whoever changes a schedule or its runs takes it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import Table, select
from sqlalchemy.orm import joinedload

from webapp import audit
from webapp.audit import AuditEntry
from webapp.events import outbox
from webapp.identity.access import Actor
from webapp.identity.models import Membership, User
from webapp.ids import scheduled_run_id
from webapp.scheduling import alerts, authority, policy
from webapp.scheduling.admission import load_admission, load_targets
from webapp.scheduling.lifecycle import (
    RUN_MOVES,
    SCHEDULE_MOVES,
    UNACKNOWLEDGED,
    RunStatus,
    ScheduleStatus,
    Trigger,
)
from webapp.scheduling.models import STILL_OPEN, Run, Schedule, ScheduleDue
from webapp.scheduling.next_change import (
    SKIPPED_BY_PERSON,
    ChangeKind,
    NextChange,
    change_of,
    falls_due_at,
)
from webapp.scheduling.plans import is_once, plan_of, plan_of_audited
from webapp.scheduling.target import target_for
from webapp.store import dialect
from webapp.store.transaction import Tx
from webapp.timetable import Plan, TimetableError, utc_text

WORKER = "worker"
# The audit entries that carry the definition in force.
DEFINING_VERBS = (
    "schedule.create",
    "schedule.edit",
    "schedule.zone_data",
    "schedule.next_change",
    *(f"schedule.{status.value}" for status in ScheduleStatus),
)
_IDS_IN_AN_EVENT = 100

# What becomes of work that nobody has taken up when its schedule changes its state.
WITHDRAWN_AS = {
    ScheduleStatus.PAUSED: "schedule_paused",
    ScheduleStatus.CANCELLED: "schedule_cancelled",
    ScheduleStatus.NEEDS_ATTENTION: "schedule_stopped",
}
# Ends of a once's run that complete nothing: the event behind them has set the status already.
_COMPLETES_NOTHING = frozenset(
    {"schedule_paused", "schedule_stopped", "schedule_changed", "mandate_paused", "mandate_revoked"}
)


def lock_schedule(tx: Tx, schedule_pk: int) -> Schedule:
    """Lock a schedule and read it as it now is, with its due row, text and sponsor."""
    lock_due(tx, [schedule_pk])
    return load_locked(tx, schedule_pk)


def lock_due(tx: Tx, schedule_pks: Iterable[int]) -> None:
    """Lock several schedules, in the order of their keys so that two callers never wait in a ring."""
    statement = (
        select(ScheduleDue.schedule_pk)
        .where(ScheduleDue.schedule_pk.in_(sorted(schedule_pks)))
        .order_by(ScheduleDue.schedule_pk)
        .with_for_update()
    )
    tx.session.execute(statement).all()


def lock_due_row(tx: Tx, schedule_pk: int) -> ScheduleDue:
    """Lock a schedule by its narrow row and read that alone: the definition may be what cannot be read."""
    statement = (
        select(ScheduleDue)
        .where(ScheduleDue.schedule_pk == schedule_pk)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return tx.session.scalars(statement).one()


def load_locked(tx: Tx, schedule_pk: int) -> Schedule:
    """Read a schedule whose lock is held."""
    statement = (
        select(Schedule)
        .where(Schedule.id == schedule_pk)
        .options(joinedload(Schedule.due), joinedload(Schedule.text), joinedload(Schedule.sponsor))
        .execution_options(populate_existing=True)
    )
    return tx.session.execute(statement).unique().scalar_one()


def open_runs(tx: Tx, schedule_pk: int) -> Sequence[Run]:
    """The open runs of a locked schedule, in the order of their slots."""
    statement = (
        select(Run)
        .where(Run.schedule_pk == schedule_pk, STILL_OPEN)
        .order_by(Run.scheduled_for, Run.id)
        .execution_options(populate_existing=True)
    )
    return tx.session.scalars(statement).all()


def tell(tx: Tx, schedule: Schedule, runs: Iterable[str] = (), *, now: datetime) -> None:
    """Ring for a schedule and some of its runs (public ids)."""
    run_ids = list(runs)
    for start in range(0, max(1, len(run_ids)), _IDS_IN_AN_EVENT):
        data: dict[str, Any] = {"schedules": [schedule.schedule_id]}
        if run_ids:
            data["runs"] = run_ids[start : start + _IDS_IN_AN_EVENT]
        outbox.emit(tx, schedule.network_pk, "run" if run_ids else "schedule", data, now=now)


# --- Runs ---


def close_run(
    run: Run,
    status: RunStatus,
    *,
    code: str | None,
    message: str | None = None,
    result: str | None = None,
    now: datetime,
) -> None:
    """Give an open run its end. Raises RuntimeError for a move that the lifecycle does not know."""
    if status not in RUN_MOVES[run.status]:
        raise RuntimeError(f"a {run.status} run cannot become {status}")
    run.status = status
    run.wait_reason = None
    run.error_code = code
    run.error_message = message[:500] if message else None
    run.result = result
    run.completed_at = now


def withdraw(
    tx: Tx,
    schedule: Schedule,
    code: str,
    *,
    actor: str,
    scheduled_only: bool = False,
    now: datetime,
) -> list[Run]:
    """Take back all work of a locked schedule that nobody has acknowledged; its runs end cancelled."""
    runs = [
        run
        for run in open_runs(tx, schedule.id)
        if run.status in UNACKNOWLEDGED and not (scheduled_only and run.trigger is not Trigger.SCHEDULED)
    ]
    if not runs:
        return []
    target_for(schedule.target_kind).withdraw(
        tx, [run for run in runs if is_dispatched(run)], code=code, actor=actor, now=now
    )
    for run in runs:
        close_run(run, RunStatus.CANCELLED, code=code, now=now)
    tell(tx, schedule, [run.run_id for run in runs], now=now)
    return runs


def is_dispatched(run: Run) -> bool:
    """Whether there is work for this run at its target."""
    return run.task_id is not None or run.turn_id is not None


def account_for_due(tx: Tx, schedule: Schedule, code: str, *, now: datetime) -> None:
    """Record the slots of a locked schedule that fell due and were not claimed, as one skipped run."""
    due, first = schedule.due, schedule.due.next_run_at
    if first is None or not fell_due(schedule, first, now=now):
        return
    plan = plan_or_none(schedule) or _plan_as_audited(tx, schedule)
    change = change_of(schedule.next_change, first)
    if change is not None and change.kind is ChangeKind.SKIP:
        record_skipped(tx, schedule, policy.Slots(first), SKIPPED_BY_PERSON, now=now)
        due.claimed_through = max_instant(due.claimed_through, first)
        first = plan.next_after(first) if plan is not None else None
        if first is None or first > now:
            return
    if plan is not None:
        slots = policy.due_slots(plan, first, now)
    else:
        # Nobody knows the plan any more, but the slot that is due was computed when somebody did.
        slots = policy.DueSlots(1, first, first, None)
    record_skipped(
        tx,
        schedule,
        policy.Slots(slots.newest).joined_by_older(slots.count - 1, slots.oldest),
        code,
        now=now,
    )
    due.claimed_through = max_instant(due.claimed_through, slots.newest)


def fell_due(schedule: Schedule, slot: datetime, *, now: datetime) -> bool:
    """Whether a next slot has passed, by its own time or by the one that it was moved to.

    The change goes with what ends it here: a slot that was only put off is accounted for like any that passed.
    """
    return min(slot, falls_due_at(schedule.next_change, slot)) <= now


def _plan_as_audited(tx: Tx, schedule: Schedule) -> Plan | None:
    """The newest plan of a schedule that the audit wrote down readably: what was due is derived from it."""
    details = select(AuditEntry.detail).where(
        AuditEntry.network_pk == schedule.network_pk,
        AuditEntry.subject_id == schedule.schedule_id,
        AuditEntry.verb.in_(DEFINING_VERBS),
    )
    for detail in tx.session.scalars(details.order_by(AuditEntry.seq.desc())):
        plan = plan_of_audited(detail)
        if plan is not None:
            return plan
    return None


def record_skipped(tx: Tx, schedule: Schedule, slots: policy.Slots, code: str, *, now: datetime) -> None:
    """Write one skipped run that stands for `slots`; a slot that has its run keeps it."""
    run_id = scheduled_run_id(schedule.schedule_id, slots.slot)
    table = cast(Table, Run.__table__)
    row = run_row(schedule, run_id=run_id, slots=slots, trigger=Trigger.SCHEDULED, actor=WORKER, now=now)
    row |= {"status": RunStatus.SKIPPED, "error_code": code, "completed_at": now}
    dialect.insert_new(tx.session, table, [row])
    tell(tx, schedule, [run_id], now=now)


def run_row(
    definition: Any, *, run_id: str, slots: policy.Slots, trigger: Trigger, actor: str, now: datetime
) -> dict[str, Any]:
    """The columns of a new run of `definition` (a schedule, or a row with its columns), still open."""
    return {
        "run_id": run_id,
        "schedule_pk": definition.id,
        "network_pk": definition.network_pk,
        "scheduled_for": slots.slot,
        "trigger": trigger,
        "actor": actor,
        "missed_count": slots.missed_count,
        "missed_since": slots.missed_since,
        "status": RunStatus.QUEUED,
        "wait_reason": None,
        "backlog": False,
        "error_code": None,
        "blocked_by": None,
        "blocker_received": None,
        "task_id": None,
        "turn_id": None,
        "attempt": 1,
        "schedule_revision": definition.revision,
        "timetable_version": definition.timetable_version,
        "text_pk": definition.text_pk,
        "target_pk": definition.target_pk,
        "target_id": definition.target_id,
        "target_alias": definition.target_alias,
        "created_at": now,
        "delivered_at": None,
        "completed_at": None,
    }


def max_instant(one: datetime | None, other: datetime) -> datetime:
    """The later of two instants, of which the first may be missing."""
    return other if one is None else max(one, other)


# --- The next slot ---


def next_slot(plan: Plan, due: ScheduleDue, *, max_runs: int | None, now: datetime) -> datetime | None:
    """The next slot after now that was never claimed, or None when bounds or `max_runs` leave none."""
    if max_runs is not None and due.dispatched_count >= max_runs:
        return None
    return plan.next_after(max_instant(due.claimed_through, now))


def set_next(schedule: Schedule, slot: datetime | None) -> None:
    """Make `slot` the next one; a change of another one and earlier trouble in handling it are forgotten."""
    due = schedule.due
    schedule.next_change = None
    due.next_run_at = slot
    due.due_at = slot
    due.claim_not_before = None
    due.claim_failures = 0


def set_next_change(schedule: Schedule, change: NextChange | None) -> None:
    """Change the next slot of a locked schedule, or (None) leave it to its timetable again.

    A schedule that is held back for a failure is not looked at before its time all the same.
    """
    due = schedule.due
    if due.next_run_at is None:
        raise RuntimeError("there is no next slot to change")
    schedule.next_change = None if change is None else change.to_json()
    due.due_at = max_instant(due.claim_not_before, falls_due_at(schedule.next_change, due.next_run_at))


# --- The state of a schedule ---


def change_status(
    tx: Tx,
    schedule: Schedule,
    status: ScheduleStatus,
    *,
    reason: str | None,
    actor: str,
    now: datetime,
    detail: dict[str, Any] | None = None,
) -> None:
    """Move a locked schedule to another state: revision, audit, event and, in trouble, a card.

    Everything but `active` clears the next slot. Raises RuntimeError for a move that is not one.
    """
    before = schedule.status
    if status not in SCHEDULE_MOVES[before]:
        raise RuntimeError(f"a {before} schedule cannot become {status}")
    schedule.status = status
    schedule.status_reason = reason
    schedule.status_changed_at = now
    schedule.resume_at = None
    schedule.resume_by_pk = None
    if status is not ScheduleStatus.PAUSED:
        schedule.paused_by_pk = None
    if status is not ScheduleStatus.ACTIVE:
        set_next(schedule, None)
    if status is ScheduleStatus.COMPLETED:
        authority.rest(tx, schedule, actor=actor, now=now)
    elif status is ScheduleStatus.CANCELLED:
        authority.give_up(tx, schedule, reason=authority.CANCELLED, actor=actor, now=now)
    touch(schedule, now=now)
    change = {"from": before.value, "reason": reason, **definition_in_force(schedule), **(detail or {})}
    record(tx, schedule, f"schedule.{status.value}", change, actor=actor, now=now)
    if status is ScheduleStatus.NEEDS_ATTENTION:
        alerts.raise_alert(
            tx,
            schedule.network_pk,
            "needs_attention",
            schedule.schedule_id,
            reason or "internal_error",
            schedule_pk=schedule.id,
            now=now,
        )
    else:
        alerts.resolve_alerts(tx, schedule.network_pk, schedule.schedule_id, now=now)
    tell(tx, schedule, now=now)


def record(
    tx: Tx, schedule: Schedule, verb: str, detail: dict[str, Any], *, actor: str, now: datetime
) -> None:
    """Audit what was done to a schedule, or refused; a change carries `definition_in_force`."""
    audit.record(
        tx,
        schedule.network_pk,
        actor=actor,
        verb=verb,
        subject_kind="schedule",
        subject_id=schedule.schedule_id,
        detail=detail,
        now=now,
    )


def touch(schedule: Schedule, *, now: datetime) -> None:
    """Count a change that people must see before they overwrite it."""
    schedule.revision += 1
    schedule.updated_at = now


def definition_in_force(schedule: Schedule) -> dict[str, Any]:
    """What is audited with each change, so that every due slot can be derived again later."""
    return {
        "timetable": schedule.timetable,
        "timezone": schedule.timezone,
        "zone_version": schedule.zone_version,
        "starts_at": _iso(schedule.starts_at),
        "ends_at": _iso(schedule.ends_at),
        "max_runs": schedule.max_runs,
        "status": schedule.status.value,
        "next_change": schedule.next_change,
        "next_run_at": _iso(schedule.due.next_run_at),
        "claimed_through": _iso(schedule.due.claimed_through),
        "revision": schedule.revision,
    }


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else utc_text(instant)


def leave_active(
    tx: Tx,
    schedule: Schedule,
    status: ScheduleStatus,
    *,
    reason: str | None,
    actor: str,
    now: datetime,
    code: str | None = None,
    detail: dict[str, Any] | None = None,
) -> None:
    """Pause, stop or cancel a locked schedule: due slots are recorded, untouched work is taken back.

    `code` is what they end with, where it is not the usual one of that state.
    """
    code = code or WITHDRAWN_AS[status]
    if schedule.status is ScheduleStatus.ACTIVE:
        account_for_due(tx, schedule, code, now=now)
    change_status(tx, schedule, status, reason=reason, actor=actor, now=now, detail=detail)
    withdraw(tx, schedule, code, actor=actor, now=now)


def stop(tx: Tx, schedule: Schedule, code: str, *, now: datetime) -> None:
    """Stop a schedule because it needs a person; `code` says why."""
    leave_active(tx, schedule, ScheduleStatus.NEEDS_ATTENTION, reason=code, actor=WORKER, now=now)


def pause_for_mandate(tx: Tx, schedule: Schedule, *, actor: str, now: datetime) -> None:
    """Pause an active schedule whose mandate is paused; resuming the mandate alone does not resume it."""
    leave_active(
        tx,
        schedule,
        ScheduleStatus.PAUSED,
        reason=policy.MANDATE_PAUSED,
        actor=actor,
        code=policy.MANDATE_PAUSED,
        now=now,
    )


def complete_if_over(tx: Tx, schedule: Schedule, *, now: datetime) -> None:
    """Complete an active, locked schedule that has neither a next slot nor an open run."""
    if schedule.status is not ScheduleStatus.ACTIVE or schedule.due.next_run_at is not None:
        return
    if open_runs(tx, schedule.id):
        return
    change_status(tx, schedule, ScheduleStatus.COMPLETED, reason=_why_over(schedule), actor=WORKER, now=now)


def _why_over(schedule: Schedule) -> str | None:
    if schedule.max_runs is not None and schedule.due.dispatched_count >= schedule.max_runs:
        return "max_runs_reached"
    return "ends_at_reached" if schedule.ends_at is not None else None


def after_end(tx: Tx, schedule: Schedule, run: Run, *, now: datetime) -> None:
    """What the end of a run (just closed) means for its locked schedule: failures, completion, stop."""
    due = schedule.due
    due.claim_seq += 1
    refused = _refusal_of(run)
    if refused in policy.MANDATE_CODES:
        authority.note_denial(tx, schedule, refused, actor=WORKER, run_id=run.run_id, now=now)
    if run.trigger is not Trigger.SCHEDULED:
        if not _lose_authority(tx, schedule, refused, now=now):
            complete_if_over(tx, schedule, now=now)
        return
    stale = is_stale(schedule, run)
    if run.status is RunStatus.COMPLETED and not stale:
        due.consecutive_failures = 0
        due.first_failure_at = None
    elif policy.counts_as_failure(run.status, run.error_code, trigger=run.trigger, stale=stale):
        due.consecutive_failures += 1
        due.first_failure_at = due.first_failure_at or now
    tx.session.flush()
    too_often = policy.threshold_reached(
        due.consecutive_failures,
        schedule.failure_threshold,
        kind=schedule.target_kind,
        first_failure_at=due.first_failure_at,
        now=now,
    )
    if _ends_a_once(schedule, run):
        _end_once(tx, schedule, run, too_often=too_often, now=now)
    elif schedule.status is ScheduleStatus.ACTIVE and not _lose_authority(tx, schedule, refused, now=now):
        if too_often:
            stop(tx, schedule, "failure_threshold_reached", now=now)
        else:
            complete_if_over(tx, schedule, now=now)


def _refusal_of(run: Run) -> str:
    """The code with which admission refused an ended run; empty where its work ended in another way."""
    return run.error_code or "" if run.status in (RunStatus.FAILED, RunStatus.SKIPPED) else ""


def _lose_authority(tx: Tx, schedule: Schedule, refused: str, *, now: datetime) -> bool:
    """Stop or pause an active schedule whose run was refused for want of authority; returns whether it was."""
    if schedule.status is not ScheduleStatus.ACTIVE:
        return False
    if refused == policy.MANDATE_PAUSED:
        pause_for_mandate(tx, schedule, actor=WORKER, now=now)
    elif refused in policy.AUTHORITY:
        stop(tx, schedule, refused, now=now)
    else:
        return False
    return True


def is_stale(schedule: Schedule, run: Run) -> bool:
    """Whether timetable, text or target changed since the run began; a rename makes nothing stale."""
    return (run.timetable_version, run.text_pk, run.target_pk) != (
        schedule.timetable_version,
        schedule.text_pk,
        schedule.target_pk,
    )


def _ends_a_once(schedule: Schedule, run: Run) -> bool:
    if run.timetable_version != schedule.timetable_version or run.error_code in _COMPLETES_NOTHING:
        return False
    if schedule.status not in (
        ScheduleStatus.ACTIVE,
        ScheduleStatus.PAUSED,
        ScheduleStatus.NEEDS_ATTENTION,
    ):
        return False
    return is_once(schedule)


def _end_once(tx: Tx, schedule: Schedule, run: Run, *, too_often: bool, now: datetime) -> None:
    refused = _refusal_of(run)
    if refused in policy.AUTHORITY or too_often:
        reason = refused if refused in policy.AUTHORITY else "failure_threshold_reached"
        if schedule.status is not ScheduleStatus.NEEDS_ATTENTION:
            stop(tx, schedule, reason, now=now)
        return
    change_status(tx, schedule, ScheduleStatus.COMPLETED, reason=run.error_code, actor=WORKER, now=now)


# --- Resuming ---


def resume_refusal(
    tx: Tx, schedule: Schedule, *, mended_by: Actor | None = None, now: datetime
) -> str | None:
    """The code that keeps a locked, paused or stopped schedule from becoming active, or None.

    `mended_by` is who resumes it: what that person may put right about its mandate is no refusal.
    """
    return refusal_to_resume(schedule, _admission(tx, schedule, now=now), mended_by=mended_by, now=now)


def refusal_to_resume(
    schedule: Schedule, admission: policy.Admission, *, mended_by: Actor | None, now: datetime
) -> str | None:
    """The same for facts of admission that are loaded; asks no database."""
    code = policy.refusal(authority.as_if_mended(schedule, admission, mended_by, now=now))
    if code is not None and (code in policy.PERMANENT or code == policy.MANDATE_PAUSED):
        return code
    plan = plan_or_none(schedule)
    if plan is None:
        return "unreadable_timetable"
    if next_slot(plan, schedule.due, max_runs=schedule.max_runs, now=now) is None:
        return "schedule_has_no_future_occurrence"
    return None


def _admission(tx: Tx, schedule: Schedule, *, now: datetime) -> policy.Admission:
    tx.session.flush()
    facts = load_admission(tx.session, [schedule], load_targets(tx.session, [schedule]), now=now)
    return facts[schedule.id]


def activate(
    tx: Tx, schedule: Schedule, *, actor: str, mended_by: Actor | None = None, now: datetime
) -> None:
    """Make a schedule active that `resume_refusal` lets pass; earlier failures are forgotten.

    Its mandate is mended first, as far as `mended_by` may; that can make this person its sponsor.
    """
    due = schedule.due
    before = schedule.sponsor_pk
    detail: dict[str, Any] = {}
    if authority.mend(tx, schedule, _admission(tx, schedule, now=now), mended_by, now=now):
        detail = {"sponsor": schedule.sponsor.name, "sponsor_was": tx.session.get_one(User, before).name}
        withdraw(tx, schedule, "schedule_changed", actor=actor, now=now)
    # The next slot first: the audit writes down what takes force.
    set_next(schedule, next_slot(plan_of(schedule), due, max_runs=schedule.max_runs, now=now))
    change_status(tx, schedule, ScheduleStatus.ACTIVE, reason=None, actor=actor, detail=detail, now=now)
    due.consecutive_failures = 0
    due.first_failure_at = None
    due.skips_in_a_row = 0


def actor_of(tx: Tx, user_pk: int | None, network_pk: int) -> Actor | None:
    """A person as they now stand in one network; None when deactivated, gone or no member."""
    statement = (
        select(User, Membership.role)
        .join(Membership, Membership.user_pk == User.id)
        .where(User.id == user_pk, User.active, Membership.network_pk == network_pk)
    )
    row = tx.session.execute(statement).one_or_none()
    if row is None:
        return None
    user, role = row
    return Actor(user.id, user.user_id, user.name, user.is_admin, {network_pk: role})


# --- What else the engine asks ---


def hold_slot(due: ScheduleDue, *, until: datetime) -> None:
    """Look at a schedule whose handling failed again at `until`; its slot stays where it is."""
    due.claim_failures += 1
    due.claim_not_before = until
    # A slot may fall due at another time than its own.
    due.due_at = max_instant(due.due_at, until)


def plan_or_none(schedule: Any) -> Plan | None:
    """The plan of a schedule (or a row with its columns); None when its stored timetable cannot be read."""
    try:
        return plan_of(schedule)
    except TimetableError:
        return None


def period_after(plan: Plan, slot: datetime) -> timedelta | None:
    """The time from `slot` to the one after it, or None when none follows."""
    following = plan.next_after(slot)
    return None if following is None else following - slot
