"""quick pages, keys of one's own, ended sessions by their hash

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ENDED = sa.table("ended_sessions", sa.column("session_id", sa.String))


def upgrade() -> None:
    with op.batch_alter_table("users", schema=None) as batch_op:
        batch_op.add_column(sa.Column("keys_off", sa.Boolean(), server_default=sa.false(), nullable=False))
    stands_for, running = sa.text("missed_count > 0"), sa.text("status = 'running'")
    _partial("ix_runs_stand_for", ["schedule_pk", "scheduled_for", "missed_count"], stands_for)
    _partial("ix_runs_running", ["network_pk", "scheduled_for", "id", "started_at"], running)
    _hash_ended_sessions()


def downgrade() -> None:
    # A hash cannot be turned back: who signed out before is signed out by the age of the cookie alone.
    op.drop_index("ix_runs_running", table_name="runs")
    op.drop_index("ix_runs_stand_for", table_name="runs")
    with op.batch_alter_table("users", schema=None) as batch_op:
        batch_op.drop_column("keys_off")


def _partial(name: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, "runs", columns, unique=False, sqlite_where=where, postgresql_where=where)


def _hash_ended_sessions() -> None:
    """A copied cookie of a session that was ended stays worthless: from now on it is looked for by its hash."""
    connection = op.get_bind()
    for (session_id,) in connection.execute(sa.select(_ENDED.c.session_id)).all():
        hashed = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        connection.execute(
            sa.update(_ENDED).where(_ENDED.c.session_id == session_id).values(session_id=hashed)
        )
