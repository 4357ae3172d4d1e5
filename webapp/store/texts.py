"""Texts that never change, kept once and referred to: a schedule, its runs and their tasks share one row."""

from __future__ import annotations

from sqlalchemy import Text
from sqlalchemy.orm import Mapped, Session, mapped_column

from webapp.store.base import Base


class WorkText(Base):
    """One wording of an order. Editing a schedule makes a new row; old runs keep the old one."""

    __tablename__ = "work_texts"

    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(Text)


def keep_text(session: Session, body: str) -> WorkText:
    """Store `body` as a new row and return it with its key."""
    row = WorkText(body=body)
    session.add(row)
    session.flush()
    return row
