"""The one change that a person may make to the next slot: skip it, or have it fall due at another time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from webapp.clock import parse_instant
from webapp.timetable import Plan, utc_text

SKIPPED_BY_PERSON = "skipped_by_person"


class ChangeKind(StrEnum):
    """What becomes of the slot."""

    SKIP = "skip"
    MOVE = "move"


@dataclass(frozen=True)
class NextChange:
    """A change of one slot. `to` is when a moved one falls due; a skipped one has none. Instants UTC."""

    kind: ChangeKind
    slot: datetime
    to: datetime | None = None

    @property
    def falls_due_at(self) -> datetime:
        """When the engine handles the slot, and from when on it is late."""
        return self.slot if self.to is None else self.to

    def to_json(self) -> dict[str, Any]:
        """As it is stored, audited and shown: `{"kind", "slot", "to"}`, instants as text."""
        return {
            "kind": self.kind.value,
            "slot": utc_text(self.slot),
            "to": None if self.to is None else utc_text(self.to),
        }


def change_of(stored: Mapping[str, Any] | None, next_run_at: datetime | None) -> NextChange | None:
    """The stored change of the slot `next_run_at`; None where nothing is stored, or it is about another slot."""
    if stored is None:
        return None
    to = stored["to"]
    change = NextChange(
        ChangeKind(stored["kind"]), parse_instant(stored["slot"]), None if to is None else parse_instant(to)
    )
    return change if change.slot == next_run_at else None


def falls_due_at(stored: Mapping[str, Any] | None, next_run_at: datetime) -> datetime:
    """When the slot `next_run_at` falls due."""
    change = change_of(stored, next_run_at)
    return next_run_at if change is None else change.falls_due_at


def may_move_to(plan: Plan, slot: datetime, to: datetime, now: datetime) -> bool:
    """Whether a slot may fall due at `to`: after now, and before the slot that follows it."""
    following = plan.next_after(slot)
    return to > now and (following is None or to < following)
