"""The product's own programs start on a test's database, answer, and leave cleanly when told to."""

from __future__ import annotations

import sqlite3
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.databases import START
from tests.support.file_clock import FileClock
from tests.support.processes import Herd, eventually, forked_web

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_web_and_worker_are_ready_together_and_leave_cleanly(database_url: str, tmp_path: Path) -> None:
    with servers.web(database_url, tmp_path) as web, servers.worker(database_url, tmp_path) as worker:
        eventually(lambda: _status(f"{web.url}/readyz") == 200, 20, "the web sees a worker")
    assert web.process.returncode == 0
    assert worker.process.returncode == 0
    assert "worker stopped" in worker.words()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_file_clock_reaches_both_programs(database_url: str, tmp_path: Path, herd: Herd) -> None:
    clock = FileClock(tmp_path / "clock", START)
    environment = {"CARILLON_DATABASE_URL": database_url, "CARILLON_TICK_SECONDS": "0.1"}
    worker = herd.start_program(clock, "scheduler_worker.py", environment=environment)
    with forked_web(herd, database_url, clock) as web:
        eventually(lambda: _status(f"{web.url}/readyz") == 200, 20, "the web sees a worker of its own time")
        # The link that lets the first person in was made at the instant of the file.
        assert web.set_up_link() is not None
        herd.end(worker)
    with sqlite3.connect(database_url.removeprefix("sqlite:///")) as connection:
        seen = connection.execute("SELECT max(last_tick_at) FROM workers").fetchone()[0]
    connection.close()
    assert seen == START.timestamp() * 1000


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_herd_of_workers_starts_and_stops(database_url: str, tmp_path: Path, herd: Herd) -> None:
    clock = FileClock(tmp_path / "clock", START)
    environment = {"CARILLON_DATABASE_URL": database_url}
    crew = [herd.start_program(clock, "scheduler_worker.py", environment=environment) for _ in range(3)]
    first, *others = crew
    eventually(lambda: all("worker started" in herd.words(pid) for pid in others), 30, "all have started")
    herd.kill(first)
    herd.end(*others)
    assert [herd.wait(pid) for pid in others] == [0, 0]
    assert not set(crew) & set(herd.living())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_program_that_does_not_start_shows_its_words(database_url: str, tmp_path: Path) -> None:
    environment = {"CARILLON_TICK_SECONDS": "never"}
    with (
        pytest.raises(AssertionError, match="CARILLON_TICK_SECONDS must be a number"),
        servers.worker(database_url, tmp_path, environment=environment),
    ):
        pass


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_program_that_dies_before_its_time_fails_the_test(database_url: str, tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="left with -9"),
        servers.worker(database_url, tmp_path) as worker,
    ):
        worker.process.kill()
        worker.process.wait()


def _status(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
