"""A stage, and one that has seen some life: lived once, then copied row by row into each test's database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Table, func, insert, select

from tests.scheduling.stage import Stage, set_stage
from tests.support.databases import START, DatabaseSource, config_for, dispose_engines
from webapp import create_app
from webapp.clock import FrozenClock
from webapp.doctor import examine
from webapp.scheduling.lifecycle import OverlapPolicy, RunStatus
from webapp.scheduling.models import Run, Schedule
from webapp.store import dialect, reading
from webapp.store.base import Base
from webapp.store.transaction import Tx, operation
from webapp.worker import new_worker


@pytest.fixture
def stage(app: Flask, clock: FrozenClock) -> Iterator[Stage]:
    yield from set_stage(app, clock)


class Life:
    """A stage with schedules whose history shows all that may happen to a slot; nothing is wrong with it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.served = stage.create(name="Served")
        stage.tick(hours=1)
        stage.serve()
        self.blocked = stage.create(name="Blocked", overlap_policy=OverlapPolicy.QUEUE_ONE)
        stage.tick(hours=1)
        stage.add_node("bosun")
        stage.serve()
        stage.tick(hours=1)
        self.once = stage.create(
            name="Once", schedule={"type": "once", "run_at": stage.at(11, 30).isoformat()}
        )
        # Nobody serves any more: the next slot of one is skipped, that of the other waits.
        stage.tick(hours=4)
        self.stopped = stage.create(name="Stopped")
        stage.tick(hours=1)
        stage.clock.advance(hours=2)
        stage.pause(self.stopped)
        stage.tick()
        stage.clock.advance(hours=1)
        stage.resume(self.stopped)
        stage.edit(self.stopped, schedule={"type": "daily", "time": "21:05"})
        stage.edit(self.stopped, name="Stopped once")
        stage.tick(hours=6)
        stage.tick(hours=1)

    def run(self, schedule: Schedule, status: RunStatus) -> Run:
        return next(run for run in self.stage.runs(schedule) if run.status is status)

    def again(self, stage: Stage) -> Life:
        """The same life on another stage, which holds its rows."""
        copy = Life.__new__(Life)
        copy.__dict__.update(self.__dict__, stage=stage)
        return copy


@dataclass(frozen=True)
class Lived:
    """A life, when it ended, and every row that it left."""

    life: Life
    ended: datetime
    rows: dict[Table, list[dict[str, Any]]]


@pytest.fixture(scope="session")
def lived(databases: DatabaseSource) -> Lived:
    with databases.lend("sqlite") as url:
        clock = FrozenClock(START)
        app = create_app(config_for(url), clock)
        for stage in set_stage(app, clock):
            life = Life(stage)
            with reading() as session:
                rows = {
                    table: [dict(row) for row in session.execute(select(table)).mappings()]
                    for table in Base.metadata.sorted_tables
                }
        dispose_engines(app)
    return Lived(life, clock.now(), rows)


@operation
def _write(tx: Tx, rows: dict[Table, list[dict[str, Any]]]) -> None:
    for table, content in rows.items():
        if content:
            tx.session.execute(insert(table), content)
    if dialect.is_sqlite(tx.session.get_bind()):
        return
    for table, content in rows.items():
        sequence = (
            tx.session.scalar(select(func.pg_get_serial_sequence(table.name, "id")))
            if (content and "id" in table.c)
            else None
        )
        if sequence:
            tx.session.execute(select(func.setval(sequence, max(row["id"] for row in content))))


@pytest.fixture
def life(app: Flask, clock: FrozenClock, lived: Lived) -> Iterator[Life]:
    clock.set(lived.ended)
    with app.app_context():
        _write(lived.rows)
        stage = replace(lived.life.stage, app=app, clock=clock, worker=new_worker(app))
        assert examine() == []
        yield lived.life.again(stage)
