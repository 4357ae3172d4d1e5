"""What changes elsewhere mean for schedules: people, nodes and mandates, each in the transaction of its change.

`webapp/__init__` hands these to the hooks of the packages that the engine does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select

from webapp.errors import AppError
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import Mandate
from webapp.scheduling import policy, steps
from webapp.scheduling.admission import load_admission, load_targets
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus, TargetKind
from webapp.scheduling.models import STILL_OPEN, Run, Schedule
from webapp.scheduling.target import target_for
from webapp.store.transaction import Tx

# --- People ---


def authority_changed(tx: Tx, user_pk: int, network_pk: int | None, now: datetime) -> None:
    """Stop every active schedule whose sponsor can no longer act; called in the transaction of the change."""
    statement = select(Schedule.id).where(
        Schedule.sponsor_pk == user_pk, Schedule.status == ScheduleStatus.ACTIVE
    )
    if network_pk is not None:
        statement = statement.where(Schedule.network_pk == network_pk)
    _recheck(tx, tx.session.scalars(statement).all(), now=now)


# --- Nodes ---


def lock_schedules_of_node(tx: Tx, node_pk: int, now: datetime) -> None:  # noqa: ARG001 - a hook's shape
    """Lock every schedule that has work at a node or aims at it, before the node itself is locked."""
    aims = select(Schedule.id).where(Schedule.target_kind == TargetKind.NODE, Schedule.target_pk == node_pk)
    works = select(Run.schedule_pk).where(Run.target_pk == node_pk, STILL_OPEN)
    steps.lock_due(tx, {*tx.session.scalars(aims), *tx.session.scalars(works)})


def node_changed(tx: Tx, node_pk: int, now: datetime) -> None:
    """Re-run admission for the active schedules of a node, in the transaction that changed the node."""
    target_changed(tx, TargetKind.NODE, node_pk, now)
    if node_pk not in target_for(TargetKind.NODE).load(tx.session, [node_pk]):
        _end_work_at(tx, TargetKind.NODE, node_pk, now=now)


def target_changed(tx: Tx, kind: TargetKind, target_pk: int, now: datetime) -> None:
    """Re-run admission for the active schedules of a target, in the transaction that changed it."""
    statement = select(Schedule.id).where(
        Schedule.target_kind == kind,
        Schedule.target_pk == target_pk,
        Schedule.status == ScheduleStatus.ACTIVE,
    )
    _recheck(tx, tx.session.scalars(statement).all(), now=now)


def _end_work_at(tx: Tx, kind: TargetKind, target_pk: int, *, now: datetime) -> None:
    """End the open runs of a target that is gone: nobody could ever report on them."""
    target = target_for(kind)
    works = select(Run.schedule_pk).join(Schedule, Schedule.id == Run.schedule_pk)
    works = works.where(Schedule.target_kind == kind, Run.target_pk == target_pk, STILL_OPEN)
    for schedule_pk in sorted(set(tx.session.scalars(works))):
        schedule = steps.load_locked(tx, schedule_pk)
        runs = [run for run in steps.open_runs(tx, schedule_pk) if run.target_pk == target_pk]
        target.expire(
            tx, [run for run in runs if steps.is_dispatched(run)], code=target.missing_code, now=now
        )
        for run in runs:
            steps.close_run(run, RunStatus.EXPIRED, code=target.missing_code, now=now)
        tx.session.flush()
        for run in runs:
            steps.after_end(tx, schedule, run, now=now)
        steps.tell(tx, schedule, [run.run_id for run in runs], now=now)


# --- Mandates ---


def lock_schedule_of_mandate(tx: Tx, workload: str) -> None:
    """Lock the schedule that a mandate is for (`schedule:<id>`), before the mandate itself is locked."""
    kind, _, schedule_id = workload.partition(":")
    if kind == "schedule":
        statement = select(Schedule.id).where(Schedule.schedule_id == schedule_id)
        steps.lock_due(tx, tx.session.scalars(statement).all())


def mandate_changed(tx: Tx, mandate: Mandate, actor: str, now: datetime) -> None:
    """Follow a person's change to a mandate: its schedule knows the new revision, and draws the consequence.

    Raises AppError `schedule_completed` where a completed schedule's mandate would become active.
    """
    statement = select(Schedule.id).where(Schedule.mandate_pk == mandate.id)
    for schedule_pk in tx.session.scalars(statement).all():
        schedule = steps.load_locked(tx, schedule_pk)
        if schedule.status is ScheduleStatus.COMPLETED and mandate.state is MandateState.ACTIVE:
            raise AppError("schedule_completed")
        schedule.mandate_revision = mandate.revision
        tx.session.flush()
        if mandate.state is MandateState.REVOKED:
            _revoked(tx, schedule, actor=actor, now=now)
        elif mandate.state is MandateState.PAUSED:
            _paused(tx, schedule, actor=actor, now=now)
        else:
            _recheck(tx, [schedule.id], now=now)
        steps.tell(tx, schedule, now=now)


def _revoked(tx: Tx, schedule: Schedule, *, actor: str, now: datetime) -> None:
    code = "mandate_revoked"
    at_work = [run for run in steps.open_runs(tx, schedule.id) if run.status is RunStatus.RUNNING]
    if schedule.status is ScheduleStatus.ACTIVE:
        steps.leave_active(
            tx, schedule, ScheduleStatus.NEEDS_ATTENTION, reason=code, code=code, actor=actor, now=now
        )
    elif schedule.status is ScheduleStatus.PROPOSED:
        steps.change_status(tx, schedule, ScheduleStatus.CANCELLED, reason=code, actor=actor, now=now)
    else:
        steps.withdraw(tx, schedule, code, actor=actor, now=now)
    target_for(schedule.target_kind).ask_to_stop(tx, at_work, code=code, now=now)


def _paused(tx: Tx, schedule: Schedule, *, actor: str, now: datetime) -> None:
    if schedule.status is ScheduleStatus.ACTIVE:
        steps.pause_for_mandate(tx, schedule, actor=actor, now=now)
    else:
        steps.withdraw(tx, schedule, policy.MANDATE_PAUSED, actor=actor, now=now)


# --- All of them ---


def _recheck(tx: Tx, schedule_pks: Sequence[int], *, now: datetime) -> None:
    steps.lock_due(tx, schedule_pks)
    schedules = [steps.load_locked(tx, pk) for pk in schedule_pks]
    facts = load_admission(tx.session, schedules, load_targets(tx.session, schedules), now=now)
    for schedule in schedules:
        code = policy.refusal(facts[schedule.id])
        if schedule.status is not ScheduleStatus.ACTIVE or code is None:
            continue
        if code == policy.MANDATE_PAUSED:
            steps.pause_for_mandate(tx, schedule, actor=steps.WORKER, now=now)
        elif code in policy.PERMANENT:
            steps.stop(tx, schedule, code, now=now)
