"""`/api/tasks`: what people send to nodes, and what became of it."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, g, request

from webapp.api.body import parse
from webapp.errors import AppError
from webapp.identity.access import Verb
from webapp.ids import is_public_id
from webapp.nodes import operations, queries
from webapp.nodes.bodies import NewTaskBody, NoBody
from webapp.nodes.lifecycle import TaskStatus
from webapp.store import db
from webapp.targets import node as node_target
from webapp.targets.node_queries import facts_of_runs
from webapp.web.auth import current_actor
from webapp.web.policy import UserApi, access
from webapp.web.present_nodes import task_json
from webapp.web.requests import idempotency_request, json_body, networks_of_read, page_request

blueprint = Blueprint("api_tasks", __name__, url_prefix="/api/tasks")
Answer = tuple[dict[str, Any], int]


@blueprint.get("")
@access(UserApi, verb=Verb.READ)
def list_tasks() -> Answer:
    """Tasks of the caller's networks, newest first, by `?status=` and `?node=`."""
    page = queries.list_tasks(
        db.session(), networks_of_read(), page_request(), status=_status(), node_id=_node_id()
    )
    facts = facts_of_runs(db.session(), [view.task for view in page.rows])
    tasks = [task_json(view, facts) for view in page.rows]
    return {"ok": True, "tasks": tasks, "next_cursor": page.next_cursor}, 200


@blueprint.post("")
@access(UserApi, verb=Verb.SEND_TASK)
def create_task() -> Answer:
    """Put work into the inbox of a node."""
    data = json_body()
    body = parse(NewTaskBody, data, before_refusal=lambda: _may_send(data.get("node_id")))
    keyed = idempotency_request("create_task", body.model_dump(mode="json"))
    task = operations.create_task(current_actor(), body, request=keyed, now=g.now)
    return _answer(task.task_id), 201


@blueprint.get("/<task_id>")
@access(UserApi, verb=Verb.READ)
def show_task(task_id: str) -> Answer:
    """One task with its history."""
    return _answer(task_id), 200


@blueprint.post("/<task_id>/cancel")
@access(UserApi, verb=Verb.STEER_TASK)
def cancel_task(task_id: str) -> Answer:
    """Take a task out of the inbox, or ask the node to stop."""
    parse(NoBody, json_body(optional=True), before_refusal=lambda: _in_scope(task_id))
    return _answer(node_target.cancel(current_actor(), task_id, now=g.now).task_id), 200


@blueprint.post("/<task_id>/retry")
@access(UserApi, verb=Verb.STEER_TASK)
def retry_task(task_id: str) -> Answer:
    """Try a failed, expired or cancelled task again."""
    parse(NoBody, json_body(optional=True), before_refusal=lambda: _in_scope(task_id))
    return _answer(node_target.retry(current_actor(), task_id, now=g.now).task_id), 200


def _answer(task_id: str) -> dict[str, Any]:
    session = db.session()
    view = queries.find_task(session, current_actor().networks, task_id)
    events = queries.task_events(session, view.task.id)
    return {"ok": True, "task": task_json(view, facts_of_runs(session, [view.task]), events)}


def _in_scope(task_id: str) -> None:
    queries.find_task(db.session(), current_actor().networks, task_id)


def _may_send(node_id: object) -> None:
    """What is said before a field is refused, where the node can be made out at all."""
    if isinstance(node_id, str):
        node = queries.find_node(db.session(), current_actor().networks, node_id)
        operations.check_sendable(node, current_actor())


def _status() -> TaskStatus | None:
    text = request.args.get("status")
    if text is None:
        return None
    try:
        return TaskStatus(text)
    except ValueError:
        raise AppError("invalid_status", field="status") from None


def _node_id() -> str | None:
    text = request.args.get("node")
    if text is not None and not is_public_id(text):
        raise AppError("invalid_node", field="node")
    return text
