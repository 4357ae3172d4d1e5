"""Timetables, zones and instants for the properties, and the moments at which clocks are changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from webapp.timetable import Timetable, parse_timetable

NOW = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)

CLOCK_CHANGES: tuple[tuple[str, datetime], ...] = tuple(
    (zone, datetime.fromisoformat(at).replace(tzinfo=UTC))
    for zone, at in (
        ("Europe/Berlin", "2026-03-29T01:00"),
        ("Europe/Berlin", "2026-10-25T01:00"),
        ("America/New_York", "2026-03-08T07:00"),
        ("America/New_York", "2026-11-01T06:00"),
        ("Australia/Lord_Howe", "2026-04-04T15:00"),
        ("Australia/Lord_Howe", "2026-10-03T15:30"),
        ("Asia/Beirut", "2026-03-28T22:00"),
        ("Asia/Beirut", "2026-10-24T21:00"),
        ("Africa/Cairo", "2026-04-23T22:00"),
        ("Africa/Cairo", "2026-10-29T21:00"),
        ("America/Havana", "2026-03-08T05:00"),
        ("America/Havana", "2026-11-01T05:00"),
        ("America/Santiago", "2026-04-05T03:00"),
        ("America/Santiago", "2026-09-06T04:00"),
        ("Pacific/Apia", "2011-12-30T10:00"),
        ("Pacific/Kwajalein", "1993-08-21T12:00"),
        ("Europe/Dublin", "2026-03-29T01:00"),
        ("Europe/Dublin", "2026-10-25T01:00"),
        ("Antarctica/Troll", "2026-03-29T01:00"),
        ("Antarctica/Troll", "2026-10-25T01:00"),
        ("America/Sao_Paulo", "2018-02-18T02:00"),
        ("America/Sao_Paulo", "2018-11-04T03:00"),
        ("Atlantic/Azores", "2026-10-25T01:00"),
        ("America/Nuuk", "2024-03-31T01:00"),
        ("America/St_Johns", "2026-03-08T05:30"),
        ("America/Caracas", "2016-05-01T07:00"),
        ("Asia/Pyongyang", "2015-08-14T15:00"),
        ("Africa/Casablanca", "2025-02-23T02:00"),
        ("Pacific/Chatham", "2026-04-04T14:00"),
        ("Asia/Almaty", "2024-02-29T18:00"),
        ("Europe/Berlin", "2151-03-28T01:00"),
        ("America/New_York", "2207-11-01T06:00"),
    )
)
"""A zone and about the moment of a change, in both directions, of all sizes, near and far."""

ZONES = tuple(sorted({zone for zone, _ in CLOCK_CHANGES} | {"UTC", "Asia/Kolkata", "Pacific/Kiritimati"}))


@dataclass(frozen=True)
class Clockwork:
    """A cron expression whose meaning is known without reading it: what the oracle goes by."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    month_days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    def matches(self, wall: datetime) -> bool:
        _, _, day_text, _, weekday_text = self.text.split()
        by_date, by_weekday = wall.day in self.month_days, wall.isoweekday() % 7 in self.weekdays
        both = day_text[0] in "*?" or weekday_text[0] in "*?"
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.month in self.months
            and ((by_date and by_weekday) if both else (by_date or by_weekday))
        )


@st.composite
def _field(draw: st.DrawFn, low: int, high: int) -> tuple[str, frozenset[int]]:
    """A field as text and as the values it stands for."""
    shape = draw(st.sampled_from(["star", "star", "step", "list", "range", "from"]))
    if shape == "star":
        return "*", frozenset(range(low, high + 1))
    if shape == "step":
        step = draw(st.integers(1, high))
        return f"*/{step}", frozenset(range(low, high + 1, step))
    if shape == "from":
        first, step = draw(st.integers(low, high)), draw(st.integers(1, 20))
        return f"{first}/{step}", frozenset(range(first, high + 1, step))
    values = sorted(draw(st.sets(st.integers(low, high), min_size=1, max_size=5)))
    if shape == "range":
        return f"{values[0]}-{values[-1]}", frozenset(range(values[0], values[-1] + 1))
    return ",".join(str(value) for value in values), frozenset(values)


@st.composite
def clockworks(draw: st.DrawFn, *, often: bool = False) -> Clockwork:
    """Cron expressions; `often`: with days that come round within a few days, so that short windows hold slots."""
    minute, minutes = draw(_field(0, 59))
    hour, hours = draw(_field(0, 23))
    any_day = ("*", frozenset(range(1, 32)))
    day, month_days = any_day if often else draw(_field(1, 31))
    month, months = ("*", frozenset(range(1, 13))) if often else draw(_field(1, 12))
    weekday, weekdays = draw(_field(0, 6))
    if "/" in weekday and not weekday.startswith("*"):
        # n/step counts up to 7, which is Sunday again.
        first, step = (int(part) for part in weekday.split("/"))
        weekdays = frozenset(value % 7 for value in range(first, 8, step))
    text = f"{minute} {hour} {day} {month} {weekday}"
    return Clockwork(text, minutes, hours, month_days, months, weekdays)


_TIMES = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))
_MOMENTS = st.datetimes(datetime.fromisoformat("1970-01-01"), datetime.fromisoformat("2200-01-01")).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
_WEEKDAYS = st.lists(st.integers(0, 6), min_size=1, max_size=8)

SPECS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"type": st.just("daily"), "time": _TIMES}),
    st.fixed_dictionaries({"type": st.just("weekly"), "time": _TIMES, "weekdays": _WEEKDAYS}),
    st.fixed_dictionaries({"type": st.just("cron"), "cron": clockworks().map(lambda known: known.text)}),
    st.fixed_dictionaries(
        {"type": st.just("interval"), "every_seconds": st.integers(60, 31_536_000)},
        optional={"anchor_at": _MOMENTS.map(lambda moment: moment.isoformat() + "Z")},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("once"),
            "run_at": st.tuples(_MOMENTS, st.sampled_from(["", "Z", "+05:30", "-11:00"])).map(
                lambda pair: pair[0].isoformat() + pair[1]
            ),
        }
    ),
)
"""Bodies that are accepted, unless a cron among them happens never to fire."""


@st.composite
def instants(draw: st.DrawFn) -> datetime:
    """Aware instants, most of them within two days of a clock change."""
    _, change = draw(st.sampled_from(CLOCK_CHANGES))
    near = timedelta(milliseconds=draw(st.integers(-2 * 86_400_000, 2 * 86_400_000)))
    anywhere = timedelta(seconds=draw(st.integers(-40 * 365 * 86_400, 40 * 365 * 86_400)))
    return change + draw(st.sampled_from([near, near, near, anywhere]))


def parsed(spec: object, zone: str) -> Timetable:
    """A timetable as it would be read from the database: a local time in a gap or fold is resolved."""
    return parse_timetable(spec, zone, now=NOW, allow_unresolved_local=True)
