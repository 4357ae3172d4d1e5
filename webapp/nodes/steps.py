"""What happens to tasks and presence inside a transaction that somebody else owns.

Tasks are written and moved here alone, by people's tasks and by dispatched runs alike; nothing here knows of
schedules or runs, but for the key that ties a task to its run. Whoever calls has locked what stands before
tasks in the one lock order (schedule, run, mandate, task, counters).

`actor` is who did it, as shown in the history of the task: a person's name, `scheduler`, or `node:<alias>`.
Times are aware UTC instants.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Insert,
    Select,
    Table,
    bindparam,
    func,
    insert,
    literal,
    literal_column,
    select,
)
from sqlalchemy.orm import Session, joinedload

from webapp.errors import AppError
from webapp.events import outbox
from webapp.identity.models import User
from webapp.nodes import rules
from webapp.nodes.lifecycle import OPEN, PRIORITY_RANK, UNACKNOWLEDGED, NodeStatus, TaskStatus
from webapp.nodes.models import Node, NodePresence, Task, TaskEvent
from webapp.store import dialect
from webapp.store.base import to_milliseconds
from webapp.store.given import Given, GivenRows, bound_now, take_keys
from webapp.store.transaction import Tx

_tasks, _task_events = cast(Table, Task.__table__), cast(Table, TaskEvent.__table__)

SCHEDULER = "scheduler"
PRIORITY_OF_RANK = {rank: priority.value for priority, rank in PRIORITY_RANK.items()}

# The second is word for word the condition of the partial indexes; a bound value would keep them unused.
WAITING: ColumnElement[Any] = literal_column("tasks.status IN ('created', 'delivered')")
# The rank is true of every task: with it, of two indexes by node that of the inbox is taken, not that of the history.
STILL_OPEN: ColumnElement[Any] = literal_column(
    "(tasks.status IN ('created', 'delivered', 'acked', 'running') AND tasks.priority_rank >= 0)"
)

AnySelect = TypeVar("AnySelect", bound=Select[*tuple[Any, ...]])

_MAX_MESSAGE = 500
_MAX_IDS_PER_EVENT = 200
_MAX_KEYS_PER_QUERY = 1000
_MAX_KEPT_REFUSALS = 20
_MAX_KEPT_EARLIER_RESULT = 2000
_REFUSED = "report_refused"
CANCEL_REQUESTED = "cancel_requested"


@dataclass(frozen=True)
class NewTask:
    """A task to be written. `ttl_seconds` bounds the wait, `max_run_seconds` the work after the ack."""

    task_id: str
    network_pk: int
    node_pk: int
    run_pk: int | None
    text_pk: int
    priority_rank: int
    ttl_seconds: int
    max_run_seconds: int
    created_by_pk: int | None


class InboxSummary(NamedTuple):
    """What a bell says of an inbox: how much waits there, and of the first of it its priority and sender."""

    waiting: int
    priority: str
    sender: str


class TaskRef(NamedTuple):
    """Enough of a task to lock what stands before it."""

    pk: int
    task_id: str
    run_pk: int | None
    node_pk: int


# Writing and finding


def write_tasks(tx: Tx, tasks: Sequence[NewTask], *, actor: str, sender: str, now: datetime) -> list[int]:
    """Put `tasks` into the inboxes of their nodes and ring one bell per network and priority.

    The caller has asked `rules.accepts_work`. `sender` is what the bell names: `scheduler` or a person.
    Returns the primary keys of the tasks that were written; a task whose id or run is taken already is not
    written again and not returned.
    """
    if not tasks:
        return []
    table = cast(Table, Task.__table__)
    by_id = {task.task_id: task for task in tasks}
    rows = [_new_row(task, now) for task in by_id.values()]
    written = dialect.insert_new(tx.session, table, rows, returning=[table.c.id, table.c.task_id])
    if not written:
        return []
    events = [_event_row(pk, 1, "created", actor, 1, {}, now) for pk, _ in written]
    tx.session.execute(insert(TaskEvent), events)
    _ring(tx, [by_id[task_id] for _, task_id in written], sender, now)
    return [pk for pk, _ in written]


def take_keys_of_tasks(tx: Tx, count: int) -> Sequence[int]:
    """The primary keys that `count` tasks, written in this transaction, will have."""
    return take_keys(tx.session, _tasks, count)


def write_tasks_given(
    tx: Tx,
    work: GivenRows,
    choose: Callable[[Given], Select[*tuple[Any, ...]]],
    *,
    actor: str,
    sender: str,
    now: datetime,
) -> None:
    """The same as `write_tasks` for many at once, none of which is there: a few statements for all of them.

    `work` has their keys as `work_pk` (taken by `take_keys_of_tasks`); `choose` selects from it `id` and the fields of
    a `NewTask` that a run has. Raises IntegrityError where a task is there already.
    """
    work.execute(_insert_tasks, choose, now=now, now_ms=to_milliseconds(now))
    work.execute(_insert_first_events, actor, now=now)
    groups: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    counted: Sequence[Any] = work.execute(_count_by_inbox).all()
    for network_pk, rank, node_pk, count in counted:
        groups[network_pk, rank][node_pk] = count
    _ring_groups(tx, groups, sender, now)


def _insert_tasks(work: Given, choose: Callable[[Given], Select[*tuple[Any, ...]]]) -> Insert:
    chosen = choose(work).subquery("chosen").c
    values: dict[str, Any] = {
        **{column.name: column for column in chosen},
        "status": literal(TaskStatus.CREATED, _tasks.c.status.type),
        "deadline_at": bindparam("now_ms", type_=BigInteger) + chosen.ttl_seconds * 1000,
        "created_at": bound_now(),
    }
    return insert(_tasks).from_select(list(values), select(*values.values()))


def _insert_first_events(work: Given, actor: str) -> Insert:
    constant = {"seq": 1, "kind": "created", "actor": actor, "attempt": 1, "detail": {}}
    values: dict[str, Any] = {
        "task_pk": work.table("work_pk").c.work_pk,
        "at": bound_now(),
        **{name: literal(value, _task_events.c[name].type) for name, value in constant.items()},
    }
    return insert(_task_events).from_select(list(values), select(*values.values()))


def _count_by_inbox(work: Given) -> Select[int, int, int, int]:
    inbox = (Task.network_pk, Task.priority_rank, Task.node_pk)
    keys = select(work.table("work_pk").c.work_pk)
    return select(*inbox, func.count()).where(Task.id.in_(keys)).group_by(*inbox)


def lock_task(tx: Tx, task_id: str) -> Task | None:
    """The task of this public id, locked, with its node and text; None when there is none."""
    return tx.session.scalars(_locking(select(Task).where(Task.task_id == task_id))).one_or_none()


def lock_tasks(tx: Tx, pks: Iterable[int]) -> list[Task]:
    """The tasks of these primary keys, locked in the order of their keys, with node and text."""
    return _locked_by(tx, Task.id, pks)


def lock_tasks_of_runs(tx: Tx, run_pks: Iterable[int]) -> list[Task]:
    """The tasks of these runs, locked in the order of their keys, with node and text."""
    return _locked_by(tx, Task.run_pk, run_pks)


def peek_inbox(session: Session, node_pk: int, limit: int, now: datetime) -> list[TaskRef]:
    """What `take_from_inbox` would hand out, unlocked: to lock the runs first."""
    rows = session.execute(
        _inbox(select(Task.id, Task.task_id, Task.run_pk, Task.node_pk), node_pk, limit, now)
    )
    return [TaskRef(*row) for row in rows]


def take_from_inbox(
    tx: Tx, node_pk: int, limit: int, now: datetime, *, actor: str, only: Sequence[int] | None = None
) -> list[Task]:
    """Hand out at most `limit` unacknowledged tasks, high before normal before low, oldest first.

    New ones become delivered; what was handed out before and not acknowledged is handed out again. What is
    past its TTL stays back. `only` keeps to these primary keys (those whose runs the caller has locked).
    """
    statement = _inbox(select(Task), node_pk, limit, now)
    if only is not None:
        statement = statement.where(Task.id.in_(list(only)))
    tasks = list(tx.session.scalars(_locking(statement)))
    new = [task for task in tasks if task.status is TaskStatus.CREATED]
    for task in new:
        task.status = TaskStatus.DELIVERED
        task.delivered_at = now
    append_events(tx, new, "delivered", actor, {}, now)
    return tasks


def overdue(session: Session, now: datetime, limit: int) -> list[TaskRef]:
    """Open tasks whose time has run out at `now`, the longest overdue first, at most `limit`."""
    statement = (
        select(Task.id, Task.task_id, Task.run_pk, Task.node_pk)
        .where(STILL_OPEN, Task.deadline_at <= now)
        .order_by(Task.deadline_at, Task.id)
        .limit(limit)
    )
    return [TaskRef(*row) for row in session.execute(statement)]


# Moving a task on


def acknowledge(tx: Tx, task: Task, *, actor: str, now: datetime) -> bool:
    """The node has taken the task up: from now on its running time counts. False when it had already."""
    if task.status not in UNACKNOWLEDGED:
        _demand_open(task)
        return False
    task.status = TaskStatus.ACKED
    task.delivered_at = task.delivered_at or now
    task.acked_at = now
    task.deadline_at = now + timedelta(seconds=task.max_run_seconds)
    append_event(tx, task, "acked", actor, {}, now)
    return True


def start(tx: Tx, task: Task, *, actor: str, now: datetime) -> bool:
    """The node works on the task; acknowledges it where that was left out. False when it was running."""
    acknowledge(tx, task, actor=actor, now=now)
    if task.status is TaskStatus.RUNNING:
        return False
    task.status = TaskStatus.RUNNING
    task.started_at = now
    append_event(tx, task, "running", actor, {}, now)
    return True


def end(
    tx: Tx,
    task: Task,
    status: TaskStatus,
    *,
    actor: str,
    now: datetime,
    code: str | None = None,
    message: str | None = None,
    result: str | None = None,
) -> None:
    """Close a task: `replied`, `failed`, `cancelled` or `expired`.

    `result` is cut to 64 KiB of UTF-8 and then marked, `message` to 500 characters. Raises AppError
    `task_already_final` when the task may not end so.
    """
    if status in OPEN or not rules.may_move(task.status, status):
        raise AppError("task_already_final", status_now=task.status.value)
    before = task.status
    task.status = status
    task.completed_at = now
    task.error_code = code
    task.error_message = message[:_MAX_MESSAGE] if message else None
    task.result, task.result_truncated = rules.cut_result(result)
    detail: dict[str, Any] = {"from": before.value}
    if code:
        detail["code"] = code
    if task.result_truncated:
        detail["result_truncated"] = True
    append_event(tx, task, status.value, actor, detail, now)


def reopen(tx: Tx, task: Task, *, actor: str, now: datetime, sender: str | None = None) -> None:
    """Try a failed, expired or cancelled task again: the same task, its next attempt, its TTL anew.

    The caller has asked `rules.accepts_work`. `sender` is what the bell names (default: `actor`). Raises
    AppError `task_not_retryable`.
    """
    rules.check_retry(task)
    earlier = {
        "status": task.status.value,
        "code": task.error_code,
        "result": (task.result or "")[:_MAX_KEPT_EARLIER_RESULT] or None,
    }
    task.status = TaskStatus.CREATED
    task.attempt += 1
    task.deadline_at = now + timedelta(seconds=task.ttl_seconds)
    task.error_code = task.error_message = task.result = None
    task.result_truncated = False
    task.delivered_at = task.acked_at = task.started_at = task.completed_at = None
    append_event(tx, task, "retried", actor, {"earlier": earlier}, now)
    _ring(tx, [task], sender or actor, now)


def withdraw(
    tx: Tx, tasks: Sequence[Task], *, code: str, actor: str, now: datetime, message: str | None = None
) -> list[Task]:
    """Take what is not acknowledged yet out of the inboxes: cancelled, with `code` as the reason.

    Acknowledged and final ones are left alone. Returns the withdrawn ones.
    """
    waiting = [task for task in tasks if task.status in UNACKNOWLEDGED]
    for task in waiting:
        task.status = TaskStatus.CANCELLED
        task.completed_at = now
        task.error_code = code
        task.error_message = message[:_MAX_MESSAGE] if message else None
    append_events(tx, waiting, "cancelled", actor, {"code": code}, now)
    return waiting


def expire(tx: Tx, tasks: Sequence[Task], *, code: str, actor: str, now: datetime) -> list[Task]:
    """End open tasks as expired, with `code` as the reason, whether they were acknowledged or not.

    Final ones are left alone. Returns the expired ones.
    """
    still_open = [task for task in tasks if task.status in OPEN]
    for task in still_open:
        task.status = TaskStatus.EXPIRED
        task.completed_at = now
        task.error_code = code
    append_events(tx, still_open, "expired", actor, {"code": code}, now)
    return still_open


def request_cancel(tx: Tx, task: Task, *, actor: str, now: datetime) -> None:
    """Ask the node to stop work that it has taken up: rings `cancel`; the task ends when the node says so."""
    if not _has_event(tx, task, CANCEL_REQUESTED):
        append_event(tx, task, CANCEL_REQUESTED, actor, {}, now)
    data = {"node_id": task.node.node_id, "task_id": task.task_id}
    outbox.emit(tx, task.network_pk, "cancel", data, now=now)


# History


def append_event(tx: Tx, task: Task, kind: str, actor: str, detail: Mapping[str, Any], now: datetime) -> None:
    """Write the next event of a task (locked by the caller) and tell open pages that it changed."""
    append_events(tx, [task], kind, actor, detail, now)


def append_events(
    tx: Tx, tasks: Sequence[Task], kind: str, actor: str, detail: Mapping[str, Any], now: datetime
) -> None:
    """The same event for many tasks (locked by the caller), in few statements."""
    if not tasks:
        return
    last = _last_numbers(tx, [task.id for task in tasks])
    rows = [
        _event_row(task.id, last.get(task.id, 0) + 1, kind, actor, task.attempt, detail, now)
        for task in tasks
    ]
    tx.session.execute(insert(TaskEvent), rows)
    ids: dict[int, list[str]] = defaultdict(list)
    for task in tasks:
        ids[task.network_pk].append(task.task_id)
    for network_pk, task_ids in ids.items():
        for bite in _bites(task_ids, _MAX_IDS_PER_EVENT):
            outbox.emit(tx, network_pk, "task", {"tasks": list(bite)}, now=now)


def note_refusal(
    tx: Tx, task: Task, error: AppError, *, report: str, attempt: int | None, actor: str, now: datetime
) -> None:
    """Keep a refused report (`ack`, `start`, `reply`) in the history of the task, at most 20 of them."""
    kept = tx.session.scalar(
        select(func.count())
        .select_from(TaskEvent)
        .where(TaskEvent.task_pk == task.id, TaskEvent.kind == _REFUSED)
    )
    if kept is None or kept < _MAX_KEPT_REFUSALS:
        detail = {"report": report, "code": error.code, "reported_attempt": attempt}
        append_event(tx, task, _REFUSED, actor, detail, now)


# Presence


def touch_presence(
    tx: Tx, node_pk: int, status: NodeStatus | None, task_id: str | None, now: datetime
) -> None:
    """Store that a node was heard at `now`, and what it says of itself (None = it said nothing of that).

    At most one write a minute unless what it says changes. A node that returns after ten minutes of silence
    has the bell rung for the work that it holds.
    """
    presence = tx.session.get(NodePresence, node_pk)
    known = presence.status if presence is not None else NodeStatus.OFFLINE
    seen_at = presence.last_seen_at if presence is not None else None
    known_task_id = presence.task_id if presence is not None else None
    if not rules.presence_needs_write(known, seen_at, known_task_id, status, task_id, now):
        return
    said = status or (NodeStatus.IDLE if known is NodeStatus.OFFLINE else known)
    values = {
        "status": said,
        "last_seen_at": max(now, seen_at) if seen_at is not None else now,
        "task_id": task_id if status is not None else known_task_id,
    }
    table = cast(Table, NodePresence.__table__)
    dialect.upsert(tx.session, table, {"node_pk": node_pk, **values}, ["node_pk"], values)
    if presence is not None:
        tx.session.expire(presence)
    returned = rules.is_offline(seen_at, now) or known is NodeStatus.OFFLINE
    if returned or said is not known:
        node = tx.session.get_one(Node, node_pk)
        outbox.emit(tx, node.network_pk, "node", {"nodes": [node.node_id]}, now=now)
        if returned and said is not NodeStatus.OFFLINE:
            _ring_for_held(tx, node, now)


def inbox_summary(session: Session, node_pk: int, now: datetime) -> InboxSummary | None:
    """What waits in an inbox at `now`; None when it is empty."""
    count = session.scalar(select(func.count()).select_from(Task).where(*waits_for(node_pk, now)))
    columns = select(Task.priority_rank, Task.run_pk, User.name).outerjoin(
        User, User.id == Task.created_by_pk
    )
    first = session.execute(_inbox(columns, node_pk, 1, now)).first()
    if not count or first is None:
        return None
    rank, run_pk, name = first
    sender = SCHEDULER if run_pk is not None or name is None else name
    return InboxSummary(count, PRIORITY_OF_RANK[rank], sender)


def _ring_for_held(tx: Tx, node: Node, now: datetime) -> None:
    waiting = inbox_summary(tx.session, node.id, now)
    if waiting is None:
        return
    data = {
        "nodes": [node.node_id],
        "count": waiting.waiting,
        "priority": waiting.priority,
        "from": waiting.sender,
    }
    outbox.emit(tx, node.network_pk, "new_task", data, now=now)


# Parts


def _new_row(task: NewTask, now: datetime) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "network_pk": task.network_pk,
        "node_pk": task.node_pk,
        "run_pk": task.run_pk,
        "created_by_pk": task.created_by_pk,
        "text_pk": task.text_pk,
        "priority_rank": task.priority_rank,
        "status": TaskStatus.CREATED,
        "attempt": 1,
        "ttl_seconds": task.ttl_seconds,
        "max_run_seconds": task.max_run_seconds,
        "deadline_at": now + timedelta(seconds=task.ttl_seconds),
        "result_truncated": False,
        "created_at": now,
    }


def _event_row(
    task_pk: int, seq: int, kind: str, actor: str, attempt: int, detail: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    return {
        "task_pk": task_pk,
        "seq": seq,
        "at": now,
        "kind": kind,
        "actor": actor,
        "attempt": attempt,
        "detail": dict(detail),
    }


def waits_for(node_pk: int, now: datetime) -> tuple[ColumnElement[Any], ...]:
    """The conditions of a task that its node could fetch at `now`."""
    # STILL_OPEN says nothing new here, but it is the word of the index.
    return Task.node_pk == node_pk, STILL_OPEN, WAITING, Task.deadline_at > now


def _inbox(statement: AnySelect, node_pk: int, limit: int, now: datetime) -> AnySelect:
    """The order of an inbox: high before normal before low, then the oldest."""
    return (
        statement.where(*waits_for(node_pk, now))
        .order_by(Task.priority_rank, Task.created_at, Task.id)
        .limit(limit)
    )


def _locking(statement: AnySelect) -> AnySelect:
    return (
        statement.options(joinedload(Task.node, innerjoin=True), joinedload(Task.text, innerjoin=True))
        .with_for_update(of=Task)
        .execution_options(populate_existing=True)
    )


def _locked_by(tx: Tx, column: Any, keys: Iterable[int]) -> list[Task]:
    tasks: list[Task] = []
    for bite in _bites(sorted(set(keys)), _MAX_KEYS_PER_QUERY):
        statement = select(Task).where(column.in_(list(bite))).order_by(Task.id)
        tasks.extend(tx.session.scalars(_locking(statement)))
    return tasks


def _last_numbers(tx: Tx, task_pks: Sequence[int]) -> dict[int, int]:
    numbers: dict[int, int] = {}
    for bite in _bites(task_pks, _MAX_KEYS_PER_QUERY):
        statement = (
            select(TaskEvent.task_pk, func.max(TaskEvent.seq))
            .where(TaskEvent.task_pk.in_(list(bite)))
            .group_by(TaskEvent.task_pk)
        )
        numbers.update((pk, seq) for pk, seq in tx.session.execute(statement))
    return numbers


def _has_event(tx: Tx, task: Task, kind: str) -> bool:
    statement = select(TaskEvent.id).where(
        TaskEvent.task_pk == task.id, TaskEvent.kind == kind, TaskEvent.attempt == task.attempt
    )
    return tx.session.scalar(statement.limit(1)) is not None


def _demand_open(task: Task) -> None:
    if task.status not in OPEN:
        raise AppError("task_already_final", status_now=task.status.value)


def _ring(tx: Tx, tasks: Sequence[NewTask] | Sequence[Task], sender: str, now: datetime) -> None:
    groups: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for task in tasks:
        groups[task.network_pk, task.priority_rank][task.node_pk] += 1
    _ring_groups(tx, groups, sender, now)


def _ring_groups(tx: Tx, groups: Mapping[tuple[int, int], Counter[int]], sender: str, now: datetime) -> None:
    """One `new_task` bell per network and priority, naming the nodes (at most 200 an event)."""
    names = _node_ids(tx, {node_pk for counts in groups.values() for node_pk in counts})
    for (network_pk, rank), counts in sorted(groups.items()):
        for bite in _bites(sorted(counts), _MAX_IDS_PER_EVENT):
            data = {
                "nodes": [names[pk] for pk in bite],
                "count": sum(counts[pk] for pk in bite),
                "priority": PRIORITY_OF_RANK[rank],
                "from": sender,
            }
            outbox.emit(tx, network_pk, "new_task", data, now=now)


def _node_ids(tx: Tx, node_pks: Iterable[int]) -> dict[int, str]:
    names: dict[int, str] = {}
    for bite in _bites(sorted(node_pks), _MAX_KEYS_PER_QUERY):
        rows = tx.session.execute(select(Node.id, Node.node_id).where(Node.id.in_(list(bite))))
        names.update((pk, node_id) for pk, node_id in rows)
    return names


def _bites(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
