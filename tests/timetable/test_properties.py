"""What must hold for every timetable, in every zone, at every instant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.timetable.strategies import NOW, SPECS, ZONES, Clockwork, clockworks, instants, parsed
from webapp.timetable import (
    Cron,
    Daily,
    Interval,
    Once,
    Plan,
    Timetable,
    TimetableError,
    from_stored,
    parse_timetable,
    same_timetable,
    to_public,
    to_stored,
    zone,
)
from webapp.timetable.calendar_days import LONGEST_GAP_YEARS, MonthDays, WallPattern
from webapp.timetable.slots import ElapsedSlots

MODERATE = settings(max_examples=100, derandomize=True, deadline=None)
MILLISECOND = timedelta(milliseconds=1)


@st.composite
def timetables(draw: st.DrawFn) -> Timetable:
    zone = draw(st.sampled_from(ZONES))
    try:
        return parsed(draw(SPECS), zone)
    except TimetableError as refused:
        assume(refused.code != "invalid_cron")  # this one never fires
        raise


@MODERATE
@given(timetable=timetables(), after=instants())
def test_slots_are_strictly_after_and_strictly_increasing(timetable: Timetable, after: datetime) -> None:
    slot: datetime | None = after
    for _ in range(6):
        following = timetable.next_after(slot)
        if following is None:
            break
        assert following > slot
        assert following.tzinfo is UTC
        assert following.microsecond % 1000 == 0
        # Nothing lies between: asked a moment before the answer, it is the answer still.
        assert timetable.next_after(following - MILLISECOND) == following
        slot = following


@MODERATE
@given(timetable=timetables())
def test_what_is_rendered_parses_to_the_same(timetable: Timetable) -> None:
    zone = getattr(timetable, "zone", None) or "Europe/Berlin"
    assert parsed(to_public(timetable), zone) == timetable
    stored = json.loads(json.dumps(to_stored(timetable)))
    assert from_stored(stored, zone) == timetable
    assert to_stored(from_stored(stored, zone)) == stored
    assert same_timetable(timetable, from_stored(stored, zone))


def _one_by_one(timetable: Timetable | Plan, after: datetime, until: datetime) -> Iterator[datetime]:
    slot = timetable.next_after(after)
    while slot is not None and slot <= until:
        yield slot
        slot = timetable.next_after(slot)


def _assert_counted_right(timetable: Timetable | Plan, after: datetime, until: datetime) -> None:
    slots = list(_one_by_one(timetable, after, until))
    span = timetable.span(after, until)
    ends = (slots[0], slots[-1]) if slots else (None, None)
    assert (span.count, span.oldest, span.newest) == (len(slots), *ends)
    assert timetable.newest(after, until, 7) == slots[-7:]


@MODERATE
@given(timetable=timetables(), after=instants(), hours=st.integers(0, 24 * 9))
def test_a_span_is_what_counting_one_by_one_gives(timetable: Timetable, after: datetime, hours: int) -> None:
    _assert_counted_right(timetable, after, after + timedelta(hours=hours))


@MODERATE
@given(known=clockworks(often=True), zone=st.sampled_from(ZONES), after=instants(), hours=st.integers(0, 72))
def test_a_span_of_a_busy_cron_is_what_counting_one_by_one_gives(
    known: Clockwork, zone: str, after: datetime, hours: int
) -> None:
    _assert_counted_right(Cron(known.text, zone), after, after + timedelta(hours=hours))


@settings(max_examples=40, derandomize=True, deadline=None)
@given(timetable=timetables(), after=instants(), years=st.integers(1, 60))
def test_a_span_over_years_is_what_counting_one_by_one_gives(
    timetable: Timetable, after: datetime, years: int
) -> None:
    until = after + timedelta(days=365 * years)
    assume(timetable.span(after, until).count < 3000)
    _assert_counted_right(timetable, after, until)


@MODERATE
@given(
    timetable=timetables(),
    after=instants(),
    bounds=st.tuples(st.integers(-60, 60), st.integers(-60, 120)),
    hours=st.integers(0, 96),
)
def test_a_plan_is_its_timetable_within_bounds(
    timetable: Timetable, after: datetime, bounds: tuple[int, int], hours: int
) -> None:
    starts, ends = (after + timedelta(hours=hour) for hour in bounds)
    until = after + timedelta(hours=hours)
    plan = Plan(timetable, starts, ends)
    inside = [slot for slot in _one_by_one(timetable, after, until) if starts <= slot <= ends]
    assert list(_one_by_one(plan, after, until)) == inside
    _assert_counted_right(plan, after, until)


def test_the_bounds_of_a_plan_are_included() -> None:
    nine = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)
    plan = Plan(Daily("09:00", "UTC"), nine, nine + timedelta(days=2))
    assert plan.next_after(nine - timedelta(days=30)) == nine
    assert plan.next_after(nine + timedelta(days=1)) == nine + timedelta(days=2)
    assert plan.next_after(nine + timedelta(days=2)) is None
    assert plan.span(nine - timedelta(days=9), nine + timedelta(days=9)).count == 3


# --- Cost, counted in candidates and not in seconds --------------------------------------------------------------


class Candidates:
    """Counts what a search looks at: months of the calendar, and wall times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.months = self.walls = 0
        month, following, preceding, count = (
            MonthDays.month,
            WallPattern.next,
            WallPattern.prev,
            WallPattern.count,
        )

        def counted_month(days: MonthDays, index: int) -> tuple[int, ...]:
            self.months += 1
            return month(days, index)

        def counted_next(pattern: WallPattern, wall: int) -> int | None:
            self.walls += 1
            return following(pattern, wall)

        def counted_prev(pattern: WallPattern, wall: int) -> int | None:
            self.walls += 1
            return preceding(pattern, wall)

        def counted_count(pattern: WallPattern, after: int, until: int) -> int:
            self.walls += 1
            return count(pattern, after, until)

        monkeypatch.setattr(MonthDays, "month", counted_month)
        monkeypatch.setattr(WallPattern, "next", counted_next)
        monkeypatch.setattr(WallPattern, "prev", counted_prev)
        monkeypatch.setattr(WallPattern, "count", counted_count)


