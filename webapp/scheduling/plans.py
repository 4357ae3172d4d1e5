"""From the stored columns of a schedule to the plan that knows its slots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from webapp.clock import parse_instant
from webapp.timetable import Plan, TimetableError, from_stored


def plan_of(definition: Any) -> Plan:
    """The plan of a schedule (a `Schedule`, or a row with its columns).

    Raises TimetableError `unreadable_timetable` when the stored timetable cannot be read.
    """
    return _plan(
        json.dumps(definition.timetable, sort_keys=True, separators=(",", ":")),
        definition.timezone,
        definition.starts_at,
        definition.ends_at,
    )


def plan_of_stored(
    timetable: str, timezone: str, starts_at: datetime | None, ends_at: datetime | None
) -> Plan:
    """The same from the text of a stored timetable. Raises TimetableError, and ValueError where it is no JSON."""
    return Plan(from_stored(json.loads(timetable), timezone), starts_at, ends_at)


@lru_cache(maxsize=4096)
def _plan(timetable: str, timezone: str, starts_at: datetime | None, ends_at: datetime | None) -> Plan:
    # Many schedules share a timetable: a herd at nine reads it once.
    return Plan(from_stored(json.loads(timetable), timezone), starts_at, ends_at)


def plan_of_audited(detail: Mapping[str, Any]) -> Plan | None:
    """The plan of a definition as the audit wrote it down; None where it cannot be read."""
    try:
        return _plan(
            json.dumps(detail.get("timetable"), sort_keys=True, separators=(",", ":")),
            str(detail.get("timezone")),
            instant_of_audit(detail.get("starts_at")),
            instant_of_audit(detail.get("ends_at")),
        )
    except TimetableError:
        return None


def instant_of_audit(text: str | None) -> datetime | None:
    """An instant as the audit writes it."""
    return None if text is None else parse_instant(text)


def is_once(definition: Any) -> bool:
    """Whether a schedule (or a row with its columns) has one slot only, and ends with it."""
    stored = definition.timetable
    return isinstance(stored, dict) and stored.get("type") == "once"
