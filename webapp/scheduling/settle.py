"""Work moved on or ended: its run follows in the same transaction, and the schedule draws the consequence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import select

from webapp.logs import get_logger
from webapp.scheduling import steps
from webapp.scheduling.deliver import deliver_waiting
from webapp.scheduling.lifecycle import OPEN, RunStatus
from webapp.scheduling.models import Run, Schedule
from webapp.store.transaction import Tx

_log = get_logger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How the work of a run ended; `result` is a preview of at most 500 characters."""

    status: RunStatus
    code: str | None = None
    message: str | None = None
    result: str | None = None


def lock_run(tx: Tx, run_pk: int) -> tuple[Schedule, Run]:
    """Lock the schedule of a run, then read both as they now are."""
    schedule_pk = tx.session.scalars(select(Run.schedule_pk).where(Run.id == run_pk)).one()
    schedule = steps.lock_schedule(tx, schedule_pk)
    statement = select(Run).where(Run.id == run_pk).execution_options(populate_existing=True)
    return schedule, tx.session.scalars(statement).one()


def delivered(tx: Tx, schedule: Schedule, run: Run, *, now: datetime) -> None:
    """The target has fetched the work of a run."""
    if run.status is not RunStatus.QUEUED:
        return
    run.status = RunStatus.DELIVERED
    run.wait_reason = None
    run.delivered_at = now
    tx.session.flush()
    steps.tell(tx, schedule, [run.run_id], now=now)


def started(tx: Tx, schedule: Schedule, run: Run, *, now: datetime) -> None:
    """The target has taken the work of a run up."""
    if run.status not in (RunStatus.QUEUED, RunStatus.DELIVERED):
        return
    run.status = RunStatus.RUNNING
    run.wait_reason = None
    run.delivered_at = run.delivered_at or now
    run.started_at = now
    tx.session.flush()
    steps.tell(tx, schedule, [run.run_id], now=now)


def finish(tx: Tx, schedule: Schedule, run: Run, outcome: Outcome, *, now: datetime) -> bool:
    """End a run of a locked schedule: close it, count it, and let the next waiting one go.

    Returns False, and changes nothing, when the run has ended already.
    """
    if run.status not in OPEN:
        return False
    if run.status is RunStatus.QUEUED and outcome.status is RunStatus.COMPLETED:
        delivered(tx, schedule, run, now=now)
    steps.close_run(
        run,
        outcome.status,
        code=outcome.code,
        message=outcome.message,
        result=outcome.result,
        now=now,
    )
    steps.tell(tx, schedule, [run.run_id], now=now)
    end = {"run_id": run.run_id, "schedule_id": schedule.schedule_id, "status": run.status.value}
    tx.after_commit(partial(_log.info, "run ended", **end, code=run.error_code))
    steps.after_end(tx, schedule, run, now=now)
    deliver_waiting(tx, schedule, now=now)
    return True
