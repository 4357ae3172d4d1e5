"""Each test gets a migrated database of its own, on each engine, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import NullPool, create_engine, inspect, text
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


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
def test_a_lent_database_is_gone_afterwards(databases: DatabaseSource, name: str) -> None:
    with databases.lend(name) as url:
        assert _tables(url)
    if name == "sqlite":
        assert not Path(url.removeprefix("sqlite:///")).exists()
    else:
        with pytest.raises(OperationalError, match="does not exist"):
            _tables(url)


def _tables(url: str) -> list[str]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        return inspect(connection).get_table_names()


def test_the_clock_stands_still_until_it_is_moved(clock: FrozenClock) -> None:
    assert clock.now() == START
    assert (clock.advance(minutes=5) - START).total_seconds() == 300
