"""The year behind and the month ahead, by the days of the schedule's own zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import event, insert, select, update

from tests.doctor.hands import do
from tests.scheduling.stage import Stage
from tests.scheduling.test_next_change import move, skip
from webapp.scheduling.calendar import DayBehind, month_ahead, planned_slots, year_behind
from webapp.scheduling.lifecycle import RunStatus
from webapp.scheduling.models import DailyCount, Run, Schedule
from webapp.store import reading
from webapp.timetable import day_begins, local_day, offsets_between

# Half an hour, three quarters, both sides of the date line, changes at midnight, none at all.
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Kiritimati",
    "Pacific/Pago_Pago",
    "America/Santiago",
    "Africa/Cairo",
    "UTC",
)


def behind(stage: Stage, schedule: Schedule, **how: Any) -> dict[date, DayBehind]:
    with reading() as session:
        saved = session.get_one(Schedule, schedule.id)
        days = year_behind(session, saved, now=stage.clock.now(), **how)
    assert [day.day for day in days] == [days[0].day + timedelta(n) for n in range(len(days))]
    return {day.day: day for day in days}


@pytest.mark.parametrize("name", ZONES)
def test_days_begin_when_the_clock_says_so(name: str) -> None:
    zone = ZoneInfo(name)
    day = date(2026, 1, 1)
    while day.year == 2026:
        begins = day_begins(name, day)
        assert local_day(name, begins) == day
        assert local_day(name, begins - timedelta(milliseconds=1)) < day
        day += timedelta(days=1)
    first, last = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    offsets = offsets_between(name, first, last)
    assert offsets[0][0] == first
    at = first
    while at < last:
        offset = next(offset for start, offset in reversed(offsets) if start <= at)
        assert offset == at.astimezone(zone).utcoffset()
        at += timedelta(hours=7)


def _planted(schedule: Schedule, run: Run, slots: list[datetime], statuses: list[RunStatus]) -> None:
    columns = {column.key: getattr(run, column.key) for column in Run.__table__.columns if column.key != "id"}
    rows = [
        columns
        | {"run_id": f"srun_planted{n:06}", "scheduled_for": slot, "status": status, "missed_count": n % 2}
        for n, (slot, status) in enumerate(zip(slots, statuses, strict=True))
    ]
    do(insert(Run.__table__).values(rows))


@pytest.mark.parametrize("name", ["Europe/Berlin", "Australia/Lord_Howe"])
def test_runs_count_by_the_local_day_of_their_slot(stage: Stage, name: str) -> None:
    schedule = stage.create(schedule={"type": "daily", "time": "00:30"}, timezone=name)
    stage.pause(schedule)
    run = stage.run_now(schedule)
    slots = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=31 * n) for n in range(250)]
    ends = [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.SKIPPED]
    statuses = [ends[n % 3] for n in range(250)]
    _planted(schedule, run, slots, statuses)
    # Those are no runs of its making: nothing stands for what they leave out.
    do(update(Run.__table__).where(Run.run_id.startswith("srun_planted")).values(trigger="manual"))
    days = behind(stage, schedule)
    expected: dict[tuple[date, RunStatus], int] = {}
    missed: dict[date, int] = {}
    today = stage.clock.now().astimezone(ZoneInfo(name)).date()
    for n, (slot, status) in enumerate(zip(slots, statuses, strict=True)):
        day = slot.astimezone(ZoneInfo(name)).date()
        if day <= today:
            expected[day, status] = expected.get((day, status), 0) + 1
            missed[day] = missed.get(day, 0) + n % 2
    expected[today, RunStatus.QUEUED] = 1
    found = {(day, status): count for day, of in days.items() for status, count in of.counts.items()}
    assert found == expected
    assert {day: of.stood_for for day, of in days.items() if of.stood_for} == {
        day: count for day, count in missed.items() if count
    }
    assert (len(days), max(days)) == (365, today)
    do(Run.__table__.delete().where(Run.run_id.startswith("srun_planted")))


def test_forgotten_runs_are_counted_with_the_kept_ones_in_two_statements(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    stage.serve()
    stage.pause(schedule)
    for day, count in ((date(2026, 11, 30), 4), (date(2026, 3, 1), 7), (date(2025, 11, 30), 9)):
        row = {"schedule_pk": schedule.id, "day": day, "status": RunStatus.COMPLETED, "count": count}
        do(insert(DailyCount.__table__).values(**row))
    seen: list[str] = []
    with reading() as session:
        saved = session.get_one(Schedule, schedule.id)
        engine = session.get_bind()
        listener = lambda *args: seen.append(args[2])  # noqa: E731
        event.listen(engine, "before_cursor_execute", listener)
        try:
            year_behind(session, saved, now=stage.clock.now())
        finally:
            event.remove(engine, "before_cursor_execute", listener)
    assert len(seen) == 2
    days = behind(stage, schedule)
    totals = {day: of.total for day, of in days.items() if of.total}
    assert totals == {date(2026, 11, 30): 5, date(2026, 3, 1): 7}
    with reading() as session:
        assert session.scalars(select(DailyCount.count)).all()


def test_the_month_ahead_is_what_the_timetable_gives_day_by_day_through_a_clock_change(stage: Stage) -> None:
    stage.clock.set(datetime(2026, 10, 20, 8, 12, tzinfo=UTC))
    schedule = stage.create(schedule={"type": "cron", "cron": "*/30 * * * *"}, timezone="Europe/Berlin")
    days = month_ahead(stage.schedule(schedule), now=stage.clock.now())
    assert len(days) == 31
    by_day = {day.day: day for day in days}
    # 25 October has 25 hours there.
    assert by_day[date(2026, 10, 25)].count == 50
    assert by_day[date(2026, 10, 26)].count == 48
    assert by_day[date(2026, 10, 20)].count == 27
    assert by_day[date(2026, 10, 20)].first == datetime(2026, 10, 20, 8, 30, tzinfo=UTC)
    assert by_day[date(2026, 10, 25)].first == datetime(2026, 10, 24, 22, 0, tzinfo=UTC)
    assert by_day[date(2026, 10, 25)].last == datetime(2026, 10, 25, 22, 30, tzinfo=UTC)


def test_the_month_ahead_ends_with_the_schedule(stage: Stage) -> None:
    now = stage.clock.now()
    daily = {"type": "daily", "time": "18:00"}
    limited, ending, paused = stage.create(max_runs=20), stage.create(schedule=daily), stage.create()
    stage.edit(ending, ends_at="2026-12-02T18:00:00Z")
    stage.pause(paused)
    days = month_ahead(stage.schedule(limited), now=now)
    assert [day.count for day in days][:3] == [15, 5, 0]
    assert days[1].last == stage.at(4, day=30) + timedelta(days=1)
    assert sum(day.count for day in month_ahead(stage.schedule(ending), now=now)) == 3
    assert month_ahead(stage.schedule(paused), now=now) == []


def test_a_moved_slot_counts_where_it_falls_due_and_a_skipped_one_not_at_all(stage: Stage) -> None:
    now = stage.clock.now()
    moved, skipped = stage.create(), stage.create(max_runs=3)
    move(stage, moved, stage.at(9, 30))
    skip(stage, skipped)
    today = month_ahead(stage.schedule(moved), now=now)[0]
    assert (today.count, today.first) == (15, stage.at(9, 30))
    assert today.change == today.arrives is not None
    daily = stage.create(schedule={"type": "daily", "time": "09:00"}, max_runs=2)
    tomorrow = stage.at(0) + timedelta(days=1)
    move(stage, daily, tomorrow + timedelta(hours=6))
    ahead = month_ahead(stage.schedule(daily), now=now)[:4]
    assert [day.count for day in ahead] == [0, 2, 0, 0]
    assert [(day.change is not None, day.arrives is not None) for day in ahead[:2]] == [
        (True, False),
        (False, True),
    ]
    assert (ahead[1].first, ahead[1].last) == (tomorrow + timedelta(hours=6), tomorrow + timedelta(hours=9))
    assert month_ahead(stage.schedule(skipped), now=now)[0].count == 3
    planned = planned_slots(stage.schedule(moved), limit=2, now=now)
    assert [(one.slot, one.falls_due_at) for one in planned] == [
        (stage.at(9), stage.at(9, 30)),
        (stage.at(10), stage.at(10)),
    ]
    planned = planned_slots(stage.schedule(skipped), limit=9, now=now)
    assert [one.falls_due_at for one in planned] == [None, *(stage.at(hour) for hour in (10, 11, 12))]


def test_history_calendar_preview_and_planned_slots_speak_of_the_same_instants(stage: Stage) -> None:
    """Across the end of summer time: what was ahead is what is behind."""
    stage.clock.set(datetime(2026, 10, 24, 20, 0, tzinfo=UTC))
    schedule = stage.create(
        schedule={"type": "daily", "time": "02:30"}, timezone="Europe/Berlin", overlap_policy="allow"
    )
    saved, now = stage.schedule(schedule), stage.clock.now()
    planned = [one.slot for one in planned_slots(saved, limit=3, now=now)]
    ahead = [day.first for day in month_ahead(saved, now=now) if day.count][:3]
    assert planned == ahead
    for slot in planned:
        stage.clock.set(slot)
        stage.tick()
    assert [run.scheduled_for for run in stage.runs(schedule)] == planned
    stage.serve()
    counted = [day for day, of in behind(stage, schedule, days=7).items() if of.total]
    assert counted == [date(2026, 10, 25), date(2026, 10, 26), date(2026, 10, 27)]
