"""The coming day as a stave: a lane per target, a pin per slot, a numbered bell where several ring in one minute.

Pure: schedules with their plans go in, marks with their places (percent of the day) come out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from operator import attrgetter
from typing import Final
from zoneinfo import ZoneInfo

from webapp.html.filters import plural, wall
from webapp.scheduling.next_change import NextChange
from webapp.timetable import Plan

DAY: Final = timedelta(hours=24)
QUARTER: Final = timedelta(minutes=15)
QUARTERS: Final = 96
# More slots a day than this are drawn as a rhythm, a tick each quarter of an hour that has any.
_MOST_PINS: Final = 24
_HERD: Final = 3
# A label this near to "now" runs into it on a phone.
_NEAR_NOW: Final = 15
_HOURS_APART: Final = 3
_MILLISECOND: Final = timedelta(milliseconds=1)
_BAR_HEIGHT: Final = 44.0
# Many schedules share a timetable: its slots are counted once a drawing.
_Rhythms = dict[tuple[Plan, datetime], list[int]]


@dataclass(frozen=True)
class Ringing:
    """A schedule that rings within the day. `lane` groups what shares a target; `left`: runs until max_runs.

    `change`: its next slot is skipped, or falls due at another time, where it is drawn.
    """

    name: str
    schedule_id: str
    lane: str
    plan: Plan
    next_run_at: datetime
    left: int | None = None
    change: NextChange | None = None

    def is_moved_to(self, minute: datetime) -> bool:
        """Whether what rings in this minute is the slot that a person moved there."""
        to = self.change.to if self.change is not None else None
        return to is not None and to.replace(second=0, microsecond=0) == minute


_Minutes = dict[datetime, list[Ringing]]


@dataclass(frozen=True)
class Mark:
    """Something on a stave at `x` percent: a pin (count 1), a bell (count > 1), or with count 0 a tick.

    `at`: its minute, where it is no tick; `rings`: the only schedule of a pin.
    """

    x: float
    count: int
    at: datetime | None = None
    rings: Ringing | None = None


@dataclass(frozen=True)
class Ring:
    """A line of the table that says what the marks show: what rings in one lane in one minute.

    With `rhythm` it is one schedule that rings `count` times from `at` on.
    """

    at: datetime
    lane: str
    schedules: tuple[Ringing, ...]
    count: int
    rhythm: bool = False


@dataclass
class Lane:
    """What one target will be asked for. `quarters`: slots in each quarter of an hour from now."""

    key: str
    count: int = 0
    first_at: datetime | None = None
    first_name: str = ""
    largest: int = 0
    largest_at: datetime | None = None
    marks: list[Mark] = field(default_factory=list)
    quarters: list[int] = field(default_factory=lambda: [0] * QUARTERS)
    # The quarters in which a rhythm rings.
    ticked: set[int] = field(default_factory=set)
    rings: list[Ring] = field(default_factory=list)

    def words(self, zone: str) -> str:
        """What the picture of this lane says."""
        told = f"{plural(self.count, 'run')}, the first at {wall(self.first_at, zone, 'clock')}"
        if self.largest > 1:
            told += f", {self.largest} at once at {wall(self.largest_at, zone, 'clock')}"
        return told


@dataclass(frozen=True)
class Hour:
    """A label on the axis. `kind`: first, day, or nothing; every other one is `odd` and hidden on a phone."""

    x: float
    text: str
    kind: str = ""
    odd: bool = False


@dataclass(frozen=True)
class Bar:
    """Runs in one half hour: place, width in percent; top and height in pixels of a 64-pixel lane."""

    x: float
    y: float
    height: float
    herd: bool


@dataclass(frozen=True)
class Stave:
    """The day, ready to be drawn. `more`: how many schedules ring beyond those that are drawn."""

    lanes: tuple[Lane, ...]
    hours: tuple[Hour, ...]
    bars: tuple[Bar, ...]
    count: int
    herd: int
    herd_at: datetime | None
    herd_x: float
    more: int

    @cached_property
    def rings(self) -> list[Ring]:
        """What the marks of all lanes show, in order of time."""
        return sorted((ring for lane in self.lanes for ring in lane.rings), key=attrgetter("at", "lane"))


def draw(ringing: Sequence[Ringing], *, now: datetime, zone: str, more: int = 0) -> Stave:
    """Lay out the 24 hours from `now`; what is due already is drawn at their beginning."""
    lanes: dict[str, Lane] = {}
    pins: dict[str, _Minutes] = defaultdict(lambda: defaultdict(list))
    rhythms: _Rhythms = {}
    for schedule in ringing:
        lane = lanes.setdefault(schedule.lane, Lane(schedule.lane))
        for slot in _expand(schedule, lane, now, rhythms):
            pins[schedule.lane][slot.replace(second=0, microsecond=0)].append(schedule)
    minutes: Counter[datetime] = Counter()
    for key, lane in lanes.items():
        _mark(lane, pins[key], now)
        minutes.update({at: len(those) for at, those in pins[key].items()})
    herd_at, herd = min(minutes.items(), key=lambda item: (-item[1], item[0]), default=(None, 0))
    if herd < _HERD:
        herd_at, herd = None, 0
    return Stave(
        lanes=tuple(lanes.values()),
        hours=tuple(_hours(now, zone)),
        bars=tuple(_bars(lanes.values(), herd_at, now)),
        count=sum(lane.count for lane in lanes.values()),
        herd=herd,
        herd_at=herd_at,
        herd_x=_x(herd_at, now) if herd_at else 0.0,
        more=more,
    )


def _mark(lane: Lane, minutes: Mapping[datetime, list[Ringing]], now: datetime) -> None:
    """Put the ticks, the pins and the bells of a lane on its stave, and say them in its lines."""
    lane.marks += [Mark(_x(now + (index + 1) * QUARTER, now), 0) for index in sorted(lane.ticked)]
    for at, those in sorted(minutes.items(), key=lambda item: item[0]):
        count = len(those)
        lane.marks.append(Mark(_x(at, now), count, at, those[0] if count == 1 else None))
        lane.rings.append(Ring(at, lane.key, tuple(those), count))
        if count > lane.largest:
            lane.largest, lane.largest_at = count, at


@dataclass(frozen=True)
class _Ahead:
    """What of a schedule lies in the day: `single` rings beside the plan (due already, or moved), then its slots."""

    single: datetime | None
    after: datetime
    first: datetime
    slots: int

    @property
    def count(self) -> int:
        return self.slots + (self.single is not None)


def _ahead(schedule: Ringing, now: datetime) -> _Ahead | None:
    """The part of a schedule in the day from `now`; None where nothing of it rings."""
    until, change = now + DAY, schedule.change
    single = None
    if change is not None:
        after = max(now, change.slot)
        if change.to is not None and change.to <= until:
            single = max(now, change.to)
    else:
        single = now if schedule.next_run_at <= now else None
        after = now if single else schedule.next_run_at - _MILLISECOND
    span = schedule.plan.span(after, until)
    first = single or span.oldest
    return None if first is None else _Ahead(single, after, first, span.count)


def _expand(schedule: Ringing, lane: Lane, now: datetime, rhythms: _Rhythms) -> list[datetime]:
    """Count a schedule into its lane; returns the slots that get pins, none for a rhythm."""
    ahead = _ahead(schedule, now)
    if ahead is None:
        return []
    count = ahead.count if schedule.left is None else min(ahead.count, schedule.left)
    if count <= 0:
        return []
    if lane.first_at is None or ahead.first < lane.first_at:
        lane.first_at, lane.first_name = ahead.first, schedule.name
    lane.count += count
    if ahead.slots > _MOST_PINS:
        lane.rings.append(Ring(ahead.first, lane.key, (schedule,), count, rhythm=True))
        _tick(schedule, ahead, lane, count, now, rhythms)
        return []
    slots = ([ahead.single] if ahead.single else []) + schedule.plan.newest(
        ahead.after, now + DAY, _MOST_PINS
    )
    for slot in slots[:count]:
        lane.quarters[_quarter(slot, now)] += 1
    return slots[:count]


def _tick(schedule: Ringing, ahead: _Ahead, lane: Lane, count: int, now: datetime, rhythms: _Rhythms) -> None:
    """Count a rhythm into the quarters of its lane; the quarters that have any are ticked."""
    begin = ahead.after
    if (schedule.plan, begin) not in rhythms:
        rhythms[schedule.plan, begin] = _by_quarter(schedule.plan, begin, now)
    single = None if ahead.single is None else _quarter(ahead.single, now)
    left = count
    for index, slots in enumerate(rhythms[schedule.plan, begin]):
        rings = min(left, slots + (index == single))
        if rings:
            left -= rings
            lane.quarters[index] += rings
            lane.ticked.add(index)


def _by_quarter(plan: Plan, begin: datetime, now: datetime) -> list[int]:
    """How many slots after `begin` lie in each quarter of an hour from `now`."""
    ends = [now + (index + 1) * QUARTER for index in range(QUARTERS)]
    return [plan.span(max(begin, end - QUARTER), end).count if end > begin else 0 for end in ends]


def _quarter(slot: datetime, now: datetime) -> int:
    return max(0, min(QUARTERS - 1, (slot - now) // QUARTER))


def _x(at: datetime, now: datetime) -> float:
    """The place of an instant, in percent of the day from now."""
    return round(max(0.0, min(100.0, 100 * ((at - now) / DAY))), 2)


def _hours(now: datetime, zone: str) -> Iterable[Hour]:
    """Every third full hour on the viewer's clock; midnight carries the new date."""
    yield Hour(0.6, "now", "first")
    local_zone = ZoneInfo(zone)
    at = now.replace(minute=0, second=0, microsecond=0) + QUARTER
    while at < now:
        at += QUARTER
    shown = 0
    while at < now + DAY:
        local = at.astimezone(local_zone)
        x = _x(at, now)
        if local.minute == 0 and local.hour % _HOURS_APART == 0 and 5 < x < 97:
            midnight = local.hour == 0
            yield Hour(
                x,
                wall(at, zone, "date") if midnight else f"{local:%H:%M}",
                "day" if midnight else "",
                shown % 2 == 1 or x < _NEAR_NOW,
            )
            shown += 1
        at += QUARTER


def _bars(lanes: Iterable[Lane], herd_at: datetime | None, now: datetime) -> Iterable[Bar]:
    quarters = [sum(column) for column in zip(*(lane.quarters for lane in lanes), strict=True)] or [
        0
    ] * QUARTERS
    halves = [quarters[index] + quarters[index + 1] for index in range(0, QUARTERS, 2)]
    most = max(halves)
    herd = _quarter(herd_at, now) // 2 if herd_at else None
    for index, count in enumerate(halves):
        if count:
            height = round(max(2.4, _BAR_HEIGHT * count / most), 1)
            yield Bar(round(100 * index / 48 + 0.25, 2), round(64 - height, 1), height, index == herd)
