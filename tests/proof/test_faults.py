"""What else goes wrong: the disk is full, the database goes and comes back, answers are lost, a backup is restored."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import select

from tests.concurrency.planting import Ground, every, once_at, plant, prepare_ground
from tests.concurrency.scene import app_beside_processes, count, soon
from tests.concurrency.test_herds import _poison_and_healthy
from tests.factories import make_node_token
from tests.proof import ledger
from tests.proof.conftest import LONG
from tests.proof.ground import start_calm
from tests.support.databases import ROOT, START, let_go, migrate
from tests.support.file_clock import FileClock
from tests.support.postgres import Cluster, throwaway_cluster
from tests.support.processes import Herd, forked_web
from tests.support.proxy import Proxy, proxy
from tests.support.servers import HOST
from webapp.clock import FrozenClock
from webapp.nodes.lifecycle import TaskStatus
from webapp.nodes.models import Task
from webapp.scheduling.models import Run, ScheduleDue
from webapp.scheduling.tick import tick
from webapp.store import reading
from webapp.worker import new_worker

_MINUTE = timedelta(minutes=1)
_LOST_ANSWERS, _ABSENCES = (20, 10) if LONG else (3, 2)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without the many tracebacks that these scenes would write."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.long
def test_many_that_are_poison_delay_the_healthy_behind_them_by_two_ticks_at_most(
    app: Flask, clock: FrozenClock, quiet: None
) -> None:
    # Thirty and ten with each change: tests/concurrency/test_herds.py
    with app.app_context():
        _poison_and_healthy(app, clock, 150, 50, {"v": 99, "type": "cron"})


# --- The disk ---


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.processes
def test_a_disk_that_is_full_stops_claims_and_loses_nothing(
    database_url: str, tmp_path: Path, herd: Herd
) -> None:
    report = tmp_path / "report.json"
    clock = FileClock(tmp_path / "clock", START)
    pid = herd.start(
        "tests.proof.full_disk:fill_and_free",
        None,
        database_url=database_url,
        clock_file=str(clock.path),
        report=str(report),
    )
    assert herd.wait(pid, 120) == 0, herd.words(pid)[-6000:]
    outcome = json.loads(report.read_text())
    print(outcome)
    assert outcome["refused"] >= 3
    assert outcome["claimed_while_full"] < outcome["due"]


# --- A backup ---


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.processes
def test_after_a_backup_is_restored_a_slot_has_the_same_task_and_the_node_does_not_work_twice(
    database_url: str, tmp_path: Path, herd: Herd
) -> None:
    file, backup, worked = (
        Path(database_url.removeprefix("sqlite:///")),
        tmp_path / "backup",
        tmp_path / "worked",
    )
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        ground = prepare_ground(START)
        plant(ground, 3, every(3600, START + _MINUTE), now=START)
        token = make_node_token(ground.node_pk, ground.network_pk)
        let_go(app)
        shutil.copyfile(file, backup)

        def an_hour() -> list[tuple[str, str | None]]:
            clock.set(START + _MINUTE)
            tick(new_worker(app), clock)
            with forked_web(herd, database_url, clock) as web:
                _work_off(web.url, token, tmp_path, worked)
            with reading() as session:
                found = session.execute(select(Task.task_id, Task.status, Task.result).order_by(Task.task_id))
                tasks = [(task_id, status, result) for task_id, status, result in found]
            assert {status for _, status, _ in tasks} == {TaskStatus.REPLIED}
            return [(task_id, result) for task_id, _, result in tasks]

        before = an_hour()
        let_go(app)
        shutil.copyfile(backup, file)
        assert count(Run) == 0, "the hour never was"
        clock.set(START + timedelta(minutes=30))
        after = an_hour()
        assert len(before) == 3
        assert after == before, "the same tasks, and the answers that the node has kept"
        assert len(worked.read_text().splitlines()) == 3, "each was worked on once"
        ledger.assert_clean(app)


def _work_off(url: str, token: str, folder: Path, worked: Path) -> None:
    """The example node empties its inbox; its work leaves a line, and answers with something new each time."""
    work = (
        f"import os, sys; sys.stdin.read(); open({str(worked)!r}, 'a').write('once\\n'); print(os.getpid())"
    )
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "examples" / "node.py"), "--url", url, "--once"),
            *("--state", str(folder / "answers.json"), "--name", "atlas", "--", sys.executable, "-c", work),
        ],
        env={**os.environ, "CARILLON_NODE_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# --- The way to the database ---


@pytest.fixture
def server() -> Iterator[tuple[str, Cluster]]:
    """A server of this test's own, and the address of a migrated database in it."""
    with throwaway_cluster() as cluster:
        url = cluster.create("far")
        migrate(url)
        yield url, cluster


@pytest.mark.processes
def test_a_database_that_goes_and_comes_back_and_answers_that_are_lost_double_nothing(
    server: tuple[str, Cluster], tmp_path: Path, herd: Herd
) -> None:
    url, cluster = server
    with proxy(cluster.socket_dir) as way, app_beside_processes(url, tmp_path) as (app, clock):
        far = f"postgresql+psycopg://postgres@{HOST}:{way.port}/far"
        ground = prepare_ground(START)
        worker = start_calm(herd, far, clock)
        keys = plant_some(ground, clock)
        clock.advance(minutes=1)
        soon(lambda: _all_claimed(keys), "the worker is at work")
        for _ in range(_LOST_ANSWERS):
            _lose_an_answer(way, clock, lambda: plant_some(ground, clock))
        for _ in range(_ABSENCES):
            way.close()
            due = plant_some(ground, clock)
            clock.advance(minutes=1)
            way.open()
            soon(lambda due=due: _all_claimed(due), "it is back, and so is the worker")
        herd.end(worker)
        assert way.lost_answers == _LOST_ANSWERS
        print(ledger.assert_clean(app))


def plant_some(ground: Ground, clock: FileClock) -> list[int]:
    """Twelve that are due in a minute."""
    return plant(ground, 12, once_at(clock.now() + _MINUTE), now=clock.now())


def _all_claimed(keys: list[int]) -> bool:
    return count(ScheduleDue, ScheduleDue.schedule_pk.in_(keys), ScheduleDue.due_at.is_not(None)) == 0


def _lose_an_answer(way: Proxy, clock: FileClock, due: Callable[[], list[int]]) -> None:
    keys, lost = due(), way.lost_answers
    way.lose_answer_of_next_commit()
    clock.advance(minutes=1)
    soon(lambda: way.lost_answers > lost, "the answer of a COMMIT is lost")
    soon(lambda: _all_claimed(keys), "and the slots are claimed all the same")


@pytest.mark.long
@pytest.mark.processes
def test_a_half_open_connection_holds_up_its_worker_and_nobody_else(
    server: tuple[str, Cluster], tmp_path: Path, herd: Herd
) -> None:
    url, cluster = server
    with proxy(cluster.socket_dir) as way, app_beside_processes(url, tmp_path) as (app, clock):
        far = f"postgresql+psycopg://postgres@{HOST}:{way.port}/far"
        ground = prepare_ground(START)
        workers = [start_calm(herd, each, clock) for each in (far, url)]
        for _ in range(5):
            way.go_deaf()
            keys = plant_some(ground, clock)
            clock.advance(minutes=1)
            # What the deaf one holds, the server gives up after a minute.
            soon(lambda keys=keys: _all_claimed(keys), "the other worker goes on")
            way.hear_again()
            way.cut()
        keys = plant_some(ground, clock)
        clock.advance(minutes=1)
        soon(lambda: _all_claimed(keys), "both are back")
        herd.end(*workers)
        print(ledger.assert_clean(app))
