"""Runs that wait become work, one after the other; and ended runs are tried again."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select

from webapp.errors import AppError
from webapp.ids import task_id_of_run
from webapp.scheduling import claim, policy, steps
from webapp.scheduling.lifecycle import (
    RETRYABLE,
    OverlapPolicy,
    RunStatus,
    ScheduleStatus,
    Trigger,
    WaitReason,
)
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.plans import is_once
from webapp.scheduling.policy import OpenRun
from webapp.scheduling.target import target_for
from webapp.store.transaction import Tx


def deliver_waiting(tx: Tx, schedule: Schedule, *, now: datetime) -> int:
    """Dispatch what waits on a locked schedule, as far as its policy lets it; returns how many.

    Late delivery passes admission again: a refused run fails and the next one gets its turn.
    """
    delivered = 0
    while (run := _next_waiting(tx, schedule, now=now)) is not None:
        refusal = _late_refusal(tx, schedule, run)
        if refusal is not None:
            status = RunStatus.SKIPPED if refusal == "max_runs_reached" else RunStatus.FAILED
            steps.close_run(run, status, code=refusal, now=now)
            steps.tell(tx, schedule, [run.run_id], now=now)
            steps.after_end(tx, schedule, run, now=now)
            continue
        dispatch(tx, schedule, run, actor=run.actor, now=now)
        delivered += 1
    return delivered


def _next_waiting(tx: Tx, schedule: Schedule, *, now: datetime) -> Run | None:
    """The oldest waiting run whose time has come, after silent blockers were closed."""
    tx.session.flush()
    facts = claim.load_facts(tx.session, [schedule])
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


def _late_refusal(tx: Tx, schedule: Schedule, run: Run) -> str | None:
    due = schedule.due
    spent = schedule.max_runs is not None and due.dispatched_count >= schedule.max_runs
    if spent and run.trigger is Trigger.SCHEDULED and run.attempt == 1:
        return "max_runs_reached"
    facts = claim.load_facts(tx.session, [schedule])
    return policy.refusal(facts.admission[schedule.id])


def dispatch(tx: Tx, schedule: Schedule, run: Run, *, actor: str, now: datetime) -> None:
    """Have the work of an open run written; what is written is the order as it now stands."""
    due = schedule.due
    run.wait_reason = WaitReason.NOT_FETCHED
    run.blocked_by = None
    run.blocker_received = None
    run.task_id = task_id_of_run(run.run_id)
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
    target = target_for(schedule.target_kind)
    if run.attempt > 1:
        target.reopen(tx, run, actor=actor, now=now)
    else:
        target.write(tx, [claim.dispatch_of(schedule, run.id, run.run_id)], now=now)
    if _is_over(schedule):
        # A slot that is due at this moment was due while the schedule still had runs to make.
        steps.account_for_due(tx, schedule, "max_runs_reached", now=now)
        steps.set_next(due, None)
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
    facts = claim.load_facts(tx.session, [schedule])
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
