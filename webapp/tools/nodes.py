"""Tools about nodes: which there are, and work for one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import or_, select

from webapp import audit
from webapp.chat.actions import Action, NotDone, Scene
from webapp.ids import task_id_of_call
from webapp.nodes import queries, rules, steps
from webapp.nodes.lifecycle import (
    DEFAULT_MAX_RUN_SECONDS,
    DEFAULT_SCHEDULED_TTL_SECONDS,
    PRIORITY_RANK,
    Priority,
)
from webapp.nodes.models import Node
from webapp.store.texts import keep_text
from webapp.store.transaction import Tx
from webapp.tools.arguments import NoArguments, SendTask, read, schema

_MAX_LISTED = 100


class ListNodes:
    """`nodes.list`: the nodes of the chat's network."""

    name = "list_nodes"
    description = (
        "The nodes of this network: alias, state, when each was last heard, and how much work it holds."
    )
    operation = "nodes.list"
    changes = False
    parameters = schema(NoArguments)

    def prepare(self, tx: Tx, scene: Scene, arguments: Mapping[str, Any]) -> Action:
        """Read that nothing is asked for. Raises NotDone."""
        read(NoArguments, arguments)

        def act() -> str:
            views = queries.nodes_by_alias(tx.session, [scene.network_pk], now=scene.now)
            rows = [
                {
                    "alias": view.node.alias,
                    "lifecycle_state": view.node.lifecycle_state.value,
                    "status": view.status.value,
                    "last_seen_at": None if view.last_seen_at is None else view.last_seen_at.isoformat(),
                    "waiting": view.unacknowledged,
                    "at_work": view.at_work,
                }
                for view in views[:_MAX_LISTED]
            ]
            return json.dumps(
                {"nodes": rows, "left_out": max(0, len(views) - _MAX_LISTED)}, ensure_ascii=False
            )

        return Action(self.operation, None, {}, act)


class SendTaskTool:
    """`nodes.send_task`: one task for one node; the same call sends the same task, once."""

    name = "send_task"
    description = (
        "Send a task to a node. It answers later: this only says that the task was put into its inbox."
    )
    operation = "nodes.send_task"
    changes = True
    parameters = schema(SendTask)

    def prepare(self, tx: Tx, scene: Scene, arguments: Mapping[str, Any]) -> Action:
        """Find the node that is meant, locked against being stopped meanwhile. Raises NotDone."""
        wanted = read(SendTask, arguments)
        node = node_named(tx, scene, wanted.node)
        exact = {
            "node": node.alias,
            "node_id": node.node_id,
            "task": wanted.task,
            "priority": wanted.priority,
        }

        def act() -> str:
            return _send(tx, scene, node, wanted)

        return Action(self.operation, f"node:{node.node_id}", exact, act)


def node_named(tx: Tx, scene: Scene, name: str) -> Node:
    """The node of the chat's network with this alias or id, locked against changes. Raises NotDone."""
    statement = select(Node).where(
        Node.network_pk == scene.network_pk,
        Node.deleted_at.is_(None),
        or_(Node.alias == name, Node.node_id == name),
    )
    node = tx.session.scalars(
        statement.with_for_update(read=True).execution_options(populate_existing=True)
    ).first()
    if node is None:
        raise NotDone(f"There is no node called {name[:80]} in this network. Nothing was done.")
    return node


def _send(tx: Tx, scene: Scene, node: Node, wanted: SendTask) -> str:
    if not rules.accepts_work(node.lifecycle_state):
        raise NotDone(
            f"The node {node.alias} is {node.lifecycle_state.value} and takes no work. Nothing was done."
        )
    task_id = task_id_of_call(scene.turn_id, scene.call_key)
    task = steps.NewTask(
        task_id=task_id,
        network_pk=scene.network_pk,
        node_pk=node.id,
        run_pk=None,
        text_pk=keep_text(tx.session, wanted.task).id,
        priority_rank=PRIORITY_RANK[Priority(wanted.priority)],
        ttl_seconds=DEFAULT_SCHEDULED_TTL_SECONDS,
        max_run_seconds=DEFAULT_MAX_RUN_SECONDS,
        created_by_pk=scene.owner_pk,
    )
    if not steps.write_tasks(tx, [task], actor=scene.actor, sender=scene.actor, now=scene.now):
        return json.dumps({"task_id": task_id, "node": node.alias, "status": "sent before"})
    audit.record(
        tx,
        scene.network_pk,
        actor=scene.actor,
        verb="task.create",
        subject_kind="task",
        subject_id=task_id,
        detail={"node_id": node.node_id, "priority": wanted.priority, "turn_id": scene.turn_id},
        now=scene.now,
    )
    return json.dumps({"task_id": task_id, "node": node.alias, "status": "put into its inbox"})
