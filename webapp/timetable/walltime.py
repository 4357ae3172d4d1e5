"""Local wall time <-> UTC: what a clock-change gap and fold mean.

Everything here is whole seconds: instants as seconds since 1970 in UTC, wall times as the seconds a clock on that
wall would have counted since its own 1970-01-01 00:00. Integers compare in one way only; two aware datetimes of
one zone would compare by wall clock and ignore the fold.

A zone is a list of segments with one offset each. The clock-change rule of the product is one sentence in these
terms: **a wall time falls on the first instant at which the wall clock has reached it.** If it happens twice, that
is the first time; if it does not exist, that is the jump.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

DAY: Final = 86_400
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
FAR: Final = 1 << 62
"""Later than any instant: the end of the last segment. Its negative begins the first one."""

_FIRST_HORIZON_YEAR: Final = 2100
_LAST_YEAR: Final = 9999
_MARGIN: Final = 3 * DAY
"""Wider than any offset and any clock change: a wall time and its instant are never this far apart."""


def seconds_of(instant: datetime) -> int:
    """Whole seconds since 1970 of an aware instant, rounded down. Raises TypeError for a naive one."""
    delta = instant - EPOCH
    return delta.days * DAY + delta.seconds


def instant_of(seconds: int) -> datetime | None:
    """The aware UTC instant, or None where the calendar of this language ends (year 9999)."""
    try:
        return EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None


def wall_seconds(wall: datetime) -> int:
    """Wall seconds of a naive local datetime, rounded down."""
    return (wall.toordinal() - EPOCH_ORDINAL) * DAY + wall.hour * 3600 + wall.minute * 60 + wall.second


def wall_datetime(wall: int) -> datetime:
    """The naive local datetime of wall seconds. Raises OverflowError outside the calendar."""
    return datetime(1970, 1, 1) + timedelta(seconds=wall)  # noqa: DTZ001 - a wall time has no zone


class Reading(Enum):
    """How often a wall time is read on the wall."""

    ONCE = "once"
    NEVER = "never"
    TWICE = "twice"


class Table(NamedTuple):
    """The segments of a zone, oldest first.

    `starts[i]` is the first second of segment i; one more entry, `FAR`, closes the last. `offsets[i]` is added to
    UTC there. `reach[i]` is the wall time the clock has been led up to (exclusive) when segment i ends; it never
    falls, and so a wall time is looked up in it by bisection.
    """

    starts: list[int]
    offsets: list[int]
    reach: list[int]


class ZoneClock:
    """The clock on the wall of one zone."""

    __slots__ = ("_known_through", "_rule", "_rule_from", "horizon", "name", "table")

    def __init__(self, name: str) -> None:
        """`name` is canonical (see `zones.canonical_zone`)."""
        self.name = name
        file = _read_tzif(name)
        self._rule = _yearly_rule(file.footer)
        self._rule_from = file.listed_through
        self._known_through = _year_of(file.listed_through)
        self.table = _table(file.times, file.offsets)
        self.horizon = FAR
        if self._rule is not None:
            self._extend(_FIRST_HORIZON_YEAR)

    def _extend(self, through_year: int) -> None:
        """Write out the yearly rule of the zone through a year. Harmless when two threads do it at once."""
        assert self._rule is not None
        through_year = min(through_year, _LAST_YEAR)
        times, offsets = list(self.table.starts[1:-1]), list(self.table.offsets)
        last = max(times[-1], self._rule_from) if times else self._rule_from
        for year in range(self._known_through, through_year + 1):
            for at, offset in self._rule.changes(year):
                if at > last and offset != offsets[-1]:
                    times.append(at)
                    offsets.append(offset)
                    last = at
        self.table = _table(times, offsets)
        self._known_through = through_year
        year_end = (date(through_year, 12, 31).toordinal() - EPOCH_ORDINAL) * DAY
        self.horizon = FAR if through_year == _LAST_YEAR else year_end - _MARGIN

    def through(self, seconds: int) -> Table:
        """The table, written out at least through this second of UTC or of the wall."""
        if seconds >= self.horizon:
            self._extend(_year_of(seconds) + 100)
        return self.table

    def segment(self, seconds: int) -> int:
        """The index of the segment an instant lies in."""
        return bisect_right(self.through(seconds).starts, seconds) - 1

    def wall(self, seconds: int) -> int:
        """What the clock shows at an instant."""
        table = self.through(seconds)
        return seconds + table.offsets[bisect_right(table.starts, seconds) - 1]

    def reached(self, seconds: int) -> int:
        """The latest wall time the clock has shown up to and including an instant.

        Inside the second pass of a fold that is the end of the first pass: everything before it has had its turn.
        """
        table = self.table if seconds < self.horizon else self.through(seconds)
        index = bisect_right(table.starts, seconds) - 1
        wall = seconds + table.offsets[index]
        if index:
            before = table.reach[index - 1] - 1
            if before > wall:
                return before
        return wall

    def first(self, wall: int) -> int:
        """The first instant at which the clock has reached a wall time."""
        table = self.table if wall < self.horizon else self.through(wall)
        index = bisect_right(table.reach, wall)
        seconds = wall - table.offsets[index]
        start = table.starts[index]
        return start if start > seconds else seconds

    def reading(self, wall: int) -> Reading:
        """Whether a wall time exists, and whether it happens twice."""
        table = self.through(wall)
        starts, offsets = table.starts, table.offsets
        index = max(bisect_right(starts, wall - _MARGIN) - 1, 0)
        times = 0
        while starts[index] <= wall + _MARGIN and index < len(offsets):
            times += starts[index] <= wall - offsets[index] < starts[index + 1]
            index += 1
        if times == 0:
            return Reading.NEVER
        return Reading.ONCE if times == 1 else Reading.TWICE


@cache
def zone_clock(name: str) -> ZoneClock:
    """The clock of a canonical zone name. Read once per process."""
    return ZoneClock(name)


def _table(times: list[int], offsets: list[int]) -> Table:
    """`offsets` has one entry more than `times`: the first holds before all of them."""
    starts = [-FAR, *times, FAR]
    reach: list[int] = []
    highest = -2 * FAR
    for index, offset in enumerate(offsets):
        highest = max(highest, starts[index + 1] + offset)
        reach.append(highest)
    return Table(starts, offsets, reach)


def _year_of(seconds: int) -> int:
    ordinal = seconds // DAY + EPOCH_ORDINAL
    if ordinal < 1:
        return 1
    return date.fromordinal(ordinal).year if ordinal <= date.max.toordinal() else _LAST_YEAR


# --- The compiled zone file (RFC 9636) --------------------------------------------------------------------------


class _ZoneFile(NamedTuple):
    """What a zone file says: `offsets` has one entry more than `times`; the footer's rule holds from
    `listed_through` on (the last listed change, even one that left the offset alone)."""

    times: list[int]
    offsets: list[int]
    listed_through: int
    footer: str


def _read_tzif(name: str) -> _ZoneFile:
    data = files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    head = struct.Struct(">4sc15x6l")
    _, _, utc_count, std_count, leap_count, time_count, type_count, char_count = head.unpack_from(data)
    # The first block holds 32-bit times for old readers; the one after it says everything.
    skipped = time_count * 5 + type_count * 6 + char_count + leap_count * 8 + std_count + utc_count
    at = head.size + skipped
    _, _, utc_count, std_count, leap_count, time_count, type_count, char_count = head.unpack_from(data, at)
    at += head.size
    times = struct.unpack_from(f">{time_count}q", data, at)
    at += time_count * 8
    indices = data[at : at + time_count]
    at += time_count
    type_offsets = [struct.unpack_from(">l", data, at + 6 * index)[0] for index in range(type_count)]
    at += type_count * 6 + char_count + leap_count * 12 + std_count + utc_count
    footer = data[at:].decode("ascii").strip("\n")
    kept_times: list[int] = []
    offsets: list[int] = [type_offsets[0]]
    for time, index in zip(times, indices, strict=True):
        if type_offsets[index] != offsets[-1]:
            kept_times.append(time)
            offsets.append(type_offsets[index])
    return _ZoneFile(kept_times, offsets, times[-1] if times else 0, footer)


_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+\-]+>)"
_CLOCK = r"[+\-]?\d{1,3}(?::\d{2}(?::\d{2})?)?"
_FOOTER = re.compile(
    rf"{_NAME}(?P<std>{_CLOCK})"
    rf"(?:{_NAME}(?P<dst>{_CLOCK})?,(?P<start>[^,/]+)(?:/(?P<start_at>{_CLOCK}))?"
    rf",(?P<end>[^,/]+)(?:/(?P<end_at>{_CLOCK}))?)?",
    re.ASCII,
)


class YearlyRule(NamedTuple):
    """The rule for all years that a zone file does not list: two changes a year, in wall seconds."""

    standard: int
    daylight: int
    start_day: str
    start_at: int
    end_day: str
    end_at: int

    def changes(self, year: int) -> list[tuple[int, int]]:
        """The instants of a year at which the offset changes, and what it changes to, oldest first."""
        start = _rule_day(self.start_day, year) * DAY + self.start_at - self.standard
        end = _rule_day(self.end_day, year) * DAY + self.end_at - self.daylight
        return sorted([(start, self.daylight), (end, self.standard)])


def _yearly_rule(footer: str) -> YearlyRule | None:
    """The rule in a zone file's footer, or None if its clock never changes again."""
    match = _FOOTER.fullmatch(footer)
    if match is None or match["start"] is None:
        return None
    standard = -_clock_seconds(match["std"])
    daylight = -_clock_seconds(match["dst"]) if match["dst"] else standard + 3600
    return YearlyRule(
        standard,
        daylight,
        match["start"],
        _clock_seconds(match["start_at"] or "2"),
        match["end"],
        _clock_seconds(match["end_at"] or "2"),
    )


def _clock_seconds(text: str) -> int:
    """ "-1:30" -> -5400."""
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    size = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    return -size if text.startswith("-") else size


def _rule_day(rule: str, year: int) -> int:
    """The day (since 1970) that "M3.5.0" (last Sunday of March), "J60" or "59" means in a year."""
    january = date(year, 1, 1).toordinal() - EPOCH_ORDINAL
    if rule.startswith("J"):
        number = int(rule[1:])
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return january + number - 1 + (leap and number >= 60)
    if not rule.startswith("M"):
        return january + int(rule)
    month, week, weekday = (int(part) for part in rule[1:].split("."))
    first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
    day = first + (weekday - (first + 4)) % 7 + 7 * (week - 1)
    return day if day < first + monthrange(year, month)[1] else day - 7
