"""Which dates a timetable names, and which wall times on them.

Days are numbered from 1970-01-01 = 0. Every search goes by date, never by minute: `next` and `prev` look at a few
months at most, `count` adds up whole weeks and months.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from datetime import date
from typing import Final, Protocol

from webapp.timetable.walltime import DAY, EPOCH_ORDINAL

LONGEST_GAP_YEARS: Final = 41
"""An expression that fires at all fires within so many years (29 February on one weekday, over 2100)."""

_LAST_DAY: Final = date.max.toordinal() - EPOCH_ORDINAL
_FIRST_DAY: Final = 1 - EPOCH_ORDINAL
_EPOCH_WEEKDAY: Final = 4  # 1970-01-01 was a Thursday; 0 is Sunday
_KEPT_MONTHS: Final = 2048


class DayRule(Protocol):
    """A set of days."""

    def next(self, day: int) -> int | None:
        """The first day of the set on or after `day`, or None if none follows."""

    def prev(self, day: int) -> int | None:
        """The last day of the set on or before `day`, or None if none precedes."""

    def count(self, first: int, last: int) -> int:
        """How many days of the set lie in first … last, both included."""


class EveryDay:
    """All days."""

    __slots__ = ()

    def next(self, day: int) -> int | None:
        return day

    def prev(self, day: int) -> int | None:
        return day

    def count(self, first: int, last: int) -> int:
        return max(0, last - first + 1)


class Weekdays:
    """The days that fall on some weekdays, 0 = Sunday."""

    __slots__ = ("_ahead", "_back", "_before", "_per_week")

    def __init__(self, weekdays: frozenset[int]) -> None:
        """`weekdays` is not empty and within 0–6."""
        # Indexed by (day + 4) % 7: days to the next and from the last one, and how many lie before in the week.
        self._ahead = tuple(min((wanted - today) % 7 for wanted in weekdays) for today in range(7))
        self._back = tuple(min((today - wanted) % 7 for wanted in weekdays) for today in range(7))
        self._before = tuple(sum(wanted < today for wanted in weekdays) for today in range(7))
        self._per_week = len(weekdays)

    def next(self, day: int) -> int | None:
        return day + self._ahead[(day + _EPOCH_WEEKDAY) % 7]

    def prev(self, day: int) -> int | None:
        return day - self._back[(day + _EPOCH_WEEKDAY) % 7]

    def _below(self, day: int) -> int:
        """How many lie before `day`, counted from a fixed Sunday."""
        week, weekday = divmod(day + _EPOCH_WEEKDAY, 7)
        return week * self._per_week + self._before[weekday]

    def count(self, first: int, last: int) -> int:
        return self._below(last + 1) - self._below(first) if last >= first else 0


class MonthPlan(Protocol):
    """Which days of one month are meant."""

    def days(self, first_weekday: int, length: int) -> frozenset[int]:
        """Days of the month, 1–31. `first_weekday` (0 = Sunday) is that of the 1st."""


class MonthDays:
    """Days that are chosen month by month."""

    __slots__ = ("_kept", "_leap_ahead", "_leap_back", "_months", "_plan")

    def __init__(self, months: frozenset[int], plan: MonthPlan) -> None:
        """`months` (1–12) is not empty."""
        self._months = frozenset(month - 1 for month in months)
        self._plan = plan
        # Months from one to the next wanted one (1–12), by month of the year from 0.
        self._leap_ahead = tuple(
            min((wanted - month - 1) % 12 + 1 for wanted in self._months) for month in range(12)
        )
        self._leap_back = tuple(
            min((month - wanted - 1) % 12 + 1 for wanted in self._months) for month in range(12)
        )
        self._kept: dict[int, tuple[int, ...]] = {}

    def month(self, index: int) -> tuple[int, ...]:
        """The days of a month, as day numbers; `index` = year * 12 + month from 0. Memoised."""
        days = self._kept.get(index)
        if days is None:
            year, month = divmod(index, 12)
            start = date(year, month + 1, 1).toordinal() - EPOCH_ORDINAL
            length = monthrange(year, month + 1)[1]
            chosen = self._plan.days((start + _EPOCH_WEEKDAY) % 7, length)
            days = tuple(start + number - 1 for number in sorted(chosen))
            if len(self._kept) >= _KEPT_MONTHS:
                self._kept.clear()
            self._kept[index] = days
        return days

    def next(self, day: int) -> int | None:
        if day > _LAST_DAY:
            return None
        today = date.fromordinal(max(day, _FIRST_DAY) + EPOCH_ORDINAL)
        index = today.year * 12 + today.month - 1
        last = min(index + LONGEST_GAP_YEARS * 12, 9999 * 12 + 11)
        if today.month - 1 in self._months:
            days = self.month(index)
            if days and days[-1] >= day:
                return days[bisect_left(days, day)]
        while True:
            index += self._leap_ahead[index % 12]
            if index > last:
                return None
            days = self.month(index)
            if days:
                return days[0]

    def prev(self, day: int) -> int | None:
        if day < _FIRST_DAY:
            return None
        today = date.fromordinal(min(day, _LAST_DAY) + EPOCH_ORDINAL)
        index = today.year * 12 + today.month - 1
        first = max(index - LONGEST_GAP_YEARS * 12, 12)
        if today.month - 1 in self._months:
            days = self.month(index)
            if days and days[0] <= day:
                return days[bisect_right(days, day) - 1]
        while True:
            index -= self._leap_back[index % 12]
            if index < first:
                return None
            days = self.month(index)
            if days:
                return days[-1]

    def count(self, first: int, last: int) -> int:
        first, last = max(first, _FIRST_DAY), min(last, _LAST_DAY)
        if last < first:
            return 0
        begin, end = date.fromordinal(first + EPOCH_ORDINAL), date.fromordinal(last + EPOCH_ORDINAL)
        index, final = begin.year * 12 + begin.month - 1, end.year * 12 + end.month - 1
        total = 0
        if begin.month - 1 not in self._months:
            index += self._leap_ahead[index % 12]
        while index <= final:
            days = self.month(index)
            total += bisect_right(days, last) - bisect_left(days, first)
            index += self._leap_ahead[index % 12]
        return total


class WallPattern:
    """Wall times: the same times of day on every day of a set."""

    __slots__ = ("days", "times")

    def __init__(self, days: DayRule, times: tuple[int, ...]) -> None:
        """`times` are seconds since midnight, sorted, not empty."""
        self.days = days
        self.times = times

    def next(self, wall: int) -> int | None:
        """The first wall time of the pattern after `wall`."""
        today = wall // DAY
        day = self.days.next(today)
        if day == today:
            index = bisect_right(self.times, wall - today * DAY)
            if index < len(self.times):
                return today * DAY + self.times[index]
            day = self.days.next(today + 1)
        return None if day is None else day * DAY + self.times[0]

    def prev(self, wall: int) -> int | None:
        """The last wall time of the pattern at or before `wall`."""
        today = wall // DAY
        day = self.days.prev(today)
        if day == today:
            index = bisect_right(self.times, wall - today * DAY)
            if index:
                return today * DAY + self.times[index - 1]
            day = self.days.prev(today - 1)
        return None if day is None else day * DAY + self.times[-1]

    def count(self, after: int, until: int) -> int:
        """How many wall times of the pattern lie in (after, until]."""
        if until <= after:
            return 0
        first, last = after // DAY, until // DAY
        in_first = bisect_right(self.times, after - first * DAY)
        in_last = bisect_right(self.times, until - last * DAY)
        if first == last:
            return (in_last - in_first) * self.days.count(first, first)
        each = len(self.times)
        return (
            (each - in_first) * self.days.count(first, first)
            + each * self.days.count(first + 1, last - 1)
            + in_last * self.days.count(last, last)
        )
