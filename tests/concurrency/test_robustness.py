"""What keeps one fault, or one idle worker, from costing all the others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import event, insert, select, text, update
from sqlalchemy.exc import OperationalError

from tests.concurrency.planting import HOURLY, once_at, plant, prepare_ground
from tests.concurrency.scene import app_beside_processes, count
from tests.doctor.hands import do
from tests.support.databases import START
from tests.support.doctor import assert_doctor_clean
from tests.support.races import at_once
from webapp.clock import FrozenClock
from webapp.scheduling import claim, maintenance
from webapp.scheduling.models import Run, ScheduleDue, ZoneData
from webapp.scheduling.tick import tick
from webapp.store import engine, reading
from webapp.store.transaction import Tx, each_alone, operation
from webapp.timetable import ZONE_DATA_VERSION
from webapp.worker import new_worker, run


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_one_that_fails_among_many_costs_only_itself(quiet: None) -> None:
    def work(key: int) -> int:
        if key == 2:
            raise RuntimeError("this one")
        return key

    assert each_alone([1, 2, 3], work, "counting") == 4


def test_a_database_that_is_away_is_not_asked_again_for_each(quiet: None) -> None:
    asked = []

    def work(key: int) -> int:
        asked.append(key)
        raise OperationalError("SELECT 1", {}, Exception("gone"))

    with pytest.raises(OperationalError):
        each_alone([1, 2, 3], work, "counting")
    assert asked == [1]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_schedule_that_cannot_even_be_read_is_held_back_and_the_others_go_on(
    app: Flask, clock: FrozenClock, quiet: None
) -> None:
    with app.app_context():
        ground = prepare_ground(START)
        (poison,) = plant(ground, 1, HOURLY, now=START)
        plant(ground, 3, HOURLY, now=START)
        # Its last run is no usual one, so that all of it is read.
        do(text(f"UPDATE schedules SET created_at = 'damaged', max_runs = 1 WHERE id = {poison}"))
        do(update(ScheduleDue).where(ScheduleDue.schedule_pk == poison).values(claim_failures=9))
        clock.set(START.replace(hour=9, minute=0))
        worker = new_worker(app)
        tick(worker, clock)
        assert count(Run) == 3
        with reading() as session:
            due = session.get_one(ScheduleDue, poison)
        assert due.next_run_at == clock.now()
        assert due.claim_not_before == clock.now() + claim.POISON_MAX_DELAY
        assert tick(worker, clock)["set_aside"] == 0
        do(text(f"UPDATE schedules SET created_at = updated_at WHERE id = {poison}"))
        clock.advance(minutes=11)
        assert tick(worker, clock)["dispatched"] == 1
        assert_doctor_clean(app)


def test_workers_that_start_at_once_agree_on_the_zone_data(app: Flask, clock: FrozenClock) -> None:
    results = at_once(app, [lambda: tick(new_worker(app), clock) for _ in range(6)])
    assert [result for result in results if isinstance(result, Exception)] == []
    with app.app_context(), reading() as session:
        assert session.scalars(select(ZoneData.version)).all() == [ZONE_DATA_VERSION]


def test_a_worker_with_older_zone_data_waits_and_does_not_spin(
    app: Flask, clock: FrozenClock, quiet: None
) -> None:
    with app.app_context():
        plant(prepare_ground(START), 1, once_at(START + timedelta(minutes=1)), now=START)
        do(insert(ZoneData).values(id=1, version="9999z", changed_at=START))
        clock.advance(minutes=2)
        passes = []

        def note(_conn: object, _cursor: object, statement: str, *_: object) -> None:
            passes.append("FROM zone_data" in statement)

        event.listen(engine(), "before_cursor_execute", note)
        stop = threading.Event()
        worker = threading.Thread(target=run, args=(app, stop))
        worker.start()
        deadline = time.monotonic() + 20
        while sum(passes) == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)
        stop.set()
        worker.join(20)
        event.remove(engine(), "before_cursor_execute", note)
        # The first days of housekeeping make a pass each; after them it sleeps for the whole of its tick.
        assert 1 <= sum(passes) <= 10
        assert count(Run) == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_claim_looks_at_open_runs_and_not_at_the_whole_history(app: Flask, clock: FrozenClock) -> None:
    with app.app_context():
        plant(prepare_ground(START), 1, once_at(START + timedelta(minutes=1)), now=START)
        clock.advance(minutes=2)
        statements = []

        def note(_conn: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
            if "FROM runs" in statement:
                statements.append((statement, parameters))

        event.listen(engine(), "before_cursor_execute", note)
        claim.claim_batch(limit=10, after_network_pk=0, now=clock.now())
        maintenance.unblock(now=clock.now())
        event.remove(engine(), "before_cursor_execute", note)
        of_runs = [found for found in statements if "IN ('queued', 'delivered', 'running')" in found[0]]
        assert len(of_runs) == 2
        with engine().connect() as connection:
            for statement, parameters in of_runs:
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
                assert "ix_runs_open" in str(plan)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_waiting_for_the_lock_makes_no_batch_smaller(database_url: str, tmp_path: Path) -> None:
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        plant(prepare_ground(START), 3, once_at(START + timedelta(minutes=1)), now=START)
        clock.advance(minutes=2)
        worker = new_worker(app)
        heard: list[float] = []
        worker.batch.learn = lambda taken, seconds: heard.extend([seconds] if taken else [])
        holds, may_go = threading.Event(), threading.Event()

        @operation
        def hold(tx: Tx) -> None:
            tx.session.execute(select(ZoneData.version)).all()
            holds.set()
            may_go.wait(20)

        def hold_in_context() -> None:
            with app.app_context():
                hold()

        holder = threading.Thread(target=hold_in_context)
        holder.start()
        holds.wait(20)
        timer = threading.Timer(0.4, may_go.set)
        timer.start()
        began = time.monotonic()
        assert tick(worker, clock)["dispatched"] == 3
        took = time.monotonic() - began
        holder.join(20)
        # However slow the machine is: what it waited is not in what its batch is judged by.
        (judged,) = heard
        assert took - judged > 0.3
