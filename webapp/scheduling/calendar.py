"""The year behind a schedule and the month before it, by the days of its own zone. Reads only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import BigInteger, ColumnElement, case, func, literal, select, type_coerce
from sqlalchemy.orm import Session

from webapp.scheduling import steps
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus
from webapp.scheduling.models import DailyCount, Run, Schedule
from webapp.scheduling.next_change import ChangeKind, NextChange, change_of
from webapp.timetable import Plan, day_begins, local_day, offsets_between

YEAR_DAYS = 365
MONTH_DAYS = 31
_DAY_MILLISECONDS = 86_400_000
_JUST = timedelta(milliseconds=1)
_EPOCH_DAY = date(1970, 1, 1)


# --- Behind ---


@dataclass(frozen=True)
class DayBehind:
    """How the runs of one day ended, or stand. `stood_for`: older slots that they stand for besides their own."""

    day: date
    counts: Mapping[RunStatus, int]
    stood_for: int = 0

    @property
    def total(self) -> int:
        """All runs of the day."""
        return sum(self.counts.values())


def year_behind(
    session: Session, schedule: Schedule, *, days: int = YEAR_DAYS, now: datetime
) -> list[DayBehind]:
    """The last `days` days, oldest first, today (in the schedule's zone) last; days without runs too.

    Runs that are kept count by the local day of their slot. Of those that were forgotten the UTC day is what is
    left. Two statements.
    """
    today = local_day(schedule.timezone, now)
    first = today - timedelta(days=days - 1)
    counts: dict[date, Counter[RunStatus]] = defaultdict(Counter)
    stood_for: Counter[date] = Counter()
    forgotten = select(DailyCount.day, DailyCount.status, DailyCount.count.label("runs")).where(
        DailyCount.schedule_pk == schedule.id, DailyCount.day.between(first, today)
    )
    for row in session.execute(forgotten):
        counts[row.day][row.status] += row.runs
    begins, ends = day_begins(schedule.timezone, first), day_begins(schedule.timezone, today + timedelta(1))
    by_day = (
        select(
            _day_number(schedule.timezone, begins, ends).label("day"),
            Run.status.label("status"),
            Run.missed_count.label("missed"),
        )
        .where(Run.schedule_pk == schedule.id, Run.scheduled_for >= begins, Run.scheduled_for < ends)
        .subquery()
    )
    kept = select(
        by_day.c.day, by_day.c.status, func.count().label("runs"), func.sum(by_day.c.missed).label("missed")
    ).group_by(by_day.c.day, by_day.c.status)
    for row in session.execute(kept):
        day = _EPOCH_DAY + timedelta(days=int(row.day))
        counts[day][row.status] += row.runs
        stood_for[day] += int(row.missed)
    days_behind = (first + timedelta(days=number) for number in range(days))
    return [DayBehind(day, dict(counts.get(day, {})), stood_for[day]) for day in days_behind]


def _day_number(timezone: str, begins: datetime, ends: datetime) -> ColumnElement[int]:
    """The local day of a run's slot, counted from 1970, as an expression: the zone has few offsets in a year."""
    offsets = offsets_between(timezone, begins, ends)
    milliseconds = [int(offset / _JUST) for _, offset in offsets]
    offset: ColumnElement[int] = literal(milliseconds[-1], BigInteger)
    if len(offsets) > 1:
        until = [start for start, _ in offsets[1:]]
        whens = [
            (Run.scheduled_for < end, literal(value, BigInteger))
            for end, value in zip(until, milliseconds, strict=False)
        ]
        offset = case(*whens, else_=offset)
    return (type_coerce(Run.scheduled_for, BigInteger) + offset) // _DAY_MILLISECONDS


# --- Ahead ---


@dataclass(frozen=True)
class DayAhead:
    """What falls due on one day: how many will fire, the first and the last of the day. Instants UTC.

    `change`: a slot of this day is skipped, or falls due at another time; it is not counted here. `arrives`: a moved
    slot falls due on this day, maybe its own, and is counted.
    """

    day: date
    count: int = 0
    first: datetime | None = None
    last: datetime | None = None
    change: NextChange | None = None
    arrives: NextChange | None = None


def month_ahead(schedule: Schedule, *, days: int = MONTH_DAYS, now: datetime) -> list[DayAhead]:
    """The next `days` days, today (in the schedule's zone) first; empty where nothing is planned. Pure."""
    plan, slot = steps.plan_or_none(schedule), schedule.due.next_run_at
    if plan is None or slot is None or schedule.status is not ScheduleStatus.ACTIVE:
        return []
    change = change_of(schedule.next_change, slot)
    left = None if schedule.max_runs is None else schedule.max_runs - schedule.due.dispatched_count
    today = local_day(schedule.timezone, now)
    found = []
    for day in (today + timedelta(days=number) for number in range(days)):
        begins = day_begins(schedule.timezone, day)
        ends = day_begins(schedule.timezone, day + timedelta(days=1)) - _JUST
        found.append(_day_ahead(day, begins, ends, plan, slot, change, left))
        left = None if left is None else left - found[-1].count
    return found


def _day_ahead(
    day: date,
    begins: datetime,
    ends: datetime,
    plan: Plan,
    slot: datetime,
    change: NextChange | None,
    left: int | None,
) -> DayAhead:
    """One day from `begins` to `ends`; `slot` is the next one of all, `left` how many may run from this day on."""
    of_day = change if change is not None and begins <= change.slot <= ends else None
    # The changed slot is the next one: nothing of its day lies before it.
    after = of_day.slot if of_day is not None else max(begins, slot) - _JUST
    span = plan.span(after, ends)
    moved_to = change.to if change is not None else None
    here = moved_to if moved_to is not None and begins <= moved_to <= ends else None
    count, last = span.count + (here is not None), span.newest
    if left is not None and count > left:
        # The limit ends inside this day, or before it. A moved slot comes before all that follow it.
        count = max(0, left)
        shown = plan.newest(after, ends, span.count)[: max(0, count - (here is not None))]
        last = shown[-1] if shown else None
    if not count:
        return DayAhead(day, change=of_day)
    first = here if here is not None else span.oldest
    return DayAhead(day, count, first, last or here, of_day, change if here is not None else None)


@dataclass(frozen=True)
class Planned:
    """A slot ahead; `change` says that a person has it skipped, or has it fall due at another time."""

    slot: datetime
    change: NextChange | None = None

    @property
    def falls_due_at(self) -> datetime | None:
        """When it fires; None where it is skipped."""
        if self.change is None:
            return self.slot
        return None if self.change.kind is ChangeKind.SKIP else self.change.falls_due_at


def planned_slots(schedule: Schedule, *, limit: int, now: datetime) -> list[Planned]:
    """The next slots of an active schedule, the changed one among them. Pure."""
    plan, slot = steps.plan_or_none(schedule), schedule.due.next_run_at
    if slot is None or schedule.status is not ScheduleStatus.ACTIVE:
        return []
    change = change_of(schedule.next_change, slot)
    if schedule.max_runs is not None:
        skipped = change is not None and change.kind is ChangeKind.SKIP
        limit = min(limit, schedule.max_runs - schedule.due.dispatched_count + skipped)
    found = [Planned(slot, change)]
    while plan is not None and len(found) < limit:
        following = plan.next_after(max(found[-1].slot, now))
        if following is None:
            break
        found.append(Planned(following))
    return found[: max(0, limit)]
