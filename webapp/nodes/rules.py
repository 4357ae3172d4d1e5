"""What a node may be given, and which of its reports are accepted. Pure: plain values in, a decision out."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from webapp.errors import AppError
from webapp.nodes.lifecycle import (
    FINAL,
    MAX_RESULT_BYTES,
    MOVES,
    OFFLINE_AFTER_SECONDS,
    OPEN,
    RETRYABLE,
    NodeLifecycle,
    NodeStatus,
    TaskStatus,
)

PRESENCE_WRITE_SECONDS = 60

_MAY_ACCEPT = frozenset({NodeLifecycle.ACTIVE})
_MAY_FETCH = frozenset({NodeLifecycle.ACTIVE, NodeLifecycle.STOPPING})


class ReportedTask(Protocol):
    """What the rules read of a task."""

    @property
    def status(self) -> TaskStatus: ...
    @property
    def attempt(self) -> int: ...
    @property
    def deadline_at(self) -> datetime: ...
    @property
    def result(self) -> str | None: ...


def accepts_work(lifecycle: NodeLifecycle) -> bool:
    """Whether new work may be put into the inbox of a node in this state: only of an active one.

    The one guard in front of every writer of an inbox: dispatch, a person's task, a retry.
    """
    return lifecycle in _MAY_ACCEPT


def may_fetch(lifecycle: NodeLifecycle) -> bool:
    """Whether a node in this state is given what its inbox holds.

    `stopping` takes no new work but may fetch what it holds, so that it runs dry; `stopped` is given
    nothing. In every state a node may report on the tasks that it has already fetched.
    """
    return lifecycle in _MAY_FETCH


def may_move(before: TaskStatus, after: TaskStatus) -> bool:
    """Whether a task in `before` may become `after`."""
    return after in MOVES[before]


def check_report(task: ReportedTask, attempt: int | None, now: datetime) -> None:
    """Refuse an acknowledgement or a start that does not fit the task any more.

    `attempt` is what the node says it works on; None = not said, which means the present one. Repeating an
    acknowledgement is fine. Raises AppError `task_attempt_superseded` (an older attempt reports),
    `task_withdrawn` (cancelled), `task_already_final` (any other end, or its time has run out at `now`),
    `invalid_attempt` (an attempt that was never handed out).
    """
    _check_attempt(task, attempt)
    if task.status is TaskStatus.CANCELLED:
        raise AppError("task_withdrawn", status_now=task.status.value)
    _check_open(task, now)


def check_answer(task: ReportedTask, attempt: int | None, now: datetime) -> None:
    """Refuse a reply that does not fit the task any more; ask `repeats_answer` first.

    Raises AppError `task_attempt_superseded`, `task_already_final` (whatever its end was, or its time has
    run out at `now`), `task_not_delivered` (this attempt was never fetched), `invalid_attempt`.
    """
    _check_attempt(task, attempt)
    _check_open(task, now)
    if task.status is TaskStatus.CREATED:
        raise AppError("task_not_delivered")


def repeats_answer(task: ReportedTask, status: TaskStatus, result: str | None, attempt: int | None) -> bool:
    """Whether a reply says again what the task already ended with (then it is accepted, and changes nothing)."""
    same_attempt = attempt is None or attempt == task.attempt
    return same_attempt and task.status is status and status in FINAL and task.result == cut_result(result)[0]


def check_retry(task: ReportedTask) -> None:
    """Raise AppError `task_not_retryable` unless the task failed, expired or was cancelled."""
    if task.status not in RETRYABLE:
        raise AppError("task_not_retryable", status_now=task.status.value)


def is_overdue(task: ReportedTask, now: datetime) -> bool:
    """Whether an open task's time has run out: its TTL before it is acknowledged, its running time after."""
    return task.status in OPEN and task.deadline_at <= now


def cut_result(result: str | None) -> tuple[str | None, bool]:
    """A result cut to 64 KiB of UTF-8 between two characters, and whether it was cut.

    Letters that a database cannot hold (NUL, lone surrogates) are shown as the replacement character.
    """
    if result is None:
        return None, False
    clean = result.replace("\x00", "\ufffd")
    raw = clean.encode("utf-8", "replace") if _has_surrogate(clean) else clean.encode()
    if len(raw) <= MAX_RESULT_BYTES:
        return raw.decode(), False
    return raw[:MAX_RESULT_BYTES].decode("utf-8", "ignore"), True


def presence_needs_write(
    known_status: NodeStatus,
    last_seen_at: datetime | None,
    known_task_id: str | None,
    status: NodeStatus | None,
    task_id: str | None,
    now: datetime,
) -> bool:
    """Whether hearing a node at `now` must be stored: at most once a minute, but each change at once."""
    if last_seen_at is None or (now - last_seen_at).total_seconds() >= PRESENCE_WRITE_SECONDS:
        return True
    if status is None:
        return known_status is NodeStatus.OFFLINE
    return status is not known_status or task_id != known_task_id


def is_offline(last_seen_at: datetime | None, now: datetime) -> bool:
    """Whether a node was not heard for ten minutes (or never)."""
    return last_seen_at is None or (now - last_seen_at).total_seconds() >= OFFLINE_AFTER_SECONDS


def shown_status(status: NodeStatus, last_seen_at: datetime | None, now: datetime) -> NodeStatus:
    """What people are shown: what the node said last, or `offline` after ten minutes of silence."""
    return NodeStatus.OFFLINE if is_offline(last_seen_at, now) else status


def _check_attempt(task: ReportedTask, attempt: int | None) -> None:
    if attempt is None or attempt == task.attempt:
        return
    if attempt < task.attempt:
        raise AppError("task_attempt_superseded", current_attempt=task.attempt)
    raise AppError(
        "invalid_attempt", field="attempt", message=f"This task was handed out {task.attempt} times so far."
    )


def _check_open(task: ReportedTask, now: datetime) -> None:
    if task.status in FINAL:
        raise AppError("task_already_final", status_now=task.status.value)
    if is_overdue(task, now):
        raise AppError(
            "task_already_final",
            message="The time for this task has run out.",
            status_now=TaskStatus.EXPIRED.value,
        )


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)
