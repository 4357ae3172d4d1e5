"""Schedules, runs and the audit as the public sees them: every field of the contract, no key of ours."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, cast

from webapp.audit import AuditEntry
from webapp.errors import sentence_of
from webapp.scheduling import queries
from webapp.scheduling.authority import Mending
from webapp.scheduling.bulk import Outcome
from webapp.scheduling.lifecycle import ScheduleStatus, TargetKind
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.outlook import Effect, OpenWork
from webapp.scheduling.policy import Check
from webapp.targets.node_queries import WorkInstants
from webapp.timetable import Occurrence, TimetableError, from_stored, sentence, to_public
from webapp.web import shapes
from webapp.web.present_people import instant

_PRIORITIES: tuple[shapes.Priority, ...] = ("high", "normal", "low")


def schedule_json(row: Schedule, viewer_pk: int) -> shapes.Schedule:
    """A schedule (with its due row, text, sponsor and network loaded) as the person `viewer_pk` may see it."""
    node = row.target_kind is TargetKind.NODE
    private = row.is_private_to(viewer_pk)
    view: shapes.Schedule = {
        "schedule_id": row.schedule_id,
        "short_id": row.short_id,
        "network_id": row.network.network_id,
        "name": row.name_for(viewer_pk),
        "target_kind": row.target_kind.value,
        "target_node_id": row.target_id if node else None,
        "target_alias": None if private else row.target_alias,
        "target_chat_id": None if node or private else row.target_id,
        "task": None if private else row.text.body,
        "priority": _PRIORITIES[row.priority_rank],
        "schedule": None,
        "schedule_type": None,
        "sentence": "",
        "timezone": row.timezone,
        "misfire_policy": row.misfire_policy.value,
        "misfire_grace_seconds": row.misfire_grace_seconds,
        "catch_up_limit": row.catch_up_limit,
        "overlap_policy": row.overlap_policy.value,
        "failure_threshold": row.failure_threshold,
        "starts_at": instant(row.starts_at),
        "ends_at": instant(row.ends_at),
        "max_runs": row.max_runs,
        "ttl_seconds": row.ttl_seconds,
        "max_run_seconds": row.max_run_seconds,
        "status": row.status.value,
        "status_reason": row.status_reason,
        "resume_at": instant(row.resume_at),
        "next_change": cast("shapes.NextChange | None", row.next_change),
        "next_run_at": instant(row.due.next_run_at),
        "last_run_at": instant(row.due.last_run_at),
        "consecutive_failures": row.due.consecutive_failures,
        "revision": row.revision,
        "sponsor": row.sponsor.name,
        "mandate_id": row.mandate_id,
        "created_at": required_instant(row.created_at),
        "updated_at": required_instant(row.updated_at),
    }
    _add_timetable(view, row)
    return view


def _add_timetable(view: shapes.Schedule, row: Schedule) -> None:
    """The timetable and its sentence; where it cannot be read, the reason."""
    try:
        timetable = from_stored(row.timetable, row.timezone)
    except TimetableError as error:
        view["sentence"] = error.message
        view["schedule_error"] = error.code
        if row.status is ScheduleStatus.ACTIVE and row.status_reason is None:
            view["status_reason"] = error.code
        return
    spec = cast(shapes.Timetable, to_public(timetable))
    view["schedule"], view["schedule_type"] = spec, spec["type"]
    view["sentence"] = sentence(timetable, row.timezone)


def warnings_json(codes: tuple[str, ...]) -> list[shapes.Warning]:
    """What would stop a schedule from firing, in code and words."""
    return [{"code": code, "message": sentence_of(code)} for code in codes]


def slot_json(slot: Occurrence) -> shapes.Slot:
    """A slot of a preview."""
    return {
        "at": required_instant(slot.at),
        "local": slot.local.isoformat(timespec="milliseconds"),
        "note": slot.note,
    }


def check_json(check: Check) -> shapes.AdmissionCheck:
    """A question of admission with its answer in words."""
    return {
        "code": check.code,
        "ok": check.ok,
        "permanent": check.permanent,
        "message": queries.check_sentence(check),
    }


def effect_json(effect: Effect) -> shapes.Effect:
    """What a call would do to one schedule."""
    return {
        "schedule_id": effect.schedule_id,
        "name": effect.name,
        "status": None if effect.status is None else effect.status.value,
        "status_after": None if effect.becomes is None else effect.becomes.value,
        "error": effect.code,
        "message": None if effect.code is None else sentence_of(effect.code),
        "changes": effect.changes,
        "withdrawn": [_work_json(work) for work in effect.withdrawn],
        "at_work": [_work_json(work) for work in effect.at_work],
        "asked_to_stop": effect.asked_to_stop,
        "skipped": effect.skipped,
        "drops_change": effect.drops_change,
        "mandate": _MENDED[effect.mending],
        "missed": effect.missed,
        "missed_since": instant(effect.missed_since),
        "next_slots": [required_instant(slot) for slot in effect.next_slots],
    }


_MENDED: dict[Mending, Literal["nothing", "restore", "renew", "take_over"]] = {
    Mending.NOTHING: "nothing",
    Mending.RESTORE: "restore",
    Mending.RENEW: "renew",
    Mending.TAKE_OVER: "take_over",
}


def _work_json(work: OpenWork) -> shapes.OpenWork:
    return {
        "run_id": work.run_id,
        "scheduled_for": required_instant(work.scheduled_for),
        "status": work.status.value,
    }


def outcome_json(outcome: Outcome) -> shapes.Outcome:
    """What became of one of many."""
    return {
        "schedule_id": outcome.schedule_id,
        "ok": outcome.code is None,
        "error": outcome.code,
        "message": None if outcome.code is None else sentence_of(outcome.code),
        "status": None if outcome.status is None else outcome.status.value,
        "revision": outcome.revision,
    }


def run_json(run: Run, viewer_pk: int) -> shapes.Run:
    """A run (with its schedule and text loaded) as the person `viewer_pk` may see it.

    A code without words of its own gets its sentence.
    """
    private = run.schedule.is_private_to(viewer_pk)
    message = None if private else run.error_message
    return {
        "run_id": run.run_id,
        "schedule_id": run.schedule.schedule_id,
        "scheduled_for": required_instant(run.scheduled_for),
        "trigger": run.trigger.value,
        "actor": run.actor,
        "missed_count": run.missed_count,
        "missed_since": instant(run.missed_since),
        "status": run.status.value,
        "error_code": run.error_code,
        "error_message": message or (sentence_of(run.error_code) if run.error_code else None),
        "blocked_by": run.blocked_by,
        "blocker_received": run.blocker_received,
        "wait_reason": None if run.wait_reason is None else run.wait_reason.value,
        "task_id": run.task_id,
        "turn_id": run.turn_id,
        "attempt": run.attempt,
        "target_alias": None if private else run.target_alias,
        "text": None if private else run.text.body,
        "schedule_revision": run.schedule_revision,
        "schedule_changed_since": queries.changed_since(run),
        "created_at": required_instant(run.created_at),
        "delivered_at": instant(run.delivered_at),
        "started_at": instant(run.started_at),
        "completed_at": instant(run.completed_at),
        "result": None if private else run.result,
    }


def run_with_receipts(run: Run, work: WorkInstants, viewer_pk: int) -> shapes.RunWithReceipts:
    """A run and how it went, step by step."""
    return {**run_json(run, viewer_pk), "receipts": receipts(run, work)}


def receipts(run: Run, work: WorkInstants) -> list[shapes.Receipt]:
    """Planned, claimed, delivered, acknowledged, started, ended: when, and seconds since the step before.

    The gap of "claimed" is how late the run was: a run that was tried again was claimed long before it was
    delivered.
    """
    steps: list[shapes.Receipt] = [
        {"step": "planned", "at": None, "gap_seconds": None},
        {"step": "claimed", "at": None, "gap_seconds": None},
        {"step": "delivered", "at": None, "gap_seconds": None},
        {"step": "acknowledged", "at": None, "gap_seconds": None},
        {"step": "started", "at": None, "gap_seconds": None},
        {"step": "ended", "at": None, "gap_seconds": None},
    ]
    instants = (
        run.scheduled_for,
        run.created_at,
        run.delivered_at,
        work.acknowledged_at,
        work.started_at,
        run.completed_at,
    )
    before: datetime | None = None
    for step, at in zip(steps, instants, strict=True):
        if at is None:
            continue
        step["at"] = instant(at)
        step["gap_seconds"] = None if before is None else (at - before) / timedelta(seconds=1)
        before = at
    return steps


def entry_json(entry: AuditEntry, network_id: str) -> shapes.Entry:
    """An entry of the audit."""
    return {
        "seq": entry.seq,
        "network_id": network_id,
        "at": required_instant(entry.at),
        "actor": entry.actor,
        "verb": entry.verb,
        "subject_kind": entry.subject_kind,
        "subject_id": entry.subject_id,
        "detail": entry.detail,
    }


def required_instant(value: datetime) -> str:
    """An instant that is always there, as `2026-11-30T08:12:00.000Z`."""
    text = instant(value)
    assert text is not None
    return text
