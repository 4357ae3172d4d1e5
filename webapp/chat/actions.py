"""What a turn may do beside talking: how a tool looks to this package, and what this package tells it.

The tools stand above (`webapp/tools`) and register through `hooks.register_tools`; what is known of the schedule
behind a turn comes in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, cast

from sqlalchemy.orm import Session

from webapp.chat import hooks
from webapp.store.transaction import Tx

# A person who talks, and a schedule that fires once, are given this long to answer.
LONGEST_WAIT = timedelta(hours=4)


class NotDone(Exception):
    """A call that cannot be done as it was asked for; its text tells the model why, in words."""


@dataclass(frozen=True)
class Scene:
    """For whom and where a call is made. `schedule_id` is None where a person talks.

    `owner_pk` and `owner_name` are the owner of the chat, `actor` who acts as history and audit name it.
    """

    turn_id: str
    call_key: str
    network_pk: int
    chat_id: str
    chat_pk: int
    owner_pk: int
    owner_name: str
    actor: str
    schedule_id: str | None
    now: datetime


@dataclass(frozen=True)
class Action:
    """A call that was read and checked: exactly this is asked for, approved and done.

    `target` is what a mandate restricts (`node:<id>`), None where there is none. `arguments` is what a person is
    shown. `act` does it, inside the transaction in which it was authorised, and returns what the model is told;
    it raises NotDone before it has written anything.
    """

    operation: str
    target: str | None
    arguments: Mapping[str, Any]
    act: Callable[[], str]


class Tool(Protocol):
    """A tool: its name, what the model is told of it, and how a call is read.

    `changes` says whether it changes anything: a person's own turn asks before it does.
    """

    name: str
    description: str
    operation: str
    changes: bool

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of its arguments, an object."""

    def prepare(self, tx: Tx, scene: Scene, arguments: Mapping[str, Any]) -> Action:
        """Read untrusted arguments and find what they mean. Raises NotDone."""


@dataclass(frozen=True)
class Origin:
    """The schedule behind a turn. `period` is the time between two of its slots, None where there is no next."""

    schedule_id: str
    period: timedelta | None


FindOrigin = Callable[[Session, int, datetime], Origin | None]

_find: FindOrigin | None = None


def register_origin(find: FindOrigin | None) -> FindOrigin | None:
    """Have `find(session, run_pk, now)` tell of the schedule behind a run; returns the one before it."""
    global _find
    before, _find = _find, find
    return before


def origin_of(session: Session, run_pk: int | None, now: datetime) -> Origin | None:
    """The schedule behind a turn; None where a person talks, or its run is not kept any more."""
    return None if _find is None or run_pk is None else _find(session, run_pk, now)


def all_tools() -> Mapping[str, Tool]:
    """The registered tools by the name under which a model calls them."""
    return cast(Mapping[str, Tool], hooks.tools())


def approval_wait(origin: Origin | None, setting_seconds: int | None) -> timedelta:
    """How long an approval may stay unanswered: the operator's setting, else min(4 h, half the period)."""
    if setting_seconds is not None:
        return timedelta(seconds=setting_seconds)
    if origin is None or origin.period is None:
        return LONGEST_WAIT
    return min(LONGEST_WAIT, origin.period / 2)
