"""A run that waits for its turn, and for which nothing was sent yet, is taken back by a person."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select

from webapp.errors import AppError
from webapp.identity.access import Actor, Facts, Verb, demand
from webapp.ids import is_public_id
from webapp.scheduling import settle, steps
from webapp.scheduling.lifecycle import OPEN, RunStatus, TargetKind
from webapp.scheduling.models import Run
from webapp.store.transaction import Tx, operation

RUN_CANCELLED = "run_cancelled"


@operation
def cancel_waiting(tx: Tx, actor: Actor, run_id: str, *, now: datetime) -> Run:
    """End a run that waits behind another, or for a busy chat, before anything of it was sent.

    One that was sent meanwhile is left as it is: whoever asks looks at its `task_id` and `turn_id`, and steers
    those. Cancelling again changes nothing. Raises AppError `run_not_found`, `permission_denied`,
    `task_already_final` for a run that has ended otherwise.
    """
    visible = select(Run.id).where(Run.run_id == run_id, Run.network_pk.in_(actor.networks))
    run_pk = tx.session.scalars(visible).one_or_none() if is_public_id(run_id) else None
    if run_pk is None:
        raise AppError("run_not_found")
    schedule, run = settle.lock_run(tx, run_pk)
    # In a chat everything is its owner's.
    verb = Verb.USE_CHAT if schedule.target_kind is TargetKind.CHAT else Verb.STEER_TASK
    demand(actor, verb, Facts(schedule.network_pk, schedule.sponsor_pk))
    if steps.is_dispatched(run) or run.error_code == RUN_CANCELLED:
        return run
    if run.status not in OPEN:
        raise AppError("task_already_final", status_now=run.status.value)
    steps.record(tx, schedule, "schedule.cancel_run", {"run_id": run.run_id}, actor=actor.name, now=now)
    settle.finish(tx, schedule, run, settle.Outcome(RunStatus.CANCELLED, RUN_CANCELLED), now=now)
    return run
