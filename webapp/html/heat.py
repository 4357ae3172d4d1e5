"""The calendar of a schedule drawn: a year of days behind it and the month before it, as places in an SVG. Pure.

Weeks begin on Monday. Five weights say how many ran on a day; a failure and a skip are drawn, not tinted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import Final

from webapp.html.filters import number, plural
from webapp.scheduling.calendar import DayAhead, DayBehind
from webapp.scheduling.lifecycle import RunStatus
from webapp.scheduling.next_change import ChangeKind, NextChange

_WEIGHTS: Final = 4
_STEP, _SIDE, _LEFT, _TOP = 13, 11, 30, 18
_CELL, _ROW, _HEAD = 40, 36, 20
_ILL: Final = (RunStatus.FAILED, RunStatus.EXPIRED)
_NOT_RUN: Final = (RunStatus.SKIPPED, RunStatus.CANCELLED)


# --- Behind ---


@dataclass(frozen=True)
class MonthBehind:
    """One line of the table twin: how the runs of a month ended. `other`: cancelled, or still open."""

    first: date
    completed: int
    ill: int
    skipped: int
    other: int
    stood_for: int


@dataclass(frozen=True)
class Year:
    """The year as a picture. Paths by weight; marks as their upper left corners; words as (x, text)."""

    width: int
    height: int
    off: str
    weights: list[tuple[int, str]]
    failed: list[tuple[int, int]]
    skipped: list[tuple[int, int]]
    today: tuple[int, int]
    month_words: list[tuple[int, str]]
    legend: list[tuple[int, str]]
    summary: str
    months: list[MonthBehind]


def draw_year(days: Sequence[DayBehind], *, since: date) -> Year:
    """The days (oldest first, today last) drawn; those before `since`, when nothing was planned yet, as outlines."""
    first = days[0].day
    places = {day.day: _place(first, day.day) for day in days}
    most = max((_ran(day) for day in days), default=0)
    by_weight: dict[int, list[tuple[int, int]]] = {weight: [] for weight in range(_WEIGHTS + 1)}
    off, failed, skipped = [], [], []
    for day in days:
        place = places[day.day]
        if any(day.counts.get(status) for status in _ILL):
            failed.append(place)
        elif day.counts.get(RunStatus.SKIPPED):
            skipped.append(place)
        elif day.day < since and not day.total:
            off.append(place)
        else:
            by_weight[_weight(_ran(day), most)].append(place)
    return Year(
        width=max(x for x, _ in places.values()) + _STEP,
        height=_TOP + 7 * _STEP,
        off=_path(off),
        weights=[(weight, _path(found)) for weight, found in by_weight.items() if found],
        failed=failed,
        skipped=skipped,
        today=places[days[-1].day],
        month_words=_month_words(days, places),
        legend=_legend(most),
        summary=_summary(days),
        months=[month for month in _months(days) if month.first >= since.replace(day=1) or _any(month)],
    )


def _place(first: date, day: date) -> tuple[int, int]:
    week = ((day - first).days + first.weekday()) // 7
    return _LEFT + _STEP * week, _TOP + _STEP * day.weekday()


def _path(places: Sequence[tuple[int, int]]) -> str:
    return "".join(f"M{x} {y}h{_SIDE}v{_SIDE}h-{_SIDE}z" for x, y in places)


def _ran(day: DayBehind) -> int:
    return day.total - sum(day.counts.get(status, 0) for status in _NOT_RUN)


def _weight(ran: int, most: int) -> int:
    """0 for none; few a day are told apart one by one, many in quarters of the fullest day."""
    if ran == 0:
        return 0
    if most == 1:
        return 2
    return ran if most <= _WEIGHTS else -(-_WEIGHTS * ran // most)


def _legend(most: int) -> list[tuple[int, str]]:
    """What each weight that can occur stands for."""
    found: list[tuple[int, str]] = [(0, "nothing ran")]
    if most == 1:
        return [*found, (2, "one run")]
    if most <= _WEIGHTS:
        return found + [(ran, plural(ran, "run")) for ran in range(1, most + 1)]
    ends = [most * weight // _WEIGHTS for weight in range(_WEIGHTS + 1)]
    for weight in range(1, _WEIGHTS + 1):
        low, high = ends[weight - 1] + 1, ends[weight]
        found.append(
            (weight, plural(high, "run") if low >= high else f"{number(low)} to {number(high)} runs")
        )
    return found


def _month_words(days: Sequence[DayBehind], places: dict[date, tuple[int, int]]) -> list[tuple[int, str]]:
    """The name of a month above the first week that begins in it; the first one only where there is room."""
    begins = [day.day for day in days if day.day.day == 1]
    return [(places[day][0] + (_STEP if day.weekday() else 0), f"{day:%b}") for day in begins]


def _summary(days: Sequence[DayBehind]) -> str:
    counts: Counter[RunStatus] = Counter()
    for day in days:
        counts.update(day.counts)
    ill, stood_for = sum(counts[status] for status in _ILL), sum(day.stood_for for day in days)
    other = counts.total() - counts[RunStatus.COMPLETED] - ill - counts[RunStatus.SKIPPED]
    parts = [
        f"{number(counts[RunStatus.COMPLETED])} completed",
        f"{number(ill)} failed or expired",
        f"{number(counts[RunStatus.SKIPPED])} skipped",
    ]
    parts += [f"{number(other)} cancelled or open"] if other else []
    missed = f" They stand for {plural(stood_for, 'older slot')} besides." if stood_for else ""
    return f"{plural(counts.total(), 'run')}: {', '.join(parts)}.{missed}"


def _months(days: Sequence[DayBehind]) -> list[MonthBehind]:
    """Newest first."""
    found = []
    for first, group in groupby(days, key=lambda day: day.day.replace(day=1)):
        of_month = list(group)
        counts: Counter[RunStatus] = Counter()
        for day in of_month:
            counts.update(day.counts)
        completed, skipped = counts[RunStatus.COMPLETED], counts[RunStatus.SKIPPED]
        ill = sum(counts[status] for status in _ILL)
        other = counts.total() - completed - skipped - ill
        missed = sum(day.stood_for for day in of_month)
        found.append(MonthBehind(first, completed, ill, skipped, other, missed))
    return found[::-1]


def _any(month: MonthBehind) -> bool:
    return bool(month.completed or month.ill or month.skipped or month.other)


# --- Ahead ---


@dataclass(frozen=True)
class DayCell:
    """One day of the month ahead. `mark`: none, pin, count, move (a moved slot), or skip (none runs)."""

    x: int
    y: int
    word: str
    count: int
    mark: str


@dataclass(frozen=True)
class DayLine:
    """One line of the table twin: a day on which something is planned, or a slot is skipped or moved away.

    `change`: what a person changed of a slot of this day; `arrives`: a moved slot falls due on this day.
    """

    day: date
    count: int
    first: datetime | None
    last: datetime | None
    change: NextChange | None
    arrives: NextChange | None


@dataclass(frozen=True)
class Month:
    """The month ahead as a picture, and its table twin."""

    height: int
    cells: list[DayCell]
    lines: list[DayLine]
    summary: str
    change: NextChange | None = None


def draw_month(days: Sequence[DayAhead]) -> Month | None:
    """The days (today first) drawn as weeks; None where nothing is planned."""
    if not days:
        return None
    first = days[0].day
    cells = []
    for place, day in enumerate(days, start=first.weekday()):
        named = day.day == first or day.day.day == 1
        word = f"{day.day.day} {day.day:%b}" if named else str(day.day.day)
        cells.append(DayCell(place % 7 * _CELL, _HEAD + place // 7 * _ROW, word, day.count, _mark(day)))
    planned = sum(day.count for day in days)
    change = next((found for day in days if (found := day.change or day.arrives) is not None), None)
    said = "" if change is None else ", 1 skipped" if change.kind is ChangeKind.SKIP else ", 1 moved"
    lines = [
        DayLine(day.day, day.count, day.first, day.last, day.change, day.arrives)
        for day in days
        if day.count or day.change is not None
    ]
    return Month(cells[-1].y + _ROW, cells, lines, f"{number(planned)} planned{said}", change)


def _mark(day: DayAhead) -> str:
    if day.count > 1:
        return "count"
    if day.count:
        return "pin" if day.arrives is None else "move"
    return "none" if day.change is None else "skip"
