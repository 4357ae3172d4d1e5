"""Nodes, tasks and inbox items as the public sees them. No internal key leaves here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from webapp.ids import delivery_id
from webapp.nodes.models import Task, TaskEvent
from webapp.nodes.queries import NodeView, TaskView
from webapp.nodes.steps import PRIORITY_OF_RANK, SCHEDULER
from webapp.targets.node_queries import RunFacts
from webapp.web.present_people import instant


def node_json(view: NodeView) -> dict[str, Any]:
    """A node. `held` counts its open tasks: those that wait (`unacknowledged`) and those `at_work`."""
    return {
        "node_id": view.node.node_id,
        "network_id": view.network_id,
        "alias": view.node.alias,
        "lifecycle_state": view.node.lifecycle_state.value,
        "status": view.status.value,
        "last_seen_at": instant(view.last_seen_at),
        "working_on": view.working_on,
        "held": view.held,
        "unacknowledged": view.unacknowledged,
        "at_work": view.at_work,
        "created_at": instant(view.node.created_at),
    }


def task_json(
    view: TaskView, facts: Mapping[int, RunFacts], events: Iterable[TaskEvent] | None = None
) -> dict[str, Any]:
    """A task, with its history where `events` is given. `expires_at` is when its time runs out.

    Before it is acknowledged that is the end of its TTL, afterwards the end of the time it may run.
    """
    task = view.task
    run = facts.get(task.run_pk) if task.run_pk is not None else None
    answer: dict[str, Any] = {
        "task_id": task.task_id,
        "node_id": task.node.node_id,
        "node_alias": task.node.alias,
        "run_id": run.run_id if run is not None else None,
        "schedule_id": run.schedule_id if run is not None else None,
        "from": _sender(view),
        "task": task.text.body,
        "priority": PRIORITY_OF_RANK[task.priority_rank],
        "status": task.status.value,
        "attempt": task.attempt,
        "error_code": task.error_code,
        "error_message": task.error_message,
        "result": task.result,
        "result_truncated": task.result_truncated,
        "ttl_seconds": task.ttl_seconds,
        "max_run_seconds": task.max_run_seconds,
        "created_at": instant(task.created_at),
        "delivered_at": instant(task.delivered_at),
        "acked_at": instant(task.acked_at),
        "started_at": instant(task.started_at),
        "completed_at": instant(task.completed_at),
        "expires_at": instant(task.deadline_at),
    }
    if events is not None:
        answer["events"] = [event_json(event) for event in events]
    return answer


def event_json(event: TaskEvent) -> dict[str, Any]:
    """One step in the life of a task."""
    return {
        "seq": event.seq,
        "at": instant(event.at),
        "kind": event.kind,
        "actor": event.actor,
        "attempt": event.attempt,
        "detail": event.detail,
    }


def inbox_item(view: TaskView, facts: Mapping[int, RunFacts]) -> dict[str, Any]:
    """A task on the wire, as its node receives it."""
    task = view.task
    return {
        "task_id": task.task_id,
        "delivery_id": delivery_id(task.task_id, task.attempt),
        "type": "task",
        "priority": PRIORITY_OF_RANK[task.priority_rank],
        "content": task.text.body,
        "from": _sender(view),
        "requires_response": "reply",
        "created_at": instant(task.created_at),
        "expires_at": instant(task.deadline_at),
        "attempt": task.attempt,
        "meta": _meta(task, facts),
    }


def _sender(view: TaskView) -> str:
    return SCHEDULER if view.task.run_pk is not None or view.sender is None else view.sender


def _meta(task: Task, facts: Mapping[int, RunFacts]) -> dict[str, Any]:
    """Where the task comes from; the server says so, whatever a caller sent."""
    run = facts.get(task.run_pk) if task.run_pk is not None else None
    if run is None:
        return {"auth_origin": "user"}
    return {
        "scheduled_task_id": run.schedule_id,
        "scheduled_run_id": run.run_id,
        "scheduled_for": instant(run.scheduled_for),
        "auth_origin": "hub_scheduler",
        "trigger": run.trigger.value,
        "missed_count": run.missed_count,
    }
