"""Slots by plain rules, the slow way: every minute of a clock is looked at, one after the other.

Written without a line of `webapp.timetable`: it reads the stored form of a timetable and the clock of the standard
library, and knows nothing of how the product searches. What it does not know (L, W and # of cron) it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
# Walls that were shown so long before a stretch may come again in it.
_LOOK_BACK = timedelta(hours=4)
_LONGEST_WALK = timedelta(days=400)
_NAMES = {
    **{name: place for place, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))},
    **{
        name: place
        for place, name in enumerate(
            ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"), 1
        )
    },
}
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Unknown(Exception):
    """A timetable that this oracle has no rule for."""


class Minute(NamedTuple):
    """One minute of a zone's clock: what it shows, whether it showed that before, and which walls it left out."""

    at: datetime
    wall: datetime
    again: bool
    left_out: tuple[datetime, ...]


def slots(stored: Mapping[str, Any], zone: str, first: datetime, last: datetime) -> list[datetime]:
    """The slots of a stored timetable from `first` to `last` (aware, UTC, both included), oldest first.

    Raises Unknown for what it has no rule for, and for stretches of more than 400 days.
    """
    if last < first:
        return []
    kind = stored["type"]
    if kind == "once":
        return [at for at in [_once(stored, zone)] if first <= at <= last]
    if last - first > _LONGEST_WALK:
        raise Unknown(f"a walk from {first} to {last}")
    if kind == "interval":
        return _interval(stored, first, last)
    fires, repeats, makes_up = _wall_rule(stored)
    found = []
    for minute in _minutes(zone, first.replace(second=0, microsecond=0), last):
        due = fires(minute.wall) and (repeats or not minute.again)
        if makes_up and not due:
            due = any(fires(wall) for wall in minute.left_out)
        if due and first <= minute.at <= last:
            found.append(minute.at)
    return found


def _once(stored: Mapping[str, Any], zone: str) -> datetime:
    text = str(stored["run_at"])
    if text.endswith("Z"):
        return datetime.fromisoformat(text)
    wall = datetime.fromisoformat(text)
    at = wall.replace(tzinfo=UTC) - timedelta(hours=26)
    end = at + timedelta(hours=52)
    clock = ZoneInfo(zone)
    while at <= end:
        shown = at.astimezone(clock).replace(tzinfo=None)
        # The first that shows it, or the jump over it.
        if shown >= wall.replace(second=0, microsecond=0):
            return at + (wall - shown if shown <= wall else timedelta(0))
        at += MINUTE
    raise Unknown(f"{text} in {zone}")


def _interval(stored: Mapping[str, Any], first: datetime, last: datetime) -> list[datetime]:
    at = datetime.fromisoformat(stored["anchor_at"])
    every = timedelta(seconds=stored["every_seconds"])
    if at < first:
        # Whole steps at once, stopping short, so that the walk itself decides where the stretch begins.
        at += max(0, int((first - at) / every) - 2) * every
    found = []
    while at <= last:
        if at >= first:
            found.append(at)
        at += every
    return found


@lru_cache(maxsize=64)
def _minutes(zone: str, begin: datetime, last: datetime) -> tuple[Minute, ...]:
    clock = ZoneInfo(zone)
    at = begin - _LOOK_BACK
    before = at.astimezone(clock).replace(tzinfo=None)
    shown = {before}
    found = []
    while at <= last:
        at += MINUTE
        wall = at.astimezone(clock).replace(tzinfo=None)
        left_out = []
        skipped = before + MINUTE
        while skipped < wall:
            left_out.append(skipped)
            skipped += MINUTE
        if at >= begin:
            found.append(Minute(at, wall, wall in shown, tuple(left_out)))
        shown.add(wall)
        before = wall
    return tuple(found)


def _wall_rule(stored: Mapping[str, Any]) -> tuple[Callable[[datetime], bool], bool, bool]:
    """Whether a wall time fires; whether it does so each time it is shown; whether one that is left out is made up."""
    if stored["type"] == "cron":
        return _cron(str(stored["cron"]).strip())
    hour, minute = map(int, stored["time"].split(":"))
    days = set(stored["weekdays"]) if stored["type"] == "weekly" else set(range(7))

    def fires(wall: datetime) -> bool:
        return (wall.hour, wall.minute) == (hour, minute) and wall.isoweekday() % 7 in days

    return fires, False, True


def _cron(text: str) -> tuple[Callable[[datetime], bool], bool, bool]:
    parts = _MACROS.get(text.lower(), text).upper().split()
    minutes, hours, days, months, weekdays = (
        _field(part, low, high)
        for part, (low, high) in zip(parts, ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7)), strict=True)
    )
    weekdays = {day % 7 for day in weekdays}
    both = parts[2][0] in "*?" or parts[4][0] in "*?"

    def fires(wall: datetime) -> bool:
        if wall.minute not in minutes or wall.hour not in hours or wall.month not in months:
            return False
        by_date, by_weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
        return (by_date and by_weekday) if both else (by_date or by_weekday)

    hour_star, minute_star = parts[1].startswith("*"), parts[0].startswith("*")
    return fires, hour_star or minute_star, not hour_star


def _field(text: str, low: int, high: int) -> set[int]:
    values: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        if span in ("*", "?"):
            first, last = low, high
        else:
            begin, _, end = span.partition("-")
            first = _number(begin)
            last = _number(end) if end else (high if step else first)
        values.update(range(first, last + 1, int(step) if step else 1))
    return values


def _number(text: str) -> int:
    if text in _NAMES:
        return _NAMES[text]
    if not text.isdigit():
        raise Unknown(f"{text} in a cron expression")
    return int(text)
