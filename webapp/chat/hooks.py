"""What happens elsewhere when a chat or a turn changes, filled by `webapp/__init__`.

Schedules deliver into chats, but stand beside this package; the tools of a turn stand above it. Both register
here. What is not registered does not happen. The order of a change is always: `before_…` (schedules and runs
are locked, as the one lock order says), mandate, chat, the change itself, `…_changed` in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from webapp.chat.models import Approval, Turn
from webapp.store.transaction import Tx


@dataclass
class _Steps:
    before_turn_change: Callable[[Tx, int | None], None] | None = None
    turn_changed: Callable[[Tx, Turn, datetime], None] | None = None
    before_chat_change: Callable[[Tx, int], None] | None = None
    chat_changed: Callable[[Tx, int, datetime], None] | None = None
    approval_unanswered: Callable[[Tx, Approval, datetime], None] | None = None


@dataclass
class _Tools:
    by_name: Mapping[str, Any] = field(default_factory=dict)


_steps = _Steps()
_tools = _Tools()


def register(
    *,
    before_turn_change: Callable[[Tx, int | None], None] | None = None,
    turn_changed: Callable[[Tx, Turn, datetime], None] | None = None,
    before_chat_change: Callable[[Tx, int], None] | None = None,
    chat_changed: Callable[[Tx, int, datetime], None] | None = None,
    approval_unanswered: Callable[[Tx, Approval, datetime], None] | None = None,
) -> None:
    """Have these steps called. One set a process: a later call replaces all of them, None removes one."""
    _steps.before_turn_change, _steps.turn_changed = before_turn_change, turn_changed
    _steps.before_chat_change, _steps.chat_changed = before_chat_change, chat_changed
    _steps.approval_unanswered = approval_unanswered


def registered() -> dict[str, Callable[..., None] | None]:
    """What is registered, in the form that `register` takes: to put it back."""
    return dict(vars(_steps))


def before_turn_change(tx: Tx, run_pk: int | None) -> None:
    """Tell that the turn of this run is about to change; nothing of the chat is locked yet.

    `run_pk` None: a person wrote, no run hangs on the turn.
    """
    if _steps.before_turn_change is not None:
        _steps.before_turn_change(tx, run_pk)


def turn_changed(tx: Tx, turn: Turn, now: datetime) -> None:
    """Tell that a turn was started, waits, goes on or has ended; its chat is locked.

    Where one has ended, the chat may be idle: the step sees to what waits for that.
    """
    if _steps.turn_changed is not None:
        _steps.turn_changed(tx, turn, now)


def before_chat_change(tx: Tx, chat_pk: int) -> None:
    """Tell that a chat is about to be archived or taken up again; nothing of it is locked yet."""
    if _steps.before_chat_change is not None:
        _steps.before_chat_change(tx, chat_pk)


def chat_changed(tx: Tx, chat_pk: int, now: datetime) -> None:
    """Tell that a chat was archived or taken up again (its row says which); it is locked."""
    if _steps.chat_changed is not None:
        _steps.chat_changed(tx, chat_pk, now)


def approval_unanswered(tx: Tx, approval: Approval, now: datetime) -> None:
    """Tell that nobody answered in time, and that it counts as denied; schedule, run and chat are locked."""
    if _steps.approval_unanswered is not None:
        _steps.approval_unanswered(tx, approval, now)


def register_tools(tools: Sequence[Any]) -> Sequence[Any]:
    """Have these tools (each with its `name`, as a model calls it) offered to turns; returns those before."""
    before = tuple(_tools.by_name.values())
    _tools.by_name = {tool.name: tool for tool in tools}
    return before


def tools() -> Mapping[str, Any]:
    """The registered tools by the name under which a model calls them."""
    return _tools.by_name
