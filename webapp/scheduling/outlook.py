"""What a call would do to schedules, before anybody makes it. Reads only: pages and the bulk call show it.

The decisions are those of the operations (`rights`, `steps`, `authority`, `edit`); nothing is decided twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.errors import AppError
from webapp.identity.access import Actor, Facts, Verb, may
from webapp.scheduling import authority, edit, policy, steps
from webapp.scheduling.admission import load_admission, load_targets
from webapp.scheduling.authority import Mending
from webapp.scheduling.fields import PauseRequest, ScheduleChanges
from webapp.scheduling.lifecycle import UNACKNOWLEDGED, RunStatus, ScheduleStatus, TargetKind, Trigger
from webapp.scheduling.models import STILL_OPEN, Run, Schedule
from webapp.scheduling.queries import schedules_by_id
from webapp.scheduling.rights import ended_code, facts_about, refuse_ended

SLOTS_SHOWN = 5


class Act(StrEnum):
    """What may be done to schedules, one or many; the last two are done to the mandate."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    PAUSE_MANDATE = "pause_mandate"
    REVOKE_MANDATE = "revoke_mandate"


@dataclass(frozen=True)
class OpenWork:
    """An open run, as far as a preview speaks of it."""

    run_id: str
    status: RunStatus
    trigger: Trigger
    scheduled_for: datetime

    @property
    def unacknowledged(self) -> bool:
        """Whether nobody has taken it up, so that it can be withdrawn."""
        return self.status in UNACKNOWLEDGED


@dataclass(frozen=True)
class Known:
    """What previews are made of, loaded as sets; by the key of the schedule. See `load_known`."""

    open_work: Mapping[int, Sequence[OpenWork]]
    admission: Mapping[int, policy.Admission]


@dataclass(frozen=True)
class Effect:
    """What a call would do to one schedule.

    `code`: why it would be refused; then nothing else is said. `changes` False: it is there already. `withdrawn`:
    work that nobody has taken up. `at_work`: what is being worked on; `asked_to_stop` says that whoever does is told,
    otherwise it is left to end. `skipped`: slots that are due and not claimed, recorded as skipped. `missed`: slots
    since `missed_since` that stay missed. `mending`: what happens to the mandate first. `next_slots`: what fires
    then. `drops_change`: a skip or a move of the next slot is lost. Instants UTC.
    """

    schedule_id: str
    name: str = ""
    status: ScheduleStatus | None = None
    becomes: ScheduleStatus | None = None
    code: str | None = None
    changes: bool = False
    withdrawn: tuple[OpenWork, ...] = ()
    at_work: tuple[OpenWork, ...] = ()
    asked_to_stop: bool = False
    skipped: int = 0
    drops_change: bool = False
    mending: Mending = Mending.NOTHING
    missed: int = 0
    missed_since: datetime | None = None
    next_slots: tuple[datetime, ...] = ()


def load_known(session: Session, schedules: Sequence[Schedule], act: Act, *, now: datetime) -> Known:
    """What a preview of `act` asks about these schedules: a few statements, whatever their number.

    Admission is asked by a resume alone: to stop something needs no healthy authority.
    """
    open_work = _open_work(session, [schedule.id for schedule in schedules])
    if act is not Act.RESUME:
        return Known(open_work, {})
    return Known(open_work, load_admission(session, schedules, load_targets(session, schedules), now=now))


def _open_work(session: Session, schedule_pks: Collection[int]) -> dict[int, list[OpenWork]]:
    rows = session.execute(
        select(Run.schedule_pk, Run.run_id, Run.status, Run.trigger, Run.scheduled_for)
        .where(Run.schedule_pk.in_(schedule_pks), STILL_OPEN)
        .order_by(Run.scheduled_for, Run.id)
    )
    found: dict[int, list[OpenWork]] = defaultdict(list)
    for row in rows:
        found[row.schedule_pk].append(OpenWork(row.run_id, row.status, row.trigger, row.scheduled_for))
    return found


