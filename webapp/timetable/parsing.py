"""Untrusted values -> timetables, and timetables -> canonical JSON and the public shape.

Nothing is coerced, and whatever comes in, only `TimetableError` comes out. Values are never quoted in messages:
they may be megabytes, or not printable at all.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any, Final

from webapp.timetable.errors import TimetableError
from webapp.timetable.kinds import Cron, Daily, Interval, Once, Timetable, Weekly
from webapp.timetable.walltime import Reading, instant_of, wall_seconds, zone_clock
from webapp.timetable.zones import canonical_zone

STORED_VERSION: Final = 1
SHORTEST_INTERVAL_SECONDS: Final = 60
LONGEST_INTERVAL_SECONDS: Final = 31_536_000


class Absent(Enum):
    """The type of `ABSENT`, which is not None: a key that is missing and a null are different things."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT

_KEYS: Final = {
    "once": ("run_at",),
    "interval": ("every_seconds", "anchor_at"),
    "daily": ("time",),
    "weekly": ("time", "weekdays"),
    "cron": ("cron",),
}
_TIME = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?"
    r"(?P<offset>[Zz]|[+\-](?:[01]\d|2[0-3]):[0-5]\d)?",
    re.ASCII,
)
_LONGEST_MOMENT: Final = 40
_LONGEST_KEY_SHOWN: Final = 60


def parse_timetable(
    spec: object,
    timezone: object = ABSENT,
    *,
    now: datetime,
    previous: Timetable | None = None,
    allow_unresolved_local: bool = False,
) -> Timetable:
    """The timetable that an API body or a form describes.

    `spec` is any JSON value (`{"type": "daily", "time": "09:00"}`), `timezone` any value, UTC when absent. `now`
    (aware) is the anchor of an interval that names none, to the second, unless `previous` is an interval, whose
    anchor is kept. A local `run_at` that the zone's clock skips or shows twice is refused, unless
    `allow_unresolved_local`: then it falls on the jump, or on the first of the two.

    Whether a slot is left in the future is not asked here, but for a cron that never fires (`invalid_cron`).
    Raises `TimetableError` and nothing else.
    """
    timetable = _parse(spec, timezone, now, previous, allow_unresolved_local)
    if isinstance(timetable, Cron) and timetable.next_after(now) is None:
        # Dates match it, but this zone's clock skips each of them.
        raise TimetableError("invalid_cron", "cron", f"This never fires on the clock of {timetable.zone}.")
    return timetable


def _parse(
    spec: object, timezone: object, now: datetime, previous: Timetable | None, allow_unresolved_local: bool
) -> Timetable:
    if not isinstance(spec, dict):
        raise TimetableError("schedule_required", "schedule", "Say when it runs: a timetable with a type.")
    kind = spec.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise TimetableError(
            "invalid_schedule_type", "type", "The type is one of once, interval, daily, weekly and cron."
        )
    for key in spec:
        if key != "type" and key not in _KEYS[kind]:
            raise _unknown_field(key, kind)
    zone = "UTC" if timezone is ABSENT else canonical_zone(timezone)
    if kind == "once":
        return _once(spec.get("run_at"), zone, allow_unresolved_local)
    if kind == "interval":
        return _interval(spec.get("every_seconds"), spec.get("anchor_at", ABSENT), now, previous)
    if kind == "daily":
        return Daily(_time(spec.get("time")), zone)
    if kind == "weekly":
        return Weekly(_time(spec.get("time")), _weekdays(spec.get("weekdays")), zone)
    return Cron(_cron_text(spec.get("cron")), zone)


def _unknown_field(key: object, kind: str) -> TimetableError:
    shown = key if isinstance(key, str) else type(key).__name__
    shown = shown[:_LONGEST_KEY_SHOWN].encode("ascii", "backslashreplace").decode("ascii")
    return TimetableError("unknown_field", shown, f"A timetable of type {kind} has no such field.")


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _time(value: object) -> str:
    if isinstance(value, str) and _TIME.fullmatch(value):
        return str(value)
    raise TimetableError("invalid_time", "time", "Write the time as HH:MM in 24 hours, such as 09:00.")


def _weekdays(value: object) -> tuple[int, ...]:
    if _is_blank(value) or value == []:
        raise TimetableError("weekdays_required", "weekdays", "Choose at least one weekday.")
    if isinstance(value, list) and all(type(day) is int and 0 <= day <= 6 for day in value):
        return tuple(sorted(set(value)))
    raise TimetableError("invalid_weekdays", "weekdays", "Weekdays are whole numbers from 0 (Sunday) to 6.")


