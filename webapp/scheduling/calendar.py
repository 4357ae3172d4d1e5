"""The year behind a schedule and the month before it, by the days of its own zone. Reads only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

from sqlalchemy import BigInteger, and_, func, select, type_coerce
from sqlalchemy.orm import Session

from webapp.scheduling import steps
from webapp.scheduling.lifecycle import OPEN, RunStatus, ScheduleStatus
from webapp.scheduling.models import ENDED_AMISS, STANDS_FOR_OTHERS, STILL_OPEN, DailyCount, Run, Schedule
from webapp.scheduling.next_change import ChangeKind, NextChange, change_of
from webapp.store import dialect
from webapp.store.base import to_milliseconds
from webapp.timetable import Plan, day_begins, local_day

YEAR_DAYS = 365
MONTH_DAYS = 31
_JUST = timedelta(milliseconds=1)


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
    forgotten = select(DailyCount.day, DailyCount.status, DailyCount.count.label("runs")).where(
        DailyCount.schedule_pk == schedule.id, DailyCount.day.between(first, today)
    )
    for row in session.execute(forgotten):
        counts[row.day][row.status] += row.runs
    dates = [first + timedelta(days=number) for number in range(days)]
    begins = [to_milliseconds(day_begins(schedule.timezone, day)) for day in [*dates, today + timedelta(1)]]
    kept = _kept_by_day(session, schedule.id, list(pairwise(begins)))
    stood_for: dict[date, int] = {}
    for day, (missed, of_day) in zip(dates, kept, strict=True):
        counts[day].update(of_day)
        stood_for[day] = missed
    return [DayBehind(day, +counts[day], stood_for[day]) for day in dates]


# All but those that went well, which are the rest.
_OTHERS = tuple(status for status in RunStatus if status is not RunStatus.COMPLETED)


def _kept_by_day(
    session: Session, schedule_pk: int, days: Sequence[tuple[int, int]]
) -> list[tuple[int, Counter[RunStatus]]]:
    """(slots stood for, runs by status) of each of these days, given in milliseconds from, until.

    Each number is a walk along a part of an index: of the many that went well nothing but their number is read.
    """
    day = dialect.number_pairs(session, days)
    slot = type_coerce(Run.scheduled_for, BigInteger)
    of_day = and_(Run.schedule_pk == schedule_pk, slot >= day.c.low, slot < day.c.high)
    counted = select(func.count()).select_from(Run).where(of_day)
    others = [
        counted.where(Run.status == status, STILL_OPEN if status in OPEN else ENDED_AMISS)
        for status in _OTHERS
    ]
    stood_for = select(func.coalesce(func.sum(Run.missed_count), 0)).where(of_day, STANDS_FOR_OTHERS)
    numbers = [each.correlate(day).scalar_subquery() for each in (stood_for, counted, *others)]
    found = []
    for _, missed, total, *of_others in session.execute(select(day.c.low, *numbers).order_by(day.c.low)):
        counts = Counter(dict(zip(_OTHERS, of_others, strict=True)))
        counts[RunStatus.COMPLETED] = total - counts.total()
        found.append((int(missed), counts))
    return found


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
