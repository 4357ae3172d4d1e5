"""Who changed what: one append-only sequence per network, written in the transaction of the change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from functools import partial, reduce
from operator import add
from typing import Any, cast

from sqlalchemy import ForeignKey, Index, Insert, String, Table, Text, insert, literal, select, text
from sqlalchemy import cast as cast_as
from sqlalchemy.orm import Mapped, mapped_column

from webapp.store import dialect
from webapp.store.base import Base, partial_index
from webapp.store.given import Given, GivenRows, bound_now, look_up, text_as_json
from webapp.store.transaction import Tx

_NOTE, _GIVEN = "audit", "audit of given rows"
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


def record_given(
    tx: Tx,
    rows: GivenRows,
    counts: Mapping[int, int],
    *,
    actor: str,
    verb: str,
    subject_kind: str,
    subject_id: str,
    detail: tuple[str, ...],
    now: datetime,
) -> None:
    """Have an entry for each given row written last in the transaction `tx`; at most one such set a transaction.

    `rows` have `network_pk` and `from_end`: how many of the same network come after this one. `counts`: how many
    there are of each network. `subject_id` names a column, and `detail` is JSON in pieces: every second one names a
    column whose value is put there as it is.
    """
    if _GIVEN in tx.notes:
        raise RuntimeError("one set of entries in a transaction")
    tx.notes.setdefault(_NOTE, defaultdict(list))
    write = partial(rows.execute, _insert_given, actor, verb, subject_kind, subject_id, detail, now=now)
    tx.notes[_GIVEN] = (counts, write)
    tx.write_last(_NOTE, _write)


def _insert_given(
    rows: Given, actor: str, verb: str, subject_kind: str, subject_id: str, detail: tuple[str, ...]
) -> Insert:
    # For the time when the counters stand at the last of them.
    names = detail[1::2]
    given = rows.table(*dict.fromkeys(("network_pk", "from_end", subject_id, *names)))
    pieces = [
        cast_as(given.c[piece], Text) if place % 2 else literal(piece, Text)
        for place, piece in enumerate(detail)
    ]
    values = {
        "network_pk": given.c.network_pk,
        "seq": AuditCounter.seq - given.c.from_end,
        "at": bound_now(),
        "actor": literal(actor),
        "verb": literal(verb),
        "subject_kind": literal(subject_kind),
        "subject_id": given.c[subject_id],
        "detail": text_as_json(reduce(add, pieces)),
    }
    counted = look_up(given, (AuditCounter, AuditCounter.network_pk == given.c.network_pk))
    source = select(*values.values()).select_from(counted)
    return insert(cast(Table, AuditEntry.__table__)).from_select(list(values), source)


def _write(tx: Tx) -> None:
    pending: dict[int, list[dict[str, Any]]] = tx.notes[_NOTE]
    counts, write_given = tx.notes.get(_GIVEN, ({}, None))
    counters = cast(Table, AuditCounter.__table__)
    connection = tx.session.connection()
    for network_pk in sorted({*pending, *counts}):
        entries, given = pending.get(network_pk, []), counts.get(network_pk, 0)
        last = dialect.raise_counter(tx.session, counters, "network_pk", network_pk, len(entries) + given)
        first = last - given - len(entries) + 1
        rows = [
            {"network_pk": network_pk, "seq": first + place, **entry} for place, entry in enumerate(entries)
        ]
        if rows:
            connection.execute(insert(cast(Table, AuditEntry.__table__)), rows)
    if write_given is not None:
        write_given()
