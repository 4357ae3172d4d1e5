"""The bridge between runs and the tasks of a node, both directions.

A run becomes a task in an inbox (`NodeTarget`); what the node or a person does to the task comes back as the
life of the run (the operations below). Locks are taken in one order: schedule, run, task, counters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, exists, func, select
from sqlalchemy.orm import Session, joinedload

from webapp.errors import AppError
from webapp.identity.access import Actor, Facts, Verb, demand
from webapp.ids import task_id_of_run
from webapp.nodes import rules
from webapp.nodes import steps as inbox
from webapp.nodes.lifecycle import (
    DEFAULT_MAX_RUN_SECONDS,
    DEFAULT_SCHEDULED_TTL_SECONDS,
    STARTED,
    UNACKNOWLEDGED,
    NodeLifecycle,
    NodeStatus,
    TaskStatus,
)
from webapp.nodes.models import Node, NodePresence, Task
from webapp.scheduling import authority, settle
from webapp.scheduling import steps as schedule_steps
from webapp.scheduling.deliver import retry as retry_run
from webapp.scheduling.deliver import retry_refusal
from webapp.scheduling.lifecycle import RunStatus, WaitReason
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.settle import Outcome
from webapp.scheduling.target import Dispatch, TargetFacts, WorkFacts
from webapp.store import reading
from webapp.store.given import Given, GivenRows, look_up
from webapp.store.transaction import Tx, each_alone, operation

T = TypeVar("T")

SCHEDULER = "scheduler"
_PREVIEW = 500
_EXPIRE_AT_ONCE = 200


class TasksInBulk:
    """How the usual runs of a herd become tasks."""

    work_column = "task_id"
    run_columns: Mapping[str, Any] = {"wait_reason": WaitReason.NOT_FETCHED}

    def takes(self) -> ColumnElement[bool]:
        """The node is in the network of the schedule, takes work, and has the name that the schedule says."""
        return exists().where(
            Node.id == Schedule.target_pk,
            Node.network_pk == Schedule.network_pk,
            Node.deleted_at.is_(None),
            Node.lifecycle_state.in_([state for state in NodeLifecycle if rules.accepts_work(state)]),
            Node.alias == Schedule.target_alias,
        )

    def work_id(self, run_id: str) -> str:
        """The id of the task that carries a run."""
        return task_id_of_run(run_id)

    def take_keys(self, tx: Tx, count: int) -> Sequence[int]:
        """Keys for so many tasks."""
        return inbox.take_keys_of_tasks(tx, count)

    def write(self, tx: Tx, work: GivenRows, *, now: datetime) -> None:
        """Put a task for each run into the inbox of its node."""
        inbox.write_tasks_given(tx, work, _tasks_of, actor=SCHEDULER, sender=SCHEDULER, now=now)


def _tasks_of(work: Given) -> Select[*tuple[Any, ...]]:
    given = work.table("schedule_pk", "run_pk", "work_pk", "work_id")
    return select(
        given.c.work_pk.label("id"),
        given.c.work_id.label("task_id"),
        Schedule.network_pk,
        Schedule.target_pk.label("node_pk"),
        given.c.run_pk,
        Schedule.text_pk,
        Schedule.priority_rank,
        func.coalesce(Schedule.ttl_seconds, DEFAULT_SCHEDULED_TTL_SECONDS).label("ttl_seconds"),
        func.coalesce(Schedule.max_run_seconds, DEFAULT_MAX_RUN_SECONDS).label("max_run_seconds"),
    ).select_from(look_up(given, (Schedule, Schedule.id == given.c.schedule_pk)))


class NodeTarget:
    """How the engine reaches nodes."""

    missing_code = "target_node_not_found"
    one_at_a_time = False
    in_bulk = TasksInBulk()

    def find(self, session: Session, network_pk: int, public_id: str) -> int | None:
        """The key of the node with this id in this network, or None."""
        statement = select(Node.id).where(
            Node.node_id == public_id, Node.network_pk == network_pk, Node.deleted_at.is_(None)
        )
        return session.scalars(statement).one_or_none()

    def load(self, session: Session, target_pks: Collection[int]) -> Mapping[int, TargetFacts]:
        """Where these nodes are, what they are called, and whether they take work."""
        nodes = session.execute(
            select(Node.id, Node.network_pk, Node.node_id, Node.alias, Node.lifecycle_state).where(
                Node.id.in_(target_pks), Node.deleted_at.is_(None)
            )
        )
        return {
            pk: TargetFacts(
                network_pk=network_pk,
                public_id=node_id,
                alias=alias,
                refusal=None if rules.accepts_work(state) else "target_not_active",
            )
            for pk, network_pk, node_id, alias, state in nodes
        }

    def refuses(self, facts: TargetFacts, definition: Any) -> str | None:  # noqa: ARG002 - a protocol's shape
        """Whether the node takes work says the node, whatever the schedule."""
        return facts.refusal

    def check_model(self, model: str | None) -> None:
        """A node has a model of its own, if any."""
        if model is not None:
            raise AppError("invalid_model", field="model")

    def reserve(self, tx: Tx, target_pks: Collection[int]) -> set[int]:  # noqa: ARG002 - a protocol's shape
        """An inbox holds any number of tasks."""
        return set(target_pks)

    def dispatched(self, run_id: str, *, now: datetime) -> dict[str, Any]:  # noqa: ARG002 - a protocol's shape
        """The run has its task, which nobody has fetched yet."""
        return {"task_id": task_id_of_run(run_id), "wait_reason": WaitReason.NOT_FETCHED}

    def write(self, tx: Tx, dispatches: Sequence[Dispatch], *, now: datetime) -> None:
        """Put a task for each run into the inbox of its node."""
        tasks = [
            inbox.NewTask(
                task_id=task_id_of_run(dispatch.run_id),
                network_pk=dispatch.network_pk,
                node_pk=dispatch.target_pk,
                run_pk=dispatch.run_pk,
                text_pk=dispatch.text_pk,
                priority_rank=dispatch.priority_rank,
                ttl_seconds=dispatch.ttl_seconds or DEFAULT_SCHEDULED_TTL_SECONDS,
                max_run_seconds=dispatch.max_run_seconds or DEFAULT_MAX_RUN_SECONDS,
                created_by_pk=None,
            )
            for dispatch in dispatches
        ]
        inbox.write_tasks(tx, tasks, actor=SCHEDULER, sender=SCHEDULER, now=now)

    def progress(self, session: Session, run_pks: Collection[int]) -> Mapping[int, WorkFacts]:
        """How far the tasks of these runs are, and when their nodes were last heard."""
        rows = session.execute(
            select(Task.run_pk, Task.status, NodePresence.last_seen_at)
            .outerjoin(NodePresence, NodePresence.node_pk == Task.node_pk)
            .where(Task.run_pk.in_(run_pks))
        )
        return {
            run_pk: WorkFacts(
                received=status is not TaskStatus.CREATED,
                acknowledged=status in STARTED,
                heard_at=heard_at,
            )
            for run_pk, status, heard_at in rows
            if run_pk is not None
        }

    def withdraw(self, tx: Tx, runs: Sequence[Run], *, code: str, actor: str, now: datetime) -> None:
        """Take the tasks of these runs out of their inboxes."""
        tasks = inbox.lock_tasks_of_runs(tx, [run.id for run in runs])
        inbox.withdraw(tx, tasks, code=code, actor=actor, now=now)

    def expire(self, tx: Tx, runs: Sequence[Run], *, code: str, now: datetime) -> None:
        """End the tasks of these runs; a node that still works on one is told to stop."""
        tasks = inbox.lock_tasks_of_runs(tx, [run.id for run in runs])
        for task in tasks:
            if task.status in STARTED:
                inbox.request_cancel(tx, task, actor=SCHEDULER, now=now)
        inbox.expire(tx, tasks, code=code, actor=SCHEDULER, now=now)

    def ask_to_stop(
        self,
        tx: Tx,
        runs: Sequence[Run],
        *,
        code: str,  # noqa: ARG002 - a bell says no reason
        now: datetime,
    ) -> None:
        """Ring the nodes that work on these runs: nobody needs the result any more."""
        for task in inbox.lock_tasks_of_runs(tx, [run.id for run in runs]):
            if task.status in STARTED:
                inbox.request_cancel(tx, task, actor=SCHEDULER, now=now)

    def reopen(self, tx: Tx, run: Run, *, actor: str, now: datetime) -> None:
        """Put the ended task of this run back into its inbox, as its next attempt."""
        for task in inbox.lock_tasks_of_runs(tx, [run.id]):
            inbox.reopen(tx, task, actor=actor, sender=SCHEDULER, now=now)

    def expire_overdue(self, *, now: datetime) -> int:
        """End tasks that nobody took up in time, or that run for too long."""
        return expire_overdue(now=now)


# --- What a node calls ---


def fetch(node_pk: int, limit: int, *, now: datetime) -> list[Task]:
    """What waits in the inbox of a node, most urgent first; what is new becomes delivered.

    Looking into an empty inbox writes nothing but the node's presence, at most once a minute.
    """
    with reading() as session:
        node = session.get(Node, node_pk)
        if node is None or not rules.may_fetch(node.lifecycle_state):
            held = False
        else:
            held = bool(inbox.peek_inbox(session, node_pk, 1, now))
        presence = session.get(NodePresence, node_pk)
    if not held and presence is not None and presence.last_seen_at is not None:
        quiet = not rules.presence_needs_write(
            presence.status, presence.last_seen_at, presence.task_id, None, None, now
        )
        if quiet:
            return []
    return _fetch(node_pk, limit, now=now)


@operation
def _fetch(tx: Tx, node_pk: int, limit: int, *, now: datetime) -> list[Task]:
    node = tx.session.get_one(Node, node_pk)
    if not rules.may_fetch(node.lifecycle_state):
        inbox.touch_presence(tx, node_pk, None, None, now)
        return []
    refs = inbox.peek_inbox(tx.session, node_pk, limit, now)
    runs = _lock_runs(tx, [ref.run_pk for ref in refs if ref.run_pk is not None])
    tasks = inbox.take_from_inbox(tx, node_pk, limit, now, actor=node.alias, only=[ref.pk for ref in refs])
    for task in tasks:
        run = runs.get(task.run_pk) if task.run_pk is not None else None
        if run is not None:
            settle.delivered(tx, run.schedule, run, now=now)
    # Last: whoever holds a schedule may be waiting for the row of this node's presence.
    inbox.touch_presence(tx, node_pk, None, None, now)
    return tasks


def _lock_runs(tx: Tx, run_pks: Sequence[int]) -> dict[int, Run]:
    """Lock the schedules of these runs and read the runs, by their keys."""
    if not run_pks:
        return {}
    schedule_pks = tx.session.scalars(select(Run.schedule_pk).where(Run.id.in_(run_pks)).distinct()).all()
    schedule_steps.lock_due(tx, schedule_pks)
    statement = (
        select(Run)
        .where(Run.id.in_(run_pks))
        .options(joinedload(Run.schedule))
        .execution_options(populate_existing=True)
    )
    return {run.id: run for run in tx.session.scalars(statement)}


@dataclass
class _Held:
    """A task that is locked, with the run and schedule that it belongs to, if any."""

    task: Task
    schedule: Schedule | None
    run: Run | None


def _hold(tx: Tx, task_id: str, *, node_pk: int | None = None) -> _Held:
    """Lock a task and, before it, what it belongs to. Raises AppError `task_not_found`."""
    statement = select(Task.run_pk).where(Task.task_id == task_id)
    if node_pk is not None:
        statement = statement.where(Task.node_pk == node_pk)
    row = tx.session.execute(statement).one_or_none()
    if row is None:
        raise AppError("task_not_found")
    schedule, run = settle.lock_run(tx, row.run_pk) if row.run_pk is not None else (None, None)
    task = inbox.lock_task(tx, task_id)
    if task is None:
        raise AppError("task_not_found")
    return _Held(task, schedule, run)


def _raise_refusal(outcome: T | AppError) -> T:
    if isinstance(outcome, AppError):
        raise outcome
    return outcome


def acknowledge(node_pk: int, task_id: str, attempt: int | None, *, now: datetime) -> Task:
    """The node takes a task up; the run starts. Again is fine.

    Raises AppError `task_not_found`, `task_attempt_superseded`, `task_withdrawn`, `task_already_final`,
    `invalid_attempt`; a refused report is kept as an event of the task.
    """
    return _raise_refusal(_report(node_pk, task_id, attempt, "ack", now=now))


def start(node_pk: int, task_id: str, attempt: int | None, *, now: datetime) -> Task:
    """The node says that it has begun. Raises the same as `acknowledge`."""
    return _raise_refusal(_report(node_pk, task_id, attempt, "start", now=now))


@operation
def _report(
    tx: Tx, node_pk: int, task_id: str, attempt: int | None, report: str, *, now: datetime
) -> Task | AppError:
    held = _hold(tx, task_id, node_pk=node_pk)
    inbox.touch_presence(tx, node_pk, None, None, now)
    actor = held.task.node.alias
    try:
        rules.check_report(held.task, attempt, now)
    except AppError as refused:
        inbox.note_refusal(tx, held.task, refused, report=report, attempt=attempt, actor=actor, now=now)
        return refused
    move = inbox.start if report == "start" else inbox.acknowledge
    move(tx, held.task, actor=actor, now=now)
    if held.schedule is not None and held.run is not None:
        settle.started(tx, held.schedule, held.run, now=now)
    return held.task


_OUTCOMES = {
    TaskStatus.REPLIED: (RunStatus.COMPLETED, None),
    TaskStatus.FAILED: (RunStatus.FAILED, "task_failed"),
    TaskStatus.CANCELLED: (RunStatus.CANCELLED, "task_cancelled"),
}


def reply(
    node_pk: int,
    task_id: str,
    status: TaskStatus,
    result: str | None,
    attempt: int | None,
    *,
    now: datetime,
) -> Task:
    """The node's answer ends the task and its run in one transaction. The same answer again is fine.

    Raises AppError `task_not_found`, `task_attempt_superseded`, `task_already_final`, `task_not_delivered`,
    `invalid_attempt`; a refused report is kept as an event of the task.
    """
    return _raise_refusal(_reply(node_pk, task_id, status, result, attempt, now=now))


@operation
def _reply(
    tx: Tx,
    node_pk: int,
    task_id: str,
    status: TaskStatus,
    result: str | None,
    attempt: int | None,
    *,
    now: datetime,
) -> Task | AppError:
    held = _hold(tx, task_id, node_pk=node_pk)
    inbox.touch_presence(tx, node_pk, None, None, now)
    task, actor = held.task, held.task.node.alias
    if rules.repeats_answer(task, status, result, attempt):
        return task
    try:
        rules.check_answer(task, attempt, now)
    except AppError as refused:
        inbox.note_refusal(tx, task, refused, report="reply", attempt=attempt, actor=actor, now=now)
        return refused
    run_status, code = _OUTCOMES[status]
    message = result if status is TaskStatus.FAILED else None
    inbox.end(tx, task, status, actor=actor, code=code, message=message, result=result, now=now)
    preview = (task.result or "")[:_PREVIEW] or None
    _settle(tx, held, Outcome(run_status, code, task.error_message, preview), now=now)
    return task


def _settle(tx: Tx, held: _Held, outcome: Outcome, *, now: datetime) -> None:
    if held.schedule is not None and held.run is not None:
        settle.finish(tx, held.schedule, held.run, outcome, now=now)


@operation
def heartbeat(tx: Tx, node_pk: int, status: NodeStatus, task_id: str | None, *, now: datetime) -> None:
    """The node says how it is; `working` with a task that it has acknowledged says that this one runs.

    Raises AppError `task_not_found` for a task that is not the node's.
    """
    if task_id is not None:
        held = _hold(tx, task_id, node_pk=node_pk)
        if status is NodeStatus.WORKING and held.task.status is TaskStatus.ACKED:
            inbox.start(tx, held.task, actor=held.task.node.alias, now=now)
    inbox.touch_presence(tx, node_pk, status, task_id, now)


# --- What a person does to a task ---


def _hold_for(tx: Tx, actor: Actor, task_id: str) -> _Held:
    """Lock a task that a person may steer. Raises AppError `task_not_found`, `permission_denied`."""
    visible = select(Task.id).where(Task.task_id == task_id, Task.network_pk.in_(actor.networks))
    if tx.session.scalars(visible).one_or_none() is None:
        raise AppError("task_not_found")
    held = _hold(tx, task_id)
    owner = held.schedule.sponsor_pk if held.schedule is not None else held.task.created_by_pk
    demand(actor, Verb.STEER_TASK, Facts(network_pk=held.task.network_pk, sponsor_pk=owner))
    return held


@operation
def cancel(tx: Tx, actor: Actor, task_id: str, *, now: datetime) -> Task:
    """End an open task; a node that works on it is told to stop. Cancelling again changes nothing.

    Raises AppError `task_not_found`, `permission_denied`, `task_already_final`.
    """
    held = _hold_for(tx, actor, task_id)
    task = held.task
    if task.status is TaskStatus.CANCELLED:
        return task
    if task.status in STARTED:
        inbox.request_cancel(tx, task, actor=actor.name, now=now)
    inbox.end(tx, task, TaskStatus.CANCELLED, actor=actor.name, code="task_cancelled", now=now)
    _settle(tx, held, Outcome(RunStatus.CANCELLED, "task_cancelled"), now=now)
    return task


def retry(actor: Actor, task_id: str, *, now: datetime) -> Task:
    """Have an ended task done once more, as its next attempt; its run opens again.

    Raises AppError `task_not_found`, `permission_denied`, `schedule_cancelled`, `schedule_completed`,
    `task_not_retryable`, `previous_run_active`, `node_not_active`, or the code of admission; what the mandate
    does not carry is audited.
    """
    return _raise_refusal(_retry(actor, task_id, now=now))


@operation
def _retry(tx: Tx, actor: Actor, task_id: str, *, now: datetime) -> Task | AppError:
    held = _hold_for(tx, actor, task_id)
    if held.schedule is not None and held.run is not None:
        refused = retry_refusal(tx, held.schedule, held.run, now=now)
        if refused is not None:
            authority.note_refusal(tx, held.schedule, refused, held.run.run_id, actor=actor.name, now=now)
            return refused
        retry_run(tx, held.schedule, held.run, actor=actor.name, now=now)
        return held.task
    rules.check_retry(held.task)
    if held.task.node.deleted_at is not None or not rules.accepts_work(held.task.node.lifecycle_state):
        raise AppError("node_not_active")
    inbox.reopen(tx, held.task, actor=actor.name, now=now)
    return held.task


# --- What time does to a task ---


def expire_overdue(*, now: datetime, limit: int = _EXPIRE_AT_ONCE) -> int:
    """End tasks whose time has run out, at most `limit`; returns how many were ended."""
    with reading() as session:
        refs = inbox.overdue(session, now, limit)
    return each_alone([ref.task_id for ref in refs], partial(_expire_one, now=now), "ending overdue work")


@operation
def _expire_one(tx: Tx, task_id: str, *, now: datetime) -> bool:
    held = _hold(tx, task_id)
    task = held.task
    if not rules.is_overdue(task, now):
        return False
    code = "task_expired" if task.status in UNACKNOWLEDGED else "task_timed_out"
    if task.status in STARTED:
        inbox.request_cancel(tx, task, actor=SCHEDULER, now=now)
    inbox.end(tx, task, TaskStatus.EXPIRED, actor=SCHEDULER, code=code, now=now)
    _settle(tx, held, Outcome(RunStatus.EXPIRED, code), now=now)
    return True
