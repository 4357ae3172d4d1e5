"""Writing events inside the caller's transaction."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Table, insert

from webapp.events.models import Event, EventCounter
from webapp.store import dialect
from webapp.store.transaction import Tx

_NOTE = "events"


def emit(tx: Tx, network_pk: int, event_type: str, data: dict[str, Any], *, now: datetime) -> None:
    """Have an event written last in the transaction `tx`.

    `data` holds public ids and counts only. Equal events of one transaction are written once.
    """
    pending = tx.notes.setdefault(_NOTE, defaultdict(list))
    entry = (event_type, data, now)
    if entry not in pending[network_pk][-8:]:
        pending[network_pk].append(entry)
    tx.write_last(_NOTE, _write)


def _write(tx: Tx) -> None:
    pending: dict[int, list[tuple[str, dict[str, Any], datetime]]] = tx.notes[_NOTE]
    counters = cast(Table, EventCounter.__table__)
    for network_pk in sorted(pending):
        entries = pending[network_pk]
        last = dialect.raise_counter(tx.session, counters, "network_pk", network_pk, len(entries))
        first = last - len(entries) + 1
        rows = [
            {"network_pk": network_pk, "seq": first + place, "type": kind, "data": data, "at": at}
            for place, (kind, data, at) in enumerate(entries)
        ]
        tx.session.execute(insert(Event), rows)
    dialect.announce(tx.session)
