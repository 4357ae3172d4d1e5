"""Real workers on one database: they race, they are killed, they are asked to leave; no slot is lost or doubled."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.concurrency.planting import every, fill_history, once_at, plant, prepare_ground
from tests.concurrency.scene import (
    app_beside_processes,
    assert_each_has_one_run_and_one_task,
    commits,
    count,
    crew,
    soon,
    wait_until_all_tick,
)
from tests.support.databases import START
from tests.support.doctor import assert_doctor_clean
from tests.support.processes import Herd
from webapp.scheduling.models import DailyCount, Run, ScheduleDue, WorkerSeen
from webapp.store import reading

pytestmark = pytest.mark.processes

WORKERS = 6
SCHEDULES = 2000
THE_INSTANT = START + timedelta(minutes=1)
KILLED_AFTER = (0, 250, 500, 750, 1000)
ALL_KILLED_AFTER = 500
SMALL = 40
SMALL_BATCHES = {"CARILLON_BATCH_SIZE": str(SMALL), "CARILLON_BATCH_FIXED": "1"}


def test_six_workers_share_two_thousand_slots_of_one_instant(
    database_url: str, tmp_path: Path, herd: Herd
) -> None:
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        plant(prepare_ground(START), SCHEDULES, every(3600, THE_INSTANT), now=START)
        with crew(herd, WORKERS, database_url, clock) as workers:
            wait_until_all_tick(workers)
            assert commits() == 0
            clock.set(THE_INSTANT)
            soon(lambda: commits() >= SCHEDULES, "every slot is claimed")
            workers.leave()
        assert_each_has_one_run_and_one_task(app, SCHEDULES)


def test_workers_that_are_killed_lose_and_double_nothing(
    database_url: str, tmp_path: Path, herd: Herd
) -> None:
    chance = random.Random(8_12)
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        plant(prepare_ground(START), SCHEDULES, once_at(THE_INSTANT), now=START)
        with crew(herd, WORKERS, database_url, clock, SMALL_BATCHES) as workers:
            wait_until_all_tick(workers)
            clock.set(THE_INSTANT)
            for mark in KILLED_AFTER:
                soon(lambda mark=mark: commits() > mark, "they are at work")
                # Once all of them together: whoever was writing is certainly among them.
                everybody = workers.living()
                victims = everybody if mark == ALL_KILLED_AFTER else [chance.choice(everybody)]
                before = commits()
                for pid in victims:
                    workers.kill(pid)
                after = commits()
                assert 0 < before <= after < SCHEDULES, "a kill falls between the first and the last commit"
                for _ in victims:
                    workers.start()
            soon(lambda: commits() >= SCHEDULES, "those who are left do the rest")
            workers.leave()
        assert_each_has_one_run_and_one_task(app, SCHEDULES)


def test_a_worker_that_is_asked_to_leave_finishes_its_batch(
    database_url: str, tmp_path: Path, herd: Herd
) -> None:
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        plant(prepare_ground(START), SCHEDULES, once_at(THE_INSTANT), now=START)
        with crew(herd, 1, database_url, clock, SMALL_BATCHES) as workers:
            wait_until_all_tick(workers)
            clock.set(THE_INSTANT)
            soon(lambda: commits() > 0, "it is at work")
            workers.leave()
            claimed = commits()
            assert 0 < claimed < SCHEDULES, "it did not work the whole herd off first"
            assert claimed % SMALL == 0
            assert count(WorkerSeen, WorkerSeen.stopped_at.is_not(None)) == 1
            assert_doctor_clean(app)
            workers.start()
            soon(lambda: commits() >= SCHEDULES, "the next worker does the rest")
            workers.leave()
        assert_each_has_one_run_and_one_task(app, SCHEDULES)


def test_a_wall_clock_that_jumps_fires_nothing_twice(database_url: str, tmp_path: Path, herd: Herd) -> None:
    day = timedelta(days=1)
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        plant(prepare_ground(START), 20, every(3600, THE_INSTANT), now=START, overlap_policy="allow")

        def has_looked() -> bool:
            return count(WorkerSeen, WorkerSeen.last_tick_at == clock.now()) == 1

        with crew(herd, 1, database_url, clock, {"CARILLON_TICK_SECONDS": "0.1"}) as workers:
            wait_until_all_tick(workers)
            clock.set(THE_INSTANT)
            soon(lambda: commits() == 20, "the first slots are claimed")
            clock.set(THE_INSTANT + day)
            soon(lambda: commits() == 40, "a jump of a day is an outage of a day")
            assert count(Run, Run.missed_count == 23, Run.scheduled_for == THE_INSTANT + day) == 20
            for back in (timedelta(hours=24), timedelta(hours=20), timedelta(hours=1), timedelta(seconds=1)):
                clock.set(THE_INSTANT + day - back)
                soon(has_looked, "the worker has made a pass in the past")
                assert commits() == 40
            clock.set(THE_INSTANT + day + timedelta(hours=1))
            soon(lambda: commits() == 60, "it goes on where it was")
            workers.leave()
        assert count(Run, Run.missed_count == 0) == 40
        assert_doctor_clean(app)


def test_a_worker_forgets_old_history_beside_its_work(database_url: str, tmp_path: Path, herd: Herd) -> None:
    long_ago = START - timedelta(days=100)
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        keys = plant(prepare_ground(long_ago), 2, every(60, long_ago), now=long_ago)
        first = long_ago + timedelta(minutes=1)
        fill_history(keys, first, 600)
        with crew(herd, 2, database_url, clock) as workers:
            soon(lambda: count(Run, Run.created_at < START) == 0, "what is old is gone")
            workers.leave()
        assert commits() == 2
        with reading() as session:
            assert session.scalar(select(func.sum(DailyCount.count))) == 1200
            assert set(session.scalars(select(ScheduleDue.claimed_through))) == {START}
        assert_doctor_clean(app)
