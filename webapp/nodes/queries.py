"""What pages and answers show of nodes and tasks. Reads only; scope comes in as the caller's networks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, exists, func, or_, select, union_all
from sqlalchemy.orm import Session, joinedload

from webapp.errors import AppError
from webapp.identity.models import Network, User
from webapp.ids import is_public_id
from webapp.nodes import rules
from webapp.nodes.lifecycle import OFFLINE_AFTER_SECONDS, STARTED, NodeLifecycle, NodeStatus, TaskStatus
from webapp.nodes.models import Node, NodePresence, Task, TaskEvent
from webapp.nodes.steps import CANCEL_REQUESTED, STILL_OPEN, waits_for
from webapp.store.counting import count_each
from webapp.store.paging import Page, PageRequest, newest_first


@dataclass(frozen=True)
class NodeView:
    """A node with its presence and what it holds.

    `status` is what is shown: `offline` after ten minutes of silence. `unacknowledged` counts tasks that wait
    in its inbox, `at_work` those that it has acknowledged.
    """

    node: Node
    network_id: str
    status: NodeStatus
    last_seen_at: datetime | None
    working_on: str | None
    unacknowledged: int
    at_work: int

    @property
    def held(self) -> int:
        """Open tasks of the node, waiting or at work."""
        return self.unacknowledged + self.at_work


@dataclass(frozen=True)
class TaskView:
    """A task with its node and text loaded, and the name of the person who sent it (None: the scheduler)."""

    task: Task
    sender: str | None


# Nodes


def list_nodes(
    session: Session, network_pks: Collection[int], page: PageRequest, *, now: datetime
) -> Page[NodeView]:
    """The nodes of these networks that are not deleted, newest first."""
    found = newest_first(
        session,
        _kept_nodes(network_pks),
        Node.created_at,
        Node.id,
        page,
        lambda node: (node.created_at, node.id),
    )
    return Page(_views(session, found.rows, now), found.next_cursor)


def nodes_by_alias(session: Session, network_pks: Collection[int], *, now: datetime) -> list[NodeView]:
    """All nodes of these networks in the order of their aliases; for pages and choices."""
    return _views(session, list(session.scalars(_kept_nodes(network_pks).order_by(Node.alias, Node.id))), now)


def aliases_by_id(session: Session, network_pks: Collection[int]) -> dict[str, str]:
    """The names of the nodes of these networks by their public ids."""
    rows = session.execute(_kept_nodes(network_pks).with_only_columns(Node.node_id, Node.alias))
    return dict(rows.all())


def page_by_alias(
    session: Session, network_pks: Collection[int], page: PageRequest, *, now: datetime
) -> Page[NodeView]:
    """A page of the nodes of these networks in the order of their aliases. Raises AppError `invalid_cursor`."""
    statement = _kept_nodes(network_pks).order_by(Node.alias, Node.id).limit(page.limit + 1)
    if page.cursor is not None:
        found = _ALIAS_PLACE.fullmatch(page.cursor)
        if found is None:
            raise AppError("invalid_cursor", field="cursor")
        alias, after = found[2], int(found[1])
        statement = statement.where(Node.alias >= alias, or_(Node.alias > alias, Node.id > after))
    nodes = list(session.scalars(statement))
    views = _views(session, nodes[: page.limit], now)
    if len(nodes) <= page.limit:
        return Page(views, None)
    return Page(views, f"{views[-1].node.id}-{views[-1].node.alias}")


_ALIAS_PLACE = re.compile(r"([0-9]{1,18})-([a-z0-9._-]{1,60})", re.ASCII)


def nodes_by_id(
    session: Session, network_pks: Collection[int], node_ids: Collection[str], *, now: datetime
) -> dict[str, NodeView]:
    """Those of these nodes that are not deleted, by their public ids."""
    found = session.scalars(_kept_nodes(network_pks).where(Node.node_id.in_(list(node_ids))))
    return {view.node.node_id: view for view in _views(session, list(found), now)} if node_ids else {}


def nodes_named(
    session: Session, network_pks: Collection[int], names: Collection[str], *, now: datetime
) -> list[NodeView]:
    """Those nodes that are called by one of these aliases or public ids."""
    wanted = list(names)
    found = session.scalars(
        _kept_nodes(network_pks).where(or_(Node.node_id.in_(wanted), Node.alias.in_(wanted)))
    )
    return _views(session, list(found), now) if wanted else []


@dataclass(frozen=True)
class NodeChoice:
    """A node as a form offers it; `state` is its presence, or that it takes no new work."""

    node_id: str
    alias: str
    state: NodeStatus | NodeLifecycle


def node_choices(session: Session, network_pks: Collection[int], *, now: datetime) -> list[NodeChoice]:
    """The nodes of these networks by alias, without what they hold: one statement of narrow rows."""
    statement = (
        _kept_nodes(network_pks)
        .outerjoin(NodePresence, NodePresence.node_pk == Node.id)
        .with_only_columns(
            Node.node_id, Node.alias, Node.lifecycle_state, NodePresence.status, NodePresence.last_seen_at
        )
        .order_by(Node.alias, Node.id)
    )
    return [
        NodeChoice(
            row.node_id,
            row.alias,
            rules.shown_status(row.status or NodeStatus.OFFLINE, row.last_seen_at, now)
            if row.lifecycle_state is NodeLifecycle.ACTIVE
            else row.lifecycle_state,
        )
        for row in session.execute(statement)
    ]


def holders(session: Session, network_pks: Collection[int], *, limit: int, now: datetime) -> list[NodeView]:
    """Nodes in whose inbox something waits, by alias."""
    waiting = _kept_nodes(network_pks).where(_HOLDS).order_by(Node.alias, Node.id).limit(limit)
    return _views(session, list(session.scalars(waiting)), now)


def silent_holders(
    session: Session, network_pks: Collection[int], *, limit: int, now: datetime
) -> list[NodeView]:
    """Nodes that are offline while work waits for them, by alias."""
    silent = (
        _silent(_kept_nodes(network_pks), _offline_since(now))
        .where(_HOLDS)
        .order_by(Node.alias, Node.id)
        .limit(limit)
    )
    return _views(session, list(session.scalars(silent)), now)


def silent_holding(network_pks: Any, seen_since: Any) -> Select[int]:
    """The keys of the nodes not heard since then while work waits for them; the values may be bound later."""
    return _silent(_kept_nodes(network_pks).with_only_columns(Node.id), seen_since).where(_HOLDS)


def count_nodes(session: Session, network_pks: Collection[int], *, now: datetime) -> dict[str, int]:
    """How many nodes there are ("all"), are offline ("silent"), and are offline while work waits ("holding").

    Each up to a bound (`AtLeast`).
    """
    kept = _kept_nodes(network_pks).with_only_columns(Node.id)
    silent = _silent(kept, _offline_since(now))
    counts = {"all": kept, "silent": silent, "holding": silent.where(_HOLDS)}
    return dict.fromkeys(counts, 0) | count_each(session, counts, most=1000)


_HOLDS = exists().where(Task.node_pk == Node.id, STILL_OPEN, Task.status.not_in(STARTED))


def _offline_since(now: datetime) -> datetime:
    return now - timedelta(seconds=OFFLINE_AFTER_SECONDS)


def _silent(statement: Select[Any], seen_since: Any) -> Select[Any]:
    """Only those that are shown as offline."""
    return statement.outerjoin(NodePresence, NodePresence.node_pk == Node.id).where(
        or_(
            NodePresence.last_seen_at.is_(None),
            NodePresence.last_seen_at <= seen_since,
            NodePresence.status == NodeStatus.OFFLINE,
        )
    )


def find_node(session: Session, network_pks: Collection[int], node_id: str) -> Node:
    """The node of this public id. Raises AppError `node_not_found`, for foreign and deleted ones too."""
    node = None
    if is_public_id(node_id):
        node = session.scalars(_kept_nodes(network_pks).where(Node.node_id == node_id)).one_or_none()
    if node is None:
        raise AppError("node_not_found")
    return node


def node_detail(session: Session, network_pks: Collection[int], node_id: str, *, now: datetime) -> NodeView:
    """One node with presence and held work. Raises AppError `node_not_found`."""
    return _views(session, [find_node(session, network_pks, node_id)], now)[0]


def node_view(session: Session, node: Node, *, now: datetime) -> NodeView:
    """The view of a node that the caller has already found."""
    return _views(session, [node], now)[0]


def presence_is_known(
    session: Session, node_pk: int, status: NodeStatus | None, task_id: str | None, *, now: datetime
) -> bool:
    """Whether hearing the node now would store nothing new: then no write transaction is needed."""
    row = session.execute(
        select(NodePresence.status, NodePresence.last_seen_at, NodePresence.task_id).where(
            NodePresence.node_pk == node_pk
        )
    ).one_or_none()
    if row is None:
        return False
    return not rules.presence_needs_write(row.status, row.last_seen_at, row.task_id, status, task_id, now)


def node_may_fetch(session: Session, node_pk: int) -> bool:
    """Whether the node's inbox is open to it at present."""
    row = session.execute(
        select(Node.lifecycle_state, Node.deleted_at).where(Node.id == node_pk)
    ).one_or_none()
    return row is not None and row.deleted_at is None and rules.may_fetch(row.lifecycle_state)


