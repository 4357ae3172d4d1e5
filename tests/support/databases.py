"""Fresh databases for tests: migrated once per session, then copied for each test."""

from __future__ import annotations

import heapq
import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import flask_migrate
from sqlalchemy.engine import make_url

from tests.support.postgres import Cluster

if TYPE_CHECKING:
    from flask import Flask

    from webapp.config import Config

ROOT = Path(__file__).resolve().parents[2]
SECRET_KEY = "only for tests: thirty-two characters or more"
# The scene of the design: Monday, eight weeks after the clocks went back in Europe.
START = datetime(2026, 11, 30, 8, 12, tzinfo=UTC)


def config_for(database_url: str) -> Config:
    """The product's own reading of an environment that names a database, marked as a test."""
    from webapp.config import Config

    environment = {"CARILLON_DATABASE_URL": database_url, "CARILLON_SECRET_KEY": SECRET_KEY}
    return replace(Config.from_environment(environment), testing=True)


def migrate(database_url: str) -> None:
    """Bring an empty database to the newest schema by the real migrations."""
    from webapp import create_app
    from webapp.clock import FrozenClock

    app = create_app(config_for(database_url), FrozenClock(START))
    with app.app_context():
        flask_migrate.upgrade(directory=str(ROOT / "migrations"))
    dispose_engines(app)


def dispose_engines(app: Flask) -> None:
    """Close every pooled connection of an app, so that its database can be copied or dropped."""
    with app.app_context():
        for engine in app.extensions["sqlalchemy"].engines.values():
            engine.dispose()


class Databases(Protocol):
    """One engine's way to make databases that nobody has used yet."""

    def fresh(self) -> str:
        """The address of a new database with the newest schema and no rows."""
        ...

    def drop(self, database_url: str) -> None:
        """Remove a database that `fresh` made."""
        ...


class _Numbers:
    """The lowest number that is free: addresses come again, so that what is built for one can be kept."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = itertools.count(1)

    def take(self) -> int:
        return heapq.heappop(self._free) if self._free else next(self._next)

    def give_back(self, name: str) -> None:
        heapq.heappush(self._free, int(name.removeprefix("test")))


class SqliteDatabases:
    """Databases that are files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = _Numbers()

    @cached_property
    def _template(self) -> Path:
        path = self._folder / "template.db"
        migrate(f"sqlite:///{path}")
        return path

    def fresh(self) -> str:
        """Copy the migrated file."""
        path = self._folder / f"test{self._numbers.take()}.db"
        template = self._template
        # In WAL mode the newest pages lie beside the file until the last connection closes.
        assert not template.with_name("template.db-wal").exists(), "somebody still has the template open"
        shutil.copyfile(template, path)
        return f"sqlite:///{path}"

    def drop(self, database_url: str) -> None:
        """Delete the file and what SQLite keeps beside it."""
        path = Path(database_url.removeprefix("sqlite:///"))
        for part in path.parent.glob(f"{path.name}*"):
            part.unlink()
        self._numbers.give_back(path.stem)


class PostgresqlDatabases:
    """Databases in a throw-away cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._numbers = _Numbers()

    @cached_property
    def _template(self) -> str:
        migrate(self._cluster.create("carillon_template"))
        return "carillon_template"

    def fresh(self) -> str:
        """Clone the migrated database."""
        return self._cluster.create(f"test{self._numbers.take()}", self._template)

    def drop(self, database_url: str) -> None:
        """Drop the clone."""
        name = make_url(database_url).database
        assert name is not None
        self._cluster.drop(name)
        self._numbers.give_back(name)


class DatabaseSource:
    """Databases by the name of their engine; each engine is started when it is first asked for."""

    def __init__(self, engines: dict[str, Callable[[], Databases]]) -> None:
        self._makers = engines
        self._made: dict[str, Databases] = {}

    def lend(self, engine: str) -> AbstractContextManager[str]:
        """A fresh database of that engine, dropped at the end of the block."""
        if engine not in self._made:
            self._made[engine] = self._makers[engine]()
        return _lend(self._made[engine])


@contextmanager
def _lend(databases: Databases) -> Iterator[str]:
    url = databases.fresh()
    try:
        yield url
    finally:
        databases.drop(url)
