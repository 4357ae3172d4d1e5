"""From the stored columns of a schedule to the plan that knows its slots."""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import Any

from webapp.timetable import Plan, from_stored


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


@lru_cache(maxsize=4096)
def _plan(timetable: str, timezone: str, starts_at: datetime | None, ends_at: datetime | None) -> Plan:
    # Many schedules share a timetable: a herd at nine reads it once.
    return Plan(from_stored(json.loads(timetable), timezone), starts_at, ends_at)


def is_once(definition: Any) -> bool:
    """Whether a schedule (or a row with its columns) has one slot only, and ends with it."""
    return bool(definition.timetable.get("type") == "once")