def _cron_text(value: object) -> str:
    if _is_blank(value):
        raise TimetableError("cron_required", "cron", "Write a cron expression, such as 0 9 * * 1-5.")
    if not isinstance(value, str):
        raise TimetableError("invalid_cron", "cron", "A cron expression is a text of five fields.")
    return str(value)


def _interval(every: object, anchor: object, now: datetime, previous: Timetable | None) -> Interval:
    if type(every) is not int or not SHORTEST_INTERVAL_SECONDS <= every <= LONGEST_INTERVAL_SECONDS:
        raise TimetableError(
            "invalid_interval",
            "every_seconds",
            f"An interval is a whole number of seconds from {SHORTEST_INTERVAL_SECONDS} to"
            f" {LONGEST_INTERVAL_SECONDS} (a year).",
        )
    if anchor is not ABSENT:
        return Interval(every, _anchor(anchor))
    if isinstance(previous, Interval):
        return Interval(every, previous.anchor)
    return Interval(every, now.astimezone(UTC).replace(microsecond=0))


def _anchor(value: object) -> datetime:
    moment = _moment(value)
    if moment is None or moment.tzinfo is None:
        raise TimetableError(
            "invalid_anchor",
            "anchor_at",
            "Write the anchor as a moment with its offset: 2026-05-04T09:00:00Z.",
        )
    return moment


def _once(value: object, zone: str, allow_unresolved: bool) -> Once:
    if _is_blank(value):
        raise TimetableError("run_at_required", "run_at", "Say when it runs, such as 2026-05-04T09:00.")
    moment = _moment(value)
    once = None if moment is None else moment_to_once(moment, zone, allow_unresolved=allow_unresolved)
    if once is None:
        raise TimetableError(
            "invalid_run_at",
            "run_at",
            "Write a date and a time, such as 2026-05-04T09:00, with an offset if you mean another zone.",
        )
    return once


