"""Fresh databases for tests: migrated once per session, then copied, or emptied again, for each test."""

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
from typing import TYPE_CHECKING, Any, Protocol

import flask_migrate
import psycopg
from sqlalchemy import Pool, event
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


def let_go(app: Flask) -> None:
    """Between two tests of one app: close its connections to a file that is about to be deleted, keep others."""
    with app.app_context():
        for engine in app.extensions["sqlalchemy"].engines.values():
            if engine.dialect.name == "sqlite":
                engine.dispose()


class Databases(Protocol):
    """One engine's way to make databases that nobody has used yet."""

    def fresh(self) -> str:
        """The address of a new database with the newest schema and no rows."""
        ...

    def drop(self, database_url: str) -> None:
        """Take back a database that `fresh` made: nobody finds again what is in it."""
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


# Backends of the pools of this process. An app that serves many tests keeps them: each costs as much as a test.
_own_backends: set[int] = set()


@event.listens_for(Pool, "connect")
def _know_backend(connection: object, _record: object) -> None:
    if isinstance(connection, psycopg.Connection):
        _own_backends.add(connection.info.backend_pid)


# Whoever else is connected may still write, and so may one of ours that is not idle: both are cut off.
_CUT_OFF = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
AND backend_type = 'client backend' AND NOT (state = 'idle' AND pid = ANY(%s))
"""
# What a test may have changed in the schema, and the pages of the largest table.
_SHAPE = """
SELECT (SELECT array_agg((oid, relname) ORDER BY oid) FROM pg_class WHERE relnamespace = 'public'::regnamespace)::text,
    (SELECT array_agg(oid ORDER BY oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace)::text,
    (SELECT count(*) FROM pg_attribute), (SELECT count(*) FROM pg_trigger), (SELECT count(*) FROM pg_proc)
"""
_PAGES = """
SELECT max(pg_relation_size(oid)) / 8192 FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
"""
_VERSIONS = "SELECT array_agg(version_num) FROM alembic_version"
_MANY_PAGES = 64
_EMPTY = """
DO $$ DECLARE name regclass; BEGIN
    SET LOCAL session_replication_role = replica;
    FOR name IN SELECT oid FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
    LOOP EXECUTE format('DELETE FROM %s', name); END LOOP;
    PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence;
END $$
"""


class PostgresqlDatabases:
    """Databases in a throw-away cluster. One that a test gives back is emptied for the next test.

    To clone costs ten times as much. A database whose schema was changed, or whose tables have grown, is
    dropped all the same, and the next is a clone.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._numbers = _Numbers()
        # Databases that exist, by name: the empty ones' cleaners stay connected.
        self._cleaners: dict[str, psycopg.Connection[Any]] = {}

    @cached_property
    def _template(self) -> str:
        migrate(self._cluster.create("carillon_template"))
        return "carillon_template"

    def fresh(self) -> str:
        """An emptied database, or a clone of the migrated one."""
        name = f"test{self._numbers.take()}"
        if name not in self._cleaners:
            self._cluster.create(name, self._template)
            self._cleaners[name] = self._connect(name)
        return self._cluster.url(name)

    def drop(self, database_url: str) -> None:
        """Cut off whoever must not be connected any more, and empty the database, or drop it."""
        name = make_url(database_url).database
        assert name is not None
        try:
            emptied = self._emptied(self._cleaners[name])
        except psycopg.OperationalError:
            # The test has cut off everybody, this one too.
            self._cleaners[name] = self._connect(name)
            emptied = self._emptied(self._cleaners[name])
        if not emptied:
            self._cleaners.pop(name).close()
            self._cluster.drop(name)
        self._numbers.give_back(name)

    def close(self) -> None:
        """Close the cleaners' connections; the databases go with the cluster."""
        for cleaner in self._cleaners.values():
            cleaner.close()

    def _emptied(self, cleaner: psycopg.Connection[Any]) -> bool:
        cleaner.execute(_CUT_OFF, (list(_own_backends),))
        (pages,) = cleaner.execute(_PAGES).fetchone() or (0,)
        shape, versions = self._migrated
        if pages > _MANY_PAGES or cleaner.execute(_SHAPE).fetchone() != shape:
            return False
        # Which version it is of is not emptied: a test that changed it must not hand that on.
        if cleaner.execute(_VERSIONS).fetchone() != versions:
            return False
        cleaner.execute(_EMPTY)
        return True

    @cached_property
    def _migrated(self) -> tuple[Any, Any]:
        # A clone has the object ids of its template.
        with self._connect(self._template) as connection:
            return connection.execute(_SHAPE).fetchone(), connection.execute(_VERSIONS).fetchone()

    def _connect(self, name: str) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self._cluster.socket_dir), user="postgres", dbname=name, autocommit=True
        )


class DatabaseSource:
    """Databases by the name of their engine; each engine is started when it is first asked for."""

    def __init__(self, engines: dict[str, Callable[[], Databases]]) -> None:
        self._makers = engines
        self._made: dict[str, Databases] = {}

    def lend(self, engine: str) -> AbstractContextManager[str]:
        """A fresh database of that engine, given back at the end of the block."""
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
