"""How dispatch is usually written: objects, and one transaction for each slot. The rows are the product's."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session, joinedload

from webapp.audit import AuditCounter, AuditEntry
from webapp.events.models import Event, EventCounter
from webapp.identity.access import may_sponsor
from webapp.identity.models import Membership
from webapp.ids import scheduled_run_id, task_id_of_run
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import Mandate
from webapp.nodes.lifecycle import (
    DEFAULT_MAX_RUN_SECONDS,
    DEFAULT_SCHEDULED_TTL_SECONDS,
    NodeLifecycle,
    TaskStatus,
)
from webapp.nodes.models import Node, Task, TaskEvent
from webapp.scheduling.lifecycle import RunStatus, Trigger, WaitReason
from webapp.scheduling.models import Run, Schedule, ScheduleDue, is_open
from webapp.scheduling.plans import plan_of


def dispatch_one(engine: Engine, network_pk: int, now: datetime) -> bool:
    """Dispatch one due schedule of a network in a transaction of its own; False when none is due."""
    with Session(engine, expire_on_commit=False) as session, session.begin():
        due = session.scalars(
            select(ScheduleDue)
            .where(ScheduleDue.network_pk == network_pk, ScheduleDue.due_at <= now)
            .options(joinedload(ScheduleDue.schedule, innerjoin=True))
            .order_by(ScheduleDue.due_at)
            .limit(1)
            .with_for_update(of=ScheduleDue, skip_locked=True)
        ).first()
        if due is None:
            return False
        _dispatch(session, due, due.schedule, now)
        return True


def _dispatch(session: Session, due: ScheduleDue, schedule: Schedule, now: datetime) -> None:
    assert due.next_run_at is not None
    open_run = session.scalars(select(Run).where(Run.schedule_pk == schedule.id, is_open(Run))).first()
    node = session.get_one(Node, schedule.target_pk)
    membership = session.get_one(Membership, (schedule.sponsor_pk, schedule.network_pk))
    mandate = session.get_one(Mandate, schedule.mandate_pk)
    assert open_run is None
    assert node.lifecycle_state is NodeLifecycle.ACTIVE
    assert may_sponsor(membership.role)
    assert mandate.state is MandateState.ACTIVE
    assert mandate.revision == schedule.mandate_revision
    run_id = scheduled_run_id(schedule.schedule_id, due.next_run_at)
    run = Run(
        run_id=run_id,
        schedule_pk=schedule.id,
        network_pk=schedule.network_pk,
        scheduled_for=due.next_run_at,
        trigger=Trigger.SCHEDULED,
        actor="worker",
        status=RunStatus.QUEUED,
        wait_reason=WaitReason.NOT_FETCHED,
        task_id=task_id_of_run(run_id),
        schedule_revision=schedule.revision,
        timetable_version=schedule.timetable_version,
        text_pk=schedule.text_pk,
        target_pk=schedule.target_pk,
        target_id=schedule.target_id,
        target_alias=node.alias,
        created_at=now,
    )
    session.add(run)
    session.flush()
    ttl = schedule.ttl_seconds or DEFAULT_SCHEDULED_TTL_SECONDS
    task = Task(
        task_id=run.task_id,
        network_pk=schedule.network_pk,
        node_pk=node.id,
        run_pk=run.id,
        text_pk=schedule.text_pk,
        priority_rank=schedule.priority_rank,
        status=TaskStatus.CREATED,
        ttl_seconds=ttl,
        max_run_seconds=schedule.max_run_seconds or DEFAULT_MAX_RUN_SECONDS,
        deadline_at=now + timedelta(seconds=ttl),
        created_at=now,
    )
    session.add(task)
    session.flush()
    session.add(
        TaskEvent(task_pk=task.id, seq=1, at=now, kind="created", actor="scheduler", attempt=1, detail={})
    )
    mandate.used_runs += 1
    due.claimed_through = due.last_run_at = due.next_run_at
    due.next_run_at = due.due_at = plan_of(schedule).next_after(now)
    due.claim_seq += 1
    due.dispatched_count += 1
    _tell(session, schedule, run, node, mandate, now)


def _tell(
    session: Session, schedule: Schedule, run: Run, node: Node, mandate: Mandate, now: datetime
) -> None:
    network_pk = schedule.network_pk
    detail = {"run_id": run.run_id, "revision": mandate.revision}
    session.add(
        AuditEntry(
            network_pk=network_pk,
            seq=_next(session, AuditCounter, network_pk),
            at=now,
            actor="worker",
            verb="mandate.use",
            subject_kind="mandate",
            subject_id=mandate.mandate_id,
            detail=detail,
        )
    )
    bells = {
        "run": {"schedules": [schedule.schedule_id], "runs": [run.run_id]},
        "new_task": {"nodes": [node.node_id], "count": 1, "priority": "normal", "from": "scheduler"},
    }
    for kind, data in bells.items():
        seq = _next(session, EventCounter, network_pk)
        session.add(Event(network_pk=network_pk, seq=seq, type=kind, data=data, at=now))


def _next(session: Session, model: type[AuditCounter] | type[EventCounter], network_pk: int) -> int:
    counter = session.get(model, network_pk, with_for_update=True)
    if counter is None:
        counter = model(network_pk=network_pk, seq=0)
        session.add(counter)
    counter.seq += 1
    return counter.seq