def foresee(
    session: Session,
    actor: Actor,
    schedule_ids: Iterable[str],
    act: Act,
    wish: PauseRequest | None = None,
    *,
    now: datetime,
) -> list[Effect]:
    """What `act` by this person would do to each of these schedules (public ids), in their order.

    `wish`: reason and end of a pause. One that they may not see is refused with `schedule_not_found`.
    """
    wanted = list(schedule_ids)
    found = schedules_by_id(session, actor.networks, wanted)
    known = load_known(session, list(found.values()), act, now=now)
    return [
        effect(found[schedule_id], known, actor, act, wish or PauseRequest(), now=now)
        if schedule_id in found
        else Effect(schedule_id, code="schedule_not_found")
        for schedule_id in wanted
    ]


def effect(
    schedule: Schedule, known: Known, actor: Actor, act: Act, wish: PauseRequest, *, now: datetime
) -> Effect:
    """What `act` would do to one schedule; no database is asked."""
    base = Effect(schedule.schedule_id, schedule.name_for(actor.user_pk), schedule.status)
    if act is Act.PAUSE:
        return _pause(base, schedule, known, actor, wish, now=now)
    if act is Act.RESUME:
        return _resume(base, schedule, known, actor, now=now)
    if act is Act.CANCEL:
        return _cancel(base, schedule, known, actor, now=now)
    return _mandate(base, schedule, known, actor, act, now=now)


def _pause(
    base: Effect, schedule: Schedule, known: Known, actor: Actor, wish: PauseRequest, *, now: datetime
) -> Effect:
    code = None
    if not may(actor, Verb.PAUSE_SCHEDULE, facts_about(schedule)):
        code = "permission_denied"
    code = code or ended_code(schedule.status)
    paused = schedule.status is ScheduleStatus.PAUSED
    if code is None and wish.resume_at is not None:
        paused_by = schedule.paused_by_pk if paused else actor.user_pk
        facts = replace(facts_about(schedule), paused_by_pk=paused_by, private=False)
        if not may(actor, Verb.RESUME_SCHEDULE, facts):
            code = "permission_denied"
        elif wish.resume_at <= now:
            code = "invalid_resume_at"
    if code is not None:
        return replace(base, code=code)
    if paused:
        named = wish.model_fields_set
        reason = (wish.reason or None) if "reason" in named else schedule.status_reason
        ends = wish.resume_at if "resume_at" in named else schedule.resume_at
        moved = (reason, ends) != (schedule.status_reason, schedule.resume_at)
        return replace(base, becomes=ScheduleStatus.PAUSED, changes=moved)
    return _leaving(base, schedule, known, ScheduleStatus.PAUSED, now=now)


def _resume(base: Effect, schedule: Schedule, known: Known, actor: Actor, *, now: datetime) -> Effect:
    if not may(actor, Verb.RESUME_SCHEDULE, facts_about(schedule)):
        return replace(base, code="permission_denied")
    code = ended_code(schedule.status)
    if code is not None:
        return replace(base, code=code)
    if schedule.status is ScheduleStatus.ACTIVE:
        return replace(base, becomes=ScheduleStatus.ACTIVE, next_slots=slots_ahead(schedule, now=now))
    return _activation(base, schedule, known, actor, now=now)


def _activation(base: Effect, schedule: Schedule, known: Known, actor: Actor, *, now: datetime) -> Effect:
    admission = known.admission[schedule.id]
    code = steps.refusal_to_resume(schedule, admission, mended_by=actor, now=now)
    if code is not None:
        return replace(base, code=code)
    mending = authority.mending(schedule, admission, actor, now=now)
    takes_over = mending is Mending.TAKE_OVER
    open_work = known.open_work.get(schedule.id, ())
    missed, since = _missed(schedule, now=now)
    return replace(
        base,
        becomes=ScheduleStatus.ACTIVE,
        changes=True,
        mending=mending,
        withdrawn=tuple(work for work in open_work if takes_over and work.unacknowledged),
        at_work=tuple(work for work in open_work if not work.unacknowledged),
        missed=missed,
        missed_since=since,
        next_slots=slots_ahead(schedule, now=now),
    )


def _missed(schedule: Schedule, *, now: datetime) -> tuple[int, datetime | None]:
    """Slots of the timetable as it stands that passed while the schedule was not active."""
    plan = steps.plan_or_none(schedule)
    if plan is None or schedule.status is ScheduleStatus.PROPOSED:
        return 0, None
    since = steps.max_instant(schedule.due.claimed_through, schedule.status_changed_at)
    passed = plan.span(since, now)
    return passed.count, passed.oldest


