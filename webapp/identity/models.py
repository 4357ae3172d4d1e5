"""Users, networks, memberships, tokens, and what guards the door."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.base import Base, enum_type


class Role(StrEnum):
    """What a person is in a network, strongest first."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


class TokenKind(StrEnum):
    """Whom a token stands for."""

    USER = "user"
    NODE = "node"


class Network(Base):
    """A tenant: everything belongs to exactly one."""

    __tablename__ = "networks"

    id: Mapped[int] = mapped_column(primary_key=True)
    network_id: Mapped[str] = mapped_column(String(64), unique=True)
    slug: Mapped[str] = mapped_column(String(40), unique=True)
    name: Mapped[str] = mapped_column(String(120))
    created_at: Mapped[datetime]


class User(Base):
    """A person. `name_key` is the case-folded name, unique; `session_epoch` rises to end all sessions.

    `keys_off`: single keys do nothing on this person's pages.
    """

    __tablename__ = "users"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(String(64), unique=True)
    name: Mapped[str] = mapped_column(String(80))
    name_key: Mapped[str] = mapped_column(String(160), unique=True)
    password_hash: Mapped[str] = mapped_column(String(200))
    is_admin: Mapped[bool] = mapped_column(default=False)
    active: Mapped[bool] = mapped_column(default=True)
    session_epoch: Mapped[int] = mapped_column(default=0)
    timezone: Mapped[str] = mapped_column(String(64), default="UTC")
    keys_off: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime]


class Membership(Base):
    """A person's place in a network."""

    __tablename__ = "memberships"
    __table_args__ = (Index("ix_memberships_network_pk", "network_pk"),)

    user_pk: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True, autoincrement=False)
    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"), primary_key=True, autoincrement=False)
    role: Mapped[Role] = mapped_column(enum_type(Role))
    created_at: Mapped[datetime]


class Token(Base):
    """A bearer token, stored as the SHA-256 of its text; the text is shown once."""

    __tablename__ = "tokens"
    __table_args__ = (
        CheckConstraint("(user_pk IS NULL) <> (node_pk IS NULL)", name="one_holder"),
        Index("ix_tokens_user_pk", "user_pk"),
        Index("ix_tokens_node_pk", "node_pk"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    token_id: Mapped[str] = mapped_column(String(64), unique=True)
    kind: Mapped[TokenKind] = mapped_column(enum_type(TokenKind))
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    hint: Mapped[str] = mapped_column(String(16))
    label: Mapped[str] = mapped_column(String(120), default="")
    user_pk: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    node_pk: Mapped[int | None] = mapped_column(ForeignKey("nodes.id"))
    network_pk: Mapped[int | None] = mapped_column(ForeignKey("networks.id"))
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class SetUpLink(Base):
    """The one-time link that creates the first owner."""

    __tablename__ = "set_up_links"

    id: Mapped[int] = mapped_column(primary_key=True)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class EndedSession(Base):
    """A session that somebody signed out of: its cookie may still be kept by whoever copied it.

    `session_id` is the hash of it, as all that opens a door is stored.
    """

    __tablename__ = "ended_sessions"

    session_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    dead_after: Mapped[datetime]


class SignInThrottle(Base):
    """Failed sign-ins counted by a key (a name, or an address), so that guessing is slow."""

    __tablename__ = "sign_in_throttles"

    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    failures: Mapped[int]
    first_failure_at: Mapped[datetime]
    blocked_until: Mapped[datetime | None]


class RequestKey(Base):
    """An Idempotency-Key that was used, and what its request made."""

    __tablename__ = "request_keys"
    __table_args__ = (
        UniqueConstraint("user_pk", "operation", "key"),
        Index("ix_request_keys_created_at", "created_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    user_pk: Mapped[int] = mapped_column(ForeignKey("users.id"))
    operation: Mapped[str] = mapped_column(String(60))
    key: Mapped[str] = mapped_column(String(200))
    fingerprint: Mapped[str] = mapped_column(String(64))
    subject_id: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
