"""What pages and answers show of chats, turns and approvals. Reads only.

A chat, its messages, turns and approvals are its owner's alone. Admins of the network see that a chat exists: its
id, its owner and when it was made and archived, and no word of it; reading on is 403 for them, and for others
there is no such chat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session, defer, joinedload

from webapp.chat import rules
from webapp.chat.lifecycle import ApprovalStatus
from webapp.chat.models import Approval, Chat, Message, Turn
from webapp.chat.steps import STILL_OPEN, STILL_PENDING
from webapp.errors import AppError
from webapp.identity.access import Actor, Facts, Verb, may
from webapp.identity.models import Network, User
from webapp.ids import is_public_id
from webapp.mandates.models import Mandate
from webapp.store.paging import Page, PageRequest, newest_first

_MAX_SEQ = 2**62


@dataclass(frozen=True)
class ChatView:
    """A chat as one person sees it; `is_own` False: its words are somebody else's, and stay hidden."""

    chat: Chat
    network_id: str
    owner: str
    is_own: bool


@dataclass(frozen=True)
class MessageView:
    """A message and the public id of the turn that it belongs to."""

    message: Message
    turn_id: str | None


@dataclass(frozen=True)
class TurnView:
    """A turn, how many go before it (None: it is not queued), and the ids of the approvals it waits for."""

    turn: Turn
    chat_id: str
    place: int | None
    approval_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class ApprovalView:
    """An approval with the public names of what it belongs to; `decided_by` is a person's name."""

    approval: Approval
    turn_id: str
    chat_id: str
    chat_title: str
    mandate_id: str | None
    decided_by: str | None


# Chats


def list_chats(
    session: Session,
    actor: Actor,
    network_pks: Collection[int],
    page: PageRequest,
    *,
    archived: bool | None = None,
    only_own: bool = False,
) -> Page[ChatView]:
    """The chats that the actor may know of, the one that changed last first.

    `archived` keeps to archived or to living ones, `only_own` leaves out what an admin knows of others.
    """
    seen = Chat.owner_pk == actor.user_pk
    if not only_own:
        stoppable = [pk for pk in network_pks if may(actor, Verb.STOP_MANDATE, Facts(network_pk=pk))]
        seen = or_(seen, Chat.network_pk.in_(stoppable))
    statement = _loaded_chats().where(Chat.network_pk.in_(list(network_pks)), seen)
    if archived is not None:
        statement = statement.where(Chat.archived_at.is_not(None) if archived else Chat.archived_at.is_(None))
    found = newest_first(
        session, statement, Chat.updated_at, Chat.id, page, lambda chat: (chat.updated_at, chat.id)
    )
    return Page(_chat_views(session, actor, found.rows), found.next_cursor)


def titles_of_own(
    session: Session, actor: Actor, network_pks: Collection[int], *, limit: int
) -> list[tuple[str, str]]:
    """(public id, title) of the actor's own living chats, the one that changed last first; for a choice."""
    rows = session.execute(
        select(Chat.chat_id, Chat.title)
        .where(
            Chat.network_pk.in_(list(network_pks)),
            Chat.owner_pk == actor.user_pk,
            Chat.archived_at.is_(None),
        )
        .order_by(Chat.updated_at.desc(), Chat.id.desc())
        .limit(limit)
    )
    return [(chat_id, title) for chat_id, title in rows]


def find_chat(session: Session, actor: Actor, chat_id: str) -> ChatView:
    """A chat that the actor may know of. Raises AppError `chat_not_found`."""
    chat = _chat(session, chat_id)
    if chat is None or not rules.knows_of(actor, chat):
        raise AppError("chat_not_found")
    return _chat_views(session, actor, [chat])[0]


def own_chat(session: Session, actor: Actor, chat_id: str) -> ChatView:
    """A chat that the actor may read. Raises AppError `chat_not_found`, `permission_denied`."""
    chat = _chat(session, chat_id)
    rules.demand_read(actor, chat, "chat_not_found")
    assert chat is not None
    return _chat_views(session, actor, [chat])[0]


def messages(session: Session, chat_pk: int, page: PageRequest) -> Page[MessageView]:
    """The messages of a chat, the newest (the highest `seq`) first."""
    statement = (
        select(Message, Turn.turn_id)
        .outerjoin(Turn, Turn.id == Message.turn_pk)
        .where(Message.chat_pk == chat_pk, Message.seq < _before(page.cursor))
        .order_by(Message.seq.desc())
        .limit(page.limit + 1)
    )
    views = [MessageView(message, turn_id) for message, turn_id in session.execute(statement)]
    shown = views[: page.limit]
    return Page(shown, str(shown[-1].message.seq) if len(views) > page.limit else None)