def _cancel(base: Effect, schedule: Schedule, known: Known, actor: Actor, *, now: datetime) -> Effect:
    if not may(actor, Verb.CANCEL_SCHEDULE, facts_about(schedule)):
        return replace(base, code="permission_denied")
    if schedule.status is ScheduleStatus.COMPLETED:
        return replace(base, code="schedule_completed")
    if schedule.status is ScheduleStatus.CANCELLED:
        return replace(base, becomes=ScheduleStatus.CANCELLED)
    return _leaving(base, schedule, known, ScheduleStatus.CANCELLED, now=now)


def _mandate(
    base: Effect, schedule: Schedule, known: Known, actor: Actor, act: Act, *, now: datetime
) -> Effect:
    if not may(actor, Verb.STOP_MANDATE, Facts(schedule.network_pk, schedule.sponsor_pk)):
        return replace(base, code="permission_denied")
    revokes, active = act is Act.REVOKE_MANDATE, schedule.status is ScheduleStatus.ACTIVE
    becomes = schedule.status
    if active:
        becomes = ScheduleStatus.NEEDS_ATTENTION if revokes else ScheduleStatus.PAUSED
    elif revokes and schedule.status is ScheduleStatus.PROPOSED:
        becomes = ScheduleStatus.CANCELLED
    return replace(_leaving(base, schedule, known, becomes, now=now), asked_to_stop=revokes)


def _leaving(
    base: Effect, schedule: Schedule, known: Known, becomes: ScheduleStatus, *, now: datetime
) -> Effect:
    open_work = known.open_work.get(schedule.id, ())
    active = schedule.status is ScheduleStatus.ACTIVE
    return replace(
        base,
        becomes=becomes,
        changes=True,
        withdrawn=tuple(work for work in open_work if work.unacknowledged),
        at_work=tuple(work for work in open_work if not work.unacknowledged),
        asked_to_stop=becomes is ScheduleStatus.CANCELLED,
        skipped=due_unclaimed(schedule, now=now) if active else 0,
        drops_change=active and schedule.next_change is not None,
    )


def due_unclaimed(schedule: Schedule, *, now: datetime) -> int:
    """How many slots of an active schedule are due and not claimed yet."""
    slot = schedule.due.next_run_at
    if slot is None or not steps.fell_due(schedule, slot, now=now):
        return 0
    plan = steps.plan_or_none(schedule)
    return 1 if plan is None else policy.due_slots(plan, slot, now).count


def slots_ahead(schedule: Schedule, *, limit: int = SLOTS_SHOWN, now: datetime) -> tuple[datetime, ...]:
    """The next slots that it has, or would have if it became active now."""
    plan, due = steps.plan_or_none(schedule), schedule.due
    if plan is None:
        return () if due.next_run_at is None else (due.next_run_at,)
    slot = due.next_run_at
    if schedule.status is not ScheduleStatus.ACTIVE:
        slot = steps.next_slot(plan, due, max_runs=schedule.max_runs, now=now)
    if schedule.max_runs is not None:
        limit = min(limit, schedule.max_runs - due.dispatched_count)
    found: list[datetime] = []
    while slot is not None and len(found) < limit:
        found.append(slot)
        slot = plan.next_after(max(slot, now))
    return tuple(found)


# --- An edit ---


@dataclass(frozen=True)
class EditEffect:
    """What saving an edit would do.

    `changed`: the fields that differ, as PATCH names them; none: nothing happens. `slots_move`: the timetable really
    changes. `sponsor_moves`: whoever saves becomes the sponsor, with a new mandate. `activates`: it would make the
    schedule active; `still_stopped_by` says why not where it could. The others as in `Effect`.
    """

    changed: tuple[str, ...] = ()
    slots_move: bool = False
    target_moves: bool = False
    sponsor_moves: bool = False
    withdrawn: tuple[OpenWork, ...] = ()
    at_work: tuple[OpenWork, ...] = ()
    skipped: int = 0
    drops_change: bool = False
    activates: bool = False
    still_stopped_by: str | None = None
    next_slots: tuple[datetime, ...] = ()


