"""Runs the migrations of the current app on its database, each in one transaction."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from flask import current_app

from webapp.store import db, dialect
from webapp.store.base import UtcDateTime


def _include_object(_object: object, name: str | None, kind: str, _reflected: bool, _other: object) -> bool:
    return not (kind == "table" and name == "alembic_version")


def _render_item(kind: str, item: Any, _context: object) -> str | Literal[False]:
    # A migration must not change when our types do, so it names the plain column type.
    return "sa.BigInteger()" if kind == "type" and isinstance(item, UtcDateTime) else False


def run() -> None:
    """Migrate over a connection that may write; the journal mode is chosen before any transaction."""
    with db.engine.connect() as connection:
        dialect.set_journal_mode(connection)
    with dialect.write_engine(db.engine).connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=db.metadata,
            include_object=_include_object,
            render_item=_render_item,
            **current_app.extensions["migrate"].configure_args,
        )
        with context.begin_transaction():
            context.run_migrations()


if context.is_offline_mode():
    raise SystemExit("Migrations run online only: set CARILLON_DATABASE_URL to the database.")
run()
