"""A timetable in words, its next slots, and what clock changes do to them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, TypeAlias

from webapp.timetable.cron_words import cron_sentence
from webapp.timetable.kinds import Cron, Daily, Interval, Once, Plan, Timetable, Weekly
from webapp.timetable.slots import ElapsedSlots, Slots
from webapp.timetable.walltime import (
    Reading,
    instant_of,
    seconds_of,
    wall_datetime,
    wall_seconds,
    zone_clock,
)
from webapp.timetable.words import MONTHS_SHORT, WEEKDAYS_SHORT, listed, weekdays_plural
from webapp.timetable.zones import on_clock, zone

Describable: TypeAlias = Timetable | Plan

_MOST_TIMES_LISTED: Final = 3
_END: Final = datetime.max.replace(tzinfo=UTC)


# --- The sentence -------------------------------------------------------------------------------------------------


def sentence(timetable: Timetable, timezone: str) -> str:
    """One line for a person, without a full stop: "Weekdays at 09:00, Europe/Berlin".

    `timezone` (canonical) is the schedule's; an interval and an instant are told on its clock.
    """
    if isinstance(timetable, Once):
        wall = timetable.wall
        if wall is None:
            wall = on_clock(timetable.at, zone(timezone)).replace(tzinfo=None)
        return f"Once, {_date_words(wall)} at {_clock_words(wall)}, {timetable.zone or timezone}"
    if isinstance(timetable, Interval):
        anchor = on_clock(timetable.anchor, zone(timezone))
        return (
            f"Every {interval_words(timetable.every_seconds)}, from {_date_words(anchor)} at"
            f" {_clock_words(anchor)}, {timezone}"
        )
    if isinstance(timetable, Daily):
        return f"Daily at {timetable.time}, {timetable.zone}"
    if isinstance(timetable, Weekly):
        return f"{weekdays_plural(timetable.weekdays)} at {timetable.time}, {timetable.zone}"
    words = cron_sentence(timetable.fields)
    return f"{words}, {timetable.zone}" if words else f"Cron `{timetable.text.strip()}`, {timetable.zone}"


def interval_words(seconds: int) -> str:
    """ "15 minutes", "hour", "24 hours", "7 days", "90 seconds": elapsed time, so a day is called 24 hours."""
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % unit == 0 and seconds != 86_400:
            number = seconds // unit
            return name if number == 1 else f"{number} {name}s"
    return "24 hours" if seconds == 86_400 else f"{seconds} seconds"


def _date_words(moment: datetime) -> str:
    """ "Fri 4 Dec 2026"."""
    weekday = WEEKDAYS_SHORT[moment.isoweekday() % 7]
    return f"{weekday} {moment.day} {MONTHS_SHORT[moment.month - 1]} {moment.year}"


def _clock_words(moment: datetime) -> str:
    """ "11:00", with seconds and milliseconds where there are any."""
    if moment.microsecond:
        return moment.strftime("%H:%M:%S.") + f"{moment.microsecond // 1000:03}"
    return moment.strftime("%H:%M:%S" if moment.second else "%H:%M")


# --- What a clock change does to a timetable ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClockChange:
    """One clock change that touches a slot.

    `on` is the local date, `what` says it without the date ("02:30 does not exist, runs at 03:00"), `message` with
    it ("29 Mar: 02:30 does not exist, runs at 03:00").
    """

    on: date
    message: str
    what: str


@dataclass(frozen=True, slots=True)
class _Effect:
    """What one clock change does: the slots it touches (seconds), the local date, and the words."""

    instants: tuple[int, ...]
    on: date
    what: str


def _gap_words(walls: list[int], more: bool, landing: int, runs: str) -> str:
    names = _wall_names(walls, more)
    verb = "does" if len(walls) == 1 else "do"
    if runs != "made up":
        return f"{names} {verb} not exist, {runs}"
    once = "runs" if len(walls) == 1 else "run once,"
    where = wall_datetime(landing)
    on = "" if where.date() == wall_datetime(walls[0]).date() else f" on {_day_words(where.date())}"
    return f"{names} {verb} not exist, {once} at {where:%H:%M}{on}"


def _fold_words(walls: list[int], more: bool, repeats: bool) -> str:
    names = _wall_names(walls, more)
    if len(walls) == 1:
        return f"{names} happens twice, " + ("runs both times" if repeats else "runs once, at the first")
    return f"{names} happen twice, " + ("run both times" if repeats else "run once each, at the first")


def _wall_names(walls: list[int], more: bool) -> str:
    """ "02:00 and 02:30", or "02:00 to 02:59" for many."""
    times = [f"{wall_datetime(wall):%H:%M}" for wall in walls]
    return f"{times[0]} to {times[-1]}" if more else listed(times)


def _day_words(day: date) -> str:
    return f"{day.day} {MONTHS_SHORT[day.month - 1]}"


def _matches(slots: Slots, after: int, until: int) -> tuple[list[int], bool]:
    """Wall times of the pattern in (after, until]: all, or the first and the last, and whether some are left out."""
    count = slots.pattern.count(after, until)
    if count > _MOST_TIMES_LISTED:
        first, last = slots.pattern.next(after), slots.pattern.prev(until)
        return [wall for wall in (first, last) if wall is not None], True
    walls: list[int] = []
    wall = slots.pattern.next(after)
    while wall is not None and wall <= until:
        walls.append(wall)
        wall = slots.pattern.next(wall)
    return walls, False


def _effects(slots: Slots, after: int, until: int) -> Iterator[_Effect]:
    """What the clock changes in (after, until] do to the slots, oldest first."""
    starts, offsets, _ = slots.clock.through(until)
    for index in range(bisect_right(starts, after), bisect_right(starts, until)):
        ended, begins = starts[index] + offsets[index - 1], starts[index] + offsets[index]
        if begins > ended:
            walls, more = _matches(slots, ended - 1, begins - 1)
            if walls:
                yield _gap_effect(slots, starts[index], begins, walls, more)
        else:
            walls, more = _matches(slots, begins - 1, ended - 1)
            if walls:
                first_pass = tuple(wall - offsets[index - 1] for wall in walls)
                second_pass = tuple(wall - offsets[index] for wall in walls)
                repeats = isinstance(slots, ElapsedSlots)
                yield _Effect(
                    first_pass + second_pass if repeats else first_pass,
                    wall_datetime(walls[0]).date(),
                    _fold_words(walls, more, repeats),
                )


def _makes_up(slots: Slots) -> bool:
    """Whether a time that the clock skips is made up at the jump."""
    return not isinstance(slots, ElapsedSlots) or slots.make_up


def _gap_effect(slots: Slots, jump: int, landing: int, walls: list[int], more: bool) -> _Effect:
    made_up = _makes_up(slots)
    runs = "made up" if made_up else ("is left out" if len(walls) == 1 else "are left out")
    return _Effect((jump,), wall_datetime(walls[0]).date(), _gap_words(walls, more, landing, runs))


def _once_effect(once: Once) -> _Effect | None:
    if once.wall is None or once.zone is None:
        return None
    clock = zone_clock(once.zone)
    wall = wall_seconds(once.wall)
    reading = clock.reading(wall)
    at = seconds_of(once.at)
    if reading is Reading.NEVER:
        return _Effect((at,), once.wall.date(), _gap_words([wall], False, clock.wall(at), "made up"))
    if reading is Reading.TWICE:
        return _Effect((at,), once.wall.date(), _fold_words([wall], False, repeats=False))
    return None


def _parts(plan: Describable) -> Plan:
    return plan if isinstance(plan, Plan) else Plan(plan)


def clock_changes(
    plan: Describable,
    timezone: str,  # noqa: ARG001 - asked for like `upcoming`; each kind that a change touches carries its zone
    after: datetime,
    days: int = 365,
) -> list[ClockChange]:
    """The clock changes in the `days` after an instant that touch a slot, in words, oldest first.

    Told on the clock the timetable lives on; an interval and an instant are touched by none.
    """
    plan = _parts(plan)
    timetable = plan.timetable
    span = timedelta(days=days)
    until = min(after, _END - span) + span
    if isinstance(timetable, Interval):
        return []
    if isinstance(timetable, Once):
        effect = _once_effect(timetable)
        effects = [] if effect is None else [effect]
    else:
        # The first pass of a fold lies before the change: look a little further.
        effects = list(_effects(timetable.slots, seconds_of(after), seconds_of(until) + 86_400))
    return [
        ClockChange(effect.on, f"{_day_words(effect.on)}: {effect.what}", effect.what)
        for effect in effects
        if any(_counts(plan, instant_of(seconds), after, until) for seconds in effect.instants)
    ]


def _counts(plan: Plan, instant: datetime | None, after: datetime, until: datetime) -> bool:
    """Whether an instant lies in (after, until] and within the bounds of the plan."""
    return (
        instant is not None
        and after < instant <= until
        and (plan.starts_at is None or plan.starts_at <= instant)
        and (plan.ends_at is None or instant <= plan.ends_at)
    )


# --- The next slots -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One slot: the instant (UTC), the same on the clock of a zone (aware), and a clock change in words or None."""

    at: datetime
    local: datetime
    note: str | None