def inbox_count(session: Session, node_pk: int, *, now: datetime) -> int:
    """How many unacknowledged tasks the node could fetch."""
    counted = session.scalar(select(func.count()).select_from(Task).where(*waits_for(node_pk, now)))
    return counted or 0


def node_of_token(session: Session, node_pk: int) -> Node:
    """The node that calls with its own token."""
    return session.get_one(Node, node_pk)


def cancels_requested(session: Session, node_pk: int) -> list[str]:
    """Public ids of the tasks that this node has taken up and was asked to stop."""
    statement = (
        select(Task.task_id)
        .join(TaskEvent, TaskEvent.task_pk == Task.id)
        .where(
            Task.node_pk == node_pk,
            STILL_OPEN,
            Task.status.in_(STARTED),
            TaskEvent.kind == CANCEL_REQUESTED,
            TaskEvent.attempt == Task.attempt,
        )
        .distinct()
    )
    return sorted(session.scalars(statement))


# Tasks


def list_tasks(
    session: Session,
    network_pks: Collection[int],
    page: PageRequest,
    *,
    status: TaskStatus | None = None,
    node_id: str | None = None,
) -> Page[TaskView]:
    """Tasks of these networks, newest first; of a deleted node too, as its history stays."""
    statement = _loaded_tasks(network_pks)
    if node_id is not None:
        # Found first, and then alone: the tasks of one node have an index of their own.
        node = select(Node.id).where(Node.node_id == node_id, Node.network_pk.in_(list(network_pks)))
        statement = _with_parts(select(Task)).where(Task.node_pk == session.scalar(node))
    if status is not None:
        statement = statement.where(Task.status == status)
    found = newest_first(
        session, statement, Task.created_at, Task.id, page, lambda task: (task.created_at, task.id)
    )
    return Page(task_views(session, found.rows), found.next_cursor)


