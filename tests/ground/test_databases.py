"""Each test gets a migrated database without rows, on each engine, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import Connection, NullPool, create_engine, inspect, text
from sqlalchemy.exc import OperationalError

from tests.support.databases import START, DatabaseSource
from webapp.clock import FrozenClock
from webapp.config import Config
from webapp.store import engine


def test_the_database_has_the_newest_schema_and_no_rows(app: Flask) -> None:
    with app.app_context(), engine().connect() as connection:
        assert "schedules" in inspect(connection).get_table_names()
        assert connection.execute(text("SELECT count(*) FROM alembic_version")).scalar_one() == 1
        assert connection.execute(text("SELECT count(*) FROM networks")).scalar_one() == 0


def test_the_app_uses_the_engine_that_the_test_is_named_after(app: Flask, config: Config) -> None:
    with app.app_context():
        assert config.database_url.startswith(engine().dialect.name)


def test_two_databases_do_not_see_each_other(fresh_database: Callable[[str], str]) -> None:
    for name in ("sqlite", "postgresql"):
        assert fresh_database(name) != fresh_database(name)


def test_a_lent_file_is_gone_afterwards(databases: DatabaseSource) -> None:
    with databases.lend("sqlite") as url:
        assert _tables(url)
    assert not Path(url.removeprefix("sqlite:///")).exists()


def test_a_lent_database_of_the_server_is_empty_when_it_comes_again(databases: DatabaseSource) -> None:
    add_network = "INSERT INTO networks (network_id, slug, name, created_at) VALUES (:id, :id, :id, 1)"
    for _ in range(2):
        with databases.lend("postgresql") as url, _connected(url) as connection:
            assert connection.scalar(text("SELECT count(*) FROM networks")) == 0
            connection.execute(text(add_network), {"id": "net_one"})
            assert connection.scalar(text("SELECT id FROM networks")) == 1
            connection.commit()


def test_who_is_in_the_midst_of_something_is_cut_off_at_the_end(databases: DatabaseSource) -> None:
    with databases.lend("postgresql") as url:
        late = _connected(url)
        late.execute(text("LOCK TABLE networks"))
    with pytest.raises(OperationalError, match="terminating connection"):
        late.execute(text("SELECT 1"))
    late.close()


@pytest.mark.parametrize(
    "change",
    [
        "DROP INDEX uq_runs_slot",
        "ALTER TABLE runs ADD COLUMN more integer",
        "ALTER TABLE runs DROP CONSTRAINT ck_runs_waitreason",
        "CREATE TABLE more (id integer)",
        "ALTER TABLE runs RENAME TO walks",
        "UPDATE alembic_version SET version_num = 'of the future'",
        "DELETE FROM alembic_version",
        # A table that has grown would be slow for the next test.
        "INSERT INTO networks (network_id, slug, name, created_at)"
        " SELECT 'net_' || n, 'net-' || n, repeat('x', 100), 1 FROM generate_series(1, 5000) AS n",
    ],
)
def test_what_was_done_to_the_schema_is_not_handed_on(databases: DatabaseSource, change: str) -> None:
    with databases.lend("postgresql") as url, _connected(url) as connection:
        before = _shape(connection)
        connection.execute(text(change))
        connection.commit()
    with databases.lend("postgresql") as again, _connected(again) as connection:
        assert again == url
        assert _shape(connection) == before


def _connected(url: str) -> Connection:
    return create_engine(url, poolclass=NullPool).connect()


def _shape(connection: Connection) -> object:
    columns = "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
    names = (
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        " UNION ALL SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
    )
    size = "SELECT sum(pg_relation_size(oid)) < 1000000 FROM pg_class WHERE relkind = 'r' AND relname = 'networks'"
    version = "SELECT version_num FROM alembic_version"
    return [sorted(map(tuple, connection.execute(text(query)))) for query in (columns, names, size, version)]


def _tables(url: str) -> list[str]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        return inspect(connection).get_table_names()


def test_the_clock_stands_still_until_it_is_moved(clock: FrozenClock) -> None:
    assert clock.now() == START
    assert (clock.advance(minutes=5) - START).total_seconds() == 300
