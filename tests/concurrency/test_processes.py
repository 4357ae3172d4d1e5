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
    soon,
    wait_until_all_tick,
)
from tests.support.databases import START
from tests.support.doctor import assert_doctor_clean
from tests.support.processes import workers
from webapp.scheduling.models import DailyCount, Run, ScheduleDue, WorkerSeen
from webapp.store import reading

pytestmark = pytest.mark.processes

WORKERS = 6
SCHEDULES = 2000
THE_INSTANT = START + timedelta(minutes=1)
KILLED_AFTER = (0, 250, 500, 750, 1000)
ALL_KILLED_AFTER = 500
SMALL = 20
SMALL_BATCHES = {"CARILLON_BATCH_SIZE": str(SMALL), "CARILLON_BATCH_FIXED": "1"}


def test_six_workers_share_two_thousand_slots_of_one_instant(database_url: str, tmp_path: Path) -> None:
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        plant(prepare_ground(START), SCHEDULES, every(3600, THE_INSTANT), now=START)
        with workers(WORKERS, database_url, tmp_path, clock) as herd:
            wait_until_all_tick(herd, WORKERS)
            assert commits() == 0
            clock.set(THE_INSTANT)
            soon(lambda: commits() >= SCHEDULES, "every slot is claimed")
            herd.stop()
        assert_each_has_one_run_and_one_task(app, SCHEDULES)


def test_workers_that_are_killed_lose_and_double_nothing(database_url: str, tmp_path: Path) -> None:
    chance = random.Random(8_12)
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        plant(prepare_ground(START), SCHEDULES, once_at(THE_INSTANT), now=START)
        with workers(WORKERS, database_url, tmp_path, clock, environment=SMALL_BATCHES) as herd:
            wait_until_all_tick(herd, WORKERS)
            clock.set(THE_INSTANT)
            for mark in KILLED_AFTER:
                soon(lambda mark=mark: commits() > mark, "they are at work")
                # Once all of them together: whoever was writing is certainly among them.
                everybody = herd.living()
                victims = everybody if mark == ALL_KILLED_AFTER else [chance.choice(everybody)]
                before = commits()
                for pid in victims:
                    herd.kill(pid)
                after = commits()
                assert 0 < before <= after < SCHEDULES, "a kill falls between the first and the last commit"
                for _ in victims:
                    herd.start_worker(clock)
            soon(lambda: commits() >= SCHEDULES, "those who are left do the rest")
            soon(
                lambda: all("worker started" in herd.words(pid) for pid in herd.living()), "all can be asked"
            )
            herd.stop()
        assert_each_has_one_run_and_one_task(app, SCHEDULES)


def test_a_worker_that_is_asked_to_leave_finishes_its_batch(database_url: str, tmp_path: Path) -> None:
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        plant(prepare_ground(START), SCHEDULES, once_at(THE_INSTANT), now=START)
        with workers(1, database_url, tmp_path, clock, environment=SMALL_BATCHES) as herd:
            wait_until_all_tick(herd, 1)
            clock.set(THE_INSTANT)
            soon(lambda: commits() > 0, "it is at work")
            herd.stop()
            claimed = commits()
            assert 0 < claimed < SCHEDULES, "it did not work the whole herd off first"
            assert claimed % SMALL == 0
            assert count(WorkerSeen, WorkerSeen.stopped_at.is_not(None)) == 1
            assert_doctor_clean(app)
            herd.start_worker(clock)
            soon(lambda: commits() >= SCHEDULES, "the next worker does the rest")
            herd.stop()
        assert_each_has_one_run_and_one_task(app, SCHEDULES)


def test_a_wall_clock_that_jumps_fires_nothing_twice(database_url: str, tmp_path: Path) -> None:
    day = timedelta(days=1)
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        plant(prepare_ground(START), 20, every(3600, THE_INSTANT), now=START, overlap_policy="allow")

        def has_looked() -> bool:
            return count(WorkerSeen, WorkerSeen.last_tick_at == clock.now()) == 1

        with workers(1, database_url, tmp_path, clock, environment={"CARILLON_TICK_SECONDS": "0.1"}) as herd:
            wait_until_all_tick(herd, 1)
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
            herd.stop()
        assert count(Run, Run.missed_count == 0) == 40
        assert_doctor_clean(app)


def test_a_worker_forgets_old_history_beside_its_work(database_url: str, tmp_path: Path) -> None:
    long_ago = START - timedelta(days=100)
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        keys = plant(prepare_ground(long_ago), 2, every(60, long_ago), now=long_ago)
        first = long_ago + timedelta(minutes=1)
        fill_history(keys, first, 600)
        with workers(2, database_url, tmp_path, clock) as herd:
            soon(lambda: count(Run, Run.created_at < START) == 0, "what is old is gone")
            herd.stop()
        assert commits() == 2
        with reading() as session:
            assert session.scalar(select(func.sum(DailyCount.count))) == 1200
            assert set(session.scalars(select(ScheduleDue.claimed_through))) == {START}
        assert_doctor_clean(app)
