"""The page of a task: where it came from, how far it is, and everything that happened to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from flask import Blueprint, Response, g

from webapp.errors import AppError, sentence_of
from webapp.html.respond import flash, page, redirect_to
from webapp.html.viewing import reached_networks
from webapp.html.ways import way_out
from webapp.identity.access import Actor, Facts, Verb, may
from webapp.nodes.lifecycle import OPEN, RETRYABLE
from webapp.nodes.models import Task, TaskEvent
from webapp.nodes.queries import TaskView, find_task, task_events
from webapp.nodes.steps import PRIORITY_OF_RANK
from webapp.scheduling.models import Run
from webapp.scheduling.queries import find_run
from webapp.store import db
from webapp.targets import node as node_target
from webapp.targets.node_queries import facts_of_runs
from webapp.web.auth import current_actor, viewer_zone
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("task_pages", __name__, url_prefix="/tasks")

_KINDS: Final = {
    "created": "Put in the inbox",
    "delivered": "Fetched",
    "acked": "Acknowledged",
    "running": "Started",
    "replied": "Replied",
    "failed": "Failed",
    "cancelled": "Cancelled",
    "expired": "Expired",
    "retried": "Put in again",
    "cancel_requested": "Asked the node to stop",
    "report_refused": "Refused a report",
}


@dataclass(frozen=True)
class EventRow:
    """One step in the life of a task, in words. `earlier` is the output of an attempt before, if any.

    `gap`: since the step before; None for the first.
    """

    at: datetime
    gap: timedelta | None
    what: str
    actor: str
    attempt: int
    words: str
    code: str | None
    earlier: str | None


@blueprint.get("/<task_id>")
@access(SignedIn, verb=Verb.READ)
def show_task(task_id: str) -> Response:
    """One task with its history."""
    return _show(task_id)


@blueprint.get("/<task_id>/cancel", endpoint="leave_cancel")
@blueprint.get("/<task_id>/retry", endpoint="leave_retry")
@access(SignedIn)
def leave_action(task_id: str) -> Response:
    """Whoever loads the address of a refused attempt again comes back to the task."""
    return redirect_to(f"/tasks/{_find(task_id)}")


@blueprint.post("/<task_id>/cancel")
@access(SignedIn, verb=Verb.STEER_TASK)
def cancel_task(task_id: str) -> Response:
    """Take a task out of the inbox; a node at work on it is told to stop."""
    return _steer(
        task_id, node_target.cancel, "The task is cancelled. A node that works on it is told to stop."
    )


@blueprint.post("/<task_id>/retry")
@access(SignedIn, verb=Verb.STEER_TASK)
def retry_task(task_id: str) -> Response:
    """Have an ended task done once more, as its next attempt."""
    return _steer(task_id, node_target.retry, "It waits in the inbox again, as the next attempt.")


def _find(task_id: str) -> str:
    return find_task(db.session(), reached_networks(), task_id).task.task_id


def _steer(task_id: str, act: Callable[..., Task], done: str) -> Response:
    try:
        act(current_actor(), task_id, now=g.now)
    except AppError as refusal:
        if refusal.status != 409:
            raise
        return _show(task_id, refusal)
    flash(done)
    return redirect_to(f"/tasks/{task_id}")


def _show(task_id: str, refusal: AppError | None = None) -> Response:
    return page(
        "tasks/detail.html",
        {"task-story": "tasks/_task_story.html"},
        status=refusal.status if refusal else 200,
        refusal=refusal,
        refused_way=way_out(refusal.code) if refusal else None,
        **_context(task_id),
    )


def _context(task_id: str) -> dict[str, Any]:
    session, networks = db.session(), reached_networks()
    view = find_task(session, networks, task_id)
    facts = facts_of_runs(session, [view.task]).get(view.task.run_pk or 0)
    run = find_run(session, networks, facts.run_id) if facts is not None else None
    return {
        "view": view,
        "task": view.task,
        "run": run,
        "priority": PRIORITY_OF_RANK[view.task.priority_rank],
        "events": _event_rows(task_events(session, view.task.id)),
        "way": way_out(view.task.error_code),
        "zone": viewer_zone(),
        "now": g.now,
        **_allowed(current_actor(), view, run),
    }


def _allowed(actor: Actor, view: TaskView, run: Run | None) -> dict[str, bool]:
    owner = run.schedule.sponsor_pk if run is not None else view.task.created_by_pk
    steers = may(actor, Verb.STEER_TASK, Facts(network_pk=view.task.network_pk, sponsor_pk=owner))
    return {
        "may_cancel": steers and view.task.status in OPEN,
        "may_retry": steers and view.task.status in RETRYABLE,
    }


def _event_rows(events: Sequence[TaskEvent]) -> list[EventRow]:
    """The steps, oldest first."""
    before = [None, *(event.at for event in events)]
    return [
        _event_row(event, None if earlier is None else event.at - earlier)
        for event, earlier in zip(events, before, strict=False)
    ]


def _event_row(event: TaskEvent, gap: timedelta | None) -> EventRow:
    detail = event.detail
    earlier = detail.get("earlier") or {}
    code = detail.get("code") or earlier.get("code")
    words = [sentence_of(code)] if code else []
    if event.kind == "report_refused":
        words.insert(
            0, f"The node's {detail.get('report')} of attempt {detail.get('reported_attempt') or 'now'}."
        )
    if earlier.get("status"):
        words.insert(0, f"The attempt before had ended as {earlier['status']}.")
    if detail.get("result_truncated"):
        words.append("The answer was cut at 64 KiB.")
    return EventRow(
        at=event.at,
        gap=gap,
        what=_KINDS.get(event.kind, event.kind.replace("_", " ")),
        actor=event.actor,
        attempt=event.attempt,
        words=" ".join(words),
        code=code,
        earlier=earlier.get("result"),
    )
