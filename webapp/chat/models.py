"""Conversations, messages, turns, approvals, and how long a model's profile is to be left alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from webapp.chat.lifecycle import ApprovalStatus, MessageRole, TurnStatus
from webapp.identity.models import User
from webapp.store.base import Base, enum_type, partial_index

_ACTIVE_TURN = text("status IN ('running', 'waiting_for_action')")
_OPEN_TURN = text("status IN ('queued', 'running', 'waiting_for_action')")
_PENDING = text("status = 'pending'")


class Chat(Base):
    """A conversation of one person. Its row is the lock of its messages and turns."""

    __tablename__ = "chats"
    __table_args__ = (Index("ix_chats_network_pk_owner_pk", "network_pk", "owner_pk"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    chat_id: Mapped[str] = mapped_column(String(64), unique=True)
    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"))
    owner_pk: Mapped[int] = mapped_column(ForeignKey("users.id"))
    title: Mapped[str] = mapped_column(String(120))
    # The number of the last message.
    message_seq: Mapped[int] = mapped_column(default=0)
    archived_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]

    owner: Mapped[User] = relationship(lazy="raise")


class Turn(Base):
    """One execution of a model in a conversation; at most one runs or waits at a time.

    The lease says which worker is at it, and until when it is believed to live; a turn that waits for an
    approval has none. `request_sent_at` stands while a request to the model is under way and unanswered.
    """

    __tablename__ = "turns"
    __table_args__ = (
        partial_index("uq_turns_active", "chat_pk", unique=True, where=_ACTIVE_TURN),
        partial_index("ix_turns_open", "chat_pk", "by_person", "id", where=_OPEN_TURN),
        partial_index("ix_turns_status", "status", "not_before", where=_OPEN_TURN),
        Index("ix_turns_chat_pk", "chat_pk", "id"),
        Index("ix_turns_mandate_pk", "mandate_pk"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    turn_id: Mapped[str] = mapped_column(String(64), unique=True)
    chat_pk: Mapped[int] = mapped_column(ForeignKey("chats.id"))
    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"))
    # Unique: a run has one turn. None: a person wrote.
    run_pk: Mapped[int | None] = mapped_column(ForeignKey("runs.id"), unique=True)
    mandate_pk: Mapped[int | None] = mapped_column(ForeignKey("mandates.id"))
    # The revision of the mandate under which the turn was started; actions compare it.
    mandate_revision: Mapped[int | None]
    # People go before schedules.
    by_person: Mapped[bool]
    status: Mapped[TurnStatus] = mapped_column(enum_type(TurnStatus))
    # The name of the model's profile.
    model: Mapped[str] = mapped_column(String(80))
    lease_owner: Mapped[str | None] = mapped_column(String(64))
    # On the database's clock.
    lease_until: Mapped[datetime | None]
    request_sent_at: Mapped[datetime | None]
    # How often a request was tried again within this turn.
    attempt: Mapped[int] = mapped_column(default=1)
    not_before: Mapped[datetime | None]
    # What the model was told and said so far, as the model's library writes it; cleared at the end.
    history: Mapped[str | None] = mapped_column(Text)
    # The code with which a running turn is to be aborted at its next step.
    stop_code: Mapped[str | None] = mapped_column(String(60))
    requests: Mapped[int] = mapped_column(default=0)
    input_tokens: Mapped[int] = mapped_column(default=0)
    output_tokens: Mapped[int] = mapped_column(default=0)
    # Of the mandate's tokens, set aside for the request under way.
    reserved_tokens: Mapped[int] = mapped_column(default=0)
    # Of each stretch of work: from the begin, or from the answer to an approval, to `deadline_at`.
    time_limit_seconds: Mapped[int]
    deadline_at: Mapped[datetime | None]
    error_code: Mapped[str | None] = mapped_column(String(60))
    error_message: Mapped[str | None] = mapped_column(String(500))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]

    chat: Mapped[Chat] = relationship(lazy="raise")


class Message(Base):
    """One message; `seq` is gapless in its conversation. `author` says truthfully who wrote it.

    `meta` of a scheduled prompt holds `scheduled_task {task_id, occurrence_id, scheduled_for, trigger}`, of a
    tool's answer `action {call_id, operation, arguments}`.
    """

    __tablename__ = "messages"
    __table_args__ = (UniqueConstraint("chat_pk", "seq"), Index("ix_messages_turn_pk", "turn_pk"))

    id: Mapped[int] = mapped_column(primary_key=True)
    message_id: Mapped[str] = mapped_column(String(64), unique=True)
    chat_pk: Mapped[int] = mapped_column(ForeignKey("chats.id"))
    turn_pk: Mapped[int | None] = mapped_column(ForeignKey("turns.id"))
    seq: Mapped[int]
    role: Mapped[MessageRole] = mapped_column(enum_type(MessageRole))
    author: Mapped[str] = mapped_column(String(300))
    text: Mapped[str] = mapped_column(Text)
    meta: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class Approval(Base):
    """An action that a turn wants to take and a person is to decide: bound to its exact arguments, used once."""

    __tablename__ = "approvals"
    __table_args__ = (
        UniqueConstraint("turn_pk", "call_id"),
        partial_index("ix_approvals_pending", "network_pk", "deadline_at", where=_PENDING),
        Index("ix_approvals_network_pk", "network_pk", "id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    approval_id: Mapped[str] = mapped_column(String(64), unique=True)
    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"))
    chat_pk: Mapped[int] = mapped_column(ForeignKey("chats.id"))
    turn_pk: Mapped[int] = mapped_column(ForeignKey("turns.id"))
    # The schedule on whose behalf the turn runs; None where a person talks.
    schedule_id: Mapped[str | None] = mapped_column(String(64))
    mandate_pk: Mapped[int | None] = mapped_column(ForeignKey("mandates.id"))
    mandate_revision: Mapped[int | None]
    call_id: Mapped[str] = mapped_column(String(200))
    operation: Mapped[str] = mapped_column(String(80))
    arguments: Mapped[dict[str, Any]]
    status: Mapped[ApprovalStatus] = mapped_column(enum_type(ApprovalStatus))
    deadline_at: Mapped[datetime]
    decided_by_pk: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    decided_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
    created_at: Mapped[datetime]

    turn: Mapped[Turn] = relationship(lazy="raise")
    chat: Mapped[Chat] = relationship(lazy="raise")


class ModelPause(Base):
    """Until when a model's profile is left alone because its endpoint asked for it; all who share it obey."""

    __tablename__ = "model_pauses"

    profile: Mapped[str] = mapped_column(String(80), primary_key=True)
    until: Mapped[datetime]
