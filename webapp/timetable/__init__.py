"""When is the next slot? Pure arithmetic over plain values: no clock, no database, no web framework.

Everything other packages may use is exported here.
"""

from __future__ import annotations

from webapp.timetable.describe import (
    ClockChange,
    Occurrence,
    clock_changes,
    sentence,
    upcoming,
)
from webapp.timetable.errors import TimetableError
from webapp.timetable.kinds import Cron, Daily, Interval, Once, Plan, Span, Timetable, Weekly
from webapp.timetable.local_days import day_begins, local_day, offsets_between
from webapp.timetable.parsing import (
    ABSENT,
    Absent,
    canonical_form,
    from_stored,
    parse_timetable,
    rezone,
    same_timetable,
    to_public,
    to_stored,
    utc_text,
)
from webapp.timetable.zones import (
    ZONE_DATA_VERSION,
    ZoneChoice,
    canonical_zone,
    on_clock,
    search_zones,
    suggest_zone,
    zone,
    zone_choices,
)

__all__ = [
    "ABSENT",
    "ZONE_DATA_VERSION",
    "Absent",
    "ClockChange",
    "Cron",
    "Daily",
    "Interval",
    "Occurrence",
    "Once",
    "Plan",
    "Span",
    "Timetable",
    "TimetableError",
    "Weekly",
    "ZoneChoice",
    "canonical_form",
    "canonical_zone",
    "clock_changes",
    "day_begins",
    "from_stored",
    "local_day",
    "offsets_between",
    "on_clock",
    "parse_timetable",
    "rezone",
    "same_timetable",
    "search_zones",
    "sentence",
    "suggest_zone",
    "to_public",
    "to_stored",
    "upcoming",
    "utc_text",
    "zone",
    "zone_choices",
]