def _moment(value: object) -> datetime | None:
    """An ISO 8601 text -> a datetime to the millisecond: UTC if it has an offset, else naive. None if it is not one."""
    if not isinstance(value, str) or len(value) > _LONGEST_MOMENT:
        return None
    match = _MOMENT.fullmatch(value)
    if match is None:
        return None
    year, month, day, hour, minute = (int(match[group]) for group in range(1, 6))
    microsecond = int((match[7] or "0")[:3].ljust(3, "0")) * 1000
    try:
        # The offset, if there is one, is applied below.
        wall = datetime(year, month, day, hour, minute, int(match[6] or 0), microsecond)  # noqa: DTZ001
        offset = match["offset"]
        if offset is None:
            return wall
        if offset in "Zz":
            return wall.replace(tzinfo=UTC)
        size = timedelta(hours=int(offset[1:3]), minutes=int(offset[4:]))
        return wall.replace(tzinfo=timezone(size if offset[0] == "+" else -size)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def moment_to_once(moment: datetime, zone: str, *, allow_unresolved: bool) -> Once | None:
    """A once at an instant (aware, UTC) or at a wall time (naive) of a canonical zone.

    None where the calendar ends before the instant. Raises `TimetableError` (`nonexistent_local_time`,
    `ambiguous_local_time`) for a wall time that is not exactly one instant, unless `allow_unresolved`.
    """
    if moment.tzinfo is not None:
        return Once(moment)
    clock = zone_clock(zone)
    seconds = wall_seconds(moment)
    reading = clock.reading(seconds)
    at = instant_of(clock.first(seconds))
    if at is None:
        return None
    if reading is Reading.NEVER:
        if not allow_unresolved:
            raise TimetableError(
                "nonexistent_local_time",
                "run_at",
                f"The clock in {zone} skips this time that day: choose another one.",
            )
        return Once(at, moment, zone)
    if reading is Reading.TWICE and not allow_unresolved:
        raise TimetableError(
            "ambiguous_local_time",
            "run_at",
            f"The clock in {zone} shows this time twice that day: add an offset, or choose another one.",
        )
    return Once(at.replace(microsecond=moment.microsecond), moment, zone)


# --- Out ----------------------------------------------------------------------------------------------------------


def utc_text(instant: datetime) -> str:
    """An aware instant as everything that leaves the product writes it: `2026-05-04T09:00:00.000Z`."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _wall_text(wall: datetime) -> str:
    """ "2026-05-04T09:00:00", with milliseconds where there are any."""
    return wall.isoformat(timespec="milliseconds" if wall.microsecond else "seconds")


def to_public(timetable: Timetable) -> dict[str, Any]:
    """The shape of the API, which `parse_timetable` reads back to the same timetable.

    A cron text is as typed; a once is an instant (UTC, `Z`, milliseconds) or its local wall time.
    """
    if isinstance(timetable, Once):
        run_at = utc_text(timetable.at) if timetable.wall is None else _wall_text(timetable.wall)
        return {"type": "once", "run_at": run_at}
    if isinstance(timetable, Interval):
        return {
            "type": "interval",
            "every_seconds": timetable.every_seconds,
            "anchor_at": utc_text(timetable.anchor),
        }
    if isinstance(timetable, Daily):
        return {"type": "daily", "time": timetable.time}
    if isinstance(timetable, Weekly):
        return {"type": "weekly", "time": timetable.time, "weekdays": list(timetable.weekdays)}
    return {"type": "cron", "cron": timetable.text}


def to_stored(timetable: Timetable) -> dict[str, Any]:
    """What the database keeps: canonical JSON with its version `v`. The zone is kept beside it, by the caller.

    A local once keeps its wall time and the instant it was resolved to; a cron its field sets and the text as
    typed.
    """
    stored: dict[str, Any] = {"v": STORED_VERSION, **to_public(timetable)}
    if isinstance(timetable, Once):
        stored["at"] = utc_text(timetable.at)
    elif isinstance(timetable, Cron):
        stored["fields"] = timetable.fields.canonical
    return stored


def canonical_form(timetable: Timetable) -> dict[str, Any]:
    """The part of the stored form that makes two timetables the same, with the zone where it matters.

    Two spellings of a cron expression have one canonical form; so it is what to hash and to compare.
    """
    form = to_stored(timetable)
    if isinstance(timetable, Cron):
        del form["cron"]
    if isinstance(timetable, Once):
        # The instant of a local time follows from its zone, and moves when the zone's rules do.
        del form["at"]
    zone = getattr(timetable, "zone", None)
    return form if zone is None else {**form, "zone": zone}


def same_timetable(a: Timetable, b: Timetable) -> bool:
    """Whether two timetables are the same in canonical form."""
    return canonical_form(a) == canonical_form(b)


def from_stored(value: object, timezone: str) -> Timetable:
    """What `to_stored` wrote, read back in the zone that was kept beside it.

    A local once is resolved again, so that it follows newer zone data; by the gap and fold rules where it must.
    Raises `TimetableError("unreadable_timetable")` and nothing else.
    """
    try:
        return _from_stored(value, timezone)
    except TimetableError as error:
        raise TimetableError(
            "unreadable_timetable", error.field, f"The stored timetable cannot be read. {error.message}"
        ) from error


def _from_stored(value: object, timezone: str) -> Timetable:
    if not isinstance(value, dict):
        raise TimetableError("unreadable_timetable", "schedule", "It is not an object.")
    if type(value.get("v")) is not int or value["v"] != STORED_VERSION:
        raise TimetableError("unreadable_timetable", "schedule", "It was written by another version.")
    beside = (
        {"once": "at", "cron": "fields"}.get(value["type"]) if isinstance(value.get("type"), str) else None
    )
    spec = {key: part for key, part in value.items() if key not in ("v", beside)}
    if spec.get("type") == "interval" and "anchor_at" not in spec:
        raise TimetableError("unreadable_timetable", "anchor_at", "It has no anchor.")
    if beside is not None and not isinstance(value.get(beside), str):
        raise TimetableError("unreadable_timetable", "schedule", "A part of it is missing.")
    timetable = _parse(spec, timezone, _NEVER_READ, None, allow_unresolved_local=True)
    if isinstance(timetable, Cron) and value["fields"] != timetable.fields.canonical:
        raise TimetableError("unreadable_timetable", "cron", "Its text and its fields disagree.")
    return timetable


_NEVER_READ: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rezone(timetable: Timetable, zone: object) -> Timetable:
    """The same wall times on the clock of another zone; an interval and an instant stay as they are.

    Raises `TimetableError`: `invalid_timezone`, or, for a local once, `nonexistent_local_time`,
    `ambiguous_local_time` and `invalid_run_at`.
    """
    name = canonical_zone(zone)
    if getattr(timetable, "zone", None) == name:
        return timetable
    if isinstance(timetable, Daily):
        return Daily(timetable.time, name)
    if isinstance(timetable, Weekly):
        return Weekly(timetable.time, timetable.weekdays, name)
    if isinstance(timetable, Cron):
        return Cron(timetable.text, name)
    if isinstance(timetable, Once) and timetable.wall is not None:
        return _once(_wall_text(timetable.wall), name, allow_unresolved=False)
    return timetable
