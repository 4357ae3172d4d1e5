"""first tables

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "ended_sessions",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("dead_after", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_ended_sessions")),
    )
    op.create_table(
        "networks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("network_id", sa.String(length=64), nullable=False),
        sa.Column("slug", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_networks")),
        sa.UniqueConstraint("network_id", name=op.f("uq_networks_network_id")),
        sa.UniqueConstraint("slug", name=op.f("uq_networks_slug")),
    )
    op.create_table(
        "set_up_links",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_set_up_links")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_set_up_links_token_hash")),
    )
    op.create_table(
        "sign_in_throttles",
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("failures", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("first_failure_at", sa.BigInteger(), nullable=False),
        sa.Column("blocked_until", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_sign_in_throttles")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("user_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("name_key", sa.String(length=160), nullable=False),
        sa.Column("password_hash", sa.String(length=200), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("session_epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("timezone", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name_key", name=op.f("uq_users_name_key")),
        sa.UniqueConstraint("user_id", name=op.f("uq_users_user_id")),
    )
    op.create_table(
        "work_texts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_work_texts")),
    )
    op.create_table(
        "workers",
        sa.Column("worker_id", sa.String(length=64), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("last_tick_at", sa.BigInteger(), nullable=False),
        sa.Column("zone_version", sa.String(length=16), nullable=False),
        sa.Column("lag_ms", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("stopped_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("pk_workers")),
    )
    op.create_table(
        "zone_data",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("version", sa.String(length=16), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_zone_data")),
    )
    op.create_table(
        "audit_counters",
        sa.Column(
            "network_pk",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_audit_counters_network_pk")),
        sa.PrimaryKeyConstraint("network_pk", name=op.f("pk_audit_counters")),
    )
    op.create_table(
        "audit_entries",
        sa.Column(
            "network_pk",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(length=120), nullable=False),
        sa.Column("verb", sa.String(length=60), nullable=False),
        sa.Column("subject_kind", sa.String(length=24), nullable=False),
        sa.Column("subject_id", sa.String(length=200), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_audit_entries_network_pk")),
        sa.PrimaryKeyConstraint("network_pk", "seq", name=op.f("pk_audit_entries")),
    )
    with op.batch_alter_table("audit_entries", schema=None) as batch_op:
        batch_op.create_index("ix_audit_entries_subject", ["network_pk", "subject_id"], unique=False)

    op.create_table(
        "event_counters",
        sa.Column(
            "network_pk",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_event_counters_network_pk")),
        sa.PrimaryKeyConstraint("network_pk", name=op.f("pk_event_counters")),
    )
    op.create_table(
        "events",
        sa.Column(
            "network_pk",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("type", sa.String(length=40), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_events_network_pk")),
        sa.PrimaryKeyConstraint("network_pk", "seq", name=op.f("pk_events")),
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index("ix_events_at", ["at"], unique=False)

    op.create_table(
        "memberships",
        sa.Column(
            "user_pk",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column(
            "network_pk",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column(
            "role",
            sa.Enum(
                "owner",
                "admin",
                "member",
                "viewer",
                name="role",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_memberships_network_pk")),
        sa.ForeignKeyConstraint(["user_pk"], ["users.id"], name=op.f("fk_memberships_user_pk")),
        sa.PrimaryKeyConstraint("user_pk", "network_pk", name=op.f("pk_memberships")),
    )
    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.create_index("ix_memberships_network_pk", ["network_pk"], unique=False)

    op.create_table(
        "nodes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("alias", sa.String(length=60), nullable=False),
        sa.Column(
            "lifecycle_state",
            sa.Enum(
                "active",
                "stopping",
                "stopped",
                "deleting",
                name="nodelifecycle",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_nodes_network_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("node_id", name=op.f("uq_nodes_node_id")),
    )
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.create_index(
            "uq_nodes_alias",
            ["network_pk", "alias"],
            unique=True,
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )

    op.create_table(
        "request_keys",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("user_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("operation", sa.String(length=60), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("subject_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["user_pk"], ["users.id"], name=op.f("fk_request_keys_user_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_request_keys")),
        sa.UniqueConstraint(
            "user_pk", "operation", "key", name=op.f("uq_request_keys_user_pk_operation_key")
        ),
    )
    with op.batch_alter_table("request_keys", schema=None) as batch_op:
        batch_op.create_index("ix_request_keys_created_at", ["created_at"], unique=False)

    op.create_table(
        "schedules",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("schedule_id", sa.String(length=64), nullable=False),
        sa.Column("short_id", sa.String(length=12), nullable=False),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column(
            "target_kind",
            sa.Enum("node", "chat", name="targetkind", native_enum=False, create_constraint=True, length=24),
            nullable=False,
        ),
        sa.Column("target_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("target_id", sa.String(length=200), nullable=False),
        sa.Column("target_alias", sa.String(length=200), nullable=False),
        sa.Column("text_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("priority_rank", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("timetable", sa.JSON(), nullable=False),
        sa.Column("timezone", sa.String(length=64), nullable=False),
        sa.Column("zone_version", sa.String(length=16), nullable=False),
        sa.Column("timetable_version", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("starts_at", sa.BigInteger(), nullable=True),
        sa.Column("ends_at", sa.BigInteger(), nullable=True),
        sa.Column("max_runs", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column(
            "misfire_policy",
            sa.Enum(
                "catch_up_once",
                "skip",
                "catch_up_all",
                name="misfirepolicy",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column(
            "misfire_grace_seconds", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("catch_up_limit", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "overlap_policy",
            sa.Enum(
                "skip",
                "queue_one",
                "allow",
                name="overlappolicy",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("failure_threshold", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("ttl_seconds", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("max_run_seconds", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column(
            "status",
            sa.Enum(
                "proposed",
                "active",
                "paused",
                "needs_attention",
                "completed",
                "cancelled",
                name="schedulestatus",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("status_reason", sa.String(length=500), nullable=True),
        sa.Column("status_changed_at", sa.BigInteger(), nullable=False),
        sa.Column("paused_by_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("resume_at", sa.BigInteger(), nullable=True),
        sa.Column("resume_by_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("next_change", sa.JSON(), nullable=True),
        sa.Column("revision", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("sponsor_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("mandate_id", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_schedules_network_pk")),
        sa.ForeignKeyConstraint(["paused_by_pk"], ["users.id"], name=op.f("fk_schedules_paused_by_pk")),
        sa.ForeignKeyConstraint(["resume_by_pk"], ["users.id"], name=op.f("fk_schedules_resume_by_pk")),
        sa.ForeignKeyConstraint(["sponsor_pk"], ["users.id"], name=op.f("fk_schedules_sponsor_pk")),
        sa.ForeignKeyConstraint(["text_pk"], ["work_texts.id"], name=op.f("fk_schedules_text_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("schedule_id", name=op.f("uq_schedules_schedule_id")),
    )
    with op.batch_alter_table("schedules", schema=None) as batch_op:
        batch_op.create_index(
            "ix_schedules_network_pk_updated_at", ["network_pk", "updated_at"], unique=False
        )
        batch_op.create_index(
            "ix_schedules_resume_at",
            ["resume_at"],
            unique=False,
            sqlite_where=sa.text("resume_at IS NOT NULL"),
            postgresql_where=sa.text("resume_at IS NOT NULL"),
        )
        batch_op.create_index("ix_schedules_sponsor_pk", ["sponsor_pk"], unique=False)
        batch_op.create_index("ix_schedules_target", ["target_kind", "target_pk"], unique=False)
        batch_op.create_index(batch_op.f("ix_schedules_text_pk"), ["text_pk"], unique=False)
        batch_op.create_index("uq_schedules_short_id", ["network_pk", "short_id"], unique=True)

    op.create_table(
        "alerts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("subject_id", sa.String(length=200), nullable=False),
        sa.Column("schedule_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("code", sa.String(length=60), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_alerts_network_pk")),
        sa.ForeignKeyConstraint(["schedule_pk"], ["schedules.id"], name=op.f("fk_alerts_schedule_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
    )
    with op.batch_alter_table("alerts", schema=None) as batch_op:
        batch_op.create_index(
            "uq_alerts_open",
            ["network_pk", "kind", "subject_id"],
            unique=True,
            sqlite_where=sa.text("resolved_at IS NULL"),
            postgresql_where=sa.text("resolved_at IS NULL"),
        )

    op.create_table(
        "daily_counts",
        sa.Column(
            "schedule_pk",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "queued",
                "delivered",
                "running",
                "completed",
                "failed",
                "cancelled",
                "expired",
                "skipped",
                name="runstatus",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("count", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["schedule_pk"], ["schedules.id"], name=op.f("fk_daily_counts_schedule_pk")),
        sa.PrimaryKeyConstraint("schedule_pk", "day", "status", name=op.f("pk_daily_counts")),
    )
    op.create_table(
        "node_presence",
        sa.Column(
            "node_pk",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column(
            "status",
            sa.Enum(
                "working",
                "idle",
                "blocked",
                "error",
                "waiting_input",
                "offline",
                name="nodestatus",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=True),
        sa.Column("task_id", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["node_pk"], ["nodes.id"], name=op.f("fk_node_presence_node_pk")),
        sa.PrimaryKeyConstraint("node_pk", name=op.f("pk_node_presence")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("schedule_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("scheduled_for", sa.BigInteger(), nullable=False),
        sa.Column(
            "trigger",
            sa.Enum(
                "scheduled", "manual", name="trigger", native_enum=False, create_constraint=True, length=24
            ),
            nullable=False,
        ),
        sa.Column("actor", sa.String(length=120), nullable=False),
        sa.Column("missed_count", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("missed_since", sa.BigInteger(), nullable=True),
        sa.Column(
            "status",
            sa.Enum(
                "queued",
                "delivered",
                "running",
                "completed",
                "failed",
                "cancelled",
                "expired",
                "skipped",
                name="runstatus",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column(
            "wait_reason",
            sa.Enum(
                "not_fetched",
                "previous_run_active",
                "catch_up",
                name="waitreason",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=True,
        ),
        sa.Column("backlog", sa.Boolean(), nullable=False),
        sa.Column("error_code", sa.String(length=60), nullable=True),
        sa.Column("error_message", sa.String(length=500), nullable=True),
        sa.Column("blocked_by", sa.String(length=64), nullable=True),
        sa.Column("blocker_received", sa.Boolean(), nullable=True),
        sa.Column("task_id", sa.String(length=64), nullable=True),
        sa.Column("turn_id", sa.String(length=64), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("schedule_revision", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("timetable_version", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("text_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("target_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("target_id", sa.String(length=200), nullable=False),
        sa.Column("target_alias", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("result", sa.String(length=500), nullable=True),
        sa.ForeignKeyConstraint(["schedule_pk"], ["schedules.id"], name=op.f("fk_runs_schedule_pk")),
        sa.ForeignKeyConstraint(["text_pk"], ["work_texts.id"], name=op.f("fk_runs_text_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("run_id", name=op.f("uq_runs_run_id")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index("ix_runs_created_at", ["created_at"], unique=False)
        batch_op.create_index("ix_runs_history", ["schedule_pk", "scheduled_for", "id"], unique=False)
        batch_op.create_index("ix_runs_network", ["network_pk", "scheduled_for", "id"], unique=False)
        batch_op.create_index(
            "ix_runs_open",
            ["schedule_pk", "scheduled_for", "id"],
            unique=False,
            sqlite_where=sa.text("status IN ('queued', 'delivered', 'running')"),
            postgresql_where=sa.text("status IN ('queued', 'delivered', 'running')"),
        )
        batch_op.create_index(batch_op.f("ix_runs_text_pk"), ["text_pk"], unique=False)
        batch_op.create_index(
            "uq_runs_slot",
            ["schedule_pk", "scheduled_for"],
            unique=True,
            sqlite_where=sa.text("trigger = 'scheduled'"),
            postgresql_where=sa.text("trigger = 'scheduled'"),
        )

    op.create_table(
        "schedule_due",
        sa.Column(
            "schedule_pk",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("next_run_at", sa.BigInteger(), nullable=True),
        sa.Column("claimed_through", sa.BigInteger(), nullable=True),
        sa.Column("claim_seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("claim_not_before", sa.BigInteger(), nullable=True),
        sa.Column("claim_failures", sa.Integer(), nullable=False),
        sa.Column("last_run_at", sa.BigInteger(), nullable=True),
        sa.Column("dispatched_count", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("consecutive_failures", sa.Integer(), nullable=False),
        sa.Column("first_failure_at", sa.BigInteger(), nullable=True),
        sa.Column("skips_in_a_row", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["schedule_pk"], ["schedules.id"], name=op.f("fk_schedule_due_schedule_pk")),
        sa.PrimaryKeyConstraint("schedule_pk", name=op.f("pk_schedule_due")),
    )
    with op.batch_alter_table("schedule_due", schema=None) as batch_op:
        batch_op.create_index(
            "ix_schedule_due_due_at",
            ["network_pk", "due_at"],
            unique=False,
            sqlite_where=sa.text("due_at IS NOT NULL"),
            postgresql_where=sa.text("due_at IS NOT NULL"),
        )

    op.create_table(
        "tokens",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("token_id", sa.String(length=64), nullable=False),
        sa.Column(
            "kind",
            sa.Enum("user", "node", name="tokenkind", native_enum=False, create_constraint=True, length=24),
            nullable=False,
        ),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("hint", sa.String(length=16), nullable=False),
        sa.Column("label", sa.String(length=120), nullable=False),
        sa.Column("user_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("node_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(user_pk IS NULL) <> (node_pk IS NULL)", name=op.f("ck_tokens_one_holder")),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_tokens_network_pk")),
        sa.ForeignKeyConstraint(["node_pk"], ["nodes.id"], name=op.f("fk_tokens_node_pk")),
        sa.ForeignKeyConstraint(["user_pk"], ["users.id"], name=op.f("fk_tokens_user_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_tokens_token_hash")),
        sa.UniqueConstraint("token_id", name=op.f("uq_tokens_token_id")),
    )
    with op.batch_alter_table("tokens", schema=None) as batch_op:
        batch_op.create_index("ix_tokens_node_pk", ["node_pk"], unique=False)
        batch_op.create_index("ix_tokens_user_pk", ["user_pk"], unique=False)

    op.create_table(
        "tasks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("task_id", sa.String(length=64), nullable=False),
        sa.Column("network_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created_by_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("text_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("priority_rank", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "created",
                "delivered",
                "acked",
                "running",
                "replied",
                "failed",
                "cancelled",
                "expired",
                name="taskstatus",
                native_enum=False,
                create_constraint=True,
                length=24,
            ),
            nullable=False,
        ),
        sa.Column("attempt", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ttl_seconds", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("max_run_seconds", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("deadline_at", sa.BigInteger(), nullable=False),
        sa.Column("error_code", sa.String(length=60), nullable=True),
        sa.Column("error_message", sa.String(length=500), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("result_truncated", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.Column("acked_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["created_by_pk"], ["users.id"], name=op.f("fk_tasks_created_by_pk")),
        sa.ForeignKeyConstraint(["network_pk"], ["networks.id"], name=op.f("fk_tasks_network_pk")),
        sa.ForeignKeyConstraint(["node_pk"], ["nodes.id"], name=op.f("fk_tasks_node_pk")),
        sa.ForeignKeyConstraint(["run_pk"], ["runs.id"], name=op.f("fk_tasks_run_pk")),
        sa.ForeignKeyConstraint(["text_pk"], ["work_texts.id"], name=op.f("fk_tasks_text_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("run_pk", name=op.f("uq_tasks_run_pk")),
        sa.UniqueConstraint("task_id", name=op.f("uq_tasks_task_id")),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.create_index(
            "ix_tasks_due",
            ["deadline_at"],
            unique=False,
            sqlite_where=sa.text("status IN ('created', 'delivered', 'acked', 'running')"),
            postgresql_where=sa.text("status IN ('created', 'delivered', 'acked', 'running')"),
        )
        batch_op.create_index(
            "ix_tasks_inbox",
            ["node_pk", "priority_rank", "created_at"],
            unique=False,
            sqlite_where=sa.text("status IN ('created', 'delivered', 'acked', 'running')"),
            postgresql_where=sa.text("status IN ('created', 'delivered', 'acked', 'running')"),
        )
        batch_op.create_index("ix_tasks_network_pk_created_at", ["network_pk", "created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_tasks_text_pk"), ["text_pk"], unique=False)

    op.create_table(
        "task_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("task_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("actor", sa.String(length=120), nullable=False),
        sa.Column("attempt", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["task_pk"], ["tasks.id"], name=op.f("fk_task_events_task_pk")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task_events")),
        sa.UniqueConstraint("task_pk", "seq", name=op.f("uq_task_events_task_pk_seq")),
    )


def downgrade() -> None:

    op.drop_table("task_events")
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_tasks_text_pk"))
        batch_op.drop_index("ix_tasks_network_pk_created_at")
        batch_op.drop_index(
            "ix_tasks_inbox",
            sqlite_where=sa.text("status IN ('created', 'delivered', 'acked', 'running')"),
            postgresql_where=sa.text("status IN ('created', 'delivered', 'acked', 'running')"),
        )
        batch_op.drop_index(
            "ix_tasks_due",
            sqlite_where=sa.text("status IN ('created', 'delivered', 'acked', 'running')"),
            postgresql_where=sa.text("status IN ('created', 'delivered', 'acked', 'running')"),
        )

    op.drop_table("tasks")
    with op.batch_alter_table("tokens", schema=None) as batch_op:
        batch_op.drop_index("ix_tokens_user_pk")
        batch_op.drop_index("ix_tokens_node_pk")

    op.drop_table("tokens")
    with op.batch_alter_table("schedule_due", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_schedule_due_due_at",
            sqlite_where=sa.text("due_at IS NOT NULL"),
            postgresql_where=sa.text("due_at IS NOT NULL"),
        )

    op.drop_table("schedule_due")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_runs_slot",
            sqlite_where=sa.text("trigger = 'scheduled'"),
            postgresql_where=sa.text("trigger = 'scheduled'"),
        )
        batch_op.drop_index(batch_op.f("ix_runs_text_pk"))
        batch_op.drop_index(
            "ix_runs_open",
            sqlite_where=sa.text("status IN ('queued', 'delivered', 'running')"),
            postgresql_where=sa.text("status IN ('queued', 'delivered', 'running')"),
        )
        batch_op.drop_index("ix_runs_network")
        batch_op.drop_index("ix_runs_history")
        batch_op.drop_index("ix_runs_created_at")

    op.drop_table("runs")
    op.drop_table("node_presence")
    op.drop_table("daily_counts")
    with op.batch_alter_table("alerts", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_alerts_open",
            sqlite_where=sa.text("resolved_at IS NULL"),
            postgresql_where=sa.text("resolved_at IS NULL"),
        )

    op.drop_table("alerts")
    with op.batch_alter_table("schedules", schema=None) as batch_op:
        batch_op.drop_index("uq_schedules_short_id")
        batch_op.drop_index(batch_op.f("ix_schedules_text_pk"))
        batch_op.drop_index("ix_schedules_target")
        batch_op.drop_index("ix_schedules_sponsor_pk")
        batch_op.drop_index(
            "ix_schedules_resume_at",
            sqlite_where=sa.text("resume_at IS NOT NULL"),
            postgresql_where=sa.text("resume_at IS NOT NULL"),
        )
        batch_op.drop_index("ix_schedules_network_pk_updated_at")

    op.drop_table("schedules")
    with op.batch_alter_table("request_keys", schema=None) as batch_op:
        batch_op.drop_index("ix_request_keys_created_at")

    op.drop_table("request_keys")
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_nodes_alias",
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )

    op.drop_table("nodes")
    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.drop_index("ix_memberships_network_pk")

    op.drop_table("memberships")
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.drop_index("ix_events_at")

    op.drop_table("events")
    op.drop_table("event_counters")
    with op.batch_alter_table("audit_entries", schema=None) as batch_op:
        batch_op.drop_index("ix_audit_entries_subject")

    op.drop_table("audit_entries")
    op.drop_table("audit_counters")
    op.drop_table("zone_data")
    op.drop_table("workers")
    op.drop_table("work_texts")
    op.drop_table("users")
    op.drop_table("sign_in_throttles")
    op.drop_table("set_up_links")
    op.drop_table("networks")
    op.drop_table("ended_sessions")