# Turns


def find_turn(session: Session, actor: Actor, turn_id: str) -> TurnView:
    """A turn of the actor's own chats. Raises AppError `turn_not_found`, `permission_denied`."""
    turn = None
    if is_public_id(turn_id):
        turn = session.scalars(_loaded_turns().where(Turn.turn_id == turn_id)).one_or_none()
    rules.demand_read(actor, turn.chat if turn is not None else None, "turn_not_found")
    assert turn is not None
    return turn_views(session, [turn])[0]


def turns_of_chat(session: Session, chat_pk: int, *, limit: int) -> list[TurnView]:
    """The newest turns of a chat, at most `limit`, newest first; for a page that has checked who reads."""
    statement = _loaded_turns().where(Turn.chat_pk == chat_pk).order_by(Turn.id.desc()).limit(limit)
    return turn_views(session, session.scalars(statement).all())


def turn_views(session: Session, turns: Sequence[Turn]) -> list[TurnView]:
    """Turns (chat loaded) with their places and what they wait for."""
    chat_pks = sorted({turn.chat_pk for turn in turns})
    queue: dict[int, list[Any]] = {pk: [] for pk in chat_pks}
    rows = session.execute(
        select(Turn.id, Turn.chat_pk, Turn.status, Turn.by_person).where(
            Turn.chat_pk.in_(chat_pks), STILL_OPEN
        )
    )
    for row in rows:
        queue[row.chat_pk].append(row)
    waiting: dict[int, list[str]] = {turn.id: [] for turn in turns}
    asked = (
        select(Approval.turn_pk, Approval.approval_id)
        .where(Approval.turn_pk.in_(list(waiting)), STILL_PENDING)
        .order_by(Approval.id)
    )
    for turn_pk, approval_id in session.execute(asked):
        waiting[turn_pk].append(approval_id)
    return [
        TurnView(turn, turn.chat.chat_id, rules.place_of(turn, queue[turn.chat_pk]), tuple(waiting[turn.id]))
        for turn in turns
    ]


# Approvals


def list_approvals(
    session: Session,
    actor: Actor,
    network_pks: Collection[int],
    page: PageRequest,
    *,
    status: ApprovalStatus | None = None,
    chat_pk: int | None = None,
) -> Page[ApprovalView]:
    """What turns in the actor's own chats asked for, newest first."""
    statement = _loaded_approvals().where(
        Approval.network_pk.in_(list(network_pks)), Chat.owner_pk == actor.user_pk
    )
    if status is not None:
        statement = statement.where(Approval.status == status)
    if chat_pk is not None:
        statement = statement.where(Approval.chat_pk == chat_pk)
    found = newest_first(
        session,
        statement,
        Approval.created_at,
        Approval.id,
        page,
        lambda approval: (approval.created_at, approval.id),
    )
    return Page(_approval_views(session, found.rows), found.next_cursor)


def waiting_approvals(
    session: Session, actor: Actor, network_pks: Collection[int], *, limit: int
) -> list[ApprovalView]:
    """What waits for the actor's answer, the nearest deadline first."""
    statement = (
        _loaded_approvals()
        .where(Approval.network_pk.in_(list(network_pks)), STILL_PENDING, Chat.owner_pk == actor.user_pk)
        .order_by(Approval.deadline_at, Approval.id)
        .limit(limit)
    )
    return _approval_views(session, list(session.scalars(statement)))


def find_approval(session: Session, actor: Actor, approval_id: str) -> ApprovalView:
    """An approval in the actor's own chats. Raises AppError `approval_not_found`, `permission_denied`."""
    approval = None
    if is_public_id(approval_id):
        approval = session.scalars(
            _loaded_approvals().where(Approval.approval_id == approval_id)
        ).one_or_none()
    rules.demand_read(actor, approval.chat if approval is not None else None, "approval_not_found")
    assert approval is not None
    return _approval_views(session, [approval])[0]


def count_pending(session: Session, actor: Actor) -> int:
    """How many approvals wait for this person; for the navigation."""
    pending = pending_of(list(actor.networks), actor.user_pk).subquery()
    return session.scalar(select(func.count()).select_from(pending)) or 0


