"""What is done to users, networks, memberships and tokens; each call is one transaction.

`actor` is None for the operator at the command line, who may do everything. Changes to a person that are not
of one network are written into the audit of each network the person belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import Table, delete, func, select, update

from webapp import audit
from webapp.errors import AppError
from webapp.events import outbox
from webapp.identity import idempotency, names, passwords
from webapp.identity.access import Actor, Facts, Verb, demand
from webapp.identity.hooks import authority_changed
from webapp.identity.models import (
    EndedSession,
    Membership,
    Network,
    Role,
    SetUpLink,
    Token,
    TokenKind,
    User,
)
from webapp.identity.queries import UserPrincipal, any_user, set_up_link_works
from webapp.identity.tokens import new_link_text, new_token_text, token_hash, token_hint
from webapp.ids import new_id
from webapp.store import dialect, reading
from webapp.store.transaction import Tx, operation

MAX_EXPIRES_DAYS = 3650
OPERATOR = "command line"
_LAST_USE_STEP = timedelta(minutes=1)


@dataclass(frozen=True)
class NewUser:
    """A person to be created; `password` is what they typed."""

    name: str
    password: str
    is_admin: bool = False


@dataclass(frozen=True)
class IssuedToken:
    """A token and its network's id; `text` is its secret, None when an earlier call has shown it."""

    token: Token
    network_id: str | None
    text: str | None


# ---------------------------------------------------------------- the first start


@operation
def issue_set_up_link(tx: Tx, *, now: datetime) -> str | None:
    """A new one-time secret for the set-up page, or None when somebody exists already.

    An unused link of an earlier start stops working.
    """
    if any_user(tx.session):
        return None
    text = new_link_text()
    tx.session.execute(delete(SetUpLink).where(SetUpLink.used_at.is_(None)))
    tx.session.add(SetUpLink(token_hash=token_hash(text), created_at=now))
    return text


def create_first_owner(
    set_up_token: str,
    name: str,
    password: str,
    network_name: str,
    network_slug: str,
    *,
    timezone: str = "UTC",
    now: datetime,
) -> User:
    """Create the first person, a system administrator, and their network, by the set-up link.

    `timezone` is a checked IANA name. Raises AppError `set_up_link_invalid` for a link that is used, replaced,
    unknown, or comes too late because somebody exists; `invalid_user_name`, `invalid_password`,
    `invalid_network_name`, `invalid_slug`.
    """
    with reading() as session:
        if not set_up_link_works(session, set_up_token):
            raise AppError("set_up_link_invalid")
    name = names.user_name(name)
    network_name = names.network_name(network_name, field="network_name")
    network_slug = names.slug(network_slug, field="network_slug")
    password_hash = passwords.hash_password(passwords.check_password(password))
    return _create_first_owner(
        set_up_token, name, password_hash, network_name, network_slug, timezone, now=now
    )


@operation
def _create_first_owner(
    tx: Tx,
    set_up_token: str,
    name: str,
    password_hash: str,
    network_name: str,
    network_slug: str,
    timezone: str,
    *,
    now: datetime,
) -> User:
    # Whoever sets `used_at` has the link; a second one waits for the row and then finds it used.
    taken = tx.session.execute(
        update(SetUpLink)
        .where(SetUpLink.token_hash == token_hash(set_up_token), SetUpLink.used_at.is_(None))
        .values(used_at=now)
    )
    if taken.rowcount != 1 or any_user(tx.session):  # type: ignore[attr-defined]
        raise AppError("set_up_link_invalid")
    user = _insert_user(tx, name, password_hash, is_admin=True, now=now)
    user.timezone = timezone
    network = _insert_network(tx, network_name, network_slug, now=now)
    _insert_membership(tx, user, network, Role.OWNER, actor_name=name, now=now)
    return user


# ---------------------------------------------------------------- people


