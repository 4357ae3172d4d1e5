"""Reading people, networks and tokens. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, exists, func, select
from sqlalchemy.orm import Session

from webapp.errors import AppError
from webapp.identity.access import Actor
from webapp.identity.models import EndedSession, Membership, Network, Role, SetUpLink, Token, TokenKind, User
from webapp.identity.names import name_key
from webapp.identity.tokens import looks_like_token, token_hash
from webapp.store.paging import Page, PageRequest, newest_first


@dataclass(frozen=True)
class Place:
    """A network that a person belongs to, and what they are there."""

    network_pk: int
    network_id: str
    slug: str
    name: str
    role: Role


@dataclass(frozen=True)
class Person:
    """An active user with everything that a request asks of one. `places` are in the order of their names."""

    actor: Actor
    timezone: str
    session_epoch: int
    places: tuple[Place, ...]
    keys_off: bool = False


@dataclass(frozen=True)
class UserPrincipal:
    """A call made with a user's token; `network_pk` is the one network it may reach, None for all of theirs."""

    token_pk: int
    user_pk: int
    network_pk: int | None
    expires_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True)
class NodePrincipal:
    """A call made with a node's token."""

    token_pk: int
    node_pk: int
    network_pk: int
    last_used_at: datetime | None


Principal = UserPrincipal | NodePrincipal


@dataclass(frozen=True)
class Member:
    """A person as the people page of one network shows them."""

    user_id: str
    name: str
    role: Role
    active: bool
    is_admin: bool
    since: datetime


@dataclass(frozen=True)
class TokenRow:
    """A user's token without its secret."""

    token_id: str
    label: str
    hint: str
    network_id: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


def authenticate_token(session: Session, text: str, *, now: datetime) -> Principal:
    """Whom a bearer token stands for.

    Raises AppError `unauthenticated` for one that is unknown, expired or revoked. Whether its user is active
    is asked of `person_of`.
    """
    if not looks_like_token(text):
        raise AppError("unauthenticated")
    token = session.scalars(select(Token).where(Token.token_hash == token_hash(text))).one_or_none()
    if token is None or token.revoked_at is not None:
        raise AppError("unauthenticated")
    if token.expires_at is not None and token.expires_at <= now:
        raise AppError("unauthenticated", message="This token has expired.")
    if token.kind is TokenKind.NODE:
        if token.node_pk is None or token.network_pk is None:
            raise AppError("unauthenticated")
        return NodePrincipal(token.id, token.node_pk, token.network_pk, token.last_used_at)
    if token.user_pk is None:
        raise AppError("unauthenticated")
    return UserPrincipal(token.id, token.user_pk, token.network_pk, token.expires_at, token.last_used_at)


def person_of(
    session: Session, *, user_pk: int | None = None, user_id: str | None = None, network_pk: int | None = None
) -> Person | None:
    """The active user with that key or id, with their networks; None when there is none.

    `network_pk` narrows the reach to that one network, as a token bound to it does; being a system
    administrator reaches beyond a network and does not come along. One statement, so that role and active
    state are of the same moment.
    """
    by_key = user_pk is not None
    rows = session.execute(_person_by_key(by_key), {"who": user_pk if by_key else user_id}).all()
    if not rows:
        return None
    user = rows[0]
    places = tuple(
        Place(row.network_pk, row.network_id, row.slug, row.network_name, row.role)
        for row in rows
        if row.network_pk is not None and network_pk in (None, row.network_pk)
    )
    roles = {place.network_pk: place.role for place in places}
    actor = Actor(
        user.id, user.user_id, user.name, is_admin=user.is_admin and network_pk is None, roles=roles
    )
    return Person(actor, user.timezone, user.session_epoch, places, user.keys_off)


@cache
def _person_by_key(by_key: bool) -> Any:
    """Kept, because every request asks for it and writing the statement takes longer than answering it."""
    return (
        select(
            User.id,
            User.user_id,
            User.name,
            User.is_admin,
            User.timezone,
            User.session_epoch,
            User.keys_off,
            Membership.role,
            Network.id.label("network_pk"),
            Network.network_id,
            Network.slug,
            Network.name.label("network_name"),
        )
        .outerjoin(Membership, Membership.user_pk == User.id)
        .outerjoin(Network, Network.id == Membership.network_pk)
        .where((User.id if by_key else User.user_id) == bindparam("who"), User.active)
        .order_by(func.lower(Network.name), Network.id)
    )


def session_has_ended(session: Session, session_id: str) -> bool:
    """Whether somebody signed out of this session."""
    return bool(session.scalar(_HAS_ENDED, {"ended": token_hash(session_id)}))


_HAS_ENDED = select(exists().where(EndedSession.session_id == bindparam("ended")))


