"""Who changed what: one append-only sequence per network, written in the transaction of the change."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any, cast

from sqlalchemy import ForeignKey, Index, String, Table, insert, text
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store import dialect
from webapp.store.base import Base, partial_index
from webapp.store.transaction import Tx

_NOTE = "audit"
_BY_OTHERS = text("actor <> 'worker'")


# Who the engine is in its entries, and the condition of the index over those of all others, written out.
ENGINE = "worker"
BY_OTHERS = text("audit_entries.actor <> 'worker'")


class AuditCounter(Base):
    """The number of the last audit entry of a network."""

    __tablename__ = "audit_counters"

    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"), primary_key=True, autoincrement=False)
    seq: Mapped[int]


class AuditEntry(Base):
    """One change, refusal or use; never updated, never deleted while its subject's history is kept."""

    __tablename__ = "audit_entries"
    __table_args__ = (
        Index("ix_audit_entries_subject", "network_pk", "subject_id", "seq"),
        # Nearly all entries are the engine's uses of mandates: an index over those would be for nobody.
        partial_index("ix_audit_entries_actor", "network_pk", "actor", "seq", where=_BY_OTHERS),
    )

    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"), primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String(120))
    verb: Mapped[str] = mapped_column(String(60))
    subject_kind: Mapped[str] = mapped_column(String(24))
    subject_id: Mapped[str] = mapped_column(String(200))
    detail: Mapped[dict[str, Any]]


def record(
    tx: Tx,
    network_pk: int,
    *,
    actor: str,
    verb: str,
    subject_kind: str,
    subject_id: str,
    detail: dict[str, Any] | None = None,
    now: datetime,
) -> None:
    """Have an audit entry written last in the transaction `tx`.

    `verb` is `<kind>.<what>`, such as `schedule.pause`; `detail` is JSON-able and holds no secrets.
    """
    pending = tx.notes.setdefault(_NOTE, defaultdict(list))
    pending[network_pk].append(
        {
            "at": now,
            "actor": actor,
            "verb": verb,
            "subject_kind": subject_kind,
            "subject_id": subject_id,
            "detail": detail or {},
        }
    )
    tx.write_last(_NOTE, _write)


def _write(tx: Tx) -> None:
    pending: dict[int, list[dict[str, Any]]] = tx.notes[_NOTE]
    counters = cast(Table, AuditCounter.__table__)
    for network_pk in sorted(pending):
        entries = pending[network_pk]
        last = dialect.raise_counter(tx.session, counters, "network_pk", network_pk, len(entries))
        first = last - len(entries) + 1
        rows = [
            {"network_pk": network_pk, "seq": first + place, **entry} for place, entry in enumerate(entries)
        ]
        tx.session.connection().execute(insert(cast(Table, AuditEntry.__table__)), rows)
