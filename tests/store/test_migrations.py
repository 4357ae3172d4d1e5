"""Migrations go up and down on both engines, and never drift from the models."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from flask import Flask
from flask_migrate import downgrade, upgrade

from webapp.identity.queries import session_has_ended
from webapp.store import db, reading


def _tables() -> set[str]:
    return set(sa.inspect(db.engine).get_table_names())


# SQLite does not tell of an index over an expression; the other engine compares it.
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection:sqlalchemy.exc.SAWarning")
@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based index")
def test_the_models_and_the_migrations_say_the_same(app: Flask) -> None:
    with app.app_context(), db.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        difference = compare_metadata(context, db.metadata)
    assert difference == []


def test_down_to_nothing_and_up_again(app: Flask) -> None:
    with app.app_context():
        before = _tables()
        assert {"schedules", "runs", "tasks", "users"} <= before
        db.engine.dispose()
        downgrade(revision="base")
        assert _tables() <= {"alembic_version"}
        upgrade()
        assert _tables() == before


def test_who_had_signed_out_before_an_upgrade_is_still_signed_out_after_it(app: Flask) -> None:
    with app.app_context():
        db.engine.dispose()
        downgrade(revision="0002")
        with db.engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO ended_sessions VALUES ('an-older-one', 2000000000000)")
        upgrade()
        with reading() as session:
            assert session_has_ended(session, "an-older-one")
            assert not session_has_ended(session, "another")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_journal_is_chosen_by_the_library(app: Flask) -> None:
    from webapp.store import dialect

    with app.app_context(), db.engine.connect() as connection:
        mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
        synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
    assert mode == ("wal" if dialect.wal_is_sound() else "delete")
    assert synchronous == 2
