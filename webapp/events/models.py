"""The outbox: events in the order of their commits, gapless per network."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store.base import Base


class EventCounter(Base):
    """The number of the last event of a network."""

    __tablename__ = "event_counters"

    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"), primary_key=True, autoincrement=False)
    seq: Mapped[int]


class Event(Base):
    """Something that changed; `data` holds ids only, never content: permission belongs to the reader."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_at", "at"),)

    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"), primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str] = mapped_column(String(40))
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime]
