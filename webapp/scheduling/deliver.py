"""Runs that wait become work, one after the other; and ended runs are tried again."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from sqlalchemy import select

from webapp.errors import AppError
from webapp.scheduling import authority, claim, policy, steps
from webapp.scheduling.lifecycle import (
    RETRYABLE,
    OverlapPolicy,
    RunStatus,
    ScheduleStatus,
    TargetKind,
    Trigger,
)
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.plans import is_once
from webapp.scheduling.policy import OpenRun
from webapp.scheduling.target import target_for
from webapp.store.transaction import Tx, operation

# How many refused runs in a row one call looks at; the rest gets its turn with the next pass.
_MOST_REFUSED = 100


def deliver_waiting(tx: Tx, schedule: Schedule, *, now: datetime) -> int:
    """Dispatch what waits on a locked schedule, as far as its policy lets it; returns how many.

    Late delivery passes admission again: a refused run fails and the next one gets its turn. Where a target does
    one piece of work at a time, others may have waited for it for longer: `deliver_next` is called after the
    commit, under the target's own lock.
    """
    if target_for(schedule.target_kind).one_at_a_time:
        if _next_waiting(tx, schedule, now=now) is not None:
            offer(tx, schedule.target_kind, schedule.target_pk, now=now)
        return 0
    delivered = 0
    while (run := _next_waiting(tx, schedule, now=now)) is not None:
        delivered += _deliver_or_refuse(tx, schedule, run, now=now)
    return delivered


def _deliver_or_refuse(tx: Tx, schedule: Schedule, run: Run, *, now: datetime) -> bool:
    refusal = _late_refusal(tx, schedule, run, now=now)
    if refusal is None:
        dispatch(tx, schedule, run, actor=run.actor, now=now)
        return True
    steps.close_run(run, policy.status_of_refused(refusal), code=refusal, now=now)
    steps.tell(tx, schedule, [run.run_id], now=now)
    steps.after_end(tx, schedule, run, now=now)
    return False


class _Next(Enum):
    """What came of the oldest run that waits for a target."""

    NOTHING = "nothing waits, or the target is busy"
    DELIVERED = "delivered"
    AGAIN = "refused, or no longer the oldest: look again"


def offer(tx: Tx, kind: TargetKind, target_pk: int, *, now: datetime) -> None:
    """Have `deliver_next` called for a target once the transaction has committed."""

    def call() -> None:
        deliver_next(kind, target_pk, now=now)

    tx.after_commit(call)


def deliver_next(kind: TargetKind, target_pk: int, *, now: datetime) -> int:
    """Give an idle target of a kind that does one piece of work at a time the run that has waited longest for it.

    Oldest slot first, whichever schedule it belongs to; a refused one fails and the next is looked at. Returns how
    many runs were delivered: one, or none.
    """
    for _ in range(_MOST_REFUSED):
        outcome = _deliver_oldest(kind, target_pk, now=now)
        if outcome is not _Next.AGAIN:
            return int(outcome is _Next.DELIVERED)
    return 0


@operation
def _deliver_oldest(tx: Tx, kind: TargetKind, target_pk: int, *, now: datetime) -> _Next:
    oldest = claim.waiting_for(kind, [target_pk]).limit(1)
    found = tx.session.execute(oldest).one_or_none()
    if found is None:
        return _Next.NOTHING
    run_pk, schedule_pk = found.id, found.schedule_pk
    schedule = steps.lock_schedule(tx, schedule_pk)
    claim.lock_mandates(tx, [] if schedule.mandate_pk is None else [schedule.mandate_pk])
    if target_pk not in target_for(kind).reserve(tx, [target_pk]):
        return _Next.NOTHING
    if tx.session.execute(oldest).one_or_none() != found:
        return _Next.AGAIN
    run = tx.session.get_one(Run, run_pk, populate_existing=True)
    return _Next.DELIVERED if _deliver_or_refuse(tx, schedule, run, now=now) else _Next.AGAIN


def _next_waiting(tx: Tx, schedule: Schedule, *, now: datetime) -> Run | None:
    """The oldest waiting run whose time has come, after silent blockers were closed."""
    tx.session.flush()
    facts = claim.load_facts(tx.session, [schedule], now=now)
    open_runs = facts.open_runs.get(schedule.id, ())
    waiting = next((run for run in open_runs if not run.dispatched), None)
    if waiting is None:
        return None
    blockers = [run for run in open_runs if run.dispatched and _blocks(schedule, waiting, run)]
    plan = steps.plan_or_none(schedule)
    period = steps.period_after(plan, waiting.scheduled_for) if plan and blockers else None
    silent = [run for run in blockers if policy.blocked_too_long(run, now=now, period=period)]
    if len(silent) < len(blockers):
        return None
    if silent:
        expire_silent(tx, schedule, silent, now=now)
    return tx.session.get_one(Run, waiting.pk)


def _blocks(schedule: Schedule, waiting: OpenRun, other: OpenRun) -> bool:
    # Under `allow` only a backlog waits, and only for its own.
    return schedule.overlap_policy is not OverlapPolicy.ALLOW or (waiting.backlog and other.backlog)


def expire_silent(tx: Tx, schedule: Schedule, silent: list[OpenRun], *, now: datetime) -> None:
    """Close open runs that held up others and were not heard of for too long."""
    runs = tx.session.scalars(select(Run).where(Run.id.in_([run.pk for run in silent]))).all()
    target_for(schedule.target_kind).expire(tx, runs, code="blocker_timed_out", now=now)
    for run in runs:
        steps.close_run(run, RunStatus.EXPIRED, code="blocker_timed_out", now=now)
        steps.after_end(tx, schedule, run, now=now)
    steps.tell(tx, schedule, [run.run_id for run in runs], now=now)


def _late_refusal(tx: Tx, schedule: Schedule, run: Run, *, now: datetime) -> str | None:
    due = schedule.due
    spent = schedule.max_runs is not None and due.dispatched_count >= schedule.max_runs
    if spent and run.trigger is Trigger.SCHEDULED and run.attempt == 1:
        return "max_runs_reached"
    facts = claim.load_facts(tx.session, [schedule], now=now)
    return policy.refusal(facts.admission[schedule.id])


def dispatch(tx: Tx, schedule: Schedule, run: Run, *, actor: str, now: datetime) -> None:
    """Have the work of an open run written; what is written is the order as it now stands."""
    due = schedule.due
    target = target_for(schedule.target_kind)
    run.wait_reason = None
    run.blocked_by = None
    run.blocker_received = None
    for column, value in target.dispatched(run.run_id, now=now).items():
        setattr(run, column, value)
    if run.attempt == 1:
        run.text_pk, run.target_pk = schedule.text_pk, schedule.target_pk
        run.target_id, run.target_alias = schedule.target_id, schedule.target_alias
        run.schedule_revision = schedule.revision
        due.last_run_at = steps.max_instant(due.last_run_at, run.scheduled_for)
        if run.trigger is Trigger.SCHEDULED:
            due.dispatched_count += 1
            due.skips_in_a_row = 0
    due.claim_seq += 1
    tx.session.flush()
    authority.use(tx, schedule, run, actor=actor, now=now)
    if run.attempt > 1:
        target.reopen(tx, run, actor=actor, now=now)
    else:
        target.write(tx, [claim.dispatch_of(schedule, run.id, run.run_id)], now=now)
    if _is_over(schedule):
        # A slot that is due at this moment was due while the schedule still had runs to make.
        steps.account_for_due(tx, schedule, "max_runs_reached", now=now)
        steps.set_next(schedule, None)
    steps.tell(tx, schedule, [run.run_id], now=now)


def _is_over(schedule: Schedule) -> bool:
    return schedule.max_runs is not None and schedule.due.dispatched_count >= schedule.max_runs


def retry_refusal(tx: Tx, schedule: Schedule, run: Run, *, now: datetime) -> AppError | None:
    """Why an ended run of a locked schedule cannot be tried again, or None.

    The same admission and overlap as for a run by hand; the schedule's state is left alone.
    """
    if schedule.status in (ScheduleStatus.CANCELLED, ScheduleStatus.COMPLETED):
        return AppError(f"schedule_{schedule.status.value}")
    if run.status not in RETRYABLE:
        return AppError("task_not_retryable")
    facts = claim.load_facts(tx.session, [schedule], now=now)
    code = policy.refusal(facts.admission[schedule.id])
    if code is not None:
        return AppError(code, status=409)
    overlap = policy.overlap(
        facts.open_runs.get(schedule.id, ()),
        policy=schedule.overlap_policy,
        trigger=Trigger.MANUAL,
        once=is_once(schedule),
        now=now,
        period=None,
    )
    if overlap.fate is not policy.Fate.DISPATCH and overlap.blocker is not None:
        return AppError("previous_run_active", blocking_run_id=overlap.blocker.run_id)
    return None


def retry(tx: Tx, schedule: Schedule, run: Run, *, actor: str, now: datetime) -> None:
    """Reopen an ended run as its next attempt and have its work done again.

    Raises AppError with the code of `retry_refusal`.
    """
    refused = retry_refusal(tx, schedule, run, now=now)
    if refused is not None:
        raise refused
    run.status = RunStatus.QUEUED
    run.attempt += 1
    run.error_code = run.error_message = run.result = None
    run.delivered_at = run.started_at = run.completed_at = None
    dispatch(tx, schedule, run, actor=actor, now=now)