def any_user(session: Session) -> bool:
    """Whether anybody exists yet; before that, only a set-up link opens the door."""
    return bool(session.scalar(select(exists().select_from(User))))


def set_up_link_works(session: Session, text: str) -> bool:
    """Whether this set-up link may still create the first owner."""
    unused = exists().where(SetUpLink.token_hash == token_hash(text), SetUpLink.used_at.is_(None))
    return not any_user(session) and bool(session.scalar(select(unused)))


def user_by_name(session: Session, name: str) -> User | None:
    """The user with that name in any spelling of it, active or not."""
    return session.scalars(select(User).where(User.name_key == name_key(name))).one_or_none()


def user_by_id(session: Session, user_id: str) -> User | None:
    """The user with that id, active or not."""
    return session.scalars(select(User).where(User.user_id == user_id)).one_or_none()


def network_by_slug(session: Session, slug: str) -> Network | None:
    """The network with that short name."""
    return session.scalars(select(Network).where(Network.slug == slug)).one_or_none()


def members(session: Session, network_pk: int) -> list[Member]:
    """The people of a network by name, deactivated ones too."""
    statement = (
        select(User, Membership)
        .join(Membership, Membership.user_pk == User.id)
        .where(Membership.network_pk == network_pk)
        .order_by(User.name_key)
    )
    return [_member(user, place) for user, place in session.execute(statement)]


def member(session: Session, network_pk: int, user_id: str) -> Member | None:
    """One person of a network."""
    statement = (
        select(User, Membership)
        .join(Membership, Membership.user_pk == User.id)
        .where(Membership.network_pk == network_pk, User.user_id == user_id)
    )
    row = session.execute(statement).one_or_none()
    return None if row is None else _member(row[0], row[1])


def member_page(session: Session, network_pk: int, request: PageRequest) -> Page[Member]:
    """A page of a network's people, the newest accounts first."""
    inside = select(Membership.user_pk).where(Membership.network_pk == network_pk)
    page = _user_page(session, select(User).where(User.id.in_(inside)), request)
    places = {
        place.user_pk: place
        for place in session.scalars(
            select(Membership).where(
                Membership.network_pk == network_pk, Membership.user_pk.in_([user.id for user in page.rows])
            )
        )
    }
    rows = [_member(user, places[user.id]) for user in page.rows if user.id in places]
    return Page(rows, page.next_cursor)


def people_page(session: Session, actor: Actor, request: PageRequest) -> Page[User]:
    """A page of everybody for a system administrator, else of those who share a network with the person."""
    statement = select(User)
    if not actor.is_admin:
        shared = select(Membership.user_pk).where(Membership.network_pk.in_(sorted(actor.networks)))
        statement = statement.where(User.id.in_(shared) | (User.id == actor.user_pk))
    return _user_page(session, statement, request)


def everybody(session: Session) -> Sequence[User]:
    """All people by name, deactivated ones too; for system administrators."""
    return session.scalars(select(User).order_by(User.name_key)).all()


def tokens_of(
    session: Session, user_pk: int, request: PageRequest, *, network_pk: int | None = None
) -> Page[TokenRow]:
    """A page of a user's tokens, newest first, those that are over too.

    `network_pk` keeps those bound to that network alone.
    """
    statement = select(Token).where(Token.user_pk == user_pk)
    if network_pk is not None:
        statement = statement.where(Token.network_pk == network_pk)
    page = newest_first(
        session, statement, Token.created_at, Token.id, request, lambda token: (token.created_at, token.id)
    )
    bound = {token.network_pk for token in page.rows if token.network_pk is not None}
    network_ids = dict(
        session.execute(select(Network.id, Network.network_id).where(Network.id.in_(bound))).all()
    )
    rows = [token_row(token, network_ids.get(token.network_pk or 0)) for token in page.rows]
    return Page(rows, page.next_cursor)


def token_of_node(session: Session, node_pk: int) -> TokenRow | None:
    """The token that a node has now; None where it has none."""
    newest = (
        select(Token).where(Token.node_pk == node_pk, Token.revoked_at.is_(None)).order_by(Token.id.desc())
    )
    token = session.scalars(newest.limit(1)).one_or_none()
    return None if token is None else token_row(token, None)


def _user_page(session: Session, statement: Select[User], request: PageRequest) -> Page[User]:
    return newest_first(
        session, statement, User.created_at, User.id, request, lambda user: (user.created_at, user.id)
    )


def _member(user: User, place: Membership) -> Member:
    return Member(user.user_id, user.name, place.role, user.active, user.is_admin, place.created_at)


def token_row(token: Token, network_id: str | None) -> TokenRow:
    """What may be shown of a token; `network_id` is the network it is bound to."""
    return TokenRow(
        token.token_id,
        token.label,
        token.hint,
        network_id,
        token.created_at,
        token.expires_at,
        token.last_used_at,
        token.revoked_at,
    )