def last_results(session: Session, node_pks: Collection[int], *, limit: int) -> dict[int, list[TaskStatus]]:
    """How the last tasks of each node stand, oldest first; one statement for all, one look into the index for each."""
    newest = [
        select(Task.node_pk, Task.status, Task.created_at, Task.id)
        .where(Task.node_pk == pk)
        .order_by(Task.created_at.desc(), Task.id.desc())
        .limit(limit)
        .subquery()
        for pk in node_pks
    ]
    found: dict[int, list[TaskStatus]] = {}
    if newest:
        rows = session.execute(union_all(*(select(part) for part in newest))).all()
        for row in sorted(rows, key=lambda row: (row.created_at, row.id)):
            found.setdefault(row.node_pk, []).append(row.status)
    return found


def find_task(session: Session, network_pks: Collection[int], task_id: str) -> TaskView:
    """One task with node, text and sender. Raises AppError `task_not_found`."""
    task = None
    if is_public_id(task_id):
        task = session.scalars(_loaded_tasks(network_pks).where(Task.task_id == task_id)).one_or_none()
    if task is None:
        raise AppError("task_not_found")
    return task_views(session, [task])[0]


def find_task_of_node(session: Session, node_pk: int, task_id: str) -> Task:
    """A task of one node, for the node itself. Raises AppError `task_not_found`."""
    task = None
    if is_public_id(task_id):
        task = session.scalars(
            select(Task).where(Task.task_id == task_id, Task.node_pk == node_pk)
        ).one_or_none()
    if task is None:
        raise AppError("task_not_found")
    return task


