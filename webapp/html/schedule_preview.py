"""What the engine would do with what is typed: asked of the engine's own functions, saved nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy.orm import Session

from webapp.clock import parse_instant
from webapp.errors import AppError
from webapp.html.filters import wall, zone_city
from webapp.html.forms.schedule import ScheduleForm, Values
from webapp.html.policy_story import Example, Order, examples
from webapp.scheduling import queries
from webapp.scheduling.drafts import draft_checks
from webapp.scheduling.edit import check_bounds, read_timetable
from webapp.scheduling.lifecycle import MisfirePolicy, OverlapPolicy, TargetKind
from webapp.scheduling.models import Schedule
from webapp.scheduling.policy import Check
from webapp.scheduling.target import target_for
from webapp.timetable import Plan, Timetable, clock_changes, sentence, upcoming

SLOTS_SHOWN: Final = 5
# Beyond these the form is refused, so nothing is told of it.
_LONGEST_GRACE_SECONDS: Final = 86_400
_MOST_CAUGHT_UP: Final = 100


class CheckLine(NamedTuple):
    """One answer of admission as it is drawn: tone ok, warn or no."""

    tone: str
    text: str
    code: str | None


@dataclass(frozen=True)
class Preview:
    """The region `preview`: zones are (IANA name, heading), clock changes (day, words), examples of both policies."""

    sentence: str
    occurrences: tuple[datetime, ...] = ()
    zones: tuple[tuple[str, str], ...] = ()
    clock_changes: tuple[tuple[str, str], ...] = ()
    items: tuple[CheckLine, ...] = ()
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class Subject:
    """Whose schedule is being written: a new one of `sponsor_pk`, or the one that stands."""

    network_pk: int
    sponsor_pk: int
    schedule: Schedule | None = None

    @property
    def timetable(self) -> Timetable | None:
        """The timetable that stands, whose anchor an interval keeps."""
        plan = queries.plan_for(self.schedule) if self.schedule is not None else None
        return plan.timetable if plan is not None else None

    @property
    def already_run(self) -> int:
        """How many of `max_runs` are used up."""
        return self.schedule.due.dispatched_count if self.schedule is not None else 0


def preview_of(
    session: Session, form: ScheduleForm, subject: Subject, *, doer: str, viewer_zone: str, now: datetime
) -> Preview:
    """What would happen if the form were saved as it stands; what cannot be read yet is said instead.

    `doer`: who does it, by name.
    """
    body = form.body()
    items = tuple(check_lines(_checks(session, form, subject, now=now)))
    try:
        timetable, zone = read_timetable(
            body["schedule"], body["timezone"], previous=subject.timetable, now=now
        )
        plan = Plan(timetable, *_bounds(body))
    except AppError as error:
        return Preview(f"Nothing yet: {error.message[:1].lower()}{error.message[1:]}", items=items)
    slots = upcoming(plan, zone, now, _most(body, subject))
    return Preview(
        sentence(timetable, zone)
        if slots
        else f"{sentence(timetable, zone)}. No slot is left in the future.",
        tuple(slot.at for slot in slots),
        zones_shown(zone, viewer_zone),
        tuple((day_words(change.on), f"{change.what}.") for change in clock_changes(plan, zone, now)),
        items,
        _examples(plan, zone, body, subject, doer=doer, in_chat=form.is_chat, now=now),
    )


def _examples(
    plan: Plan, zone: str, body: Values, subject: Subject, *, doer: str, in_chat: bool, now: datetime
) -> tuple[Example, ...]:
    """What the policies would do with its next slots; none while one of them cannot be read."""
    left = _runs_left(body, subject)
    grace, limit = body["misfire_grace_seconds"], body["catch_up_limit"]
    if left == 0 or not _within(grace, 0, _LONGEST_GRACE_SECONDS) or not _within(limit, 1, _MOST_CAUGHT_UP):
        return ()
    try:
        misfire, overlap = MisfirePolicy(body["misfire_policy"]), OverlapPolicy(body["overlap_policy"])
    except ValueError:
        return ()
    order = Order(plan, zone, misfire, overlap, timedelta(seconds=grace), limit, left, doer, in_chat, now)
    return examples(order)


def _within(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and low <= value <= high


def _checks(session: Session, form: ScheduleForm, subject: Subject, *, now: datetime) -> list[Check]:
    kind = TargetKind.CHAT if form.is_chat else TargetKind.NODE
    target_id = (form.target_chat_id.data if form.is_chat else form.target_node_id.data) or ""
    checks = draft_checks(
        session,
        subject.network_pk,
        target_id,
        subject.sponsor_pk,
        kind=kind,
        model=(form.model.data or None) if form.is_chat else None,
        now=now,
    )
    if not target_id:
        # Nothing is wrong with a target that was not chosen yet.
        missing = target_for(kind).missing_code
        checks = [check for check in checks if check.code != missing and not check.code.startswith("target_")]
    if subject.schedule is None:
        return checks
    state = queries.admission(session, subject.schedule, now=now).checks[0]
    return [state, *checks]


def check_lines(checks: Sequence[Check]) -> list[CheckLine]:
    """The answers of admission in words, each refusal with its code."""
    return [
        CheckLine(
            "ok" if check.ok else "no" if check.permanent else "warn",
            queries.check_sentence(check),
            None if check.ok else check.code,
        )
        for check in checks
    ]


def _bounds(body: Values) -> tuple[datetime | None, datetime | None]:
    try:
        starts_at, ends_at = (
            None if body[name] is None else parse_instant(body[name]) for name in ("starts_at", "ends_at")
        )
    except ValueError:
        raise AppError("invalid_ends_at", message="Write both bounds as a date and a time.") from None
    check_bounds(starts_at, ends_at)
    return starts_at, ends_at


def _most(body: Values, subject: Subject) -> int:
    left = _runs_left(body, subject)
    return SLOTS_SHOWN if left is None else min(SLOTS_SHOWN, left)


def _runs_left(body: Values, subject: Subject) -> int | None:
    most = body["max_runs"]
    return None if not isinstance(most, int) else max(0, most - subject.already_run)


def zones_shown(zone: str, viewer_zone: str) -> tuple[tuple[str, str], ...]:
    """The schedule's zone, the viewer's and UTC, each once, as (IANA name, heading)."""
    return tuple(
        (name, f"{zone_city(name)}, you" if name == viewer_zone else zone_city(name))
        for name in dict.fromkeys((zone, viewer_zone, "UTC"))
    )


def day_words(day: date) -> str:
    """ "Sun 28 Mar 2027"."""
    return wall(datetime(day.year, day.month, day.day, tzinfo=UTC), "UTC", "date") + f" {day.year}"
