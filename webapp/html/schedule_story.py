"""A schedule told in words: its sentence, why it stands as it does, what its policies mean. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from webapp.errors import ERRORS, sentence_of
from webapp.html.filters import duration, plural
from webapp.nodes.lifecycle import DEFAULT_MAX_RUN_SECONDS, DEFAULT_SCHEDULED_TTL_SECONDS
from webapp.scheduling.lifecycle import MisfirePolicy, OverlapPolicy, ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.scheduling.queries import plan_for
from webapp.timetable import sentence

_MISFIRE = {
    MisfirePolicy.CATCH_UP_ONCE: "Catch up once",
    MisfirePolicy.SKIP: "Skip what was missed",
    MisfirePolicy.CATCH_UP_ALL: "Catch up on all",
}
_OVERLAP = {
    OverlapPolicy.SKIP: "Skip the new one",
    OverlapPolicy.QUEUE_ONE: "Let one wait",
    OverlapPolicy.ALLOW: "Run both",
}
# Columns and keys of a schedule that people know by another name.
_FIELD_WORDS = {
    "task": "text",
    "prompt": "text",
    "target_node_id": "node",
    "schedule": "timetable",
    "timezone": "time zone",
    "text_pk": "text",
    "target_pk": "node",
    "priority_rank": "priority",
    "sponsor_pk": "sponsor",
    "misfire_grace_seconds": "how late is on time",
    "catch_up_limit": "limit of catching up",
    "ttl_seconds": "time to take it up",
    "max_run_seconds": "time to work",
}
_PRIORITY = ("high", "normal", "low")


class Reason(NamedTuple):
    """Why a schedule stands as it does: words of a person or of the table, and the code if there is one."""

    words: str | None = None
    code: str | None = None


def says(schedule: Schedule) -> str:
    """When it runs, in a sentence without a full stop."""
    plan = plan_for(schedule)
    return sentence(plan.timetable, schedule.timezone) if plan else sentence_of("unreadable_timetable")


def reason_of(schedule: Schedule) -> Reason:
    """Why it is in its state."""
    given = schedule.status_reason
    if given is not None:
        return Reason(sentence_of(given), given) if given in ERRORS else Reason(given)
    if schedule.status is not ScheduleStatus.ACTIVE:
        return Reason()
    if plan_for(schedule) is None:
        return Reason(sentence_of("unreadable_timetable"), "unreadable_timetable")
    if schedule.due.next_run_at is None:
        return Reason("Its last run is still open.")
    failures = schedule.due.consecutive_failures
    return Reason(f"{plural(failures, 'failure')} in a row.") if failures else Reason()


def policy_facts(schedule: Schedule) -> list[tuple[str, str]]:
    """What was decided for the case that something goes wrong, by its heading."""
    grace = f"on time up to {duration(float(schedule.misfire_grace_seconds))}"
    limit = f", at most {schedule.catch_up_limit}"
    catches_all = schedule.misfire_policy is MisfirePolicy.CATCH_UP_ALL
    threshold = schedule.failure_threshold
    return [
        ("If missed", f"{_MISFIRE[schedule.misfire_policy]}{limit if catches_all else ''}, {grace}"),
        ("If still at work", _OVERLAP[schedule.overlap_policy]),
        (
            "Stops after",
            "never by itself" if threshold is None else f"{plural(threshold, 'failure')} in a row",
        ),
        ("Not taken up", f"Withdrawn after {_span(schedule.ttl_seconds, DEFAULT_SCHEDULED_TTL_SECONDS)}"),
        ("Takes too long", f"Given up after {_span(schedule.max_run_seconds, DEFAULT_MAX_RUN_SECONDS)}"),
        ("Priority", _PRIORITY[schedule.priority_rank]),
    ]


def changed_words(fields: Iterable[str]) -> str:
    """What of a schedule is changed, from the names of columns or of keys of the API: "text, timetable"."""
    return ", ".join(dict.fromkeys(_FIELD_WORDS.get(field, field.replace("_", " ")) for field in fields))


def _span(seconds: int | None, usual: int) -> str:
    return duration(float(seconds if seconds is not None else usual))
