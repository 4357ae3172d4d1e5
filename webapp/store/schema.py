"""Which migrations a database has, and which the program has."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

_FOLDER = Path(__file__).resolve().parents[2] / "migrations"


class SchemaState(StrEnum):
    """How a database stands to the program."""

    NEW = "new"
    BEHIND = "behind"
    CURRENT = "current"
    AHEAD = "ahead"


def _config() -> AlembicConfig:
    config = AlembicConfig(str(_FOLDER / "alembic.ini"))
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    return config


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def schema_state(connection: Connection) -> SchemaState:
    """Whether the tables are those that this program was written for.

    AHEAD: they are of a newer program, or of another one.
    """
    current = MigrationContext.configure(connection).get_current_revision()
    head = _scripts().get_current_head()
    if current is None:
        return SchemaState.NEW
    if current == head:
        return SchemaState.CURRENT
    known = {script.revision for script in _scripts().walk_revisions()}
    return SchemaState.BEHIND if current in known else SchemaState.AHEAD


def upgrade() -> None:
    """Run every migration that the current app's database lacks; needs an app context."""
    command.upgrade(_config(), "head")
