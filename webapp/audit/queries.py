"""Reading the audit of a network: newest first, by sequence number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from webapp.audit import BY_OTHERS, ENGINE, AuditEntry
from webapp.errors import AppError
from webapp.store.base import to_milliseconds
from webapp.store.paging import Page, PageRequest

# Numbers are given at the end of a transaction, instants at its begin: the one is in order up to this much.
_SLACK = timedelta(minutes=5)
# The search halves what is left, so that instants need no index of their own, which each use of a mandate would pay.
_MIDDLE = """(
    SELECT entry.at FROM audit_entries AS entry
    WHERE entry.network_pk = :network AND entry.seq <= (halves.low + halves.high) / 2
    ORDER BY entry.seq DESC LIMIT 1
)"""
_HALVING = text(
    """
    WITH RECURSIVE halves(low, high) AS (
        SELECT (SELECT min(seq) FROM audit_entries WHERE network_pk = :network),
            (SELECT max(seq) FROM audit_entries WHERE network_pk = :network)
        UNION ALL
        SELECT CASE WHEN MIDDLE < :at THEN (low + high) / 2 + 1 ELSE low END,
            CASE WHEN MIDDLE < :at THEN high ELSE (low + high) / 2 END
        FROM halves WHERE low < high
    )
    SELECT max(low) FROM halves
    """.replace("MIDDLE", _MIDDLE)
)
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
        if wanted.actor != ENGINE:
            statement = statement.where(BY_OTHERS)
    if wanted.subject_id is not None:
        statement = statement.where(AuditEntry.subject_id == wanted.subject_id)
    if wanted.since is not None:
        first = _number_at(session, network_pk, wanted.since - _SLACK)
        statement = statement.where(AuditEntry.at >= wanted.since, AuditEntry.seq >= first)
    if wanted.until is not None:
        last = _number_at(session, network_pk, wanted.until + _SLACK)
        statement = statement.where(AuditEntry.at < wanted.until, AuditEntry.seq <= last)
    rows = list(session.scalars(statement.order_by(AuditEntry.seq.desc()).limit(request.limit + 1)))
    if len(rows) <= request.limit:
        return Page(rows, None)
    rows.pop()
    return Page(rows, str(rows[-1].seq))


def _number_at(session: Session, network_pk: int, at: datetime) -> int:
    """The number of the first entry that is not before `at`, or of the last one."""
    return session.scalar(_HALVING, {"network": network_pk, "at": to_milliseconds(at)}) or 0
