"""Herds and what became of them: for tests in which several processes or threads want the same thing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from flask import Flask
from sqlalchemy import distinct, func, select

from tests.support.databases import START, config_for, dispose_engines
from tests.support.doctor import assert_doctor_clean
from tests.support.file_clock import FileClock
from tests.support.processes import Herd
from webapp import create_app
from webapp.nodes.models import Task, TaskEvent
from webapp.scheduling.lifecycle import RunStatus
from webapp.scheduling.models import Run, ScheduleDue, WorkerSeen
from webapp.scheduling.usual import Usual
from webapp.store import reading
from webapp.store.transaction import Tx

# Generous: a busy machine is no failure.
_PATIENCE_SECONDS = 90.0


def nothing_is_usual(_tx: Tx, _schedule_pks: Sequence[int], *, now: datetime) -> Usual:
    """In the place of `usual.dispatch`: a claim then decides about every schedule, one by one."""
    return Usual()


@contextmanager
def app_beside_processes(database_url: str, folder: Path) -> Iterator[tuple[Flask, FileClock]]:
    """An app of the test's own, in its context, that shares database and file clock with the processes."""
    clock = FileClock(folder / "clock", START)
    app = create_app(config_for(database_url), clock)
    with app.app_context():
        yield app, clock
    dispose_engines(app)


def count(model: type[Any], *conditions: Any) -> int:
    with reading() as session:
        return session.scalar(select(func.count()).select_from(model).where(*conditions)) or 0


def commits() -> int:
    """How many runs are committed."""
    return count(Run)


@dataclass
class Crew:
    """The workers of one test among the children of a herd that all tests share."""

    herd: Herd
    clock: FileClock
    environment: dict[str, str]
    pids: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Fork one more worker."""
        self.pids.append(
            self.herd.start_program(self.clock, "scheduler_worker.py", environment=self.environment)
        )

    def living(self) -> list[int]:
        """Those that have not ended."""
        return [pid for pid in self.herd.living() if pid in self.pids]

    def kill(self, pid: int) -> None:
        """`kill -9`, and wait until it is gone."""
        self.herd.kill(pid)

    def leave(self) -> None:
        """SIGTERM to all that live, as soon as they can hear it; each must end by itself with status 0."""
        soon(lambda: all("worker started" in self.herd.words(pid) for pid in self.living()), "all can hear")
        self.herd.end(*self.living())


@contextmanager
def crew(
    herd: Herd, workers: int, database_url: str, clock: FileClock, environment: dict[str, str] | None = None
) -> Iterator[Crew]:
    """So many workers on a database; who still lives at the end of the block is killed."""
    running = Crew(herd, clock, {"CARILLON_DATABASE_URL": database_url, **(environment or {})})
    try:
        for _ in range(workers):
            running.start()
        yield running
    finally:
        for pid in running.living():
            running.kill(pid)


def soon(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition over the database holds; looks seldom enough to leave it to the workers."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {_PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.03)


def wait_until_all_tick(workers: Crew) -> None:
    """Every worker has made its first pass: what falls due next finds all of them ready."""
    alive = WorkerSeen.stopped_at.is_(None)
    soon(lambda: count(WorkerSeen, alive) >= len(workers.living()), "all workers tick")


def assert_each_has_one_run_and_one_task(app: Flask, schedules: int) -> None:
    """Every schedule of a herd was claimed once: one run, one task, one event of its making; nothing is left."""
    with reading() as session:
        runs, claimed = session.execute(
            select(func.count(), func.count(distinct(Run.schedule_pk))).select_from(Run)
        ).one()
        assert (runs, claimed) == (schedules, schedules)
        assert set(session.scalars(select(Run.status).distinct())) == {RunStatus.QUEUED}
    assert count(Task) == schedules
    assert count(TaskEvent) == schedules
    assert count(ScheduleDue, ScheduleDue.claim_seq != 1) == 0
    assert_doctor_clean(app)
