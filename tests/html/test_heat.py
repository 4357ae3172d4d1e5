"""The calendar as a drawing: every day has one place and one shape, and its legend says what the weights mean."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from webapp.html.heat import draw_month, draw_year
from webapp.scheduling.calendar import DayAhead, DayBehind
from webapp.scheduling.lifecycle import RunStatus

TODAY = date(2026, 11, 30)
LONG_AGO = date(2020, 1, 1)


def year_of(*latest: dict[RunStatus, int]) -> list[DayBehind]:
    """A year that ends today with these days, before which nothing ran."""
    empty: list[dict[RunStatus, int]] = [{}] * (365 - len(latest))
    first = TODAY - timedelta(days=364)
    return [DayBehind(first + timedelta(days=n), counts) for n, counts in enumerate([*empty, *latest])]


def test_every_day_is_drawn_once_within_the_picture() -> None:
    days = year_of(
        {RunStatus.FAILED: 1, RunStatus.COMPLETED: 3}, {RunStatus.SKIPPED: 1}, {RunStatus.COMPLETED: 1}
    )
    year = draw_year(days, since=TODAY - timedelta(days=40))
    squares = year.off.count("z") + sum(path.count("z") for _, path in year.weights)
    assert squares + len(year.failed) + len(year.skipped) == 365
    assert len(year.failed) == len(year.skipped) == 1
    assert year.off.count("z") == 365 - 41
    assert year.today == (year.width - 13, 18), "a Monday, in the last column"
    assert year.height == 109


@pytest.mark.parametrize(
    ("most", "ran", "weight", "words"),
    [
        (1, 1, 2, "one run"),
        (3, 3, 3, "3 runs"),
        (96, 1, 1, "1 to 24 runs"),
        (96, 25, 2, "25 to 48 runs"),
        (96, 96, 4, "73 to 96 runs"),
        (5, 3, 3, "3 runs"),
    ],
)
def test_the_weight_of_a_day_is_the_one_that_the_legend_says(
    most: int, ran: int, weight: int, words: str
) -> None:
    year = draw_year(year_of({RunStatus.COMPLETED: ran}, {RunStatus.COMPLETED: most}), since=LONG_AGO)
    assert dict(year.legend)[weight] == words
    assert weight in dict(year.weights)


def test_the_table_says_the_same_as_the_picture() -> None:
    days = year_of({RunStatus.COMPLETED: 2, RunStatus.EXPIRED: 1}, {RunStatus.CANCELLED: 1})
    year = draw_year(days, since=date(2026, 11, 1))
    assert year.summary == "4 runs: 2 completed, 1 failed or expired, 0 skipped, 1 cancelled or open."
    (november,) = year.months
    assert (november.completed, november.ill, november.skipped, november.other) == (2, 1, 0, 1)


def test_the_month_ahead_is_a_grid_of_weeks() -> None:
    days = [DayAhead(TODAY + timedelta(days=n), count=(n % 3)) for n in range(31)]
    month = draw_month(days)
    assert month is not None
    assert len({(cell.x, cell.y) for cell in month.cells}) == 31
    assert [cell.word for cell in month.cells[:3]] == ["30 Nov", "1 Dec", "2"]
    assert [cell.mark for cell in month.cells[:3]] == ["none", "pin", "count"]
    assert len(month.lines) == 20
    assert month.summary == "30 planned"
    assert draw_month([]) is None
