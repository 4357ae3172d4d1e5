"""Cron expressions: untrusted text -> field sets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from typing import Final

from webapp.timetable.calendar_days import DayRule, EveryDay, MonthDays, WallPattern, Weekdays
from webapp.timetable.errors import TimetableError
from webapp.timetable.walltime import EPOCH_ORDINAL

LONGEST_TEXT: Final = 120

_ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = {
    "JAN": 1,
    "FEB": 2,
    "MAR": 3,
    "APR": 4,
    "MAY": 5,
    "JUN": 6,
    "JUL": 7,
    "AUG": 8,
    "SEP": 9,
    "OCT": 10,
    "NOV": 11,
    "DEC": 12,
}
_WEEKDAYS: Final = {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}
_ALL_DAYS: Final = frozenset(range(1, 32))
_ALL_WEEKDAYS: Final = frozenset(range(7))
_ALL_MONTHS: Final = frozenset(range(1, 13))
_START_OF_TRIAL: Final = date(2000, 3, 1).toordinal() - EPOCH_ORDINAL

_NUMBER = re.compile(r"\d{1,4}", re.ASCII)
_NEAREST = re.compile(r"(\d{1,2})W", re.ASCII)
_LAST_WEEKDAY = re.compile(r"(\d|[A-Z]{3})L", re.ASCII)
_NTH_WEEKDAY = re.compile(r"(\d|[A-Z]{3})#(\d)", re.ASCII)


def _refusal(message: str) -> TimetableError:
    return TimetableError("invalid_cron", "cron", message)


@dataclass(frozen=True, slots=True)
class _Field:
    """The grammar of one field."""

    name: str
    low: int
    high: int
    names: dict[str, int]
    largest_step: int
    step_seconds: int

    def number(self, text: str) -> int:
        value = self.names.get(text)
        if value is None:
            if not _NUMBER.fullmatch(text):
                raise _refusal(f"The {self.name} field has a part that is not understood.")
            value = int(text)
        if not self.low <= value <= self.high:
            raise _refusal(f"The {self.name} field goes from {self.low} to {self.high}.")
        return value

    def step(self, text: str) -> int:
        if not _NUMBER.fullmatch(text) or not int(text):
            raise _refusal(f"A step in the {self.name} field is a whole number above 0.")
        step = int(text)
        if step > self.largest_step:
            seconds = step * self.step_seconds
            raise _refusal(
                f"A step of {step} in the {self.name} field would start again at 0: use an interval of {seconds} s."
            )
        return step

    def values(self, item: str) -> range:
        """The values of `*`, `a`, `a-b`, each with or without `/n`."""
        base, slash, step_text = item.partition("/")
        step = self.step(step_text) if slash else 1
        if base == "*":
            return range(self.low, self.high + 1, step)
        low_text, dash, high_text = base.partition("-")
        low = self.number(low_text)
        if dash:
            high = self.number(high_text)
            if high_text == "SUN" and low > 0:
                high = 7
            if high < low:
                raise _refusal(f"The range {base} in the {self.name} field runs backwards: write two ranges.")
        else:
            high = self.high if slash else low
        return range(low, high + 1, step)


_NO_BOUND: Final = 9999
_MINUTE: Final = _Field("minute", 0, 59, {}, 60, 60)
_HOUR: Final = _Field("hour", 0, 23, {}, 24, 3600)
_DAY: Final = _Field("day-of-month", 1, 31, {}, _NO_BOUND, 0)
_MONTH: Final = _Field("month", 1, 12, _MONTHS, _NO_BOUND, 0)
_WEEKDAY: Final = _Field("weekday", 0, 7, _WEEKDAYS, _NO_BOUND, 0)


@dataclass(frozen=True, slots=True)
class MonthDayField:
    """The day-of-month field: plain days, `L`, `LW`, and the `W` days."""

    days: frozenset[int]
    last: bool
    last_workday: bool
    nearest: frozenset[int]

    def of_month(self, first_weekday: int, length: int) -> set[int]:
        """The days (1–31) it means in a month of `length` days whose 1st is a `first_weekday` (0 = Sunday)."""
        found = {day for day in self.days if day <= length}
        if self.last:
            found.add(length)
        if self.last_workday:
            found.add(_nearest_workday(length, first_weekday, length))
        found.update(_nearest_workday(day, first_weekday, length) for day in self.nearest if day <= length)
        return found


@dataclass(frozen=True, slots=True)
class WeekdayField:
    """The weekday field, 0 = Sunday: plain weekdays, the last one (`5L`) and the nth one (`5#3`) of a month."""

    weekdays: frozenset[int]
    last: frozenset[int]
    nth: frozenset[tuple[int, int]]

    def of_month(self, first_weekday: int, length: int) -> set[int]:
        """The days (1–31) it means in a month."""
        found: set[int] = set()
        for weekday in self.weekdays:
            found.update(range(_first_on(weekday, first_weekday), length + 1, 7))
        for weekday in self.last:
            found.add(range(_first_on(weekday, first_weekday), length + 1, 7)[-1])
        for weekday, number in self.nth:
            day = _first_on(weekday, first_weekday) + 7 * (number - 1)
            if day <= length:
                found.add(day)
        return found


def _first_on(weekday: int, first_weekday: int) -> int:
    """The first day of a month that falls on a weekday."""
    return (weekday - first_weekday) % 7 + 1


def _nearest_workday(day: int, first_weekday: int, length: int) -> int:
    """The Monday-to-Friday day of the same month that is nearest to `day`."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


