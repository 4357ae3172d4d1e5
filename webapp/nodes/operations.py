"""What people do to nodes, and the work they send to them: one transaction each."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from sqlalchemy import Table, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import joinedload

from webapp import audit
from webapp.errors import AppError
from webapp.events import outbox
from webapp.identity import idempotency
from webapp.identity import steps as identity_steps
from webapp.identity.access import Actor, Facts, Verb, demand
from webapp.identity.models import Network
from webapp.ids import is_public_id, new_id
from webapp.nodes import hooks, rules, steps
from webapp.nodes.bodies import NewNodeBody, NewTaskBody, NodeChanges
from webapp.nodes.lifecycle import (
    DEFAULT_MAX_RUN_SECONDS,
    PRIORITY_RANK,
    NodeLifecycle,
    NodeStatus,
    Priority,
    TaskStatus,
)
from webapp.nodes.models import Node, NodePresence, Task
from webapp.store import dialect
from webapp.store.texts import keep_text
from webapp.store.transaction import Tx, operation

COMMAND_LINE = "command line"


@operation
def create_node(
    tx: Tx,
    actor: Actor | None,
    network_pk: int,
    alias: str,
    *,
    request: idempotency.Request | None = None,
    now: datetime,
) -> tuple[Node, str | None]:
    """Make a node and its first token.

    `actor` None is the command line, which may everything. Returns the node and the text of its token, which
    is shown once: on a replay of `request` it is None. Raises AppError `network_not_found`,
    `permission_denied`, `invalid_alias`, `alias_taken`, `idempotency_conflict`.
    """
    if actor is not None:
        if network_pk not in actor.networks:
            raise AppError("network_not_found")
        demand(actor, Verb.CREATE_NODE, Facts(network_pk=network_pk))
    node_id = new_id("node")
    earlier = idempotency.claim(tx, request, node_id, now=now)
    if earlier is not None:
        return tx.session.scalars(select(Node).where(Node.node_id == earlier)).one(), None
    _check_alias(alias)
    node = _insert_node(tx, node_id, network_pk, alias, now)
    token = identity_steps.issue_node_token(tx, node.id, network_pk, now)
    _record(tx, actor, "node.create", node, {"alias": alias}, now)
    return node, token


@operation
def update_node(tx: Tx, actor: Actor, node_id: str, changes: NodeChanges, *, now: datetime) -> Node:
    """Rename a node or steer its lifecycle; what `changes` does not name stays.

    `stopping` takes no new work and may fetch what it holds, `stopped` may not fetch either; both are
    reversible. Raises AppError `node_not_found`, `permission_denied`, `alias_taken`.
    """
    node = _steered_node(tx, actor, node_id, now)
    asked: dict[str, Any] = {}
    if "alias" in changes.model_fields_set and changes.alias != node.alias:
        _demand_free_alias(tx, node, changes.alias)
        asked["alias"] = changes.alias
    state = NodeLifecycle(changes.lifecycle_state)
    if "lifecycle_state" in changes.model_fields_set and state is not node.lifecycle_state:
        asked["lifecycle_state"] = state
    if not asked:
        return node
    detail = {name: {"from": str(getattr(node, name)), "to": str(value)} for name, value in asked.items()}
    for name, value in asked.items():
        setattr(node, name, value)
    try:
        tx.session.flush()
    except IntegrityError:
        # The alias is the only unique thing that changes: somebody took it since we looked.
        raise AppError("alias_taken", field="alias") from None
    hooks.node_changed(tx, node.id, now)
    _record(tx, actor, "node.update", node, detail, now)
    return node


@operation
def delete_node(tx: Tx, actor: Actor, node_id: str, *, now: datetime) -> Node:
    """Take a node out of service for good: its row and history stay, its tokens and its work end.

    Its alias is free again. Open tasks of people end as cancelled (`target_node_not_found`), as nobody could
    report on them any more; work of schedules is withdrawn by the hook. Raises AppError `node_not_found`,
    `permission_denied`.
    """
    node = _steered_node(tx, actor, node_id, now)
    node.lifecycle_state = NodeLifecycle.DELETING
    node.deleted_at = now
    tx.session.flush()
    hooks.node_changed(tx, node.id, now)
    _end_peoples_tasks(tx, node, actor.name, now)
    revoked = identity_steps.revoke_node_tokens(tx, node.id, now)
    _record(tx, actor, "node.delete", node, {"alias": node.alias, "tokens_revoked": revoked}, now)
    return node


@operation
def rotate_token(
    tx: Tx, actor: Actor, node_id: str, *, request: idempotency.Request | None = None, now: datetime
) -> tuple[Node, str | None]:
    """Give a node a new token and end its earlier ones at once.

    Returns the node and the text of the token, None on a replay of `request`. Raises AppError
    `node_not_found`, `permission_denied`, `idempotency_conflict`.
    """
    node = _steered_node(tx, actor, node_id, now)
    if idempotency.claim(tx, request, node.node_id, now=now) is not None:
        return node, None
    revoked = identity_steps.revoke_node_tokens(tx, node.id, now)
    token = identity_steps.issue_node_token(tx, node.id, node.network_pk, now)
    _record(tx, actor, "node.rotate_token", node, {"tokens_revoked": revoked}, now)
    return node, token


@operation
def create_task(
    tx: Tx, actor: Actor, new: NewTaskBody, *, request: idempotency.Request | None = None, now: datetime
) -> Task:
    """Put a person's task into the inbox of a node; returned with node and text loaded.

    Raises AppError `node_not_found`, `permission_denied`, `node_not_active`, `idempotency_conflict`.
    """
    node = _node_in_scope(tx, actor, new.node_id, new.network_id, share=True)
    demand(actor, Verb.SEND_TASK, Facts(network_pk=node.network_pk))
    task_id = new_id("task")
    earlier = idempotency.claim(tx, request, task_id, now=now)
    if earlier is not None:
        return _loaded_task(tx, earlier)
    if not rules.accepts_work(node.lifecycle_state):
        raise AppError("node_not_active", field="node_id")
    task = steps.NewTask(
        task_id=task_id,
        network_pk=node.network_pk,
        node_pk=node.id,
        run_pk=None,
        text_pk=keep_text(tx.session, new.task).id,
        priority_rank=PRIORITY_RANK[Priority(new.priority)],
        ttl_seconds=new.ttl_seconds,
        max_run_seconds=DEFAULT_MAX_RUN_SECONDS,
        created_by_pk=actor.user_pk,
    )
    steps.write_tasks(tx, [task], actor=actor.name, sender=actor.name, now=now)
    audit.record(
        tx,
        node.network_pk,
        actor=actor.name,
        verb="task.create",
        subject_kind="task",
        subject_id=task_id,
        detail={"node_id": node.node_id, "priority": new.priority, "ttl_seconds": new.ttl_seconds},
        now=now,
    )
    return _loaded_task(tx, task_id)


@operation
def note_seen(tx: Tx, node_pk: int, *, now: datetime) -> None:
    """Store that a node was heard; ask `queries.presence_is_known` first, it is mostly known already."""
    steps.touch_presence(tx, node_pk, None, None, now)


def check_sendable(node: Node, actor: Actor) -> None:
    """What `create_task` refuses before it looks at fields: permission, then the state of the node.

    Raises AppError `permission_denied`, `node_not_active`.
    """
    demand(actor, Verb.SEND_TASK, Facts(network_pk=node.network_pk))
    if not rules.accepts_work(node.lifecycle_state):
        raise AppError("node_not_active", field="node_id")


# Parts


def _check_alias(alias: str) -> None:
    try:
        NewNodeBody(alias=alias)
    except ValueError:
        raise AppError("invalid_alias", field="alias") from None


def _insert_node(tx: Tx, node_id: str, network_pk: int, alias: str, now: datetime) -> Node:
    table = cast(Table, Node.__table__)
    row = {
        "node_id": node_id,
        "network_pk": network_pk,
        "alias": alias,
        "lifecycle_state": NodeLifecycle.ACTIVE,
        "created_at": now,
    }
    if not dialect.insert_new(tx.session, table, [row], returning=[table.c.id]):
        raise AppError("alias_taken", field="alias")
    node = tx.session.scalars(select(Node).where(Node.node_id == node_id)).one()
    tx.session.add(NodePresence(node_pk=node.id, status=NodeStatus.OFFLINE))
    tx.session.flush()
    return node


def _node_in_scope(
    tx: Tx, actor: Actor, node_id: str, network_id: str = "", *, share: bool = False, lock: bool = False
) -> Node:
    statement = select(Node).where(
        Node.node_id == node_id, Node.network_pk.in_(list(actor.networks)), Node.deleted_at.is_(None)
    )
    if network_id:
        statement = statement.where(
            Node.network_pk.in_(select(Network.id).where(Network.network_id == network_id))
        )
    if share or lock:
        statement = statement.with_for_update(read=share).execution_options(populate_existing=True)
    node = tx.session.scalars(statement).one_or_none() if is_public_id(node_id) else None
    if node is None:
        raise AppError("node_not_found")
    return node


def _steered_node(tx: Tx, actor: Actor, node_id: str, now: datetime) -> Node:
    """The node, locked after whatever the hook locks, if the actor may steer it."""
    node = _node_in_scope(tx, actor, node_id)
    demand(actor, Verb.STEER_NODE, Facts(network_pk=node.network_pk))
    hooks.before_change(tx, node.id, now)
    return _node_in_scope(tx, actor, node_id, lock=True)


def _demand_free_alias(tx: Tx, node: Node, alias: str) -> None:
    taken = select(Node.id).where(
        Node.network_pk == node.network_pk, Node.alias == alias, Node.deleted_at.is_(None), Node.id != node.id
    )
    if tx.session.scalar(taken) is not None:
        raise AppError("alias_taken", field="alias")


def _end_peoples_tasks(tx: Tx, node: Node, actor: str, now: datetime) -> None:
    pks = tx.session.scalars(
        select(Task.id).where(Task.node_pk == node.id, Task.run_pk.is_(None), steps.STILL_OPEN)
    ).all()
    tasks = steps.lock_tasks(tx, pks)
    steps.withdraw(tx, tasks, code="target_node_not_found", actor=actor, now=now)
    for task in tasks:
        if task.status is not TaskStatus.CANCELLED:
            steps.end(tx, task, TaskStatus.CANCELLED, actor=actor, now=now, code="target_node_not_found")


def _loaded_task(tx: Tx, task_id: str) -> Task:
    return tx.session.scalars(
        select(Task)
        .where(Task.task_id == task_id)
        .options(joinedload(Task.node, innerjoin=True), joinedload(Task.text, innerjoin=True))
        .execution_options(populate_existing=True)
    ).one()


def _record(
    tx: Tx, actor: Actor | None, verb: str, node: Node, detail: dict[str, Any], now: datetime
) -> None:
    audit.record(
        tx,
        node.network_pk,
        actor=actor.name if actor is not None else COMMAND_LINE,
        verb=verb,
        subject_kind="node",
        subject_id=node.node_id,
        detail=detail,
        now=now,
    )
    outbox.emit(tx, node.network_pk, "node", {"nodes": [node.node_id]}, now=now)