def create_user(
    actor: Actor,
    new: NewUser,
    *,
    network_id: str | None = None,
    role: Role = Role.MEMBER,
    request: idempotency.Request | None = None,
    now: datetime,
) -> User:
    """Create a person, and their place in `network_id` if one is named.

    Only system administrators may, and a place is given only where the actor manages members. Raises AppError
    `permission_denied`, `network_not_found`, `invalid_user_name`, `invalid_password`, `user_name_taken`,
    `idempotency_conflict`.
    """
    demand(actor, Verb.MANAGE_USERS, Facts())
    name = names.user_name(new.name)
    password_hash = passwords.hash_password(passwords.check_password(new.password))
    return _create_user(actor, name, password_hash, new.is_admin, network_id, role, request, now=now)


@operation
def _create_user(
    tx: Tx,
    actor: Actor,
    name: str,
    password_hash: str,
    is_admin: bool,
    network_id: str | None,
    role: Role,
    request: idempotency.Request | None,
    *,
    now: datetime,
) -> User:
    network = None
    if network_id is not None:
        network, held = _lock_network(tx, actor, network_id)
        _demand_member_change(actor, network, held, None, role)
    user_id = new_id("user")
    earlier = idempotency.claim(tx, request, user_id, now=now)
    if earlier is not None:
        return _user(tx, earlier)
    user = _insert_user(tx, name, password_hash, is_admin=is_admin, user_id=user_id, now=now)
    if network is not None:
        _insert_membership(tx, user, network, role, actor_name=actor.name, now=now)
    return user


def create_user_at_command_line(
    new: NewUser, *, network_slug: str | None, role: Role | None, now: datetime
) -> tuple[User, Network | None, Role | None]:
    """Create a person for the operator, and their place in the network with that short name.

    The network is created if it is new. The role is `role`, else owner of a new network and member of an
    existing one. Raises AppError `invalid_user_name`, `invalid_password`, `invalid_slug`, `user_name_taken`.
    """
    name = names.user_name(new.name)
    slug = None if network_slug is None else names.slug(network_slug)
    password_hash = passwords.hash_password(passwords.check_password(new.password))
    return _create_user_at_command_line(name, password_hash, new.is_admin, slug, role, now=now)


@operation
def _create_user_at_command_line(
    tx: Tx,
    name: str,
    password_hash: str,
    is_admin: bool,
    slug: str | None,
    role: Role | None,
    *,
    now: datetime,
) -> tuple[User, Network | None, Role | None]:
    user = _insert_user(tx, name, password_hash, is_admin=is_admin, now=now)
    if slug is None:
        return user, None, None
    network = tx.session.scalars(select(Network).where(Network.slug == slug)).one_or_none()
    given = role or (Role.OWNER if network is None else Role.MEMBER)
    if network is None:
        network = _insert_network(tx, slug, slug, now=now)
    _insert_membership(tx, user, network, given, actor_name=OPERATOR, now=now)
    return user, network, given


@operation
def deactivate_user(tx: Tx, actor: Actor | None, user_id: str, *, now: datetime) -> User:
    """Shut a person out: their sessions end, their tokens and what acts in their name stop. Repeatable.

    Only system administrators may. Raises AppError `user_not_found`, `permission_denied`, `last_admin`.
    """
    return _set_active(tx, actor, user_id, False, now)


@operation
def reactivate_user(tx: Tx, actor: Actor | None, user_id: str, *, now: datetime) -> User:
    """Let a deactivated person in again; what stopped stays stopped until somebody resumes it. Repeatable.

    Only system administrators may. Raises AppError `user_not_found`, `permission_denied`.
    """
    return _set_active(tx, actor, user_id, True, now)


def _set_active(tx: Tx, actor: Actor | None, user_id: str, active: bool, now: datetime) -> User:
    if actor is not None:
        demand(actor, Verb.MANAGE_USERS, Facts())
    _lock_admins(tx)
    user = _user(tx, user_id)
    if user.active == active:
        return user
    if not active and user.is_admin and _active_admins(tx) == 1:
        raise AppError("last_admin")
    user.active = active
    if not active:
        user.session_epoch += 1
    tx.session.flush()
    verb = "user.reactivate" if active else "user.deactivate"
    _audit_everywhere(tx, user, actor, verb, now=now)
    authority_changed(tx, user.id, None, now)
    return user


