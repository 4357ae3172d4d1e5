"""The pages of runs: what became of each slot, and where the time went."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from flask import Blueprint, Response, g
from sqlalchemy.orm import Session

from webapp.audit.queries import AuditFilter, list_entries
from webapp.chat.operations import abort_turn
from webapp.errors import AppError, sentence_of
from webapp.html import run_story
from webapp.html.privacy import aim, called, facts_of, is_chat
from webapp.html.respond import flash, page, redirect_to
from webapp.html.schedule_story import changed_words
from webapp.html.viewing import (
    address,
    asked,
    asked_choice,
    new_form_key,
    reached_networks,
    shown_networks,
)
from webapp.html.ways import way_out
from webapp.identity.access import Actor, Verb, may
from webapp.nodes.lifecycle import OPEN as OPEN_TASK
from webapp.nodes.lifecycle import RETRYABLE as RETRYABLE_TASK
from webapp.nodes.models import Task
from webapp.nodes.queries import find_task, task_events
from webapp.scheduling import queries
from webapp.scheduling.lifecycle import OPEN, RunStatus, ScheduleStatus, Trigger
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.waiting import cancel_waiting
from webapp.store import db
from webapp.store.paging import PageRequest
from webapp.targets import node as node_target
from webapp.web.auth import current_actor, viewer_zone
from webapp.web.policy import SignedIn, access
from webapp.web.requests import page_request

blueprint = Blueprint("run_pages", __name__, url_prefix="/runs")

_MAX_CHOICES: Final = 300
_BLOCKED_SHOWN: Final = 5
_ENTRIES_READ: Final = 50
_AMISS: Final = (RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED, RunStatus.SKIPPED)
_RUNNABLE: Final = (ScheduleStatus.ACTIVE, ScheduleStatus.PAUSED, ScheduleStatus.NEEDS_ATTENTION)
Steer = Callable[..., object]


@dataclass(frozen=True)
class RunRow:
    """A run in a table: late and took are None where the run knows no such thing; `took` of an open one so far.

    `aim` is what it is aimed at, by name. In a history also: `share` of the longest there in percent, `way` out of
    its reason and whether what it ran with `changed` since, each on the newest with that reason or revision.
    """

    run: Run
    name: str
    late: timedelta | None
    took: timedelta | None
    words: str | None
    aim: str
    share: float | None = None
    way: str | None = None
    changed: bool = False


def history_rows(runs: Iterable[Run], *, now: datetime) -> list[RunRow]:
    """Runs of one schedule (loaded), newest first, as its history shows them."""
    rows = run_rows(runs, now=now)
    longest = max((row.took for row in rows if row.took), default=None)
    still_open = {row.run.run_id for row in rows if row.run.status in OPEN}
    said: set[str | None] = {None}
    revisions: set[int] = set()
    found = []
    for row in rows:
        code, blocker = row.run.error_code, row.run.blocked_by
        in_question = code not in said and (blocker is None or blocker in still_open)
        way = way_out(code) if in_question else None
        said.add(code)
        share = None if row.took is None or longest is None else round(100 * (row.took / longest), 1)
        changed = row.run.schedule_revision not in revisions and queries.changed_since(row.run)
        revisions.add(row.run.schedule_revision)
        found.append(replace(row, share=share, way=way, changed=changed))
    return found


def run_rows(runs: Iterable[Run], *, now: datetime) -> list[RunRow]:
    """Runs (their schedules loaded) as tables show them."""
    return [
        RunRow(
            run,
            called(run),
            run_story.lateness(run),
            run_story.duration(run, now),
            _words(run),
            aim(run),
        )
        for run in runs
    ]


def _words(run: Run) -> str | None:
    if run.error_code is not None:
        return sentence_of(run.error_code)
    if run.status is RunStatus.QUEUED and run.wait_reason is not None:
        return run_story.WAITS[run.wait_reason].format(alias=run.target_alias)
    return f"by hand, {run.actor}" if run.trigger is Trigger.MANUAL else None


@blueprint.get("")
@access(SignedIn, verb=Verb.READ)
def list_runs() -> Response:
    """The runs of the network, newest slot first, by `?status=` and `?schedule_id=`."""
    return page("runs/list.html", {"run-list": "runs/_run_list.html"}, **_list_context())


def _list_context() -> dict[str, Any]:
    session, networks = db.session(), shown_networks()
    status, schedule_id = asked_choice("status", RunStatus), asked("schedule_id")
    schedule = queries.find_schedule(session, networks, schedule_id) if schedule_id else None
    wanted = queries.RunFilter(status=status, schedule_pk=schedule.id if schedule else None)
    found = queries.list_runs(session, networks, wanted, _page())
    return {
        "rows": run_rows(found.rows, now=g.now),
        "chosen": status,
        "schedule": schedule,
        "schedules": _choices(session, networks, schedule),
        "statuses": [(state.value, state.value) for state in RunStatus],
        "zone": viewer_zone(),
        "now": g.now,
        **_addresses(status, schedule_id, found.next_cursor),
    }


def _choices(session: Session, networks: frozenset[int], chosen: Schedule | None) -> list[tuple[str, str]]:
    """Schedules to choose from: the first by name, and the one that is chosen."""
    names = queries.schedule_names(session, networks, viewer_pk=current_actor().user_pk, limit=_MAX_CHOICES)
    if chosen is None or any(schedule_id == chosen.schedule_id for schedule_id, _ in names):
        return names
    return [(chosen.schedule_id, called(chosen)), *names]


def _addresses(status: RunStatus | None, schedule_id: str | None, following: str | None) -> dict[str, Any]:
    """This page of the list, the next one, and the first one; None where there is no need for it."""
    narrowed = {"status": status, "schedule_id": schedule_id}
    cursor = asked("cursor")
    return {
        "address": address(**narrowed, cursor=cursor),
        "next_url": address(**narrowed, cursor=following) if following else None,
        "first_url": address(**narrowed) if cursor else None,
    }


def _page() -> PageRequest:
    return page_request() if asked("cursor") else PageRequest()


@blueprint.get("/<run_id>")
@access(SignedIn, verb=Verb.READ)
def show_run(run_id: str) -> Response:
    """One run: what happened in a sentence, its receipts, its text, its output."""
    return _show(run_id)


@blueprint.get("/<run_id>/cancel", endpoint="leave_cancel")
@blueprint.get("/<run_id>/retry", endpoint="leave_retry")
@access(SignedIn)
def leave_action(run_id: str) -> Response:
    """Whoever loads the address of a refused attempt again comes back to the run."""
    return redirect_to(f"/runs/{_find(run_id)}")


@blueprint.post("/<run_id>/cancel")
@access(SignedIn, verb=Verb.STEER_TASK)
def cancel_run(run_id: str) -> Response:
    """End an open run; a node at work on it is told to stop, a turn ends at its next step."""
    run = queries.find_run(db.session(), reached_networks(), run_id)
    if run.turn_id is None and run.task_id is None:
        return _cancel_waiting(run_id)
    if run.turn_id is not None:
        return _steer(
            run_id, abort_turn, "The turn is aborted, or ends at its next step; the run ends with it."
        )
    return _steer(
        run_id, node_target.cancel, "The run is cancelled. A node that works on it is told to stop."
    )


def _cancel_waiting(run_id: str) -> Response:
    """End a run of which nothing was sent; one that was sent meanwhile is steered as such."""
    try:
        run = cancel_waiting(current_actor(), run_id, now=g.now)
    except AppError as refusal:
        if refusal.status != 409:
            raise
        db.session.remove()
        return _show(run_id, refusal)
    if run.turn_id is not None or run.task_id is not None:
        db.session.remove()
        return cancel_run(run_id)
    flash("The run is cancelled. Nothing of it was sent.")
    return redirect_to(f"/runs/{run_id}")


@blueprint.post("/<run_id>/retry")
@access(SignedIn, verb=Verb.STEER_TASK)
def retry_run(run_id: str) -> Response:
    """Have an ended run done again, as its next attempt."""
    return _steer(run_id, node_target.retry, "It waits in the inbox again, as the next attempt.")


def _find(run_id: str) -> str:
    return queries.find_run(db.session(), reached_networks(), run_id).run_id


def _steer(run_id: str, act: Steer, done: str) -> Response:
    run = queries.find_run(db.session(), reached_networks(), run_id)
    try:
        work_id = run.turn_id or run.task_id
        if work_id is None:
            raise AppError("run_without_task")
        act(current_actor(), work_id, now=g.now)
    except AppError as refusal:
        if refusal.status != 409:
            raise
        # What was read before the attempt may be what made it too late.
        db.session.remove()
        return _show(run_id, refusal)
    flash(done)
    return redirect_to(f"/runs/{run_id}")


def _show(run_id: str, refusal: AppError | None = None) -> Response:
    return page(
        "runs/detail.html",
        {"run-story": "runs/_run_story.html"},
        status=refusal.status if refusal else 200,
        refusal=refusal,
        refused_way=way_out(refusal.code) if refusal else None,
        **_detail_context(run_id),
    )


def _detail_context(run_id: str) -> dict[str, Any]:
    session, networks, now = db.session(), reached_networks(), g.now
    run = queries.find_run(session, networks, run_id)
    task = _task_of(session, networks, run)
    retried_at = _retried_at(session, task)
    return {
        "run": run,
        "schedule": run.schedule,
        "task": task,
        "zone": run.schedule.timezone,
        "viewer_zone": viewer_zone(),
        "sentence": run_story.sentence(run, now),
        "stamps": run_story.stamps(run, task, retried_at),
        "spent": run_story.spent(run, now),
        "late": run_story.lateness(run),
        "way": _way_out_of(session, run),
        "changed": queries.changed_since(run),
        "changes": _changes_since(session, run),
        "blocked": queries.runs_blocked_by(session, run, limit=_BLOCKED_SHOWN) if run.status in OPEN else (),
        "run_key": new_form_key(),
        "now": now,
        **_allowed(current_actor(), run, task),
    }


@dataclass(frozen=True)
class ChangeSince:
    """An edit of a schedule since a run began: what of it was changed, in words."""

    at: datetime
    actor: str
    revision: int
    what: str


def _changes_since(session: Session, run: Run) -> list[ChangeSince]:
    """The edits of its schedule since a run, newest first; of the latest entries of the audit."""
    if run.schedule.revision == run.schedule_revision:
        return []
    wanted = AuditFilter(subject_id=run.schedule.schedule_id)
    entries = list_entries(session, run.network_pk, wanted, PageRequest(_ENTRIES_READ)).rows
    return [
        ChangeSince(entry.at, entry.actor, entry.detail["revision"], changed_words(entry.detail["changed"]))
        for entry in entries
        if entry.verb == "schedule.edit" and entry.detail["revision"] > run.schedule_revision
    ]


def _way_out_of(session: Session, run: Run) -> str | None:
    """What helps this run, or those after it; None once nothing is to be done about it."""
    if run.status is RunStatus.SKIPPED:
        blocker = queries.find_blocker(session, run)
        return way_out(run.error_code) if blocker is not None and blocker.status in OPEN else None
    return way_out(run.error_code)


def _allowed(actor: Actor, run: Run, task: Task | None) -> dict[str, bool]:
    """Which buttons the viewer may press; what else stands against it is said when it is pressed."""
    facts = facts_of(run.schedule)
    steers = may(actor, Verb.STEER_TASK, facts)
    owns = actor.user_pk == run.schedule.sponsor_pk
    if is_chat(run):
        # A prompt is not sent again under the same run: the schedule is run by hand.
        again = run.status in _AMISS and run.schedule.status in _RUNNABLE
        return {
            "may_cancel": run.status in OPEN and owns and may(actor, Verb.USE_CHAT, facts),
            "may_retry": False,
            "may_run_again": again and may(actor, Verb.RUN_SCHEDULE, facts),
        }
    waits = run.status in OPEN and run.task_id is None
    return {
        "may_cancel": steers
        and (waits or (run.status in OPEN and task is not None and task.status in OPEN_TASK)),
        "may_retry": steers and task is not None and task.status in RETRYABLE_TASK,
        "may_run_again": False,
    }


def _task_of(session: Session, networks: frozenset[int], run: Run) -> Task | None:
    if run.task_id is None:
        return None
    try:
        return find_task(session, networks, run.task_id).task
    except AppError:
        # Retention may have taken it; the run keeps what it says of itself.
        return None


def _retried_at(session: Session, task: Task | None) -> datetime | None:
    """When the attempt of now began, for one that is not the first."""
    if task is None or task.attempt == 1:
        return None
    return max((event.at for event in task_events(session, task.id) if event.kind == "retried"), default=None)
