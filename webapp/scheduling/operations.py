"""What a person can do to a schedule. Each is one transaction; repeating it does no harm.

The order of checks is the contract's: scope, permission, state, revision, then the fields. That is why an
operation takes its fields as a function: it reads them when their turn has come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select

from webapp.errors import AppError
from webapp.identity import idempotency
from webapp.identity.access import Actor, Facts, Verb, demand, may
from webapp.identity.idempotency import Request
from webapp.ids import is_public_id, manual_run_id, new_id
from webapp.mandates.policy import ask_each_time, parse_policy
from webapp.scheduling import alerts, authority, claim, making, policy, steps
from webapp.scheduling.admission import load_admission, load_targets
from webapp.scheduling.edit import apply_changes, check_bounds, read_timetable
from webapp.scheduling.fields import NewChatSchedule, NewSchedule, PauseRequest, ScheduleChanges
from webapp.scheduling.lifecycle import (
    RunStatus,
    ScheduleStatus,
    TargetKind,
    Trigger,
    WaitReason,
)
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.plans import is_once
from webapp.scheduling.policy import Fate, Slots
from webapp.scheduling.rights import check_revision, facts_about, lock_visible, refuse_ended
from webapp.scheduling.target import target_for
from webapp.store.transaction import Tx, operation
from webapp.timetable import Interval, Plan, canonical_form


@dataclass(frozen=True)
class Saved:
    """A schedule as saved, and the codes that would stop it from firing right now."""

    schedule: Schedule
    warnings: tuple[str, ...] = ()


# --- Create ---


@operation
def create(
    tx: Tx,
    actor: Actor,
    network_pk: int,
    read_fields: Callable[[], NewSchedule],
    *,
    request_key: str | None = None,
    now: datetime,
) -> Saved:
    """Make a schedule; the same key with the same input answers the one that was made first.

    Raises AppError: `permission_denied`, the codes of the fields and of the timetable,
    `target_node_not_found` (404), `schedule_has_no_future_occurrence` (400), `idempotency_conflict`.
    """
    demand(actor, Verb.CREATE_SCHEDULE, Facts(network_pk=network_pk))
    new = read_fields()
    timetable, timezone = read_timetable(new.schedule, new.timezone, previous=None, now=now)
    schedule_id = new_id("sched")
    request = _create_request(actor, network_pk, request_key, new, timetable, timezone)
    earlier = idempotency.claim(tx, request, schedule_id, now=now)
    if earlier is not None:
        return _saved(tx, lock_visible(tx, actor, earlier), now=now)
    target = target_for(TargetKind.NODE)
    target_pk = target.find(tx.session, network_pk, new.target_node_id)
    if target_pk is None:
        raise AppError("target_node_not_found", field="target_node_id", status=404)
    check_bounds(new.starts_at, new.ends_at)
    first = Plan(timetable, new.starts_at, new.ends_at).next_after(now)
    if first is None:
        raise AppError("schedule_has_no_future_occurrence", field="schedule", status=400)
    schedule = making.insert(
        tx,
        schedule_id,
        making.Definition(
            network_pk=network_pk,
            sponsor_pk=actor.user_pk,
            target_kind=TargetKind.NODE,
            target_pk=target_pk,
            target_id=new.target_node_id,
            target_alias=target.load(tx.session, [target_pk])[target_pk].alias,
            name=new.name,
            text=new.task,
            timetable=timetable,
            timezone=timezone,
            settings=making.settings_of(new),
        ),
        first=first,
        actor=actor.name,
        now=now,
    )
    return _saved(tx, schedule, now=now)


@operation
def create_for_chat(
    tx: Tx,
    actor: Actor,
    chat_id: object,
    read_fields: Callable[[], NewChatSchedule],
    *,
    request_key: str | None = None,
    now: datetime,
) -> Saved:
    """Make a schedule of prompts into a chat of the actor's own, with the mandate under which its turns act.

    `chat_id` is what the caller sent for it, unread; the chat says which network it is. A repeat with the same key
    is answered before anything is asked that time changes: whether the chat is archived, the model there, the end
    of the mandate ahead. Raises AppError: `chat_not_found` (404, an archived one too), `permission_denied`, the
    codes of the fields and of the timetable, `invalid_policy`, `invalid_model`, `invalid_expires_at`,
    `schedule_has_no_future_occurrence` (400), `idempotency_conflict`.
    """
    target = target_for(TargetKind.CHAT)
    network_pk, chat_pk = _own_chat(tx, actor, chat_id, read_fields)
    demand(actor, Verb.CREATE_SCHEDULE, Facts(network_pk=network_pk))
    new = read_fields()
    mandate = ask_each_time() if new.policy is None else parse_policy(new.policy)
    timetable, timezone = read_timetable(new.schedule, new.timezone, previous=None, now=now)
    schedule_id = new_id("sched")
    request = _create_request(
        actor, network_pk, request_key, new, timetable, timezone, policy=mandate.to_json()
    )
    earlier = idempotency.claim(tx, request, schedule_id, now=now)
    if earlier is not None:
        return _saved(tx, lock_visible(tx, actor, earlier), now=now)
    # Locked, so that it cannot be archived unnoticed before this commits.
    target.reserve(tx, [chat_pk])
    chat = target.load(tx.session, [chat_pk])[chat_pk]
    if chat.refusal is not None:
        raise AppError("chat_not_found", field="chat_id")
    target.check_model(new.model)
    if new.expires_at is not None and new.expires_at <= now:
        raise AppError("invalid_expires_at", field="expires_at")
    check_bounds(new.starts_at, new.ends_at)
    first = Plan(timetable, new.starts_at, new.ends_at).next_after(now)
    if first is None:
        raise AppError("schedule_has_no_future_occurrence", field="schedule", status=400)
    definition = making.Definition(
        network_pk=network_pk,
        sponsor_pk=actor.user_pk,
        target_kind=TargetKind.CHAT,
        target_pk=chat_pk,
        target_id=chat.public_id,
        target_alias=chat.alias,
        name=new.name_or_start,
        text=new.prompt,
        timetable=timetable,
        timezone=timezone,
        settings=making.settings_of(new),
        model=new.model,
    )
    schedule = making.insert(
        tx,
        schedule_id,
        definition,
        first=first,
        policy=mandate,
        expires_at=new.expires_at,
        actor=actor.name,
        now=now,
    )
    return _saved(tx, schedule, now=now)


def _own_chat(
    tx: Tx, actor: Actor, chat_id: object, read_fields: Callable[[], NewChatSchedule]
) -> tuple[int, int]:
    """(network, chat) as keys. Raises AppError `chat_not_found`; for what is no id the code of the fields."""
    if not isinstance(chat_id, str) or not is_public_id(chat_id):
        read_fields()
        raise AppError("chat_not_found", field="chat_id")
    target = target_for(TargetKind.CHAT)
    for network_pk in sorted(actor.networks):
        chat_pk = target.find(tx.session, network_pk, chat_id)
        if chat_pk is not None and target.load(tx.session, [chat_pk])[chat_pk].owner_pk == actor.user_pk:
            return network_pk, chat_pk
    raise AppError("chat_not_found", field="chat_id")


def _create_request(
    actor: Actor,
    network_pk: int,
    key: str | None,
    new: NewSchedule | NewChatSchedule,
    timetable: Any,
    timezone: str,
    **canonical: Any,
) -> Request | None:
    """`canonical` holds other fields in the form in which equal wishes are equal."""
    if idempotency.check_key(key) is None or key is None:
        return None
    spec = canonical_form(timetable)
    if isinstance(timetable, Interval) and new.schedule.get("anchor_at") is None:
        # An anchor that nobody named comes from the clock, and the clock moves between two tries.
        spec = {"type": "interval", "every_seconds": timetable.every_seconds}
    fields = new.model_dump(mode="json") | {"schedule": spec, "timezone": timezone} | canonical
    return Request(actor.user_pk, "schedule.create", key, {"network": network_pk, **fields})


# --- Edit ---


@operation
def edit(
    tx: Tx,
    actor: Actor,
    schedule_id: str,
    read_fields: Callable[[], ScheduleChanges],
    *,
    revision: Callable[[], int | None],
    wants_status_alone: bool = False,
    now: datetime,
) -> Saved:
    """Change a schedule. `revision` gives the one that the caller has seen; None or another is a conflict.

    `wants_status_alone` says that only `status` is asked for, which is a pause or a resume and asks for
    those rights. Raises AppError: `schedule_not_found`, `permission_denied`, `schedule_cancelled`,
    `schedule_completed`, `schedule_proposed`, `revision_conflict` (with `current_revision`), the codes of
    the fields, and those of a resume where the edit arms a completed schedule of a chat again.
    """
    schedule = lock_visible(tx, actor, schedule_id)
    verb = _verb_of_status(read_fields) if wants_status_alone else Verb.EDIT_SCHEDULE
    proposed = schedule.status is ScheduleStatus.PROPOSED and not wants_status_alone
    demand(actor, verb, facts_about(schedule, sponsor_alone=proposed))
    # A new timetable arms a completed schedule of a chat again.
    rearmable = schedule.status is ScheduleStatus.COMPLETED and schedule.target_kind is TargetKind.CHAT
    if not proposed and (wants_status_alone or not rearmable):
        refuse_ended(schedule)
    seen = revision()
    if seen != schedule.revision:
        raise AppError("revision_conflict", current_revision=schedule.revision)
    changes = read_fields()
    apply_changes(
        tx,
        schedule,
        actor,
        changes,
        may_resume=may(actor, Verb.RESUME_SCHEDULE, facts_about(schedule)),
        now=now,
    )
    if changes.has("status"):
        refuse_ended(schedule)
        _ask_for_status(tx, schedule, actor, changes.status, now=now)
    return _saved(tx, schedule, now=now)


def _verb_of_status(read_fields: Callable[[], ScheduleChanges]) -> Verb:
    """The right that a change of `status` alone asks for; a status that is none is refused in its turn."""
    try:
        resumes = read_fields().status == "active"
    except AppError:
        resumes = False
    return Verb.RESUME_SCHEDULE if resumes else Verb.PAUSE_SCHEDULE


def _ask_for_status(tx: Tx, schedule: Schedule, actor: Actor, status: str | None, *, now: datetime) -> None:
    if status == "paused":
        _pause(tx, schedule, actor, PauseRequest(), keep=True, now=now)
    elif status == "active":
        demand(actor, Verb.RESUME_SCHEDULE, facts_about(schedule))
        _resume(tx, schedule, actor, now=now)
    else:
        raise AppError("invalid_status", field="status")


# --- Pause, resume, cancel ---


@operation
def pause(
    tx: Tx,
    actor: Actor,
    schedule_id: str,
    read_fields: Callable[[], PauseRequest],
    *,
    revision: Callable[[], int | None] = lambda: None,
    now: datetime,
) -> Schedule:
    """Pause a schedule; work that nobody has taken up is taken back. Pausing again stores a new reason.

    Raises AppError: `schedule_not_found`, `permission_denied`, `schedule_cancelled`, `schedule_completed`,
    `schedule_proposed`, `invalid_reason`, `invalid_resume_at`.
    """
    schedule = lock_visible(tx, actor, schedule_id)
    demand(actor, Verb.PAUSE_SCHEDULE, facts_about(schedule))
    refuse_ended(schedule)
    check_revision(schedule, revision())
    _pause(tx, schedule, actor, read_fields(), keep=False, now=now)
    return schedule


def _pause(
    tx: Tx, schedule: Schedule, actor: Actor, wish: PauseRequest, *, keep: bool, now: datetime
) -> None:
    """`keep`: a pause that names neither reason nor time leaves those of an earlier pause alone."""
    reason = wish.reason or None
    if wish.resume_at is not None:
        paused_by = schedule.paused_by_pk if schedule.status is ScheduleStatus.PAUSED else actor.user_pk
        facts = Facts(schedule.network_pk, schedule.sponsor_pk, paused_by)
        demand(actor, Verb.RESUME_SCHEDULE, facts)
        if wish.resume_at <= now:
            raise AppError("invalid_resume_at", field="resume_at")
    if schedule.status is ScheduleStatus.PAUSED:
        named = wish.model_fields_set
        new_reason = reason if "reason" in named else schedule.status_reason
        new_time = wish.resume_at if "resume_at" in named else schedule.resume_at
        if keep or (new_reason, new_time) == (schedule.status_reason, schedule.resume_at):
            return
        schedule.status_reason, schedule.resume_at = new_reason, new_time
        schedule.resume_by_pk = actor.user_pk if new_time is not None else None
        steps.touch(schedule, now=now)
        change = {"reason": new_reason, **steps.definition_in_force(schedule)}
        steps.record(tx, schedule, "schedule.paused", change, actor=actor.name, now=now)
        steps.tell(tx, schedule, now=now)
        return
    steps.leave_active(tx, schedule, ScheduleStatus.PAUSED, reason=reason, actor=actor.name, now=now)
    schedule.paused_by_pk = actor.user_pk
    schedule.resume_at = wish.resume_at
    schedule.resume_by_pk = actor.user_pk if wish.resume_at is not None else None


@operation
def resume(
    tx: Tx,
    actor: Actor,
    schedule_id: str,
    *,
    revision: Callable[[], int | None] = lambda: None,
    now: datetime,
) -> Schedule:
    """Make a paused or stopped schedule active again, from now on; missed time is not caught up.

    Its mandate is mended where that is needed: resumed, or issued anew with the old policy. The sponsor may do
    that; an admin who does it on a node's schedule becomes the sponsor.

    Raises AppError: `schedule_not_found`, `permission_denied`, `schedule_cancelled`, `schedule_completed`,
    `schedule_proposed`, `schedule_has_no_future_occurrence`, `unreadable_timetable`, or the code of a
    permanent refusal of admission (409).
    """
    schedule = lock_visible(tx, actor, schedule_id)
    demand(actor, Verb.RESUME_SCHEDULE, facts_about(schedule))
    refuse_ended(schedule)
    check_revision(schedule, revision())
    _resume(tx, schedule, actor, now=now)
    return schedule


def _resume(tx: Tx, schedule: Schedule, actor: Actor, *, now: datetime) -> None:
    if schedule.status is ScheduleStatus.ACTIVE:
        return
    code = steps.resume_refusal(tx, schedule, mended_by=actor, now=now)
    if code is not None:
        raise AppError(code, status=409)
    steps.activate(tx, schedule, actor=actor.name, mended_by=actor, now=now)


# --- What an agent proposed ---


@operation
def confirm(
    tx: Tx,
    actor: Actor,
    schedule_id: str,
    *,
    revision: Callable[[], int | None] = lambda: None,
    now: datetime,
) -> Schedule:
    """Let a proposed schedule begin: its sponsor stands behind it and its mandate. Nobody else may.

    Raises AppError: `schedule_not_found`, `permission_denied`, `not_proposed`, `revision_conflict`,
    `schedule_has_no_future_occurrence`, or the code of a permanent refusal of admission (409).
    """
    schedule = lock_visible(tx, actor, schedule_id)
    demand(actor, Verb.CONFIRM_SCHEDULE, facts_about(schedule))
    _refuse_unless_proposed(schedule, revision)
    _resume(tx, schedule, actor, now=now)
    return schedule


@operation
def reject(
    tx: Tx,
    actor: Actor,
    schedule_id: str,
    *,
    revision: Callable[[], int | None] = lambda: None,
    now: datetime,
) -> Schedule:
    """Turn a proposed schedule down; it is cancelled and its mandate revoked.

    Raises AppError: `schedule_not_found`, `permission_denied`, `not_proposed`, `revision_conflict`.
    """
    schedule = lock_visible(tx, actor, schedule_id)
    demand(actor, Verb.CANCEL_SCHEDULE, facts_about(schedule))
    _refuse_unless_proposed(schedule, revision)
    steps.leave_active(
        tx, schedule, ScheduleStatus.CANCELLED, reason="proposal_rejected", actor=actor.name, now=now
    )
    return schedule


def _refuse_unless_proposed(schedule: Schedule, revision: Callable[[], int | None]) -> None:
    seen = revision()
    if schedule.status is not ScheduleStatus.PROPOSED:
        raise AppError("not_proposed")
    check_revision(schedule, seen)


@operation
def drop_old_proposal(tx: Tx, schedule_pk: int, *, proposed_before: datetime, now: datetime) -> bool:
    """Cancel a schedule that was proposed before that instant and that nobody has answered; returns whether."""
    schedule = steps.lock_schedule(tx, schedule_pk)
    if schedule.status is not ScheduleStatus.PROPOSED or schedule.created_at > proposed_before:
        return False
    steps.leave_active(
        tx, schedule, ScheduleStatus.CANCELLED, reason="proposal_expired", actor=steps.WORKER, now=now
    )
    return True


# --- Pauses that end by themselves ---


@operation
def resume_when_due(tx: Tx, schedule_pk: int, *, now: datetime) -> bool:
    """Resume a paused schedule at its `resume_at`, in the name of the person who asked for it.

    Their rights are looked at again; a refusal leaves it paused, with the code as its reason and a card.
    Returns whether it was resumed.
    """
    schedule = steps.lock_schedule(tx, schedule_pk)
    due = schedule.resume_at is not None and schedule.resume_at <= now
    if schedule.status is not ScheduleStatus.PAUSED or not due:
        return False
    person = steps.actor_of(tx, schedule.resume_by_pk, schedule.network_pk)
    if person is None or not may(person, Verb.RESUME_SCHEDULE, facts_about(schedule)):
        code: str | None = "resume_not_permitted"
    else:
        code = steps.resume_refusal(tx, schedule, now=now)
    if code is None and person is not None:
        steps.activate(tx, schedule, actor=person.name, now=now)
        return True
    schedule.resume_at = schedule.resume_by_pk = None
    schedule.status_reason = code
    steps.touch(schedule, now=now)
    steps.record(tx, schedule, "schedule.resume_refused", {"reason": code}, actor=steps.WORKER, now=now)
    alerts.raise_alert(
        tx,
        schedule.network_pk,
        "resume_refused",
        schedule.schedule_id,
        code or "resume_not_permitted",
        schedule_pk=schedule.id,
        now=now,
    )
    steps.tell(tx, schedule, now=now)
    return False


@operation
def cancel(
    tx: Tx,
    actor: Actor,
    schedule_id: str,
    *,
    revision: Callable[[], int | None] = lambda: None,
    now: datetime,
) -> Schedule:
    """End a schedule for good; whoever works on it is asked to stop. Cancelling again changes nothing.

    Raises AppError: `schedule_not_found`, `permission_denied`, `schedule_completed`.
    """
    schedule = lock_visible(tx, actor, schedule_id)
    demand(actor, Verb.CANCEL_SCHEDULE, facts_about(schedule))
    if schedule.status is ScheduleStatus.COMPLETED:
        raise AppError("schedule_completed")
    seen = revision()
    if schedule.status is ScheduleStatus.CANCELLED:
        return schedule
    check_revision(schedule, seen)
    steps.leave_active(tx, schedule, ScheduleStatus.CANCELLED, reason=None, actor=actor.name, now=now)
    at_work = [run for run in steps.open_runs(tx, schedule.id) if run.status is RunStatus.RUNNING]
    target_for(schedule.target_kind).ask_to_stop(tx, at_work, code="schedule_cancelled", now=now)
    return schedule


# --- Run now ---


def run_now(
    actor: Actor,
    schedule_id: str,
    *,
    check_fields: Callable[[], object] = lambda: None,
    request_key: str | None = None,
    now: datetime,
) -> Run:
    """Start a run by hand, beside the timetable. The same key answers the run that it started first.

    `check_fields` refuses what the caller sent beside, when the turn of the fields has come.

    Raises AppError: `schedule_not_found`, `permission_denied`, `schedule_cancelled`, `schedule_completed`,
    `schedule_proposed`, `previous_run_active` (with `blocking_run_id`), or the code of admission (409); a
    refusal is audited and makes no run.
    """
    outcome = _run_now(actor, schedule_id, check_fields, request_key=request_key, now=now)
    if isinstance(outcome, AppError):
        raise outcome
    return outcome


@operation
def _run_now(
    tx: Tx,
    actor: Actor,
    schedule_id: str,
    check_fields: Callable[[], object],
    *,
    request_key: str | None,
    now: datetime,
) -> Run | AppError:
    schedule = lock_visible(tx, actor, schedule_id)
    demand(actor, Verb.RUN_SCHEDULE, facts_about(schedule))
    key = idempotency.check_key(request_key)
    request = Request(actor.user_pk, "schedule.run_now", key, {"schedule": schedule_id}) if key else None
    earlier = idempotency.find(tx, request)
    if earlier is None:
        refuse_ended(schedule)
    check_fields()
    if earlier is not None:
        return tx.session.scalars(select(Run).where(Run.run_id == earlier)).one()
    facts = claim.load_facts(tx.session, [schedule], now=now)
    facts.idle.update(claim.reserve_targets(tx, [schedule]))
    overlap = policy.overlap(
        facts.open_runs.get(schedule.id, ()),
        policy=schedule.overlap_policy,
        trigger=Trigger.MANUAL,
        once=is_once(schedule),
        now=now,
        period=None,
    )
    refused: AppError | None = None
    code = policy.refusal(facts.admission[schedule.id])
    if overlap.fate is Fate.SKIP and overlap.blocker is not None:
        refused = AppError("previous_run_active", blocking_run_id=overlap.blocker.run_id)
    elif code is not None and overlap.fate is Fate.DISPATCH:
        refused = AppError(code, status=409)
    if refused is not None:
        detail = {"code": refused.code, **refused.details}
        steps.record(tx, schedule, "schedule.run_now_refused", detail, actor=actor.name, now=now)
        authority.note_refusal(tx, schedule, refused, None, actor=actor.name, now=now)
        return refused
    run_id = manual_run_id(schedule_id, f"{actor.user_pk}:{key}" if key else new_id("req"))
    idempotency.claim(tx, request, run_id, now=now)
    decision = claim.Decision(schedule, expire=overlap.expire, supersede=overlap.supersede)
    row = steps.run_row(
        schedule, run_id=run_id, slots=Slots(now), trigger=Trigger.MANUAL, actor=actor.name, now=now
    )
    if overlap.fate is Fate.DISPATCH:
        if claim.start(decision, row, facts, now=now):
            schedule.due.last_run_at = steps.max_instant(schedule.due.last_run_at, now)
    else:
        row |= {"wait_reason": WaitReason.PREVIOUS_RUN_ACTIVE}
        row |= {"blocked_by": overlap.blocker.run_id if overlap.blocker else None}
        row |= {"blocker_received": overlap.blocker.received if overlap.blocker else None}
    decision.runs.append(row)
    schedule.due.claim_seq += 1
    claim.write(tx, [decision], facts, now=now)
    steps.record(tx, schedule, "schedule.run_now", {"run_id": run_id}, actor=actor.name, now=now)
    return tx.session.scalars(select(Run).where(Run.run_id == run_id)).one()


# --- What they share ---


def _saved(tx: Tx, schedule: Schedule, *, now: datetime) -> Saved:
    """The schedule with what would stop it from firing, as warnings."""
    tx.session.flush()
    facts = load_admission(tx.session, [schedule], load_targets(tx.session, [schedule]), now=now)
    checks = policy.admission_checks(facts[schedule.id])
    return Saved(schedule, tuple(check.code for check in checks if not check.ok))
