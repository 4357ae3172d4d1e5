"""The storm: hundreds of deaths while slots fall due each second, then a calm in which everything is accounted for."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from tests.concurrency.planting import prepare_ground
from tests.concurrency.scene import app_beside_processes, count
from tests.factories import make_node_token, make_token
from tests.proof import ledger
from tests.proof.callers import Caller, Promised, serve_inbox, steer
from tests.proof.conftest import LONG, kept_seeds
from tests.proof.ground import plant_variety, start_calm
from tests.support.databases import START, migrate
from tests.support.file_clock import FileClock
from tests.support.postgres import Cluster, _find_programs, _run, _server_identity, throwaway_cluster
from tests.support.processes import Herd
from tests.support.servers import HOST, answers, free_port
from webapp.identity.models import User
from webapp.nodes.lifecycle import TaskStatus
from webapp.nodes.models import Task
from webapp.scheduling.models import Run, Schedule, ScheduleDue
from webapp.store import reading

pytestmark = pytest.mark.processes

WORKERS, WEB_PROCESSES, SCHEDULES = 6, 2, 200
SECONDS = 600.0 if LONG else 45.0
LEAST_DEATHS = 5_000 if LONG else 300
LEAST_SLOTS = 20_000 if LONG else 1_500
_CALM_SECONDS = 240.0
# A commit that was acknowledged must survive a crash here, as in earnest.
_LASTING = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


@dataclass
class Webs:
    """Two web processes at fixed addresses, which are killed and started again."""

    herd: Herd
    clock: FileClock
    database_url: str
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(WEB_PROCESSES)])
    pids: list[int] = field(default_factory=list)
    deaths: int = 0

    @property
    def urls(self) -> list[str]:
        return [f"http://{HOST}:{port}" for port in self.ports]

    def start(self, port: int) -> int:
        """Fork `app.py --no-worker` on this port."""
        return self.herd.start_program(
            self.clock,
            "app.py",
            *("--no-worker", "--host", HOST, "--port", str(port)),
            environment={"CARILLON_DATABASE_URL": self.database_url},
        )

    def start_all(self) -> None:
        self.pids = [self.start(port) for port in self.ports]
        for pid, port in zip(self.pids, self.ports, strict=True):
            self.herd.until(pid, lambda port=port: answers(port), 60)

    def kill_one(self, place: int) -> None:
        """`kill -9` to a web process and all its children, and start it anew."""
        self._kill(self.pids[place])
        self.deaths += 1
        self.pids[place] = self.start(self.ports[place])

    def _kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        self.herd.wait(pid)

    def end(self) -> None:
        for pid in self.pids:
            self._kill(pid)


def crash(cluster: Cluster) -> None:
    """Stop the server as a crash would, and start it again with the settings that it had."""
    command: list[str | Path] = [
        _find_programs() / "pg_ctl",
        *("restart", "-w", "-t", "60", "-m", "immediate"),
        *("-D", cluster.socket_dir / "data", "-l", cluster.socket_dir / "log"),
    ]
    _run(command, cluster.socket_dir, _server_identity())


@contextmanager
def _lasting_postgresql() -> Iterator[tuple[str, Cluster]]:
    with throwaway_cluster(settings=_LASTING) as cluster:
        url = cluster.create("storm")
        migrate(url)
        yield url, cluster


def test_a_storm_on_a_file(
    fresh_database: Callable[[str], str], tmp_path: Path, herd: Herd, seed: int
) -> None:
    for number in [*kept_seeds(), seed]:
        folder = tmp_path / str(number)
        folder.mkdir()
        _storm(fresh_database("sqlite"), folder, herd, number, every_so_often=None)


def test_a_storm_on_a_server_that_crashes_too(tmp_path: Path, herd: Herd, seed: int) -> None:
    for number in [*kept_seeds(), seed]:
        folder = tmp_path / str(number)
        folder.mkdir()
        with _lasting_postgresql() as (url, cluster):
            _storm(url, folder, herd, number, every_so_often=lambda: crash(cluster))


def _storm(url: str, folder: Path, herd: Herd, seed: int, every_so_often: Callable[[], None] | None) -> None:
    with app_beside_processes(url, folder) as (app, clock), ExitStack() as at_last:
        ground = prepare_ground(START)
        plant_variety(ground, SCHEDULES, now=START)
        with reading() as session:
            sponsor = session.get_one(User, ground.sponsor_pk)
            ids = list(session.scalars(select(Schedule.schedule_id).order_by(Schedule.id)))
        promised = Promised()
        webs = Webs(herd, clock, url)
        at_last.callback(webs.end)
        webs.start_all()
        node_token, person_token = make_node_token(ground.node_pk, ground.network_pk), make_token(sponsor)
        callers = [
            Caller(webs.urls, node_token, serve_inbox, promised, seed),
            Caller(webs.urls, node_token, serve_inbox, promised, seed + 1),
            Caller(webs.urls, person_token, steer(ids), promised, seed + 2),
        ]
        report = folder / "report.json"
        storm = herd.start(
            "tests.proof.storm:storm",
            None,
            database_url=url,
            clock_file=str(clock.path),
            report=str(report),
            seconds=SECONDS,
            workers=WORKERS,
            seed=seed,
            least_deaths=LEAST_DEATHS,
        )
        # Until then it compiles in peace what its children need not compile again.
        herd.until(storm, Path(f"{report}.begun").exists, 120)
        for caller in callers:
            caller.start()
        crashes = _disturb(herd, storm, webs, every_so_often)
        status = herd.wait(storm, SECONDS * 4 + 60)
        assert status == 0, herd.words(storm)[-6000:]
        for caller in callers:
            caller.over.set()
        for caller in callers:
            caller.join(60)
            assert caller.failure is None, repr(caller.failure)
        outcome = json.loads(report.read_text())
        _calm_down(herd, app, clock, url)
        audited = ledger.assert_clean(app)
        _assert_promises_kept(promised)
        deaths = outcome["deaths"] + webs.deaths
        print(
            f"storm, seed {seed}: {outcome}, {webs.deaths} web deaths, {crashes} crashes of the server; "
            f"{audited}; {dict(promised.answers)}, {promised.cut} calls cut, "
            f"{len(promised.replied)} answers and {len(promised.runs)} runs promised and kept"
        )
        assert deaths >= LEAST_DEATHS
        assert audited.slots >= LEAST_SLOTS
        assert outcome["from_inside"] >= 20
        assert promised.replied
        assert promised.runs
        assert every_so_often is None or crashes


def _disturb(herd: Herd, storm: int, webs: Webs, every_so_often: Callable[[], None] | None) -> int:
    """Kill web processes in turn, and crash the server, until the storm is over; returns how many crashes."""
    began = time.monotonic()
    # The long form crashes the server every ten seconds, the short one once in its midst.
    next_web, next_crash = began + 6, began + (10 if LONG else SECONDS / 2)
    crashes = place = 0
    while storm in herd.living() and time.monotonic() < began + SECONDS * 4:
        now = time.monotonic()
        if now >= next_web and now < began + SECONDS - 5:
            webs.kill_one(place := (place + 1) % WEB_PROCESSES)
            next_web = time.monotonic() + (8 if LONG else 14)
        if every_so_often is not None and now >= next_crash and (LONG or not crashes):
            every_so_often()
            crashes += 1
            next_crash = time.monotonic() + 10
        time.sleep(0.1)
    return crashes


def _calm_down(herd: Herd, app: Flask, clock: FileClock, url: str) -> None:
    """Two workers that live work off what the storm has left; the clock stands still."""
    calm = [start_calm(herd, url, clock) for _ in range(2)]
    deadline = time.monotonic() + _CALM_SECONDS
    while not _is_calm(clock):
        for pid in calm:
            assert pid in herd.living(), herd.words(pid)[-4000:]
        assert time.monotonic() < deadline, "not everything that was due was worked off"
        time.sleep(0.2)
    herd.end(*calm)


def _is_calm(clock: FileClock) -> bool:
    try:
        return count(ScheduleDue, ScheduleDue.due_at <= clock.now()) == 0
    except DBAPIError:
        # The connection that a crash has cut is only noticed when it is used.
        return False


def _assert_promises_kept(promised: Promised) -> None:
    ended = (TaskStatus.REPLIED, TaskStatus.FAILED)
    with reading() as session:
        replied = set(session.scalars(select(Task.task_id).where(Task.status.in_(ended))))
        runs = set(session.scalars(select(Run.run_id)))
    assert promised.replied <= replied, "an answer that was acknowledged is lost"
    assert promised.runs <= runs, "a run that was acknowledged is lost"
