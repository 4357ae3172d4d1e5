"""Chat tasks and their occurrences as their owner sees them."""

from __future__ import annotations

from typing import Any

from webapp.scheduling.chat_queries import ChatTask
from webapp.scheduling.lifecycle import RunStatus
from webapp.scheduling.models import Run
from webapp.timetable import TimetableError, from_stored, sentence, to_public
from webapp.web.present_people import instant


def chat_task_json(view: ChatTask) -> dict[str, Any]:
    """A chat task. Its timetable names its kind twice, as `kind` and, like everywhere else, as `type`."""
    row = view.schedule
    schedule, words = _timetable(view)
    return {
        "id": row.short_id,
        "schedule_id": row.schedule_id,
        "chat_id": row.target_id,
        "chat_title": view.chat_title,
        "name": row.name,
        "prompt": row.text.body,
        "schedule": schedule,
        "sentence": words,
        "timezone": row.timezone,
        "state": row.status.value,
        "last_error": view.last_error,
        "revision": row.revision,
        "mandate_id": row.mandate_id,
        "model": row.model,
        "next_run_at": instant(row.due.next_run_at),
        "created_at": instant(row.created_at),
        "updated_at": instant(row.updated_at),
    }


def _timetable(view: ChatTask) -> tuple[dict[str, Any] | None, str]:
    """The timetable and its sentence; where it cannot be read, null and the reason."""
    row = view.schedule
    try:
        timetable = from_stored(row.timetable, row.timezone)
    except TimetableError as error:
        return None, error.message
    public = dict(to_public(timetable))
    return {"kind": public["type"], **public}, sentence(timetable, row.timezone)


def occurrence_json(run: Run) -> dict[str, Any]:
    """A run of a chat task (with its schedule loaded); one whose turn nobody has begun yet is still queued."""
    status = RunStatus.QUEUED if run.status is RunStatus.DELIVERED else run.status
    return {
        "id": run.run_id,
        "task_id": run.schedule.short_id,
        "scheduled_for": instant(run.scheduled_for),
        "trigger": run.trigger.value,
        "state": status.value,
        "turn_id": run.turn_id,
        "error": run.error_code,
        "created_at": instant(run.created_at),
        "started_at": instant(run.started_at),
        "completed_at": instant(run.completed_at),
    }