def set_password(
    actor: Actor | None, user_id: str, password: str, *, current_password: str | None = None, now: datetime
) -> User:
    """Give a person a new password and end all their sessions; returns the user with the new epoch.

    One's own needs the present password too; others' only system administrators may set. Raises AppError
    `user_not_found`, `permission_denied`, `wrong_password`, `rate_limited`, `invalid_password`.
    """
    from webapp.identity.sign_in import confirm_password

    own = actor is not None and actor.user_id == user_id
    if actor is not None and not own:
        demand(actor, Verb.MANAGE_USERS, Facts())
    passwords.check_password(password)
    if actor is not None and own:
        confirm_password(actor.user_pk, current_password or "", now=now)
    return _set_password(actor, user_id, passwords.hash_password(password), now=now)


@operation
def _set_password(tx: Tx, actor: Actor | None, user_id: str, password_hash: str, *, now: datetime) -> User:
    user = _user(tx, user_id)
    user.password_hash = password_hash
    user.session_epoch += 1
    _audit_everywhere(tx, user, actor, "user.set_password", now=now)
    return user


@operation
def set_timezone(tx: Tx, actor: Actor, timezone: str, *, now: datetime) -> User:
    """Choose the zone in which one's pages show times; `timezone` is a checked IANA name."""
    user = _user(tx, actor.user_id)
    if user.timezone != timezone:
        user.timezone = timezone
        _audit_everywhere(tx, user, actor, "user.set_timezone", detail={"timezone": timezone}, now=now)
    return user


@operation
def set_keys_off(tx: Tx, actor: Actor, keys_off: bool, *, now: datetime) -> User:
    """Choose whether single keys do anything on one's pages."""
    user = _user(tx, actor.user_id)
    if user.keys_off != keys_off:
        user.keys_off = keys_off
        _audit_everywhere(
            tx, user, actor, "user.set_keys", detail={"keys": "off" if keys_off else "on"}, now=now
        )
    return user


@operation
def end_session(tx: Tx, session_id: str, dead_after: datetime) -> None:
    """Make a session's cookie worthless, also in the hands of who copied it; `dead_after` is when it is by age."""
    row = {"session_id": token_hash(session_id), "dead_after": dead_after}
    dialect.insert_new(tx.session, cast(Table, EndedSession.__table__), [row])


# ---------------------------------------------------------------- networks and members


@operation
def create_network(
    tx: Tx,
    actor: Actor,
    name: str,
    slug: str,
    *,
    request: idempotency.Request | None = None,
    now: datetime,
) -> Network:
    """Create a network with the actor as its owner; only system administrators may.

    Raises AppError `permission_denied`, `invalid_network_name`, `invalid_slug`, `slug_taken`,
    `idempotency_conflict`.
    """
    demand(actor, Verb.CREATE_NETWORK, Facts())
    name, slug = names.network_name(name), names.slug(slug)
    network_id = new_id("net")
    earlier = idempotency.claim(tx, request, network_id, now=now)
    if earlier is not None:
        return tx.session.scalars(select(Network).where(Network.network_id == earlier)).one()
    network = _insert_network(tx, name, slug, network_id=network_id, now=now)
    owner = _user(tx, actor.user_id)
    _insert_membership(tx, owner, network, Role.OWNER, actor_name=actor.name, now=now)
    return network


@operation
def add_member(
    tx: Tx, actor: Actor | None, network_id: str, user_id: str, role: Role, *, now: datetime
) -> Membership:
    """Give an existing person a place in a network. Repeating it with the same role changes nothing.

    Its admins and owners may; only owners make owners. Raises AppError `network_not_found`,
    `permission_denied`, `user_not_found`, `already_member` (with another role).
    """
    network, held = _lock_network(tx, actor, network_id)
    _demand_member_change(actor, network, held, None, role)
    user = _user(tx, user_id)
    place = tx.session.get(Membership, (user.id, network.id))
    if place is not None:
        if place.role is not role:
            raise AppError("already_member")
        return place
    return _insert_membership(tx, user, network, role, actor_name=_name(actor), now=now)


