"""`/api/chat-tasks`: prompts that schedules send into one's own chats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Blueprint, Response, g, jsonify, request

from webapp.api.body import bare_change, change, parse
from webapp.api.filters import choice_of, id_of
from webapp.errors import AppError
from webapp.identity.access import Verb
from webapp.nodes.bodies import NoBody
from webapp.scheduling import chat_queries, operations, queries
from webapp.scheduling.chat_queries import ChatTask, ChatTaskFilter
from webapp.scheduling.fields import ChatTaskChanges, NewChatSchedule, PauseRequest
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.store import db
from webapp.store.paging import PageRequest
from webapp.web import present
from webapp.web.auth import current_actor
from webapp.web.policy import UserApi, access
from webapp.web.present_chat_tasks import chat_task_json, occurrence_json
from webapp.web.requests import json_body, networks_of_read, page_request

blueprint = Blueprint("api_chat_tasks", __name__, url_prefix="/api/chat-tasks")

_LATEST = PageRequest(limit=50)


@blueprint.get("")
@access(UserApi, verb=Verb.READ)
def list_tasks() -> Response:
    """The caller's own chat tasks, the newest first. A cancelled one is gone from here."""
    state = choice_of("state", ScheduleStatus)
    if state is ScheduleStatus.CANCELLED:
        raise AppError("invalid_state", field="state")
    wanted = ChatTaskFilter(chat_id=id_of("chat"), state=state)
    page = chat_queries.list_own(
        db.session(), networks_of_read(), current_actor().user_pk, wanted, page_request()
    )
    return jsonify(ok=True, tasks=[chat_task_json(row) for row in page.rows], next_cursor=page.next_cursor)


@blueprint.post("")
@access(UserApi, verb=Verb.CREATE_SCHEDULE)
def create_task() -> Response:
    """Have a prompt sent into one of one's chats by a timetable. `warnings` says what would stop it."""
    data = _with_type(json_body())
    key = _key()
    saved = operations.create_for_chat(
        current_actor(),
        data.get("chat_id"),
        lambda: parse(NewChatSchedule, data),
        request_key=key,
        now=g.now,
    )
    task = _find(saved.schedule.schedule_id, cancelled=True)
    return _answer(task, status=201, warnings=present.warnings_json(saved.warnings))


@blueprint.get("/<short_id>")
@access(UserApi, verb=Verb.READ)
def show_task(short_id: str) -> Response:
    """One chat task with its latest 50 occurrences."""
    task = _find(short_id)
    latest = chat_queries.occurrences(db.session(), task.schedule.id, _LATEST)
    return _answer(task, occurrences=[occurrence_json(run) for run in latest.rows])


@blueprint.patch("/<short_id>")
@access(UserApi, verb=Verb.EDIT_SCHEDULE)
def edit_task(short_id: str) -> Response:
    """Change a chat task. A new timetable arms a completed one again; another change leaves it completed."""
    data, revision = change()
    data = _with_type(data)
    task = _find(short_id)
    with _cancelled_is_gone():
        saved = operations.edit(
            current_actor(),
            task.schedule.schedule_id,
            lambda: parse(ChatTaskChanges, data).as_changes(),
            revision=revision,
            now=g.now,
        )
    return _answer(_find(short_id), warnings=present.warnings_json(saved.warnings))


@blueprint.delete("/<short_id>")
@access(UserApi, verb=Verb.CANCEL_SCHEDULE)
def delete_task(short_id: str) -> Response:
    """End a chat task for good, and the authority it acts on. Repeatable."""
    revision = bare_change()
    task = _find(short_id, cancelled=True)
    operations.cancel(current_actor(), task.schedule.schedule_id, revision=revision, now=g.now)
    return _answer(_find(short_id, cancelled=True))


@blueprint.post("/<short_id>/pause")
@access(UserApi, verb=Verb.PAUSE_SCHEDULE)
def pause_task(short_id: str) -> Response:
    """Send nothing more until it is resumed; what has not begun is taken back. Repeatable."""
    data, revision = change(optional=True)
    task = _find(short_id)
    with _cancelled_is_gone():
        operations.pause(
            current_actor(),
            task.schedule.schedule_id,
            lambda: parse(PauseRequest, data),
            revision=revision,
            now=g.now,
        )
    return _answer(_find(short_id))


@blueprint.post("/<short_id>/resume")
@access(UserApi, verb=Verb.RESUME_SCHEDULE)
def resume_task(short_id: str) -> Response:
    """Go on from now, with its authority mended where it is paused, expired or revoked. Repeatable."""
    revision = bare_change()
    task = _find(short_id)
    with _cancelled_is_gone():
        operations.resume(current_actor(), task.schedule.schedule_id, revision=revision, now=g.now)
    return _answer(_find(short_id))


@blueprint.post("/<short_id>/run")
@access(UserApi, verb=Verb.RUN_SCHEDULE)
def run_task(short_id: str) -> Response:
    """Send the prompt now, beside the timetable."""
    data = json_body(optional=True)
    task = _find(short_id)
    key = _key()
    with _cancelled_is_gone():
        run = operations.run_now(
            current_actor(),
            task.schedule.schedule_id,
            check_fields=lambda: parse(NoBody, data),
            request_key=key,
            now=g.now,
        )
    found = queries.find_run(db.session(), current_actor().networks, run.run_id)
    response = jsonify(ok=True, occurrence=occurrence_json(found))
    response.status_code = 202
    return response


@blueprint.get("/<short_id>/occurrences")
@access(UserApi, verb=Verb.READ)
def list_occurrences(short_id: str) -> Response:
    """What became of each slot and of each run by hand, newest first."""
    page = chat_queries.occurrences(db.session(), _find(short_id).schedule.id, page_request())
    rows = [occurrence_json(run) for run in page.rows]
    return jsonify(ok=True, occurrences=rows, next_cursor=page.next_cursor)


def _find(short_id: str, *, cancelled: bool = False) -> ChatTask:
    return chat_queries.find_own(
        db.session(), networks_of_read(), current_actor().user_pk, short_id, cancelled=cancelled
    )


def _answer(task: ChatTask, *, status: int = 200, **more: Any) -> Response:
    response = jsonify(ok=True, task=chat_task_json(task), **more)
    response.status_code = status
    response.set_etag(str(task.schedule.revision))
    return response


def _key() -> str:
    """The key that makes a repeat harmless; here it is not left to the caller. Raises AppError."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        raise AppError("idempotency_key_required", field="idempotency_key")
    return key


def _with_type(data: dict[str, Any]) -> dict[str, Any]:
    """The body with the timetable's `kind` under the name that it has everywhere else."""
    timetable = data.get("schedule")
    if not isinstance(timetable, dict) or "kind" not in timetable:
        return data
    named = {name: value for name, value in timetable.items() if name != "kind"}
    if named.setdefault("type", timetable["kind"]) != timetable["kind"]:
        raise AppError("invalid_schedule_type", field="schedule")
    return {**data, "schedule": named}


@contextmanager
def _cancelled_is_gone() -> Iterator[None]:
    """One that somebody has cancelled in this moment is not found any more."""
    try:
        yield
    except AppError as refused:
        if refused.code == "schedule_cancelled":
            raise AppError("schedule_not_found") from None
        raise
