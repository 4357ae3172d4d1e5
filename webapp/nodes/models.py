"""Nodes, what is known of their presence, tasks, and the events of each task."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from webapp.nodes.lifecycle import NodeLifecycle, NodeStatus, TaskStatus
from webapp.store.base import Base, enum_type, partial_index
from webapp.store.texts import WorkText

_KEPT_NODE = text("deleted_at IS NULL")
_OPEN_TASK = text("status IN ('created', 'delivered', 'acked', 'running')")


class Node(Base):
    """An agent that pulls work. `alias` is its routing name, unique in its network while it exists."""

    __tablename__ = "nodes"
    __table_args__ = (
        partial_index(
            "uq_nodes_alias",
            "network_pk",
            "alias",
            unique=True,
            where=_KEPT_NODE,
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    node_id: Mapped[str] = mapped_column(String(64), unique=True)
    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"))
    alias: Mapped[str] = mapped_column(String(60))
    lifecycle_state: Mapped[NodeLifecycle] = mapped_column(
        enum_type(NodeLifecycle), default=NodeLifecycle.ACTIVE
    )
    created_at: Mapped[datetime]
    # The row stays for its history; a deleted node is found by no list and takes no work.
    deleted_at: Mapped[datetime | None]


class NodePresence(Base):
    """When a node was last heard, and what it said. A table of its own: dispatch locks nodes, not this."""

    __tablename__ = "node_presence"

    node_pk: Mapped[int] = mapped_column(ForeignKey("nodes.id"), primary_key=True, autoincrement=False)
    status: Mapped[NodeStatus] = mapped_column(enum_type(NodeStatus))
    last_seen_at: Mapped[datetime | None]
    task_id: Mapped[str | None] = mapped_column(String(64))


class Task(Base):
    """A unit of work for a node. `priority_rank` is 0 high, 1 normal, 2 low."""

    __tablename__ = "tasks"
    __table_args__ = (
        partial_index(
            "ix_tasks_inbox",
            "node_pk",
            "priority_rank",
            "created_at",
            # Behind them what is counted, so that counting reads the index alone.
            "status",
            where=_OPEN_TASK,
        ),
        Index("ix_tasks_node_pk_created_at", "node_pk", "created_at", "id"),
        partial_index("ix_tasks_due", "deadline_at", where=_OPEN_TASK),
        Index("ix_tasks_network_pk_created_at", "network_pk", "created_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    task_id: Mapped[str] = mapped_column(String(64), unique=True)
    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"))
    node_pk: Mapped[int] = mapped_column(ForeignKey("nodes.id"))
    # Unique: a run has one task, however often it is tried.
    run_pk: Mapped[int | None] = mapped_column(ForeignKey("runs.id"), unique=True)
    created_by_pk: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    text_pk: Mapped[int] = mapped_column(ForeignKey("work_texts.id"), index=True)
    priority_rank: Mapped[int]
    status: Mapped[TaskStatus] = mapped_column(enum_type(TaskStatus))
    attempt: Mapped[int] = mapped_column(default=1)
    ttl_seconds: Mapped[int]
    max_run_seconds: Mapped[int]
    # Until acknowledged: the end of its TTL; afterwards: the end of the time it may run.
    deadline_at: Mapped[datetime]
    error_code: Mapped[str | None] = mapped_column(String(60))
    error_message: Mapped[str | None] = mapped_column(String(500))
    result: Mapped[str | None] = mapped_column(Text)
    result_truncated: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime]
    delivered_at: Mapped[datetime | None]
    acked_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]

    text: Mapped[WorkText] = relationship(lazy="raise")
    node: Mapped[Node] = relationship(lazy="raise")


class TaskEvent(Base):
    """One step in the life of a task, with who made it."""

    __tablename__ = "task_events"
    __table_args__ = (UniqueConstraint("task_pk", "seq"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    task_pk: Mapped[int] = mapped_column(ForeignKey("tasks.id"))
    seq: Mapped[int]
    at: Mapped[datetime]
    kind: Mapped[str] = mapped_column(String(40))
    actor: Mapped[str] = mapped_column(String(120))
    attempt: Mapped[int]
    detail: Mapped[dict[str, Any]]