@operation
def change_role(
    tx: Tx, actor: Actor | None, network_id: str, user_id: str, role: Role, *, now: datetime
) -> Membership:
    """Make a member something else. Repeatable.

    Its admins and owners may; only owners touch owners. Raises AppError `network_not_found`,
    `permission_denied`, `user_not_found`, `last_owner`.
    """
    network, held = _lock_network(tx, actor, network_id)
    user, place = _member(tx, network, user_id)
    _demand_member_change(actor, network, held, place.role, role)
    if place.role is role:
        return place
    if place.role is Role.OWNER:
        _demand_another_owner(tx, network, user)
    before, place.role = place.role, role
    tx.session.flush()
    detail = {"name": user.name, "from": before, "to": role}
    _audit_member(tx, network, actor, "member.change_role", user, detail, now=now)
    authority_changed(tx, user.id, network.id, now)
    return place


@operation
def remove_member(tx: Tx, actor: Actor | None, network_id: str, user_id: str, *, now: datetime) -> None:
    """End a person's place in a network; what acts in their name there stops.

    Its admins and owners may, only owners remove owners, and everybody may leave. Raises AppError
    `network_not_found`, `permission_denied`, `user_not_found`, `last_owner`.
    """
    network, held = _lock_network(tx, actor, network_id)
    user, place = _member(tx, network, user_id)
    if actor is None or actor.user_pk != user.id:
        _demand_member_change(actor, network, held, place.role, None)
    if place.role is Role.OWNER:
        _demand_another_owner(tx, network, user)
    tx.session.delete(place)
    tx.session.flush()
    detail = {"name": user.name, "role": place.role}
    _audit_member(tx, network, actor, "member.remove", user, detail, now=now)
    authority_changed(tx, user.id, network.id, now)


# ---------------------------------------------------------------- tokens


@operation
def create_user_token(
    tx: Tx,
    actor: Actor,
    label: str = "",
    *,
    network_id: str | None = None,
    expires_days: int | None = None,
    by: UserPrincipal | None = None,
    request: idempotency.Request | None = None,
    now: datetime,
) -> IssuedToken:
    """Make a token for oneself; its text is in the answer and nowhere else.

    `network_id` binds it to one network. `by` is the token that asks, if one does: what it makes reaches no
    further and lasts no longer than itself. Raises AppError `network_not_found`, `invalid_label`,
    `invalid_expires_days`, `idempotency_conflict`.
    """
    demand(actor, Verb.MANAGE_OWN_TOKENS, Facts())
    network = None if network_id is None else _network_in_scope(tx, actor, network_id)
    if network is None and by is not None and by.network_pk is not None:
        network = tx.session.get_one(Network, by.network_pk)
    label = names.label(label)
    expires_at = _expiry(expires_days, by, now)
    token_id = new_id("tok")
    earlier = idempotency.claim(tx, request, token_id, now=now)
    if earlier is not None:
        token = tx.session.scalars(select(Token).where(Token.token_id == earlier)).one()
        bound = token.network_pk and tx.session.get_one(Network, token.network_pk).network_id
        return IssuedToken(token, bound or None, None)
    text = new_token_text(TokenKind.USER)
    token = Token(
        token_id=token_id,
        kind=TokenKind.USER,
        token_hash=token_hash(text),
        hint=token_hint(text),
        label=label,
        user_pk=actor.user_pk,
        network_pk=None if network is None else network.id,
        created_at=now,
        expires_at=expires_at,
    )
    tx.session.add(token)
    tx.session.flush()
    _audit_token(tx, actor, token, "token.create", now=now)
    return IssuedToken(token, None if network is None else network.network_id, text)


@operation
def revoke_token(
    tx: Tx, actor: Actor, token_id: str, *, by: UserPrincipal | None = None, now: datetime
) -> Token:
    """End a user's token at once. Repeatable.

    One's own, or anybody's for a system administrator; a token bound to a network reaches only those bound to
    it. Raises AppError `token_not_found` for all others.
    """
    demand(actor, Verb.MANAGE_OWN_TOKENS, Facts())
    statement = select(Token).where(Token.token_id == token_id, Token.user_pk.is_not(None)).with_for_update()
    token = tx.session.scalars(statement).one_or_none()
    bound = by is not None and by.network_pk is not None
    if token is None or (token.user_pk != actor.user_pk and (bound or not actor.is_admin)):
        raise AppError("token_not_found")
    if by is not None and bound and token.network_pk != by.network_pk:
        raise AppError("token_not_found")
    if token.revoked_at is None:
        token.revoked_at = now
        _audit_token(tx, actor, token, "token.revoke", now=now)
    return token