def foresee_edit(
    session: Session, actor: Actor, schedule: Schedule, changes: ScheduleChanges, *, now: datetime
) -> EditEffect:
    """What saving these changes would do to a schedule (with its parts loaded).

    Raises AppError as the edit would: `permission_denied`, the codes of state, fields, timetable and target.
    """
    proposed = schedule.status is ScheduleStatus.PROPOSED
    if not may(actor, Verb.EDIT_SCHEDULE, facts_about(schedule, sponsor_alone=proposed)):
        raise AppError("permission_denied")
    rearmable = schedule.status is ScheduleStatus.COMPLETED and schedule.target_kind is TargetKind.CHAT
    if not proposed and not rearmable:
        refuse_ended(schedule)
    plan = edit.plan_changes(session, schedule, actor, changes, now=now)
    open_work = _open_work(session, [schedule.id]).get(schedule.id, ())
    rebased = plan.target_moves or plan.sponsor_moves
    withdrawn = tuple(
        work
        for work in open_work
        if work.unacknowledged and (rebased or (plan.slots_move and work.trigger is Trigger.SCHEDULED))
    )
    active = schedule.status is ScheduleStatus.ACTIVE
    wakes = schedule.status is ScheduleStatus.NEEDS_ATTENTION and plan.heals
    rearms = schedule.status is ScheduleStatus.COMPLETED and plan.slots_move
    code = _stopped_by(session, actor, schedule, plan, now=now) if wakes or rearms else None
    if rearms and code is not None:
        raise AppError(code, status=409)
    activates = (wakes or rearms) and code is None
    accounts = active and (plan.slots_move or plan.cuts_off)
    return EditEffect(
        changed=plan.changed,
        slots_move=plan.slots_move,
        target_moves=plan.target_moves,
        sponsor_moves=plan.sponsor_moves,
        withdrawn=withdrawn,
        at_work=tuple(work for work in open_work if not work.unacknowledged),
        skipped=due_unclaimed(schedule, now=now) if accounts else 0,
        drops_change=active and schedule.next_change is not None and plan.slots_move,
        activates=activates,
        still_stopped_by=code,
        next_slots=_slots_after(schedule, plan, now=now) if active or activates else (),
    )


def _stopped_by(
    session: Session, actor: Actor, schedule: Schedule, plan: edit.PlannedEdit, *, now: datetime
) -> str | None:
    """The code that would keep the edited schedule from becoming active."""
    row = _Edited(schedule, target_pk=plan.target_pk, model=plan.model)
    facts = load_admission(session, [row], load_targets(session, [row]), now=now)[schedule.id]
    if plan.sponsor_moves or plan.target_moves:
        # Its mandate would be issued, or rewritten, by the same act.
        facts = replace(facts, mandate_refusal=None)
    if plan.sponsor_moves:
        facts = replace(facts, sponsor_active=True, sponsor_permitted=True)
    code = policy.refusal(authority.as_if_mended(schedule, facts, actor, now=now))
    if code is not None and (code in policy.PERMANENT or code == policy.MANDATE_PAUSED):
        return code
    spent = plan.max_runs is not None and schedule.due.dispatched_count >= plan.max_runs
    after = steps.max_instant(schedule.due.claimed_through, now)
    if spent or plan.plan is None or plan.plan.next_after(after) is None:
        return "schedule_has_no_future_occurrence"
    return None


class _Edited:
    """A schedule with a few columns as they would be."""

    def __init__(self, schedule: Schedule, **columns: Any) -> None:
        self._schedule = schedule
        self.__dict__.update(columns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._schedule, name)


def _slots_after(schedule: Schedule, planned: edit.PlannedEdit, *, now: datetime) -> tuple[datetime, ...]:
    plan, due = planned.plan, schedule.due
    if plan is None:
        return ()
    limit = SLOTS_SHOWN
    if planned.max_runs is not None:
        limit = min(limit, planned.max_runs - due.dispatched_count)
    slot = due.next_run_at
    if planned.slots_move or planned.cuts_off or slot is None:
        slot = plan.next_after(steps.max_instant(due.claimed_through, now))
    if slot is not None and plan.ends_at is not None and slot > plan.ends_at:
        slot = None
    found: list[datetime] = []
    while slot is not None and len(found) < limit:
        found.append(slot)
        slot = plan.next_after(max(slot, now))
    return tuple(found)