def pending_of(network_pks: Any, owner_pk: Any) -> Select[int]:
    """The keys of the approvals that wait for this person; the values may be bound later."""
    return (
        select(Approval.id)
        .join(Chat, Chat.id == Approval.chat_pk)
        .where(Approval.network_pk.in_(network_pks), STILL_PENDING, Chat.owner_pk == owner_pk)
    )


def soonest_deadline(session: Session, actor: Actor) -> datetime | None:
    """By when the first of the approvals that wait for this person is to be answered."""
    statement = (
        select(func.min(Approval.deadline_at))
        .join(Chat, Chat.id == Approval.chat_pk)
        .where(Approval.network_pk.in_(list(actor.networks)), STILL_PENDING, Chat.owner_pk == actor.user_pk)
    )
    return session.scalar(statement)


def overdue_approvals(session: Session, now: datetime, limit: int) -> list[int]:
    """Keys of approvals whose deadline has passed unanswered, the longest overdue first."""
    statement = (
        select(Approval.id)
        .where(STILL_PENDING, Approval.deadline_at <= now)
        .order_by(Approval.deadline_at, Approval.id)
        .limit(limit)
    )
    return list(session.scalars(statement))


def unanswered_in_a_row(session: Session, schedule_id: str, *, most: int) -> list[Approval]:
    """The newest approvals of a schedule that expired, back to the last one that a person answered."""
    statement = (
        select(Approval)
        .where(
            Approval.schedule_id == schedule_id,
            Approval.status.in_([ApprovalStatus.APPROVED, ApprovalStatus.DENIED, ApprovalStatus.EXPIRED]),
        )
        .order_by(Approval.id.desc())
        .limit(most)
    )
    found = []
    for approval in session.scalars(statement):
        if approval.status is not ApprovalStatus.EXPIRED:
            break
        found.append(approval)
    return found


# Parts


def _chat(session: Session, chat_id: str) -> Chat | None:
    if not is_public_id(chat_id):
        return None
    return session.scalars(_loaded_chats().where(Chat.chat_id == chat_id)).one_or_none()


def _loaded_chats() -> Select[Chat]:
    return select(Chat).options(joinedload(Chat.owner, innerjoin=True))


def _loaded_turns() -> Select[Turn]:
    # What the model was told can be long, and is nobody's to see.
    return select(Turn).options(joinedload(Turn.chat, innerjoin=True), defer(Turn.history, raiseload=True))


def _loaded_approvals() -> Select[Approval]:
    return (
        select(Approval)
        .join(Approval.chat)
        .options(
            joinedload(Approval.chat, innerjoin=True),
            joinedload(Approval.turn, innerjoin=True).defer(Turn.history, raiseload=True),
        )
    )


def _chat_views(session: Session, actor: Actor, chats: Iterable[Chat]) -> list[ChatView]:
    chats = list(chats)
    pks = {chat.network_pk for chat in chats}
    networks = dict(
        session.execute(select(Network.id, Network.network_id).where(Network.id.in_(pks))).all()
        if pks
        else ()
    )
    return [
        ChatView(chat, networks[chat.network_pk], chat.owner.name, rules.owns(actor, chat)) for chat in chats
    ]


def _approval_views(session: Session, approvals: Sequence[Approval]) -> list[ApprovalView]:
    mandate_pks = {approval.mandate_pk for approval in approvals if approval.mandate_pk is not None}
    person_pks = {approval.decided_by_pk for approval in approvals if approval.decided_by_pk is not None}
    mandates: dict[int, str] = {}
    people: dict[int, str] = {}
    if mandate_pks:
        rows = session.execute(select(Mandate.id, Mandate.mandate_id).where(Mandate.id.in_(mandate_pks)))
        mandates = dict(rows.all())
    if person_pks:
        names = session.execute(select(User.id, User.name).where(User.id.in_(person_pks)))
        people = dict(names.all())
    return [
        ApprovalView(
            approval,
            approval.turn.turn_id,
            approval.chat.chat_id,
            approval.chat.title,
            None if approval.mandate_pk is None else mandates.get(approval.mandate_pk),
            None if approval.decided_by_pk is None else people.get(approval.decided_by_pk),
        )
        for approval in approvals
    ]


def _before(cursor: str | None) -> int:
    if cursor is None:
        return _MAX_SEQ
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise AppError("invalid_cursor", field="cursor")
    return int(cursor)
