"""Our arithmetic against a slow, independent oracle: every minute of a few days, read off the standard library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.timetable.strategies import CLOCK_CHANGES, Clockwork, clockworks
from webapp.timetable import Cron, Daily, Span, Timetable, TimetableError, Weekly

MILLISECOND = timedelta(milliseconds=1)
MINUTE = timedelta(minutes=1)
HOURS = timedelta(hours=1)


def oracle(
    zone: str,
    begin: datetime,
    end: datetime,
    matches: Callable[[datetime], bool],
    *,
    repeats: bool,
    makes_up: bool,
) -> Iterator[datetime]:
    """The slots in [begin, end), by walking minute by minute.

    `repeats`: a wall time that comes twice counts twice. `makes_up`: wall times that are skipped fire at the jump.
    """
    info = ZoneInfo(zone)
    # Walls that were shown shortly before the window may come again in it.
    instant = begin - 4 * HOURS
    before = instant.astimezone(info).replace(tzinfo=None)
    seen = {before}
    while instant < end:
        instant += MINUTE
        wall = instant.astimezone(info).replace(tzinfo=None)
        fires = matches(wall) and (repeats or wall not in seen)
        skipped = before + MINUTE
        while makes_up and skipped < wall and not fires:
            fires = matches(skipped)
            skipped += MINUTE
        seen.add(wall)
        before = wall
        if fires and begin <= instant < end:
            yield instant


def assert_agrees(timetable: Timetable, begin: datetime, end: datetime, expected: Iterable[datetime]) -> None:
    """Forwards, backwards and counted at once, the slots in [begin, end) are the expected ones."""
    slots = list(expected)
    after, until = begin - MILLISECOND, end - MILLISECOND
    found = []
    slot = timetable.next_after(after)
    while slot is not None and slot <= until:
        found.append(slot)
        slot = timetable.next_after(slot)
    assert found == slots
    assert timetable.newest(after, until, 50) == slots[-50:]
    ends = (slots[0], slots[-1]) if slots else (None, None)
    assert timetable.span(after, until) == Span(len(slots), *ends)


CHANGES = st.sampled_from(CLOCK_CHANGES)


@settings(max_examples=50, derandomize=True, deadline=None)
@given(change=CHANGES, known=clockworks(often=True), shift=st.integers(0, 36))
def test_cron_agrees_with_the_oracle(change: tuple[str, datetime], known: Clockwork, shift: int) -> None:
    zone, at = change
    begin = at - timedelta(hours=shift)
    end = begin + 36 * HOURS
    minute, hour, *_ = known.text.split()
    hour_star = hour.startswith("*")
    expected = oracle(
        zone,
        begin,
        end,
        known.matches,
        repeats=hour_star or minute.startswith("*"),
        makes_up=not hour_star,
    )
    assert_agrees(Cron(known.text, zone), begin, end, expected)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(known=clockworks(), month=st.integers(0, 1200))
def test_the_dates_of_a_cron_agree_with_a_walk_through_the_calendar(known: Clockwork, month: int) -> None:
    try:
        cron = Cron(known.text, "UTC")
    except TimetableError:
        assume(False)  # no date matches
    begin = datetime(1990 + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    first = 60 * min(known.hours) + min(known.minutes)
    days = (begin + timedelta(days=day, minutes=first) for day in range(400))
    expected = {day.date() for day in days if known.matches(day)}
    found = set()
    slot = cron.next_after(begin - MILLISECOND)
    while slot is not None and slot < begin + timedelta(days=400):
        found.add(slot.date())
        slot = cron.next_after(slot.replace(hour=23, minute=59, second=59))
    assert found == expected


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    change=CHANGES,
    minutes_off=st.integers(-180, 180),
    weekdays=st.sets(st.integers(0, 6), min_size=1),
    weekly=st.booleans(),
)
def test_daily_and_weekly_agree_with_the_oracle(
    change: tuple[str, datetime], minutes_off: int, weekdays: set[int], weekly: bool
) -> None:
    zone, at = change
    # A time of day near the change, so that gap and fold are really hit.
    near = (at + timedelta(minutes=minutes_off)).astimezone(ZoneInfo(zone))
    time = f"{near:%H:%M}"
    timetable: Timetable = Weekly(time, tuple(sorted(weekdays)), zone) if weekly else Daily(time, zone)

    def matches(wall: datetime) -> bool:
        return f"{wall:%H:%M}" == time and (not weekly or wall.isoweekday() % 7 in weekdays)

    begin, end = at - 6 * HOURS, at + 28 * HOURS
    expected = oracle(zone, begin, end, matches, repeats=False, makes_up=True)
    assert_agrees(timetable, begin, end, expected)


@settings(max_examples=160, derandomize=True, deadline=None)
@given(
    change=CHANGES,
    skipped=st.integers(-90, 90),
    star=st.sampled_from(["{m} {h}", "{m},{n} {h}", "*/15 {h}", "{m} */1", "{m} {h},{i}", "*/20 {h}-{i}"]),
)
def test_cron_right_at_the_change_agrees_with_the_oracle(
    change: tuple[str, datetime], skipped: int, star: str
) -> None:
    zone, at = change
    # A wall time just before the change goes on as if nothing had happened: in spring it lies in the gap.
    wall = (at - timedelta(hours=2)).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    wall += timedelta(hours=2, minutes=skipped)
    low, high = sorted((wall.hour, (wall.hour + 1) % 24))
    clock = star.format(m=wall.minute, n=(wall.minute + 7) % 60, h=low, i=high)
    minute, hour = clock.split()
    minutes = _meant(minute, 60)
    hours = _meant(hour, 24)
    begin, end = at - 6 * HOURS, at + 6 * HOURS
    expected = oracle(
        zone,
        begin,
        end,
        lambda wall: wall.minute in minutes and wall.hour in hours,
        repeats=minute.startswith("*") or hour.startswith("*"),
        makes_up=not hour.startswith("*"),
    )
    assert_agrees(Cron(f"{clock} * * *", zone), begin, end, expected)


def _meant(field: str, size: int) -> set[int]:
    if field.startswith("*/"):
        return set(range(0, size, int(field[2:])))
    if "-" in field:
        first, last = field.split("-")
        return set(range(int(first), int(last) + 1))
    return {int(part) for part in field.split(",")}


def test_the_oracle_itself_knows_a_gap_and_a_fold() -> None:
    def half_past_two(wall: datetime) -> bool:
        return (wall.hour, wall.minute) == (2, 30)

    def slots(day: datetime, *, repeats: bool, makes_up: bool) -> list[datetime]:
        window = (day, day + 24 * HOURS)
        return list(oracle("Europe/Berlin", *window, half_past_two, repeats=repeats, makes_up=makes_up))

    spring, autumn = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)
    assert slots(spring, repeats=False, makes_up=True) == [spring + timedelta(hours=1)]
    assert slots(spring, repeats=False, makes_up=False) == []
    assert slots(autumn, repeats=False, makes_up=True) == [autumn + timedelta(minutes=30)]
    assert len(slots(autumn, repeats=True, makes_up=True)) == 2
