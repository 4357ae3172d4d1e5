"""What must always hold, and whether it does: the invariants of the product, looked up in the database.

Reads and never writes; safe beside workers and people at work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from webapp.doctor import chats, mandates, rows, slots
from webapp.doctor.violation import Violation
from webapp.store import app_clock, app_config, reading

Check = Callable[[Session, datetime], Sequence[Violation]]


def examine(*, now: datetime | None = None) -> list[Violation]:
    """Every violation that is found: its invariant's number, a code, a sentence, and public ids.

    Needs an app context. `now` (aware, UTC) is the app's present if it is not given. What is found is looked
    at a second time, and only what is still there counts: rows that moved between two reads are no violation.
    At most 100 violations of a kind are listed.
    """
    instant = now or app_clock().now()
    found = _look(instant)
    if not found:
        return []
    still = _look(instant)
    return [violation for violation in found if violation in still]


def _look(now: datetime) -> list[Violation]:
    tick_seconds = app_config().tick_seconds

    def overdue(session: Session, now: datetime) -> Sequence[Violation]:
        return rows.overdue(session, now, tick_seconds)

    checks: tuple[Check, ...] = (overdue, slots.unaccounted, *rows.CHECKS, *chats.CHECKS, *mandates.CHECKS)
    found: list[Violation] = []
    for check in checks:
        with reading() as session:
            found.extend(check(session, now))
    return found
