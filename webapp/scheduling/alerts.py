"""Cards that wait for a person: at most one open per network, kind and subject."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Table, select, update
from sqlalchemy.orm import Session

from webapp.events import outbox
from webapp.scheduling.models import Alert
from webapp.store import dialect
from webapp.store.transaction import Tx


def raise_alert(
    tx: Tx,
    network_pk: int,
    kind: str,
    subject_id: str,
    code: str,
    *,
    schedule_pk: int | None = None,
    detail: dict[str, Any] | None = None,
    now: datetime,
) -> None:
    """Raise a card unless the same one is open already; says so with an `alert` event."""
    table = cast(Table, Alert.__table__)
    row = {
        "network_pk": network_pk,
        "kind": kind,
        "subject_id": subject_id,
        "schedule_pk": schedule_pk,
        "code": code,
        "detail": detail or {},
        "created_at": now,
    }
    if dialect.insert_new(tx.session, table, [row], returning=[table.c.id]):
        outbox.emit(tx, network_pk, "alert", {"subjects": [subject_id]}, now=now)


def resolve_alerts(
    tx: Tx, network_pk: int, subject_id: str, *, kind: str | None = None, now: datetime
) -> None:
    """Close the open cards of a subject (of one kind, if given)."""
    statement = update(Alert).where(
        Alert.network_pk == network_pk, Alert.subject_id == subject_id, Alert.resolved_at.is_(None)
    )
    if kind is not None:
        statement = statement.where(Alert.kind == kind)
    tx.session.execute(statement.values(resolved_at=now))


def open_subjects(session: Session, kind: str, subject_ids: Sequence[str]) -> set[str]:
    """Which of these subjects have an open card of this kind."""
    statement = select(Alert.subject_id).where(
        Alert.kind == kind, Alert.subject_id.in_(subject_ids), Alert.resolved_at.is_(None)
    )
    return set(session.scalars(statement))


def resolve_kind(tx: Tx, kind: str, subject_ids: Sequence[str], *, now: datetime) -> None:
    """Close the open cards of one kind for these subjects."""
    tx.session.execute(
        update(Alert)
        .where(Alert.kind == kind, Alert.subject_id.in_(subject_ids), Alert.resolved_at.is_(None))
        .values(resolved_at=now)
    )
