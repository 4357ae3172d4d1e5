"""`/api/node`: what a node may do with its own token: its inbox, its tasks, its presence, its doorbell.

The protocol from the node's side is told in `examples/node.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar

from flask import Blueprint, Response, current_app, g, request

from webapp.api.body import parse
from webapp.clock import Clock
from webapp.errors import AppError
from webapp.events import sse
from webapp.events.feed import EventFeed
from webapp.events.queries import StoredEvent, last_numbers
from webapp.nodes import operations, queries, rules, steps
from webapp.nodes.bodies import HeartbeatBody, ReplyBody, ReportBody
from webapp.nodes.lifecycle import FINAL, NodeStatus, TaskStatus
from webapp.nodes.models import Task
from webapp.store import db
from webapp.store.paging import parse_limit
from webapp.targets import node as node_target
from webapp.targets.node_queries import facts_of_runs
from webapp.web.auth import current_node
from webapp.web.live import event_feed, last_event_id, missed_events
from webapp.web.policy import NodeApi, access
from webapp.web.present_nodes import inbox_item, task_json
from webapp.web.requests import json_body

blueprint = Blueprint("api_node", __name__, url_prefix="/api/node")
Answer = tuple[dict[str, Any], int]

Report = TypeVar("Report", bound=ReportBody)

MAX_WAIT_SECONDS = 60.0
_SECONDS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?", re.ASCII)


@blueprint.post("/heartbeat")
@access(NodeApi)
def heartbeat() -> Answer:
    """What the node says of itself; `working` with a task that it has acknowledged starts that task.

    `cancel` in the answer names the tasks that it should stop: those that it was asked to, and the one that it
    works on when that has ended meanwhile (cancelled, or its time ran out).
    """
    body = parse(HeartbeatBody, json_body())
    node_pk = current_node().node_pk
    status, task_id = NodeStatus(body.status), body.task_id or None
    if not _is_known(node_pk, status, task_id):
        node_target.heartbeat(node_pk, status, task_id, now=g.now)
    cancel = set(queries.cancels_requested(db.session(), node_pk))
    if task_id is not None and queries.find_task_of_node(db.session(), node_pk, task_id).status in FINAL:
        cancel.add(task_id)
    return {"ok": True, "cancel": sorted(cancel)}, 200


@blueprint.get("/inbox")
@access(NodeApi)
def inbox() -> Answer:
    """Unacknowledged work, high before normal before low, oldest first; waits for the first if asked to."""
    node_pk = current_node().node_pk
    limit, wait_seconds = parse_limit(request.args.get("limit")), _wait_seconds()
    _note_seen(node_pk)
    tasks = _fetch(node_pk, limit, g.now)
    if not tasks and wait_seconds > 0:
        tasks = _wait_for_work(node_pk, limit, wait_seconds)
    views = queries.task_views(db.session(), tasks)
    facts = facts_of_runs(db.session(), tasks)
    return {"ok": True, "items": [inbox_item(view, facts) for view in views]}, 200


@blueprint.post("/tasks/<task_id>/ack")
@access(NodeApi)
def acknowledge(task_id: str) -> Answer:
    """The node has taken the task up; saying so again is fine."""
    body = _report(ReportBody, task_id)
    return _answer(node_target.acknowledge(current_node().node_pk, task_id, body.attempt_or_none, now=g.now))


@blueprint.post("/tasks/<task_id>/start")
@access(NodeApi)
def start(task_id: str) -> Answer:
    """The node works on the task; stands for the acknowledgement where that was left out."""
    body = _report(ReportBody, task_id)
    return _answer(node_target.start(current_node().node_pk, task_id, body.attempt_or_none, now=g.now))


@blueprint.post("/tasks/<task_id>/reply")
@access(NodeApi)
def reply(task_id: str) -> Answer:
    """How the work ended; saying the same again is fine."""
    body = _report(ReplyBody, task_id)
    task = node_target.reply(
        current_node().node_pk,
        task_id,
        TaskStatus(body.status),
        body.result_or_none,
        body.attempt_or_none,
        now=g.now,
    )
    return _answer(task)


@blueprint.get("/events")
@access(NodeApi)
def events() -> Response:
    """The doorbell as a stream: `new_task` and `cancel`, of this node alone.

    A new stream first says what is already there, and with `Last-Event-ID` every `cancel` since then, so that
    nothing is lost between two streams.
    """
    feed, principal, after = event_feed(), current_node(), last_event_id()
    _note_seen(principal.node_pk)
    if after is not None:
        # A database that was restored may be behind what the node has seen; its bells count all the same.
        after = min(after, last_numbers(db.session(), [principal.network_pk])[principal.network_pk])
    node_id = queries.node_of_token(db.session(), principal.node_pk).node_id
    if not feed.streams.take():
        return Response(status=204)
    try:
        subscription = feed.subscribe(principal.network_pk, lambda event: _is_a_bell_for(event, node_id))
    except BaseException:
        feed.streams.give()
        raise
    bell = _Bell(feed, principal.node_pk, node_id, current_app.extensions["carillon_clock"])
    missed = missed_events(feed, subscription, subscription.start if after is None else after)
    return Response(
        sse.Stream(feed, subscription, bell.what_is_there(missed), bell.ring, after=after or 0),
        headers=sse.HEADERS,
    )


class _Bell:
    """Turns events of the network into what one node is told. Lives longer than its request."""

    def __init__(self, feed: EventFeed, node_pk: int, node_id: str, clock: Clock) -> None:
        self._feed = feed
        self._node_pk = node_pk
        self._node_id = node_id
        self._clock = clock

    def what_is_there(self, missed: Iterable[StoredEvent]) -> Iterator[bytes]:
        """The bells that the node would have heard had it listened all the time."""
        with self._feed.reading() as session:
            waiting = steps.inbox_summary(session, self._node_pk, self._clock.now())
            cancels = queries.cancels_requested(session, self._node_pk)
        if waiting is not None:
            yield _new_task(waiting.waiting, waiting.priority, waiting.sender)
        for task_id in cancels:
            yield sse.message("cancel", {"task_id": task_id})
        for event in missed:
            if event.type == "cancel" and _is_a_bell_for(event, self._node_id):
                yield from self.ring(event)

    def ring(self, event: StoredEvent) -> Iterable[bytes]:
        """One event as this node hears it."""
        if event.type == "cancel":
            yield sse.message("cancel", {"task_id": event.data["task_id"]}, event.seq)
        elif event.type == "new_task":
            with self._feed.reading() as session:
                count = queries.inbox_count(session, self._node_pk, now=self._clock.now())
            yield _new_task(count, event.data["priority"], event.data["from"], event.seq)


def _new_task(count: int, priority: str, sender: str, seq: int | None = None) -> bytes:
    return sse.message("new_task", {"inbox_count": count, "priority": priority, "from": sender}, seq)


def _is_a_bell_for(event: StoredEvent, node_id: str) -> bool:
    if event.type == "new_task":
        return node_id in event.data.get("nodes", ())
    return event.type == "cancel" and event.data.get("node_id") == node_id


def _may_bring_work(event: StoredEvent, node_id: str) -> bool:
    # `node`: it may have been stopped and is active again.
    return event.type in ("new_task", "node") and node_id in event.data.get("nodes", ())


def _wait_for_work(node_pk: int, limit: int, wait_seconds: float) -> list[Task]:
    """Wait on the feed until something can be fetched, the time is up, or the process leaves.

    No database connection is held meanwhile. With too many waiting here already the answer is empty at once.
    """
    feed, clock = event_feed(), current_app.extensions["carillon_clock"]
    node_id = queries.node_of_token(db.session(), node_pk).node_id
    if not feed.waiters.take():
        return []
    try:
        with feed.listen(
            current_node().network_pk, lambda event: _may_bring_work(event, node_id)
        ) as subscription:
            end = time.monotonic() + wait_seconds
            # Look once more: something may have come between the first look and the listening.
            while not (tasks := _fetch(node_pk, limit, clock.now())):
                db.session.remove()
                rest = end - time.monotonic()
                if rest <= 0 or subscription.ended:
                    break
                subscription.take(rest)
            return tasks
    finally:
        feed.waiters.give()


def _fetch(node_pk: int, limit: int, now: datetime) -> list[Task]:
    """What the inbox hands out; an empty one, or one of a stopped node, costs two short reads."""
    session = db.session()
    if not queries.node_may_fetch(session, node_pk) or not queries.inbox_count(session, node_pk, now=now):
        return []
    db.session.remove()
    return node_target.fetch(node_pk, limit, now=now)


def _is_known(node_pk: int, status: NodeStatus, task_id: str | None) -> bool:
    """Whether a heartbeat would change nothing, neither presence nor a task."""
    session = db.session()
    if task_id is not None:
        task = queries.find_task_of_node(session, node_pk, task_id)
        if status is NodeStatus.WORKING and task.status is not TaskStatus.RUNNING:
            return False
    return queries.presence_is_known(session, node_pk, status, task_id, now=g.now)


def _note_seen(node_pk: int) -> None:
    if not queries.presence_is_known(db.session(), node_pk, None, None, now=g.now):
        operations.note_seen(node_pk, now=g.now)


def _report(model: type[Report], task_id: str) -> Report:
    """The body of a report; who reports on a foreign or a closed task is told that first."""
    _note_seen(current_node().node_pk)

    def check() -> None:
        task = queries.find_task_of_node(db.session(), current_node().node_pk, task_id)
        if model is ReplyBody:
            rules.check_answer(task, None, g.now)
        else:
            rules.check_report(task, None, g.now)

    return parse(model, json_body(optional=True), before_refusal=check)


def _answer(task: Task) -> Answer:
    session = db.session()
    view = queries.find_task(session, [current_node().network_pk], task.task_id)
    return {"ok": True, "task": task_json(view, facts_of_runs(session, [view.task]))}, 200


def _wait_seconds() -> float:
    text = request.args.get("wait")
    if text is None:
        return 0.0
    if _SECONDS.fullmatch(text) is None or float(text) > MAX_WAIT_SECONDS:
        raise AppError("invalid_wait", field="wait")
    return float(text)
