"""chats and mandates

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_pauses",
        sa.Column("profile", sa.String(length=80), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("profile", name=op.f("pk_model_pauses")),
    )
    op.create_table(
        "chats",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("chat_id", sa.String(length=64), nullable=False),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("owner_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("title", sa.String(length=120), nullable=False),
        sa.Column("message_seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("archived_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_chats_network_pk")),
        sa.ForeignKeyConstraint(["owner_pk"], ["users.id"], name=op.f("fk_chats_owner_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chats")),
        sa.UniqueConstraint("chat_id", name=op.f("uq_chats_chat_id")),
    )
    with op.batch_alter_table("chats", schema=None) as batch_op:
        batch_op.create_index("ix_chats_network_pk_owner_pk", ["network_pk", "owner_pk"], unique=False)

    op.create_table(
        "mandates",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("mandate_id", sa.String(length=64), nullable=False),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("subject_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("workload", sa.String(length=80), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "active",
                "paused",
                "revoked",
                name="mandatestate",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("state_reason", sa.String(length=500), nullable=True),
        sa.Column("revision", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("confirmed_at", sa.BigInteger(), nullable=True),
        sa.Column("confirmed_by_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("max_runs", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("max_tokens", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("used_runs", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("used_tokens", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["confirmed_by_pk"], ["users.id"], name=op.f("fk_mandates_confirmed_by_pk")),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_mandates_network_pk")),
        sa.ForeignKeyConstraint(["subject_pk"], ["users.id"], name=op.f("fk_mandates_subject_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mandates")),
        sa.UniqueConstraint("mandate_id", name=op.f("uq_mandates_mandate_id")),
    )
    with op.batch_alter_table("mandates", schema=None) as batch_op:
        batch_op.create_index(
            "ix_mandates_ending",
            ["network_pk", "expires_at"],
            unique=False,
            sqlite_where=sa.text("expires_at IS NOT NULL AND state <> 'revoked'"),
            postgresql_where=sa.text("expires_at IS NOT NULL AND state <> 'revoked'"),
        )
        batch_op.create_index(
            "ix_mandates_resting",
            ["network_pk", "state", "updated_at"],
            unique=False,
            sqlite_where=sa.text("state <> 'active'"),
            postgresql_where=sa.text("state <> 'active'"),
        )
        batch_op.create_index(
            "ix_mandates_subject_ending",
            ["subject_pk", "expires_at"],
            unique=False,
            sqlite_where=sa.text("expires_at IS NOT NULL AND state <> 'revoked'"),
            postgresql_where=sa.text("expires_at IS NOT NULL AND state <> 'revoked'"),
        )
        batch_op.create_index("ix_mandates_network_pk_updated_at", ["network_pk", "updated_at"], unique=False)
        batch_op.create_index("ix_mandates_subject_pk", ["subject_pk"], unique=False)
        batch_op.create_index("ix_mandates_workload", ["workload"], unique=False)
        batch_op.create_index(
            "uq_mandates_live",
            ["workload"],
            unique=True,
            sqlite_where=sa.text("state <> 'revoked'"),
            postgresql_where=sa.text("state <> 'revoked'"),
        )

    op.create_table(
        "turns",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("turn_id", sa.String(length=64), nullable=False),
        sa.Column("chat_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("mandate_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("mandate_revision", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("by_person", sa.Boolean(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "queued",
                "running",
                "waiting_for_action",
                "completed",
                "failed",
                "aborted",
                name="turnstatus",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("model", sa.String(length=80), nullable=False),
        sa.Column("lease_owner", sa.String(length=64), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("request_sent_at", sa.BigInteger(), nullable=True),
        sa.Column("attempt", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=True),
        sa.Column("history", sa.Text(), nullable=True),
        sa.Column("stop_code", sa.String(length=60), nullable=True),
        sa.Column("requests", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("input_tokens", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("output_tokens", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("time_limit_seconds", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("deadline_at", sa.BigInteger(), nullable=True),
        sa.Column("error_code", sa.String(length=60), nullable=True),
        sa.Column("error_message", sa.String(length=500), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["chat_pk"], ["chats.id"], name=op.f("fk_turns_chat_pk")),
        sa.ForeignKeyConstraint(["mandate_pk"], ["mandates.id"], name=op.f("fk_turns_mandate_pk")),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_turns_network_pk")),
        sa.ForeignKeyConstraint(["run_pk"], ["runs.id"], name=op.f("fk_turns_run_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_turns")),
        sa.UniqueConstraint("run_pk", name=op.f("uq_turns_run_pk")),
        sa.UniqueConstraint("turn_id", name=op.f("uq_turns_turn_id")),
    )
    with op.batch_alter_table("turns", schema=None) as batch_op:
        batch_op.create_index("ix_turns_chat_pk", ["chat_pk", "id"], unique=False)
        batch_op.create_index("ix_turns_mandate_pk", ["mandate_pk"], unique=False)
        batch_op.create_index(
            "ix_turns_open",
            ["chat_pk", "by_person", "id"],
            unique=False,
            sqlite_where=sa.text("status IN ('queued', 'running', 'waiting_for_action')"),
            postgresql_where=sa.text("status IN ('queued', 'running', 'waiting_for_action')"),
        )
        batch_op.create_index(
            "ix_turns_status",
            ["status", "not_before"],
            unique=False,
            sqlite_where=sa.text("status IN ('queued', 'running', 'waiting_for_action')"),
            postgresql_where=sa.text("status IN ('queued', 'running', 'waiting_for_action')"),
        )
        batch_op.create_index(
            "uq_turns_active",
            ["chat_pk"],
            unique=True,
            sqlite_where=sa.text("status IN ('running', 'waiting_for_action')"),
            postgresql_where=sa.text("status IN ('running', 'waiting_for_action')"),
        )

    op.create_table(
        "approvals",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("approval_id", sa.String(length=64), nullable=False),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("chat_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("turn_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("schedule_id", sa.String(length=64), nullable=True),
        sa.Column("mandate_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("mandate_revision", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("call_id", sa.String(length=200), nullable=False),
        sa.Column("operation", sa.String(length=80), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "pending",
                "approved",
                "denied",
                "expired",
                "withdrawn",
                name="approvalstatus",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("deadline_at", sa.BigInteger(), nullable=False),
        sa.Column("decided_by_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["chat_pk"], ["chats.id"], name=op.f("fk_approvals_chat_pk")),
        sa.ForeignKeyConstraint(["decided_by_pk"], ["users.id"], name=op.f("fk_approvals_decided_by_pk")),
        sa.ForeignKeyConstraint(["mandate_pk"], ["mandates.id"], name=op.f("fk_approvals_mandate_pk")),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_approvals_network_pk")),
        sa.ForeignKeyConstraint(["turn_pk"], ["turns.id"], name=op.f("fk_approvals_turn_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
        sa.UniqueConstraint("approval_id", name=op.f("uq_approvals_approval_id")),
        sa.UniqueConstraint("turn_pk", "call_id", name=op.f("uq_approvals_turn_pk_call_id")),
    )
    with op.batch_alter_table("approvals", schema=None) as batch_op:
        batch_op.create_index("ix_approvals_network_pk", ["network_pk", "id"], unique=False)
        batch_op.create_index(
            "ix_approvals_pending",
            ["network_pk", "deadline_at"],
            unique=False,
            sqlite_where=sa.text("status = 'pending'"),
            postgresql_where=sa.text("status = 'pending'"),
        )

    op.create_table(
        "messages",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("message_id", sa.String(length=64), nullable=False),
        sa.Column("chat_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("turn_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "role",
            sa.Enum(
                "user",
                "assistant",
                "tool",
                name="messagerole",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("author", sa.String(length=300), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("meta", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["chat_pk"], ["chats.id"], name=op.f("fk_messages_chat_pk")),
        sa.ForeignKeyConstraint(["turn_pk"], ["turns.id"], name=op.f("fk_messages_turn_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sa.UniqueConstraint("chat_pk", "seq", name=op.f("uq_messages_chat_pk_seq")),
        sa.UniqueConstraint("message_id", name=op.f("uq_messages_message_id")),
    )
    with op.batch_alter_table("messages", schema=None) as batch_op:
        batch_op.create_index("ix_messages_turn_pk", ["turn_pk"], unique=False)

    with op.batch_alter_table("schedules", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("mandate_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True)
        )
        batch_op.add_column(
            sa.Column("mandate_revision", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True)
        )
        batch_op.add_column(sa.Column("model", sa.String(length=80), nullable=True))
    _count_by_indexes()
    op.create_index("ix_schedules_state", "schedules", ["network_pk", "status", "updated_at"], unique=False)
    op.create_index(
        "ix_schedules_name", "schedules", ["network_pk", sa.text("lower(name)"), "id"], unique=False
    )

    _set_wait_reasons(
        "'not_fetched', 'previous_run_active', 'catch_up'",
        "'not_fetched', 'previous_run_active', 'catch_up', 'chat_busy'",
    )
    _give_every_schedule_its_mandate()


def downgrade() -> None:
    _count_without_indexes()
    op.drop_index("ix_schedules_state", table_name="schedules")
    op.drop_index("ix_schedules_name", table_name="schedules")
    _set_wait_reasons(
        "'not_fetched', 'previous_run_active', 'catch_up', 'chat_busy'",
        "'not_fetched', 'previous_run_active', 'catch_up'",
    )
    op.execute("UPDATE schedules SET mandate_id = NULL")
    with op.batch_alter_table("schedules", schema=None) as batch_op:
        batch_op.drop_column("model")
        batch_op.drop_column("mandate_revision")
        batch_op.drop_column("mandate_pk")

    with op.batch_alter_table("messages", schema=None) as batch_op:
        batch_op.drop_index("ix_messages_turn_pk")

    op.drop_table("messages")
    with op.batch_alter_table("approvals", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_approvals_pending",
            sqlite_where=sa.text("status = 'pending'"),
            postgresql_where=sa.text("status = 'pending'"),
        )
        batch_op.drop_index("ix_approvals_network_pk")

    op.drop_table("approvals")
    with op.batch_alter_table("turns", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_turns_active",
            sqlite_where=sa.text("status IN ('running', 'waiting_for_action')"),
            postgresql_where=sa.text("status IN ('running', 'waiting_for_action')"),
        )
        batch_op.drop_index(
            "ix_turns_status",
            sqlite_where=sa.text("status IN ('queued', 'running', 'waiting_for_action')"),
            postgresql_where=sa.text("status IN ('queued', 'running', 'waiting_for_action')"),
        )
        batch_op.drop_index(
            "ix_turns_open",
            sqlite_where=sa.text("status IN ('queued', 'running', 'waiting_for_action')"),
            postgresql_where=sa.text("status IN ('queued', 'running', 'waiting_for_action')"),
        )
        batch_op.drop_index("ix_turns_mandate_pk")
        batch_op.drop_index("ix_turns_chat_pk")

    op.drop_table("turns")
    with op.batch_alter_table("mandates", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_mandates_live",
            sqlite_where=sa.text("state <> 'revoked'"),
            postgresql_where=sa.text("state <> 'revoked'"),
        )
        batch_op.drop_index("ix_mandates_workload")
        batch_op.drop_index("ix_mandates_subject_pk")
        batch_op.drop_index("ix_mandates_network_pk_updated_at")
        batch_op.drop_index(
            "ix_mandates_subject_ending",
            sqlite_where=sa.text("expires_at IS NOT NULL AND state <> 'revoked'"),
            postgresql_where=sa.text("expires_at IS NOT NULL AND state <> 'revoked'"),
        )
        batch_op.drop_index(
            "ix_mandates_resting",
            sqlite_where=sa.text("state <> 'active'"),
            postgresql_where=sa.text("state <> 'active'"),
        )
        batch_op.drop_index(
            "ix_mandates_ending",
            sqlite_where=sa.text("expires_at IS NOT NULL AND state <> 'revoked'"),
            postgresql_where=sa.text("expires_at IS NOT NULL AND state <> 'revoked'"),
        )

    op.drop_table("mandates")
    with op.batch_alter_table("chats", schema=None) as batch_op:
        batch_op.drop_index("ix_chats_network_pk_owner_pk")

    op.drop_table("chats")
    op.drop_table("model_pauses")


_CHECK = "ck_runs_waitreason"


_OPEN_RUN = sa.text("status IN ('queued', 'delivered', 'running')")
_AMISS = sa.text("status IN ('failed', 'cancelled', 'expired', 'skipped')")
_OPEN_TASK = sa.text("status IN ('created', 'delivered', 'acked', 'running')")
_BY_OTHERS = sa.text("actor <> 'worker'")


def _partial(name: str, table: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, table, columns, unique=False, sqlite_where=where, postgresql_where=where)


def _count_by_indexes() -> None:
    """Indexes with which the pages stay quick over a long history."""
    _partial("ix_runs_amiss", "runs", ["schedule_pk", "status", "scheduled_for", "id"], _AMISS)
    _partial("ix_runs_amiss_network", "runs", ["network_pk", "status", "scheduled_for", "id"], _AMISS)
    op.drop_index("ix_tasks_inbox", table_name="tasks")
    _partial("ix_tasks_inbox", "tasks", ["node_pk", "priority_rank", "created_at", "status"], _OPEN_TASK)
    op.create_index("ix_tasks_node_pk_created_at", "tasks", ["node_pk", "created_at", "id"], unique=False)
    op.drop_index("ix_audit_entries_subject", table_name="audit_entries")
    op.create_index(
        "ix_audit_entries_subject", "audit_entries", ["network_pk", "subject_id", "seq"], unique=False
    )
    _partial("ix_audit_entries_actor", "audit_entries", ["network_pk", "actor", "seq"], _BY_OTHERS)


def _count_without_indexes() -> None:
    op.drop_index("ix_audit_entries_actor", table_name="audit_entries")
    op.drop_index("ix_audit_entries_subject", table_name="audit_entries")
    op.create_index("ix_audit_entries_subject", "audit_entries", ["network_pk", "subject_id"], unique=False)
    op.drop_index("ix_tasks_node_pk_created_at", table_name="tasks")
    op.drop_index("ix_tasks_inbox", table_name="tasks")
    _partial("ix_tasks_inbox", "tasks", ["node_pk", "priority_rank", "created_at"], _OPEN_TASK)
    op.drop_index("ix_runs_amiss_network", table_name="runs")
    op.drop_index("ix_runs_amiss", table_name="runs")


def _set_wait_reasons(before: str, after: str) -> None:
    """Replace the list of reasons for which a run may wait.

    A file's schema is text: the list is replaced there, as the makers of the engine describe it for changes that
    touch no row. To rebuild the table would copy the whole history.
    """
    bind = op.get_bind()
    if bind.dialect.name != "sqlite":
        op.execute("UPDATE runs SET wait_reason = NULL WHERE wait_reason = 'chat_busy'")
        op.drop_constraint(op.f(_CHECK), "runs", type_="check")
        op.create_check_constraint(op.f(_CHECK), "runs", f"wait_reason IN ({after})")
        return
    version = bind.exec_driver_sql("PRAGMA schema_version").scalar_one()
    bind.exec_driver_sql("PRAGMA writable_schema=ON")
    changed = bind.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = 'runs'",
        (f"({before})", f"({after})"),
    )
    bind.exec_driver_sql(f"PRAGMA schema_version={int(version) + 1}")
    bind.exec_driver_sql("PRAGMA writable_schema=OFF")
    if changed.rowcount != 1:
        raise RuntimeError("the table of runs is not there")


def _give_every_schedule_its_mandate() -> None:
    """Schedules made before mandates existed go on: each acts under a mandate of its sponsor, as now at creation."""
    bind = op.get_bind()
    schedules = sa.table(
        "schedules",
        *(sa.column(name) for name in ("id", "schedule_id", "network_pk", "sponsor_pk", "target_id")),
        *(
            sa.column(name)
            for name in ("status", "created_at", "mandate_pk", "mandate_id", "mandate_revision")
        ),
    )
    mandates = sa.table(
        "mandates",
        *(sa.column(name) for name in ("id", "mandate_id", "network_pk", "subject_pk", "workload", "state")),
        sa.column("policy", sa.JSON()),
        *(sa.column(name) for name in ("revision", "confirmed_at", "confirmed_by_pk", "created_at")),
        *(sa.column(name) for name in ("updated_at", "used_runs", "used_tokens", "reserved_tokens")),
    )
    rows = bind.execute(
        sa.select(schedules).where(schedules.c.status != "cancelled").order_by(schedules.c.id)
    ).all()
    for row in rows:
        mandate_id = "mand_" + hashlib.sha256(row.schedule_id.encode()).hexdigest()[:20]
        policy = {
            "version": 1,
            "apps": ["nodes"],
            "operations": ["nodes.send_task"],
            "actions": "preapproved",
            "targets": [f"node:{row.target_id}"],
        }
        mandate = {
            "mandate_id": mandate_id,
            "network_pk": row.network_pk,
            "subject_pk": row.sponsor_pk,
            "workload": f"schedule:{row.schedule_id}",
            "state": "paused" if row.status == "completed" else "active",
            "policy": policy,
            "revision": 1,
            "confirmed_at": row.created_at,
            "confirmed_by_pk": row.sponsor_pk,
            "created_at": row.created_at,
            "updated_at": row.created_at,
            "used_runs": 0,
            "used_tokens": 0,
            "reserved_tokens": 0,
        }
        key = bind.execute(sa.insert(mandates).values(mandate).returning(mandates.c.id)).scalar_one()
        known = {"mandate_pk": key, "mandate_id": mandate_id, "mandate_revision": 1}
        bind.execute(sa.update(schedules).where(schedules.c.id == row.id).values(known))
        _audit(bind, row, mandate_id, policy)


def _audit(bind: sa.Connection, row: sa.Row, mandate_id: str, policy: dict[str, object]) -> None:
    seq = bind.execute(
        sa.text("UPDATE audit_counters SET seq = seq + 1 WHERE network_pk = :network RETURNING seq"),
        {"network": row.network_pk},
    ).scalar()
    if seq is None:
        seq = 1
        insert = sa.text("INSERT INTO audit_counters (network_pk, seq) VALUES (:network, 1)")
        bind.execute(insert, {"network": row.network_pk})
    bind.execute(
        sa.text(
            "INSERT INTO audit_entries (network_pk, seq, at, actor, verb, subject_kind, subject_id, detail)"
            " VALUES (:network, :seq, :at, 'migration', 'mandate.create', 'mandate', :subject, :detail)"
        ),
        {
            "network": row.network_pk,
            "seq": seq,
            "at": row.created_at,
            "subject": mandate_id,
            "detail": json.dumps({"workload": f"schedule:{row.schedule_id}", "policy": policy}),
        },
    )
