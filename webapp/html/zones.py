"""The lines of a zone list as the page shows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from webapp.html import filters
from webapp.timetable import zone_choices


@dataclass(frozen=True)
class ZoneOption:
    """One zone: `label` is its city and country, `offset` and `time` are as of now, `aliases` what people type."""

    name: str
    label: str
    offset: str
    time: str
    aliases: tuple[str, ...]


def zone_options(now: datetime, current: str | None = None) -> tuple[ZoneOption, ...]:
    """Every zone a person may pick, and `current` too where it is an older name that the list leaves out."""
    minute = now.replace(second=0, microsecond=0)
    options = _options_at(minute)
    if current is None or any(option.name == current for option in options):
        return options
    return (_option(current, current, (), minute), *options)


@lru_cache(maxsize=2)
def _options_at(minute: datetime) -> tuple[ZoneOption, ...]:
    return tuple(
        _option(
            choice.name,
            ", ".join(part for part in (choice.city, choice.country) if part),
            choice.aliases,
            minute,
        )
        for choice in zone_choices(minute)
    )


def _option(name: str, label: str, aliases: tuple[str, ...], minute: datetime) -> ZoneOption:
    return ZoneOption(name, label, filters.offset(minute, name), filters.wall(minute, name, "clock"), aliases)
