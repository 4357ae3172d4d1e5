"""Reading the sequence of events of a network."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from webapp.errors import AppError
from webapp.events.models import Event, EventCounter

PAGE_SIZE = 500


@dataclass(frozen=True)
class StoredEvent:
    """One event as it is handed to listeners; `data` holds ids and counts only."""

    network_pk: int
    seq: int
    type: str
    data: dict[str, Any]


_LAST_NUMBERS = select(EventCounter.network_pk, EventCounter.seq).where(
    EventCounter.network_pk.in_(bindparam("networks", expanding=True))
)


def last_numbers(session: Session, network_pks: Collection[int]) -> dict[int, int]:
    """The number of the last event of each of these networks; 0 for one that has none yet."""
    found = session.execute(_LAST_NUMBERS, {"networks": list(network_pks)})
    return {**dict.fromkeys(network_pks, 0), **dict(found.all())}


def events_after(
    session: Session, network_pk: int, after: int, until: int | None = None, limit: int = PAGE_SIZE
) -> Sequence[StoredEvent]:
    """Events with `after` < seq (≤ `until`), in their order, at most `limit`."""
    statement = select(Event.seq, Event.type, Event.data).where(
        Event.network_pk == network_pk, Event.seq > after
    )
    if until is not None:
        statement = statement.where(Event.seq <= until)
    rows = session.execute(statement.order_by(Event.seq).limit(limit))
    return [StoredEvent(network_pk, row.seq, row.type, row.data) for row in rows]


def check_resume(session: Session, network_pk: int, after: int) -> None:
    """Raise AppError `events_expired` unless every event after `after` is still there.

    That is so when `after` is ahead of what exists (another database, or one that was restored), or when the
    event that follows it was pruned.
    """
    last = last_numbers(session, [network_pk])[network_pk]
    oldest = session.scalar(select(func.min(Event.seq)).where(Event.network_pk == network_pk))
    if after > last or after < (last if oldest is None else oldest - 1):
        raise AppError("events_expired")
