"""A next slot that a person skipped or moved became what they asked for. Pure: the audit beside the runs.

A change stands in every definition that the audit wrote down while it was in force. The last of them says what
became of its slot, unless the change was taken back or dropped before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from webapp.scheduling.next_change import SKIPPED_BY_PERSON, ChangeKind, NextChange, change_of
from webapp.scheduling.plans import instant_of_audit


@dataclass(frozen=True)
class Record:
    """What a run says of its slot: since when it is written, its code, how many older slots it stands for."""

    slot: datetime
    created_at: datetime
    code: str | None
    missed_count: int


@dataclass(frozen=True)
class Fault:
    """A run that does not keep to a change, as code and sentence."""

    code: str
    sentence: str


def faults(entries: Sequence[Any], records: Sequence[Record]) -> Iterator[Fault]:
    """Runs that do not keep to the changes in these audit entries (`at`, `detail`; oldest first)."""
    by_slot = {record.slot: record for record in records}
    for change, dropped_at in _in_force_at_the_end(entries):
        record = by_slot.get(change.slot)
        if record is not None:
            yield from _compare(change, dropped_at, record)
    skips = {change.slot for change in _changes(entries) if change.kind is ChangeKind.SKIP}
    for record in records:
        if record.code == SKIPPED_BY_PERSON and record.slot not in skips:
            sentence = f"The slot {record.slot.isoformat()} was skipped, and nobody asked for that."
            yield Fault("skipped_by_nobody", sentence)


def _changes(entries: Sequence[Any]) -> Iterator[NextChange]:
    for entry in entries:
        change = _change_in(entry.detail)
        if change is not None:
            yield change


def _in_force_at_the_end(entries: Sequence[Any]) -> Iterator[tuple[NextChange, datetime | None]]:
    """Changes that were in force when their slot was last spoken of, and when the next definition followed."""
    for place, entry in enumerate(entries):
        change = _change_in(entry.detail)
        if change is None:
            continue
        following = entries[place + 1] if place + 1 < len(entries) else None
        if following is None:
            yield change, None
        elif instant_of_audit(following.detail.get("next_run_at")) != change.slot:
            yield change, following.at


def _change_in(detail: Mapping[str, Any]) -> NextChange | None:
    return change_of(detail.get("next_change"), instant_of_audit(detail.get("next_run_at")))


def _compare(change: NextChange, dropped_at: datetime | None, record: Record) -> Iterator[Fault]:
    if change.kind is ChangeKind.SKIP:
        if (record.code, record.missed_count) != (SKIPPED_BY_PERSON, 0):
            sentence = (
                f"A person had the slot {change.slot.isoformat()} skipped, and its run says another thing."
            )
            yield Fault("skip_not_kept", sentence)
    elif record.created_at < change.falls_due_at and (
        # What ends a move before its time records the slot that it put off.
        dropped_at is None or dropped_at >= change.falls_due_at
    ):
        sentence = f"The slot {change.slot.isoformat()} was moved, and ran before its time."
        yield Fault("move_not_kept", sentence)
