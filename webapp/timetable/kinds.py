"""The five kinds of timetable, and a timetable within bounds.

Each answers the same three questions. Instants go in and come out as aware datetimes in UTC, to the millisecond;
a naive datetime raises TypeError.

- `next_after(instant)`: the first slot strictly after the instant, or None if none follows.
- `span(after, until)`: how many slots lie in (after, until], the oldest and the newest, by arithmetic on days.
- `newest(after, until, limit)`: the newest `limit` of them, oldest first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import ClassVar, Final, Literal, TypeAlias

from webapp.timetable.calendar_days import DayRule, EveryDay, WallPattern, Weekdays
from webapp.timetable.cron import CronFields, parse_cron
from webapp.timetable.slots import ElapsedSlots, FixedSlots, Slots
from webapp.timetable.walltime import DAY, EPOCH, instant_of, seconds_of, zone_clock

Kind: TypeAlias = Literal["once", "interval", "daily", "weekly", "cron"]

_JUST: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Span:
    """Slots in a stretch of time: how many, the oldest and the newest (None when there are none)."""

    count: int
    oldest: datetime | None
    newest: datetime | None


_NO_SLOTS: Final = Span(0, None, None)


def _walk_back(
    last_slot: Callable[[datetime], datetime | None], after: datetime, until: datetime, limit: int
) -> list[datetime]:
    """The newest `limit` slots in (after, until], oldest first. `last_slot(t)` is the last one at or before t."""
    found: list[datetime] = []
    while len(found) < limit:
        slot = last_slot(until)
        if slot is None or slot <= after:
            break
        found.append(slot)
        until = slot - _JUST
    found.reverse()
    return found


class _OnTheWall:
    """What the kinds that live on a zone's clock share: the three questions, asked of their `slots`.

    Slots are whole seconds, so none lies between an instant and the second it is in.
    """

    __slots__ = ()
    slots: Slots

    def next_after(self, instant: datetime) -> datetime | None:
        delta = instant - EPOCH
        seconds = self.slots.next(delta.days * DAY + delta.seconds)
        return None if seconds is None else instant_of(seconds)

    def span(self, after: datetime, until: datetime) -> Span:
        if until <= after:
            return _NO_SLOTS
        count = self.slots.count(seconds_of(after), seconds_of(until))
        if not count:
            return _NO_SLOTS
        oldest = self.next_after(after)
        return Span(count, oldest, oldest if count == 1 else self._last(until))

    def newest(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        return _walk_back(self._last, after, until, limit)

    def _last(self, instant: datetime) -> datetime | None:
        """The last slot at or before an instant."""
        seconds = self.slots.prev(seconds_of(instant))
        return None if seconds is None else instant_of(seconds)


@dataclass(frozen=True, slots=True)
class Once:
    """One instant (UTC). With `wall` (naive) and `zone` it stands for a local wall time, whose instant `at` is."""

    kind: ClassVar[Literal["once"]] = "once"

    at: datetime
    wall: datetime | None = None
    zone: str | None = None

    def next_after(self, instant: datetime) -> datetime | None:
        return self.at if self.at > instant else None

    def span(self, after: datetime, until: datetime) -> Span:
        return Span(1, self.at, self.at) if after < self.at <= until else _NO_SLOTS

    def newest(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        return [self.at] if limit > 0 and after < self.at <= until else []


@dataclass(frozen=True, slots=True)
class Interval:
    """anchor + k * every_seconds, k = 0, 1, 2 … in elapsed time: clock changes do not touch it."""

    kind: ClassVar[Literal["interval"]] = "interval"

    every_seconds: int
    anchor: datetime
    _every: timedelta = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_every", timedelta(seconds=self.every_seconds))

    def next_after(self, instant: datetime) -> datetime | None:
        if instant < self.anchor:
            return self.anchor
        try:
            return self.anchor + ((instant - self.anchor) // self._every + 1) * self._every
        except OverflowError:
            return None

    def span(self, after: datetime, until: datetime) -> Span:
        if until <= after or until < self.anchor:
            return _NO_SLOTS
        first = 0 if after < self.anchor else (after - self.anchor) // self._every + 1
        last = (until - self.anchor) // self._every
        if last < first:
            return _NO_SLOTS
        return Span(last - first + 1, self.anchor + first * self._every, self.anchor + last * self._every)

    def newest(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        return _walk_back(self._last, after, until, limit)

    def _last(self, instant: datetime) -> datetime | None:
        """The last slot at or before an instant."""
        if instant < self.anchor:
            return None
        return self.anchor + (instant - self.anchor) // self._every * self._every


@dataclass(frozen=True, slots=True)
class Daily(_OnTheWall):
    """Every day at `time` ("HH:MM") on the clock of `zone` (a canonical name)."""

    kind: ClassVar[Literal["daily"]] = "daily"

    time: str
    zone: str
    slots: Slots = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", FixedSlots(zone_clock(self.zone), _time_of_day(self.time, None)))


@dataclass(frozen=True, slots=True)
class Weekly(_OnTheWall):
    """At `time` ("HH:MM") on `weekdays` (0 = Sunday, unique, sorted, not empty) on the clock of `zone`."""

    kind: ClassVar[Literal["weekly"]] = "weekly"

    time: str
    weekdays: tuple[int, ...]
    zone: str
    slots: Slots = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pattern = _time_of_day(self.time, self.weekdays)
        object.__setattr__(self, "slots", FixedSlots(zone_clock(self.zone), pattern))


@dataclass(frozen=True, slots=True)
class Cron(_OnTheWall):
    """A cron expression as typed, on the clock of `zone`.

    Raises `TimetableError` (`cron_required`, `invalid_cron`) when the text is not one.
    """

    kind: ClassVar[Literal["cron"]] = "cron"

    text: str
    zone: str
    fields: CronFields = field(init=False, repr=False, compare=False)
    slots: Slots = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields = parse_cron(self.text)
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "slots", _cron_slots(fields, self.zone))


Timetable: TypeAlias = Once | Interval | Daily | Weekly | Cron


@lru_cache(maxsize=4096)
def _time_of_day(time: str, weekdays: tuple[int, ...] | None) -> WallPattern:
    """The wall times "HH:MM" on some weekdays, or on all days. Shared: patterns hold no state of a schedule."""
    days: DayRule = EveryDay() if weekdays is None else Weekdays(frozenset(weekdays))
    return WallPattern(days, (int(time[:2]) * 3600 + int(time[3:]) * 60,))


def _cron_slots(fields: CronFields, zone: str) -> Slots:
    """Stars in the clock fields say that the expression follows elapsed time (see `slots`)."""
    clock = zone_clock(zone)
    if fields.hour_star or fields.minute_star:
        return ElapsedSlots(clock, fields.pattern, make_up=not fields.hour_star)
    return FixedSlots(clock, fields.pattern)


@dataclass(frozen=True, slots=True)
class Plan:
    """A timetable within bounds, both included; None is no bound. Same three questions."""

    timetable: Timetable
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def next_after(self, instant: datetime) -> datetime | None:
        slot = self.timetable.next_after(self._not_before_start(instant))
        return slot if slot is not None and (self.ends_at is None or slot <= self.ends_at) else None

    def span(self, after: datetime, until: datetime) -> Span:
        return self.timetable.span(self._not_before_start(after), self._not_after_end(until))

    def newest(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        return self.timetable.newest(self._not_before_start(after), self._not_after_end(until), limit)

    def _not_before_start(self, instant: datetime) -> datetime:
        if self.starts_at is None or instant >= self.starts_at:
            return instant
        return max(instant, self.starts_at - _JUST)

    def _not_after_end(self, instant: datetime) -> datetime:
        return instant if self.ends_at is None else min(instant, self.ends_at)
