"""Many schedules and one worker: an outage, poison, and a neighbour with too many."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from time import perf_counter
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import JSON, String, func, select, type_coerce, update

from tests.concurrency.planting import HOURLY, every, once_at, plant, prepare_ground
from tests.concurrency.scene import count
from tests.doctor.hands import do
from tests.support.databases import START
from tests.support.doctor import assert_doctor_clean
from webapp.clock import FrozenClock
from webapp.scheduling import claim
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus
from webapp.scheduling.models import Run, Schedule, ScheduleDue
from webapp.scheduling.tick import tick
from webapp.store import engine, reading
from webapp.worker import new_worker


def test_after_a_day_asleep_every_slot_is_accounted_for_at_once(app: Flask, clock: FrozenClock) -> None:
    with app.app_context():
        plant(prepare_ground(START), 500, every(60, START + timedelta(minutes=1)), now=START)
        clock.advance(hours=24)
        worker = new_worker(app)
        began = perf_counter()
        slots = dispatched = 0
        while counts := tick(worker, clock):
            slots += counts["slots"]
            dispatched += counts["dispatched"]
            if not counts["more"]:
                break
        assert perf_counter() - began < 60
        assert slots == 500 * 24 * 60
        assert dispatched <= 500
        with reading() as session:
            assert session.scalar(select(func.sum(Run.missed_count + 1))) == 720_000
        assert_doctor_clean(app)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without the many tracebacks that this test would write."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_schedules_that_cannot_be_handled_hold_nobody_up(app: Flask, clock: FrozenClock, quiet: None) -> None:
    with app.app_context():
        _poison_and_healthy(app, clock, 30, 10, type_coerce({"v": 99, "type": "cron"}, JSON))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("damage", ["{broken", "[1]", '"text"', ""])
def test_what_is_no_json_holds_nobody_up_either(
    app: Flask, clock: FrozenClock, quiet: None, damage: str
) -> None:
    with app.app_context():
        _poison_and_healthy(app, clock, 3, 3, type_coerce(damage, String))


def _poison_and_healthy(app: Flask, clock: FrozenClock, bad: int, good: int, damage: Any) -> None:
    ground = prepare_ground(START)
    poison = plant(ground, bad, HOURLY, now=START)
    healthy = plant(ground, good, HOURLY, now=START)
    spoiled = update(Schedule.__table__).where(Schedule.__table__.c.id.in_(poison))
    with reading() as session:
        whole = session.scalars(select(Schedule.timetable).where(Schedule.id == poison[0])).one()
    do(spoiled.values(timetable=damage))
    clock.set(START.replace(hour=9, minute=0))
    worker = new_worker(app)
    counts = tick(worker, clock)
    if counts["more"]:
        counts += tick(worker, clock)
    assert count(Run, Run.schedule_pk.in_(healthy), Run.created_at == clock.now()) == good
    assert (counts["set_aside"], count(Run)) == (bad, good)

    # Nine more strikes, of which the first eight are only counted here.
    strikes = update(ScheduleDue).where(ScheduleDue.schedule_pk.in_(poison))
    do(strikes.values(claim_failures=claim.POISON_STRIKES - 1))
    clock.advance(minutes=11)
    tick(worker, clock)
    stopped = Schedule.status == ScheduleStatus.NEEDS_ATTENTION
    assert count(Schedule, stopped, Schedule.status_reason == "internal_error") == bad
    skipped = (Run.status == RunStatus.SKIPPED, Run.error_code == "schedule_stopped")
    assert count(Run, Run.schedule_pk.in_(poison), *skipped) == bad
    assert_doctor_clean(app)
    do(spoiled.values(timetable=whole))


def test_one_network_with_thousands_does_not_hold_up_another_with_one(app: Flask, clock: FrozenClock) -> None:
    with app.app_context():
        crowd, neighbour, third = (prepare_ground(START) for _ in range(3))
        first = START + timedelta(minutes=1)
        plant(crowd, 5000, once_at(first), now=START)
        (alone,) = plant(neighbour, 1, once_at(first + timedelta(seconds=1)), now=START)
        clock.advance(minutes=2)
        claimed = claim.claim_batch(limit=500, after_network_pk=0, now=clock.now())
        assert alone in claimed.schedule_pks
        assert len(claimed.schedule_pks) > 250, "and the crowd has a share of it as well"
        # With a batch of one, networks take turns whichever was served last.
        plant(third, 1, once_at(START + timedelta(minutes=3)), now=clock.now())
        clock.advance(minutes=2)
        served = []
        after = crowd.network_pk
        for _ in range(2):
            batch = claim.claim_batch(limit=1, after_network_pk=after, now=clock.now())
            after = batch.last_network_pk
            served.append(after)
        assert served == [third.network_pk, crowd.network_pk]


def test_a_claim_asks_as_many_questions_for_many_as_for_few(app: Flask, clock: FrozenClock) -> None:
    from sqlalchemy import event

    with app.app_context():
        ground = prepare_ground(START)
        asked: list[int] = []

        def one_more(*_: object) -> None:
            asked[-1] += 1

        for schedules, minute in ((1, 1), (100, 3)):
            plant(ground, schedules, once_at(START + timedelta(minutes=minute)), now=clock.now())
            clock.set(START + timedelta(minutes=minute + 1))
            asked.append(0)
            event.listen(engine(), "before_cursor_execute", one_more)
            assert claim.claim_batch(limit=500, after_network_pk=0, now=clock.now()).dispatched == schedules
            event.remove(engine(), "before_cursor_execute", one_more)
        assert asked[0] == asked[1]
