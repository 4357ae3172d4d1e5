"""Reading the audit of a network: newest first, by sequence number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.audit import AuditEntry
from webapp.errors import AppError
from webapp.store.paging import Page, PageRequest

_NUMBER = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)


@dataclass(frozen=True)
class AuditFilter:
    """What the audit is narrowed to; instants UTC, `until` exclusive; None = not narrowed."""

    actor: str | None = None
    subject_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_entries(
    session: Session, network_pk: int, wanted: AuditFilter, request: PageRequest
) -> Page[AuditEntry]:
    """A page of a network's audit, the newest entry first. Raises AppError `invalid_cursor`."""
    statement = select(AuditEntry).where(AuditEntry.network_pk == network_pk)
    if request.cursor is not None:
        if _NUMBER.fullmatch(request.cursor) is None:
            raise AppError("invalid_cursor", field="cursor")
        statement = statement.where(AuditEntry.seq < int(request.cursor))
    if wanted.actor is not None:
        statement = statement.where(AuditEntry.actor == wanted.actor)
    if wanted.subject_id is not None:
        statement = statement.where(AuditEntry.subject_id == wanted.subject_id)
    if wanted.since is not None:
        statement = statement.where(AuditEntry.at >= wanted.since)
    if wanted.until is not None:
        statement = statement.where(AuditEntry.at < wanted.until)
    rows = list(session.scalars(statement.order_by(AuditEntry.seq.desc()).limit(request.limit + 1)))
    if len(rows) <= request.limit:
        return Page(rows, None)
    rows.pop()
    return Page(rows, str(rows[-1].seq))
