"""Mandates: who lets what act, how far, until when."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from webapp.identity.models import User
from webapp.mandates.lifecycle import MandateState
from webapp.store.base import Base, enum_type, partial_index

_LIVE = text("state <> 'revoked'")
_RESTING = text("state <> 'active'")
_EXPIRING = text("expires_at IS NOT NULL AND state <> 'revoked'")


class Mandate(Base):
    """Authority that a person delegated to one workload (`schedule:<id>`); one live row for each workload.

    `max_runs` and `max_tokens` repeat the limits of the policy, so that a conditional update can compare them.
    `reserved_tokens` is what turns at work have set aside and not yet used or given back.
    """

    __tablename__ = "mandates"
    __table_args__ = (
        partial_index("uq_mandates_live", "workload", unique=True, where=_LIVE),
        Index("ix_mandates_network_pk_updated_at", "network_pk", "updated_at"),
        Index("ix_mandates_subject_pk", "subject_pk"),
        Index("ix_mandates_workload", "workload"),
        partial_index("ix_mandates_ending", "network_pk", "expires_at", where=_EXPIRING),
        partial_index("ix_mandates_subject_ending", "subject_pk", "expires_at", where=_EXPIRING),
        partial_index("ix_mandates_resting", "network_pk", "state", "updated_at", where=_RESTING),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    mandate_id: Mapped[str] = mapped_column(String(64), unique=True)
    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"))
    subject_pk: Mapped[int] = mapped_column(ForeignKey("users.id"))
    workload: Mapped[str] = mapped_column(String(80))
    policy: Mapped[dict[str, Any]]
    state: Mapped[MandateState] = mapped_column(enum_type(MandateState))
    # Why it was paused or revoked.
    state_reason: Mapped[str | None] = mapped_column(String(500))
    revision: Mapped[int] = mapped_column(default=1)
    expires_at: Mapped[datetime | None]
    confirmed_at: Mapped[datetime | None]
    confirmed_by_pk: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    max_runs: Mapped[int | None]
    max_tokens: Mapped[int | None]
    used_runs: Mapped[int] = mapped_column(default=0)
    used_tokens: Mapped[int] = mapped_column(default=0)
    reserved_tokens: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]

    subject: Mapped[User] = relationship(lazy="raise", foreign_keys=[subject_pk])


# The conditions of the partial indexes, written out: with bound values those would not be taken.
ENDS = text("mandates.expires_at IS NOT NULL AND mandates.state <> 'revoked'")
RESTS = text("mandates.state <> 'active'")
