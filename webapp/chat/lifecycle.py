"""The states of turns and approvals, and which may follow which. Pure."""

from __future__ import annotations

from enum import StrEnum


class MessageRole(StrEnum):
    """Whose words a message holds."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class TurnStatus(StrEnum):
    """The life of a turn. A turn that waits for an approval needs no worker."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_FOR_ACTION = "waiting_for_action"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


class ApprovalStatus(StrEnum):
    """The life of an approval; `withdrawn` is one whose turn ended before anybody answered."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


OPEN_TURN = frozenset({TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.WAITING_FOR_ACTION})
ACTIVE_TURN = frozenset({TurnStatus.RUNNING, TurnStatus.WAITING_FOR_ACTION})
FINAL_TURN = frozenset(TurnStatus) - OPEN_TURN

TURN_MOVES: dict[TurnStatus, frozenset[TurnStatus]] = {
    TurnStatus.QUEUED: frozenset({TurnStatus.RUNNING, TurnStatus.FAILED, TurnStatus.ABORTED}),
    TurnStatus.RUNNING: frozenset(
        {TurnStatus.WAITING_FOR_ACTION, TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.ABORTED}
    ),
    TurnStatus.WAITING_FOR_ACTION: frozenset({TurnStatus.RUNNING, TurnStatus.FAILED, TurnStatus.ABORTED}),
    TurnStatus.COMPLETED: frozenset(),
    TurnStatus.FAILED: frozenset(),
    TurnStatus.ABORTED: frozenset(),
}