def use_is_worth_recording(last_used_at: datetime | None, now: datetime) -> bool:
    """Whether a token's last use is long enough ago to be written again: one write a minute is plenty."""
    return last_used_at is None or now - last_used_at >= _LAST_USE_STEP


@operation
def record_use(tx: Tx, token_pk: int, *, now: datetime) -> None:
    """Remember that a token was used now, at most once a minute."""
    worth = Token.last_used_at.is_(None) | (Token.last_used_at <= now - _LAST_USE_STEP)
    tx.session.execute(update(Token).where(Token.id == token_pk, worth).values(last_used_at=now))


def _expiry(expires_days: int | None, by: UserPrincipal | None, now: datetime) -> datetime | None:
    expires_at = None
    if expires_days is not None:
        if type(expires_days) is not int or not 1 <= expires_days <= MAX_EXPIRES_DAYS:
            raise AppError("invalid_expires_days", field="expires_days")
        expires_at = now + timedelta(days=expires_days)
    ends = [instant for instant in (expires_at, by.expires_at if by else None) if instant is not None]
    return min(ends, default=None)


# ---------------------------------------------------------------- inside the transaction


def _name(actor: Actor | None) -> str:
    return OPERATOR if actor is None else actor.name


def _user(tx: Tx, user_id: str) -> User:
    user = tx.session.scalars(
        select(User).where(User.user_id == user_id).with_for_update(key_share=True)
    ).one_or_none()
    if user is None:
        raise AppError("user_not_found")
    return user


def _network_in_scope(tx: Tx, actor: Actor | None, network_id: str) -> Network:
    network = tx.session.scalars(select(Network).where(Network.network_id == network_id)).one_or_none()
    if network is None or (actor is not None and network.id not in actor.networks):
        raise AppError("network_not_found")
    return network


def _lock_network(tx: Tx, actor: Actor | None, network_id: str) -> tuple[Network, Role | None]:
    """The network, locked against other changes of its members, and the actor's role there at this moment."""
    network = _network_in_scope(tx, actor, network_id)
    # Owners are counted under this lock: two of them cannot remove each other at once. It lets foreign keys
    # to the network pass.
    tx.session.execute(select(Network.id).where(Network.id == network.id).with_for_update(key_share=True))
    if actor is None:
        return network, None
    held = tx.session.scalar(
        select(Membership.role).where(
            Membership.user_pk == actor.user_pk, Membership.network_pk == network.id
        )
    )
    if held is None:
        raise AppError("network_not_found")
    return network, held


def _demand_member_change(
    actor: Actor | None, network: Network, held: Role | None, before: Role | None, after: Role | None
) -> None:
    if actor is None or held is None:
        return
    # What the person is now, not what they were when the request began.
    present = Actor(actor.user_pk, actor.user_id, actor.name, actor.is_admin, {network.id: held})
    demand(present, Verb.MANAGE_MEMBERS, Facts(network_pk=network.id))
    if Role.OWNER in (before, after):
        demand(present, Verb.MANAGE_OWNERS, Facts(network_pk=network.id))


def _member(tx: Tx, network: Network, user_id: str) -> tuple[User, Membership]:
    statement = (
        select(User, Membership)
        .join(Membership, Membership.user_pk == User.id)
        .where(User.user_id == user_id, Membership.network_pk == network.id)
    )
    row = tx.session.execute(statement).one_or_none()
    if row is None:
        raise AppError("user_not_found")
    return row[0], row[1]


def _demand_another_owner(tx: Tx, network: Network, user: User) -> None:
    others = tx.session.scalar(
        select(func.count())
        .select_from(Membership)
        .join(User, User.id == Membership.user_pk)
        .where(
            Membership.network_pk == network.id,
            Membership.role == Role.OWNER,
            Membership.user_pk != user.id,
            User.active,
        )
    )
    if not others:
        raise AppError("last_owner")