@dataclass(frozen=True)
class CronFields:
    """What an expression means. Two texts with equal fields are the same timetable."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    month_days: MonthDayField
    months: frozenset[int]
    weekdays: WeekdayField
    minute_star: bool
    hour_star: bool
    day_star: bool
    weekday_star: bool

    @property
    def both_day_fields_must_match(self) -> bool:
        return self.day_star or self.weekday_star

    @property
    def any_month_day(self) -> bool:
        return self.month_days.days == _ALL_DAYS

    @property
    def any_weekday(self) -> bool:
        return self.weekdays.weekdays == _ALL_WEEKDAYS

    @property
    def any_month(self) -> bool:
        return self.months == _ALL_MONTHS

    def days(self, first_weekday: int, length: int) -> frozenset[int]:
        """The days (1–31) it fires on in a month (see `calendar_days.MonthPlan`)."""
        by_date = self.month_days.of_month(first_weekday, length)
        by_weekday = self.weekdays.of_month(first_weekday, length)
        if self.both_day_fields_must_match:
            return frozenset(by_date & by_weekday)
        return frozenset(by_date | by_weekday)

    def _day_rule(self) -> DayRule:
        """The cheapest rule for the same days."""
        if self.any_month:
            every = (
                (self.any_month_day and self.any_weekday)
                if self.both_day_fields_must_match
                else (self.any_month_day or self.any_weekday)
            )
            if every:
                return EveryDay()
            plain = not self.weekdays.last and not self.weekdays.nth
            if self.both_day_fields_must_match and self.any_month_day and plain:
                return Weekdays(self.weekdays.weekdays)
        return MonthDays(self.months, self)

    @cached_property
    def pattern(self) -> WallPattern:
        """The wall times it names. Shared by all zones."""
        times = tuple(hour * 3600 + minute * 60 for hour in self.hours for minute in self.minutes)
        return WallPattern(self._day_rule(), times)

    @cached_property
    def canonical(self) -> str:
        """One text for all spellings: five groups of values in runs, a star kept as a leading `*`."""
        extra_days = [f"{day}W" for day in sorted(self.month_days.nearest)]
        extra_days += ["L"] * self.month_days.last + ["LW"] * self.month_days.last_workday
        extra_weekdays = [f"{day}L" for day in sorted(self.weekdays.last)]
        extra_weekdays += [f"{day}#{number}" for day, number in sorted(self.weekdays.nth)]
        groups: tuple[tuple[bool, Iterable[int], list[str]], ...] = (
            (self.minute_star, self.minutes, []),
            (self.hour_star, self.hours, []),
            (self.day_star, sorted(self.month_days.days), extra_days),
            (False, sorted(self.months), []),
            (self.weekday_star, sorted(self.weekdays.weekdays), extra_weekdays),
        )
        return " ".join("*" * star + ",".join([*runs(values), *extra]) for star, values, extra in groups)


def runs(values: Iterable[int]) -> list[str]:
    """Ascending numbers as text, neighbours drawn together: 1, 2, 3, 5 -> "1-3", "5"."""
    ends: list[list[int]] = []
    for value in values:
        if ends and value == ends[-1][1] + 1:
            ends[-1][1] = value
        else:
            ends.append([value, value])
    return [str(first) if first == last else f"{first}-{last}" for first, last in ends]


@lru_cache(maxsize=1024)
def parse_cron(text: str) -> CronFields:
    """The fields of an expression. Raises `TimetableError` with `cron_required` or `invalid_cron`. Memoised."""
    if len(text) > LONGEST_TEXT:
        raise _refusal(f"A cron expression has at most {LONGEST_TEXT} characters.")
    if not text.strip():
        raise TimetableError("cron_required", "cron", "Write a cron expression, such as 0 9 * * 1-5.")
    if not text.isascii() or not text.replace("\t", " ").isprintable():
        raise _refusal("A cron expression is one line of plain letters, digits and signs.")
    fields = _expand(text).upper().split()
    if len(fields) != 5:
        raise _refusal("A cron expression has five fields: minute, hour, day of month, month, weekday.")
    minute, hour, day, month, weekday = fields
    parsed = CronFields(
        minutes=tuple(sorted(_plain_values(_MINUTE, minute))),
        hours=tuple(sorted(_plain_values(_HOUR, hour))),
        month_days=_month_days(day),
        months=frozenset(_plain_values(_MONTH, month)),
        weekdays=_weekdays(weekday),
        minute_star=minute.startswith("*"),
        hour_star=hour.startswith("*"),
        day_star=day.startswith(("*", "?")),
        weekday_star=weekday.startswith(("*", "?")),
    )
    if parsed.pattern.days.next(_START_OF_TRIAL) is None:
        raise _refusal("This expression never fires: no date matches it.")
    return parsed


def _expand(text: str) -> str:
    """`@daily` -> its five fields; other texts as they are."""
    trimmed = text.strip().lower()
    if not trimmed.startswith("@"):
        if "=" in text:
            raise _refusal("A cron expression names no zone here: the schedule has its own time zone.")
        return text
    if trimmed.startswith("@every"):
        raise _refusal("@every is not a cron expression: use an interval.")
    if trimmed == "@reboot":
        raise _refusal("@reboot names no time.")
    expanded = _ALIASES.get(trimmed)
    if expanded is None:
        raise _refusal("Aliases are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually.")
    return expanded


def _plain_values(field: _Field, text: str) -> set[int]:
    values: set[int] = set()
    for item in text.split(","):
        values.update(field.values(item))
    return values


def _month_days(text: str) -> MonthDayField:
    if text == "?":
        text = "*"
    days: set[int] = set()
    nearest: set[int] = set()
    items = text.split(",")
    for item in items:
        near = _NEAREST.fullmatch(item)
        if near:
            nearest.add(_DAY.number(near[1]))
        elif item not in ("L", "LW"):
            days.update(_DAY.values(item))
    return MonthDayField(frozenset(days), "L" in items, "LW" in items, frozenset(nearest))


def _weekdays(text: str) -> WeekdayField:
    if text == "?":
        text = "*"
    weekdays: set[int] = set()
    last: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in text.split(","):
        if match := _LAST_WEEKDAY.fullmatch(item):
            last.add(_WEEKDAY.number(match[1]) % 7)
        elif match := _NTH_WEEKDAY.fullmatch(item):
            number = int(match[2])
            if not 1 <= number <= 5:
                raise _refusal("A weekday comes at most five times in a month: write 5#1 to 5#5.")
            nth.add((_WEEKDAY.number(match[1]) % 7, number))
        else:
            weekdays.update(value % 7 for value in _WEEKDAY.values(item))
    return WeekdayField(frozenset(weekdays), frozenset(last), frozenset(nth))
