"""The days of a zone: when they begin, and by which offset an instant belongs to one."""

from __future__ import annotations

from bisect import bisect_right
from datetime import date, datetime, timedelta

from webapp.timetable.walltime import DAY, EPOCH, EPOCH_ORDINAL, seconds_of, zone_clock


def local_day(timezone: str, instant: datetime) -> date:
    """The date that the clock of a zone (a canonical name) shows at an instant."""
    return date.fromordinal(EPOCH_ORDINAL + zone_clock(timezone).wall(seconds_of(instant)) // DAY)


def day_begins(timezone: str, day: date) -> datetime:
    """The first instant at which the clock of a zone has reached that date."""
    seconds = zone_clock(timezone).first((day.toordinal() - EPOCH_ORDINAL) * DAY)
    return EPOCH + timedelta(seconds=seconds)


def offsets_between(timezone: str, first: datetime, last: datetime) -> list[tuple[datetime, timedelta]]:
    """The offsets in force from `first` to `last`, each with the instant from which on it is; the first from `first`.

    Local time is UTC plus the offset.
    """
    begin, end = seconds_of(first), seconds_of(last)
    starts, offsets, _ = zone_clock(timezone).through(end)
    at = bisect_right(starts, begin) - 1
    changes = range(at + 1, bisect_right(starts, end))
    return [
        (first, timedelta(seconds=offsets[at])),
        *((EPOCH + timedelta(seconds=starts[i]), timedelta(seconds=offsets[i])) for i in changes),
    ]