def _lock_admins(tx: Tx) -> None:
    # Counted under these locks, so that two administrators cannot deactivate each other at once.
    tx.session.execute(select(User.id).where(User.is_admin).order_by(User.id).with_for_update(key_share=True))


def _active_admins(tx: Tx) -> int:
    statement = select(func.count()).select_from(User).where(User.is_admin, User.active)
    return int(tx.session.execute(statement).scalar_one())


def _insert_user(
    tx: Tx, name: str, password_hash: str, *, is_admin: bool, user_id: str | None = None, now: datetime
) -> User:
    row = {
        "user_id": user_id or new_id("user"),
        "name": name,
        "name_key": names.name_key(name),
        "password_hash": password_hash,
        "is_admin": is_admin,
        "active": True,
        "session_epoch": 0,
        "timezone": "UTC",
        "created_at": now,
    }
    table = cast(Table, User.__table__)
    inserted = dialect.insert_new(tx.session, table, [row], returning=[table.c.id])
    if not inserted:
        raise AppError("user_name_taken", field="name")
    return tx.session.get_one(User, inserted[0].id)


def _insert_network(tx: Tx, name: str, slug: str, *, network_id: str | None = None, now: datetime) -> Network:
    row = {"network_id": network_id or new_id("net"), "slug": slug, "name": name, "created_at": now}
    table = cast(Table, Network.__table__)
    inserted = dialect.insert_new(tx.session, table, [row], returning=[table.c.id])
    if not inserted:
        raise AppError("slug_taken", field="slug")
    return tx.session.get_one(Network, inserted[0].id)


def _insert_membership(
    tx: Tx, user: User, network: Network, role: Role, *, actor_name: str, now: datetime
) -> Membership:
    place = Membership(user_pk=user.id, network_pk=network.id, role=role, created_at=now)
    tx.session.add(place)
    tx.session.flush()
    detail = {"name": user.name, "role": role}
    audit.record(
        tx,
        network.id,
        actor=actor_name,
        verb="member.add",
        subject_kind="user",
        subject_id=user.user_id,
        detail=detail,
        now=now,
    )
    outbox.emit(tx, network.id, "member", {}, now=now)
    authority_changed(tx, user.id, network.id, now)
    return place


def _audit_member(
    tx: Tx,
    network: Network,
    actor: Actor | None,
    verb: str,
    user: User,
    detail: dict[str, str],
    *,
    now: datetime,
) -> None:
    audit.record(
        tx,
        network.id,
        actor=_name(actor),
        verb=verb,
        subject_kind="user",
        subject_id=user.user_id,
        detail=dict(detail),
        now=now,
    )
    outbox.emit(tx, network.id, "member", {}, now=now)


def _networks_of(tx: Tx, user_pk: int) -> list[int]:
    statement = select(Membership.network_pk).where(Membership.user_pk == user_pk)
    return list(tx.session.scalars(statement.order_by(Membership.network_pk)))


def _audit_everywhere(
    tx: Tx,
    user: User,
    actor: Actor | None,
    verb: str,
    *,
    detail: dict[str, str] | None = None,
    now: datetime,
) -> None:
    for network_pk in _networks_of(tx, user.id):
        audit.record(
            tx,
            network_pk,
            actor=_name(actor),
            verb=verb,
            subject_kind="user",
            subject_id=user.user_id,
            detail={"name": user.name, **(detail or {})},
            now=now,
        )
        outbox.emit(tx, network_pk, "member", {}, now=now)


def _audit_token(tx: Tx, actor: Actor, token: Token, verb: str, *, now: datetime) -> None:
    if token.user_pk is None:
        return
    reached = [token.network_pk] if token.network_pk is not None else _networks_of(tx, token.user_pk)
    for network_pk in reached:
        audit.record(
            tx,
            network_pk,
            actor=actor.name,
            verb=verb,
            subject_kind="token",
            subject_id=token.token_id,
            detail={"label": token.label, "hint": token.hint},
            now=now,
        )
