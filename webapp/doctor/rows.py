"""Invariants that a statement over the rows can decide. Each check returns at most 100 violations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Select, String, and_, cast, exists, func, or_, select
from sqlalchemy.orm import Session

from webapp.audit import AuditCounter, AuditEntry
from webapp.doctor.violation import MOST_LISTED, Violation, violation
from webapp.events.models import Event, EventCounter
from webapp.identity.models import Network
from webapp.nodes.lifecycle import TaskStatus
from webapp.nodes.models import Task
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus, Trigger, WaitReason
from webapp.scheduling.models import STILL_OPEN, Run, Schedule, ScheduleDue, WorkerSeen, ZoneData
from webapp.scheduling.next_change import falls_due_at

_TICKS_UNTIL_GONE = 3
# A slot may wait for the pass in progress, and for the batches before its own.
_PATIENCE = timedelta(seconds=30)
_LONGER_THAN_NULL = len("null")

# In which states a run and its task go together.
_AGREE: dict[RunStatus, tuple[TaskStatus, ...]] = {
    RunStatus.QUEUED: (TaskStatus.CREATED,),
    RunStatus.DELIVERED: (TaskStatus.DELIVERED,),
    RunStatus.RUNNING: (TaskStatus.ACKED, TaskStatus.RUNNING),
    RunStatus.COMPLETED: (TaskStatus.REPLIED,),
    RunStatus.FAILED: (TaskStatus.FAILED,),
    RunStatus.CANCELLED: (TaskStatus.CANCELLED,),
    RunStatus.EXPIRED: (TaskStatus.EXPIRED,),
    RunStatus.SKIPPED: (),
}
_WAITS_WITHOUT_WORK = (WaitReason.PREVIOUS_RUN_ACTIVE, WaitReason.CATCH_UP, WaitReason.CHAT_BUSY)


def _listed(session: Session, statement: Select[*tuple[Any, ...]]) -> Sequence[Any]:
    return session.execute(statement.limit(MOST_LISTED)).all()


# --- 1: nothing waits while somebody could claim it ---


def overdue(session: Session, now: datetime, tick_seconds: float) -> list[Violation]:
    """Schedules that are due for longer than the tick allows while a worker is alive.

    Nobody is blamed before a worker has been there for that long: after an outage it works off what waits.
    """
    allowed = timedelta(seconds=_TICKS_UNTIL_GONE * tick_seconds) + _PATIENCE
    alive_since = _alive_since(session, now - timedelta(seconds=_TICKS_UNTIL_GONE * tick_seconds))
    if alive_since is None or alive_since > now - allowed:
        return []
    statement = (
        select(Schedule.schedule_id, ScheduleDue.next_run_at)
        .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(
            ScheduleDue.next_run_at.is_not(None),
            ScheduleDue.due_at <= now - allowed,
            or_(ScheduleDue.claim_not_before.is_(None), ScheduleDue.claim_not_before <= now - allowed),
        )
        .order_by(ScheduleDue.due_at)
    )
    return [
        violation(
            1,
            "overdue",
            f"It is due since {slot.isoformat()} and no worker has claimed it.",
            schedule_id=schedule_id,
        )
        for schedule_id, slot in _listed(session, statement)
    ]


def _alive_since(session: Session, seen_after: datetime) -> datetime | None:
    """Since when there is a worker that may claim, or None. One with older zone data may not."""
    newest = session.scalar(select(ZoneData.version))
    alive = select(func.min(WorkerSeen.started_at)).where(
        WorkerSeen.stopped_at.is_(None), WorkerSeen.last_tick_at >= seen_after
    )
    return session.scalar(alive if newest is None else alive.where(WorkerSeen.zone_version >= newest))


# --- 3: once is once ---


def slots_with_two_runs(session: Session, _now: datetime) -> list[Violation]:
    """Slots of a schedule that have more than one run."""
    twice = (
        select(Run.schedule_pk, Run.scheduled_for, func.count().label("runs"))
        .where(Run.trigger == Trigger.SCHEDULED)
        .group_by(Run.schedule_pk, Run.scheduled_for)
        .having(func.count() > 1)
        .subquery()
    )
    statement = select(Schedule.schedule_id, twice.c.scheduled_for, twice.c.runs).join(
        twice, twice.c.schedule_pk == Schedule.id
    )
    return [
        violation(
            3,
            "slot_with_two_runs",
            f"The slot {slot.isoformat()} has {count} runs.",
            schedule_id=schedule_id,
        )
        for schedule_id, slot, count in _listed(session, statement)
    ]


def runs_with_two_tasks(session: Session, _now: datetime) -> list[Violation]:
    """Runs that have more than one task."""
    twice = (
        select(Task.run_pk, func.count().label("tasks"))
        .where(Task.run_pk.is_not(None))
        .group_by(Task.run_pk)
        .having(func.count() > 1)
        .subquery()
    )
    statement = select(Run.run_id, twice.c.tasks).join(twice, twice.c.run_pk == Run.id)
    return [
        violation(3, "run_with_two_tasks", f"The run has {count} tasks.", run_id=run_id)
        for run_id, count in _listed(session, statement)
    ]


# --- 4: a run and its work tell the same story ---


def _about_runs(
    session: Session, condition: ColumnElement[bool], code: str, sentence: str
) -> list[Violation]:
    statement = (
        select(Run.run_id, Run.status, Run.task_id, Task.status)
        .outerjoin(Task, Task.run_pk == Run.id)
        .where(condition)
        .order_by(Run.id)
    )
    return [
        violation(
            4,
            code,
            sentence.format(run=status.value, task=work.value if work else "missing"),
            run_id=run_id,
            task_id=task_id,
        )
        for run_id, status, task_id, work in _listed(session, statement)
    ]


def runs_that_disagree(session: Session, _now: datetime) -> list[Violation]:
    """Runs that say another thing than their task: final with open work, open with final work, and so on."""
    agree = or_(*(and_(Run.status == run, Task.status.in_(tasks)) for run, tasks in _AGREE.items() if tasks))
    return _about_runs(
        session,
        and_(Task.id.is_not(None), ~agree),
        "run_and_task_disagree",
        "The run is {run}, its task is {task}.",
    )


def runs_without_their_task(session: Session, _now: datetime) -> list[Violation]:
    """Runs that name a task that is not there, or that is another one than the task that names them."""
    return _about_runs(
        session,
        or_(
            and_(Run.task_id.is_not(None), Task.id.is_(None)),
            and_(Task.id.is_not(None), Run.task_id.is_distinct_from(Task.task_id)),
        ),
        "run_without_its_task",
        "The run is {run}, and the task that it names is not its own or not there.",
    )


def runs_that_wait_for_nothing(session: Session, _now: datetime) -> list[Violation]:
    """Open runs that have neither work nor a reason to wait for it."""
    waits = and_(Run.status == RunStatus.QUEUED, Run.wait_reason.in_(_WAITS_WITHOUT_WORK))
    has_reason = func.coalesce(waits, False)
    return _about_runs(
        session,
        and_(STILL_OPEN, Run.task_id.is_(None), Run.turn_id.is_(None), ~has_reason),
        "run_waits_for_nothing",
        "The run is {run}, has no work and names no reason to wait.",
    )


# --- 5: the next slot and the state ---


def _about_schedules(
    session: Session, condition: ColumnElement[bool], code: str, sentence: str
) -> list[Violation]:
    statement = (
        select(Schedule.schedule_id, Schedule.status)
        .outerjoin(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(condition)
        .order_by(Schedule.id)
    )
    return [
        violation(5, code, sentence.format(status=status.value), schedule_id=schedule_id)
        for schedule_id, status in _listed(session, statement)
    ]


def next_slots_of_inactive(session: Session, _now: datetime) -> list[Violation]:
    """Schedules that have a next slot and are not active."""
    return _about_schedules(
        session,
        and_(ScheduleDue.next_run_at.is_not(None), Schedule.status != ScheduleStatus.ACTIVE),
        "next_slot_though_not_active",
        "It is {status} and has a next slot.",
    )


def active_without_next(session: Session, _now: datetime) -> list[Violation]:
    """Active schedules that have neither a next slot nor an open run: they would stay so for ever."""
    has_open_run = exists().where(Run.schedule_pk == Schedule.id, STILL_OPEN)
    return _about_schedules(
        session,
        and_(Schedule.status == ScheduleStatus.ACTIVE, ScheduleDue.next_run_at.is_(None), ~has_open_run),
        "active_without_next_slot",
        "It is {status}, and has neither a next slot nor an open run.",
    )


def unseen_next_slots(session: Session, _now: datetime) -> list[Violation]:
    """Schedules whose next slot the engine would not see at its time, or at the one that it was moved to."""
    statement = (
        select(
            Schedule.schedule_id,
            Schedule.status,
            Schedule.next_change,
            ScheduleDue.next_run_at,
            ScheduleDue.due_at,
            ScheduleDue.claim_not_before,
        )
        .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(
            or_(
                ScheduleDue.due_at.is_distinct_from(ScheduleDue.next_run_at),
                # A move is the one reason for another time; what is stored of one is never short.
                func.length(cast(Schedule.next_change, String)) > _LONGER_THAN_NULL,
            )
        )
        .order_by(Schedule.id)
    )
    sentence = "It is {status}, and the engine looks at it at another time than that of its next slot."
    unseen = (row for row in session.execute(statement) if not _is_seen(row))
    return [
        violation(
            5,
            "next_slot_not_looked_at",
            sentence.format(status=row.status.value),
            schedule_id=row.schedule_id,
        )
        for row in islice(unseen, MOST_LISTED)
    ]


def _is_seen(row: Any) -> bool:
    if row.next_run_at is None or row.due_at is None:
        return row.next_run_at is row.due_at
    at = falls_due_at(row.next_change, row.next_run_at)
    return bool(row.due_at == at or (row.due_at > at and row.due_at == row.claim_not_before))


# --- 6: nothing is missing in between ---


def _broken(session: Session, model: Any, counter: Any, code: str, what: str) -> Iterable[Violation]:
    held = (
        select(
            model.network_pk,
            func.count().label("count"),
            func.min(model.seq).label("oldest"),
            func.max(model.seq).label("newest"),
        )
        .group_by(model.network_pk)
        .subquery()
    )
    gap = held.c.newest - held.c.oldest + 1 != held.c.count
    # The oldest may be pruned; the newest is always kept, or else its number could be given again.
    statement = (
        select(Network.network_id, held.c.count, held.c.oldest, held.c.newest, counter.seq)
        .select_from(held)
        .join(Network, Network.id == held.c.network_pk)
        .outerjoin(counter, counter.network_pk == held.c.network_pk)
        .where(or_(gap, counter.seq.is_distinct_from(held.c.newest)))
    )
    for network_id, count, oldest, newest, last in _listed(session, statement):
        yield violation(
            6,
            code,
            f"{count} {what} are numbered from {oldest} to {newest}, the last number given is {last}.",
            network_id=network_id,
        )


def gaps_in_audit(session: Session, _now: datetime) -> list[Violation]:
    """Networks whose audit has a gap, or ends before its last number."""
    return [*_broken(session, AuditEntry, AuditCounter, "audit_gap", "audit entries")]


def gaps_in_events(session: Session, _now: datetime) -> list[Violation]:
    """Networks whose events have a gap, or end before their last number."""
    return [*_broken(session, Event, EventCounter, "event_gap", "events")]


CHECKS: tuple[Callable[[Session, datetime], list[Violation]], ...] = (
    slots_with_two_runs,
    runs_with_two_tasks,
    runs_that_disagree,
    runs_without_their_task,
    runs_that_wait_for_nothing,
    next_slots_of_inactive,
    active_without_next,
    unseen_next_slots,
    gaps_in_audit,
    gaps_in_events,
)
