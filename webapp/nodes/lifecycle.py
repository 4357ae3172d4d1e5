"""The states of nodes and tasks, and which may follow which. Pure."""

from __future__ import annotations

from enum import StrEnum


class NodeLifecycle(StrEnum):
    """What its operators decided about a node; only an active one takes new work."""

    ACTIVE = "active"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DELETING = "deleting"


class NodeStatus(StrEnum):
    """What a node says of itself."""

    WORKING = "working"
    IDLE = "idle"
    BLOCKED = "blocked"
    ERROR = "error"
    WAITING_INPUT = "waiting_input"
    OFFLINE = "offline"


class TaskStatus(StrEnum):
    """The life of a task."""

    CREATED = "created"
    DELIVERED = "delivered"
    ACKED = "acked"
    RUNNING = "running"
    REPLIED = "replied"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Priority(StrEnum):
    """In which order an inbox is served."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


PRIORITY_RANK = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}

UNACKNOWLEDGED = frozenset({TaskStatus.CREATED, TaskStatus.DELIVERED})
STARTED = frozenset({TaskStatus.ACKED, TaskStatus.RUNNING})
OPEN = UNACKNOWLEDGED | STARTED
FINAL = frozenset(TaskStatus) - OPEN
RETRYABLE = frozenset({TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.EXPIRED})

MOVES: dict[TaskStatus, frozenset[TaskStatus]] = {
    TaskStatus.CREATED: frozenset(
        {TaskStatus.DELIVERED, TaskStatus.ACKED, TaskStatus.CANCELLED, TaskStatus.EXPIRED}
    ),
    TaskStatus.DELIVERED: frozenset({TaskStatus.ACKED, TaskStatus.RUNNING, *FINAL}),
    TaskStatus.ACKED: frozenset({TaskStatus.RUNNING, *FINAL}),
    TaskStatus.RUNNING: FINAL,
    TaskStatus.REPLIED: frozenset(),
    TaskStatus.FAILED: frozenset({TaskStatus.CREATED}),
    TaskStatus.CANCELLED: frozenset({TaskStatus.CREATED}),
    TaskStatus.EXPIRED: frozenset({TaskStatus.CREATED}),
}

OFFLINE_AFTER_SECONDS = 600
MIN_TTL_SECONDS, MAX_TTL_SECONDS = 60, 7 * 86_400
DEFAULT_TTL_SECONDS = 3600
DEFAULT_SCHEDULED_TTL_SECONDS = 86_400
DEFAULT_MAX_RUN_SECONDS = 86_400
MAX_RESULT_BYTES = 64 * 1024