def upcoming(plan: Describable, timezone: str, after: datetime, count: int) -> list[Occurrence]:
    """The next `count` slots after an instant (aware), fewer if the timetable ends.

    `timezone` (canonical) is the clock they are shown on.
    """
    plan = _parts(plan)
    shown_in = zone(timezone)
    found: list[Occurrence] = []
    slot = plan.next_after(after)
    while slot is not None and len(found) < count:
        found.append(Occurrence(slot.astimezone(UTC), on_clock(slot, shown_in), _note(plan.timetable, slot)))
        slot = plan.next_after(slot)
    return found


def _note(timetable: Timetable, slot: datetime) -> str | None:
    if isinstance(timetable, Interval):
        return None
    if isinstance(timetable, Once):
        effect = _once_effect(timetable)
        return None if effect is None else effect.what
    return _slot_note(timetable, seconds_of(slot))


def _slot_note(timetable: Daily | Weekly | Cron, seconds: int) -> str | None:
    """What a clock change has to do with one slot of a timetable that lives on a clock."""
    slots = timetable.slots
    clock = slots.clock
    index = clock.segment(seconds)
    starts, offsets, _ = clock.through(seconds)
    wall = seconds + offsets[index]
    repeats = isinstance(slots, ElapsedSlots)
    if starts[index] == seconds:
        walls, more = _matches(slots, seconds + offsets[index - 1] - 1, wall - 1)
        if walls and _makes_up(slots):
            return _gap_words(walls, more, wall, "made up")
    if clock.reading(wall) is not Reading.TWICE:
        return None
    if not repeats:
        return _fold_words([wall], False, repeats=False)
    which = "first" if clock.first(wall) == seconds else "second"
    return f"{wall_datetime(wall):%H:%M} happens twice, this is the {which}"
