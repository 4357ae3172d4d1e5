"""The states of schedules and runs, and which may follow which. Pure."""

from __future__ import annotations

from enum import StrEnum


class TargetKind(StrEnum):
    """Who does the work."""

    NODE = "node"
    CHAT = "chat"


class ScheduleStatus(StrEnum):
    """The life of a schedule. `proposed` comes from an agent and waits for a person."""

    PROPOSED = "proposed"
    ACTIVE = "active"
    PAUSED = "paused"
    NEEDS_ATTENTION = "needs_attention"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class RunStatus(StrEnum):
    """The life of a run."""

    QUEUED = "queued"
    DELIVERED = "delivered"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"


class Trigger(StrEnum):
    """Why a run exists."""

    SCHEDULED = "scheduled"
    MANUAL = "manual"


class MisfirePolicy(StrEnum):
    """What becomes of slots that were missed."""

    CATCH_UP_ONCE = "catch_up_once"
    SKIP = "skip"
    CATCH_UP_ALL = "catch_up_all"


class OverlapPolicy(StrEnum):
    """What becomes of a slot while an earlier run is open."""

    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    ALLOW = "allow"


class WaitReason(StrEnum):
    """Why a queued run is not at work."""

    NOT_FETCHED = "not_fetched"
    PREVIOUS_RUN_ACTIVE = "previous_run_active"
    CATCH_UP = "catch_up"
    CHAT_BUSY = "chat_busy"


OPEN = frozenset({RunStatus.QUEUED, RunStatus.DELIVERED, RunStatus.RUNNING})
FINAL = frozenset(RunStatus) - OPEN
UNACKNOWLEDGED = frozenset({RunStatus.QUEUED, RunStatus.DELIVERED})
RETRYABLE = frozenset({RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED})

RUN_MOVES: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset(
        {
            RunStatus.DELIVERED,
            RunStatus.RUNNING,
            RunStatus.FAILED,
            RunStatus.CANCELLED,
            RunStatus.EXPIRED,
            RunStatus.SKIPPED,
        }
    ),
    RunStatus.DELIVERED: frozenset(
        {RunStatus.RUNNING, RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED}
    ),
    RunStatus.RUNNING: frozenset(
        {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED}
    ),
    RunStatus.COMPLETED: frozenset(),
    RunStatus.FAILED: frozenset({RunStatus.QUEUED}),
    RunStatus.CANCELLED: frozenset({RunStatus.QUEUED}),
    RunStatus.EXPIRED: frozenset({RunStatus.QUEUED}),
    RunStatus.SKIPPED: frozenset(),
}

SCHEDULE_MOVES: dict[ScheduleStatus, frozenset[ScheduleStatus]] = {
    ScheduleStatus.PROPOSED: frozenset({ScheduleStatus.ACTIVE, ScheduleStatus.CANCELLED}),
    ScheduleStatus.ACTIVE: frozenset(
        {
            ScheduleStatus.PAUSED,
            ScheduleStatus.NEEDS_ATTENTION,
            ScheduleStatus.COMPLETED,
            ScheduleStatus.CANCELLED,
        }
    ),
    ScheduleStatus.PAUSED: frozenset(
        {
            ScheduleStatus.ACTIVE,
            ScheduleStatus.NEEDS_ATTENTION,
            ScheduleStatus.COMPLETED,
            ScheduleStatus.CANCELLED,
        }
    ),
    ScheduleStatus.NEEDS_ATTENTION: frozenset(
        {
            ScheduleStatus.ACTIVE,
            ScheduleStatus.PAUSED,
            ScheduleStatus.COMPLETED,
            ScheduleStatus.CANCELLED,
        }
    ),
    ScheduleStatus.COMPLETED: frozenset({ScheduleStatus.ACTIVE}),
    ScheduleStatus.CANCELLED: frozenset(),
}
