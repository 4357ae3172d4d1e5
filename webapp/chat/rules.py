"""Who may see and touch a chat, and in which order its turns are worked on. Plain values in, a decision out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from webapp.chat.lifecycle import ACTIVE_TURN, TurnStatus
from webapp.errors import AppError
from webapp.identity.access import Actor, Facts, Verb, demand, may

DEFAULT_TITLE = "New chat"


class OwnedChat(Protocol):
    """What is asked of a chat."""

    @property
    def network_pk(self) -> int: ...
    @property
    def owner_pk(self) -> int: ...


class OpenTurn(Protocol):
    """What is asked of a turn in the queue of its chat."""

    @property
    def id(self) -> int: ...
    @property
    def status(self) -> TurnStatus: ...
    @property
    def by_person(self) -> bool: ...


AnyTurn = TypeVar("AnyTurn", bound=OpenTurn)


def owns(actor: Actor, chat: OwnedChat) -> bool:
    """Whether the chat is the actor's own, in a network that this call reaches."""
    return chat.network_pk in actor.networks and chat.owner_pk == actor.user_pk


def knows_of(actor: Actor, chat: OwnedChat) -> bool:
    """Whether the actor may know that the chat exists: its owner, and who may stop what is done on its behalf."""
    facts = Facts(network_pk=chat.network_pk, sponsor_pk=chat.owner_pk, private=True)
    return owns(actor, chat) or may(actor, Verb.STOP_MANDATE, facts)


def demand_read(actor: Actor, chat: OwnedChat | None, missing: str) -> None:
    """Let nobody but the owner read: not in a chat, its turns, its approvals.

    Raises AppError `permission_denied` for an admin of the network, who may know that it exists, and `missing`
    (such as `chat_not_found`) for everybody else and for no chat at all.
    """
    if chat is None or not knows_of(actor, chat):
        raise AppError(missing)
    if not owns(actor, chat):
        raise AppError("permission_denied")


def demand_use(actor: Actor, chat: OwnedChat | None, missing: str, verb: Verb = Verb.USE_CHAT) -> None:
    """As `demand_read`, for a change: the owner must also still be a member who may act."""
    demand_read(actor, chat, missing)
    assert chat is not None
    demand(actor, verb, Facts(network_pk=chat.network_pk, sponsor_pk=chat.owner_pk, private=True))


def in_order(turns: Iterable[AnyTurn]) -> list[AnyTurn]:
    """Open turns of one chat in the order in which they are worked on.

    The one that runs or waits comes first, then what people wrote, then what schedules sent, oldest first.
    """
    return sorted(turns, key=lambda turn: (turn.status not in ACTIVE_TURN, not turn.by_person, turn.id))


def place_of(turn: OpenTurn, open_turns: Iterable[OpenTurn]) -> int | None:
    """How many open turns of its chat go before a queued one (0: it is the next); None when it is not queued."""
    if turn.status is not TurnStatus.QUEUED:
        return None
    order = [other.id for other in in_order(open_turns)]
    return order.index(turn.id) if turn.id in order else None