def task_events(session: Session, task_pk: int) -> Sequence[TaskEvent]:
    """The history of a task, oldest first."""
    return session.scalars(
        select(TaskEvent).where(TaskEvent.task_pk == task_pk).order_by(TaskEvent.seq)
    ).all()


def task_views(session: Session, tasks: Iterable[Task]) -> list[TaskView]:
    """Tasks (node and text loaded) with the names of their senders."""
    tasks = list(tasks)
    pks = {task.created_by_pk for task in tasks if task.created_by_pk is not None}
    names: dict[int, str] = {}
    if pks:
        names = dict(session.execute(select(User.id, User.name).where(User.id.in_(pks))).all())
    return [
        TaskView(task, names.get(task.created_by_pk) if task.created_by_pk is not None else None)
        for task in tasks
    ]


# Parts


def _kept_nodes(network_pks: Any) -> Select[Node]:
    return select(Node).where(
        Node.network_pk.in_(network_pks),
        Node.deleted_at.is_(None),
        Node.lifecycle_state != NodeLifecycle.DELETING,
    )


def _loaded_tasks(network_pks: Collection[int]) -> Select[Task]:
    return _with_parts(select(Task).where(Task.network_pk.in_(list(network_pks))))


def _with_parts(statement: Select[Task]) -> Select[Task]:
    return statement.options(joinedload(Task.node, innerjoin=True), joinedload(Task.text, innerjoin=True))


def _views(session: Session, nodes: Sequence[Node], now: datetime) -> list[NodeView]:
    if not nodes:
        return []
    pks = [node.id for node in nodes]
    presences = {
        row.node_pk: row for row in session.scalars(select(NodePresence).where(NodePresence.node_pk.in_(pks)))
    }
    networks = dict(
        session.execute(
            select(Network.id, Network.network_id).where(Network.id.in_({node.network_pk for node in nodes}))
        ).all()
    )
    waiting: dict[int, int] = dict.fromkeys(pks, 0)
    working: dict[int, int] = dict.fromkeys(pks, 0)
    counts = (
        select(Task.node_pk, Task.status, func.count())
        .where(Task.node_pk.in_(pks), STILL_OPEN)
        .group_by(Task.node_pk, Task.status)
    )
    for pk, status, number in session.execute(counts):
        (working if status in STARTED else waiting)[pk] += number
    return [
        _view(
            node, networks[node.network_pk], presences.get(node.id), waiting[node.id], working[node.id], now
        )
        for node in nodes
    ]


def _view(
    node: Node,
    network_id: str,
    presence: NodePresence | None,
    unacknowledged: int,
    at_work: int,
    now: datetime,
) -> NodeView:
    seen_at = presence.last_seen_at if presence is not None else None
    said = presence.status if presence is not None else NodeStatus.OFFLINE
    status = rules.shown_status(said, seen_at, now)
    working_on = presence.task_id if presence is not None and status is not NodeStatus.OFFLINE else None
    return NodeView(node, network_id, status, seen_at, working_on, unacknowledged, at_work)