MOST_MONTHS = LONGEST_GAP_YEARS * 12 + 2
RARE = (
    "0 0 * 2 MON#5",  # 29 February on a Monday
    "0 0 29 2 */7",  # on a Sunday
    "*/5 */2 29 2 */7",
    "0 0 * 2 TUE#5",
    "* * * 2 WED#5",
    "0 12 31W 12 *",
    "59 23 L 2 *",
)


@pytest.mark.parametrize("text", RARE)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Beirut"])
def test_a_rare_date_is_found_with_few_candidates(
    text: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cron = Cron(text, zone)
    counted = Candidates(monkeypatch)
    slot = cron.next_after(datetime(2072, 3, 1, tzinfo=UTC))
    assert slot is not None
    assert slot.year <= 2072 + LONGEST_GAP_YEARS
    assert counted.months <= LONGEST_GAP_YEARS + 2
    assert counted.walls <= 3


@settings(max_examples=120, derandomize=True, deadline=None)
@given(timetable=timetables(), after=instants())
def test_the_number_of_candidates_is_bounded(timetable: Timetable, after: datetime) -> None:
    with pytest.MonkeyPatch.context() as patched:
        counted = Candidates(patched)
        timetable.next_after(after)
        assert counted.months <= MOST_MONTHS
        assert counted.walls <= 4
        counted.months = counted.walls = 0
        timetable.newest(after - timedelta(days=30), after, 1)
        assert counted.months <= MOST_MONTHS
        assert counted.walls <= 4


def test_a_month_of_missed_minutes_is_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cron = Cron("* * * * *", "Europe/Berlin")
    counted = Candidates(monkeypatch)
    begin = datetime(2026, 10, 1, tzinfo=UTC)
    span = cron.span(begin, begin + timedelta(days=31))
    assert span.count == 31 * 24 * 60
    assert counted.walls <= 6


def test_a_rhythm_that_the_clock_always_skips_is_refused_and_never_spins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Half past midnight on the last Sunday of March: in Beirut the clock jumps over it each year.
    spec = {"type": "cron", "cron": "30 */24 25-31 3 */7"}
    counted = Candidates(monkeypatch)
    with pytest.raises(TimetableError) as refused:
        parse_timetable(spec, "Asia/Beirut", now=NOW)
    assert refused.value.code == "invalid_cron"
    assert counted.walls <= 2 * LONGEST_GAP_YEARS
    assert isinstance(Cron(spec["cron"], "Asia/Beirut").slots, ElapsedSlots)
    assert parse_timetable(spec, "Europe/Berlin", now=NOW).next_after(NOW) is not None


def test_timetables_end_where_the_calendar_ends() -> None:
    end = datetime(9999, 12, 31, 23, 30, tzinfo=UTC)
    for timetable in (
        Daily("09:00", "America/New_York"),
        Cron("0 9 * * *", "Europe/Berlin"),
        Cron("0 */2 29 2 *", "Europe/Berlin"),
        Interval(31_536_000, datetime(2026, 1, 1, tzinfo=UTC)),
        Once(datetime(2026, 1, 1, tzinfo=UTC)),
    ):
        assert timetable.next_after(end) is None
    begin = datetime(1, 1, 1, tzinfo=UTC)
    assert Daily("09:00", "Europe/Berlin").next_after(begin) is not None
    assert Cron("0 9 29 2 *", "Asia/Tokyo").next_after(begin) is not None
    assert Cron("0 9 * * *", "Asia/Tokyo").span(begin, datetime(1, 1, 3, tzinfo=UTC)).count == 2


def test_a_naive_instant_is_not_understood() -> None:
    naive = datetime.fromisoformat("2026-05-04T09:00")
    for timetable in (
        Daily("09:00", "UTC"),
        Interval(60, NOW),
        Once(NOW),
        Cron("* * * * *", "UTC"),
    ):
        with pytest.raises(TypeError):
            timetable.next_after(naive)


def test_an_instant_in_another_zone_is_the_instant_it_is() -> None:
    berlin = datetime(2026, 10, 25, 2, 45, fold=1, tzinfo=zone("Europe/Berlin"))
    for timetable in (Daily("02:30", "Europe/Berlin"), Interval(900, NOW), Cron("*/15 * * * *", "UTC")):
        assert timetable.next_after(berlin) == timetable.next_after(berlin.astimezone(UTC))
        assert timetable.next_after(berlin).tzinfo is UTC
