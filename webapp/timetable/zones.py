"""Which zone names exist, what people call them, and which data they come from.

Zone data comes from the PyPI `tzdata` package and wins over the system's copy, so that every machine that runs
the same version agrees about every slot.
"""

from __future__ import annotations

import re
import unicodedata
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files

from webapp.timetable.errors import TimetableError
from webapp.timetable.zone_words import BETTER_THAN_LINK, CITIES_PEOPLE_TYPE, KEPT_AS_THEY_ARE

# The system's copy may be years old: search nothing but the package, and forget what was read before.
zoneinfo.reset_tzpath(to=[])
zoneinfo.ZoneInfo.clear_cache()

ZONE_DATA_VERSION: str = str(import_module("tzdata").IANA_VERSION)
"""The version of the tz database in use, such as "2026f"."""

_LONGEST_NAME = 64
_NOT_OFFERED = frozenset({"Factory", "localtime", "posixrules"})


def _package_lines(*path: str) -> list[str]:
    """The lines of a text file inside the zone data package, without comments and blanks."""
    text = files("tzdata").joinpath(*path).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@cache
def _allowed() -> dict[str, str]:
    """Lower-case name -> name as the tz database spells it, for every name a schedule may use."""
    names = (line.strip() for line in _package_lines("zones"))
    return {
        name.lower(): name
        for name in names
        if name not in _NOT_OFFERED and not name.startswith(("right/", "posix/"))
    }


def canonical_zone(name: object) -> str:
    """The name of a zone as the tz database spells it.

    Surrounding blanks are dropped and letter case is corrected; a link such as Europe/Amsterdam stays what it is.
    Raises `TimetableError("invalid_timezone")` for anything that is not a name of the database.
    """
    if isinstance(name, str):
        trimmed = name.strip()
        # Only ASCII: `lower()` would turn a Kelvin sign into a plain k.
        if trimmed and len(trimmed) <= _LONGEST_NAME and trimmed.isascii():
            found = _allowed().get(trimmed.lower())
            if found is not None:
                return found
    raise TimetableError(
        "invalid_timezone", "timezone", "Choose a time zone by its IANA name, such as Europe/Berlin or UTC."
    )


@cache
def _zone_info(name: str) -> zoneinfo.ZoneInfo:
    return zoneinfo.ZoneInfo(name)


def zone(name: object) -> zoneinfo.ZoneInfo:
    """The `ZoneInfo` of a name, for showing local times. Raises `TimetableError("invalid_timezone")`."""
    return _zone_info(canonical_zone(name))


def on_clock(instant: datetime, clock: tzinfo) -> datetime:
    """An aware instant on a zone's clock; in UTC where that clock has left the calendar (31 Dec 9999, 1 Jan 1)."""
    try:
        return instant.astimezone(clock)
    except OverflowError:
        return instant.astimezone(UTC)


# --- Names for people -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ZoneChoice:
    """One line of the zone list.

    `offset_minutes` east of UTC at the moment asked for; `aliases` are older names and other cities of the zone.
    """

    name: str
    city: str
    country: str
    offset_minutes: int
    aliases: tuple[str, ...]


@cache
def _links() -> dict[str, str]:
    """Old name -> the name it stands for, from the compact copy of the database."""
    fields = (line.split() for line in _package_lines("zoneinfo", "tzdata.zi") if line.startswith("L "))
    return {link: target for _, target, link in fields}


@cache
def _places() -> dict[str, str]:
    """Zone name -> English country name, one entry for each zone of the database's table of places."""
    countries = dict(line.split("\t", 1) for line in _package_lines("zoneinfo", "iso3166.tab"))
    rows = (line.split("\t") for line in _package_lines("zoneinfo", "zone.tab"))
    return {row[2]: countries.get(row[0], row[0]) for row in rows}


def _city(name: str) -> str:
    """ "America/Indiana/Knox" -> "Knox, Indiana"."""
    _, *parts = name.split("/")
    parts = [part.replace("_", " ") for part in parts]
    if len(parts) == 2 and parts[0] != "Argentina":
        return f"{parts[1]}, {parts[0]}"
    return parts[-1] if parts else name


def suggest_zone(name: object) -> str | None:
    """The current name for one that a browser reports (Asia/Calcutta -> Asia/Kolkata), or None if it is unknown.

    A name that stands in the list of choices is its own answer, and so are short names such as EST, which say an
    offset and no place.
    """
    try:
        known = canonical_zone(name)
    except TimetableError:
        return None
    if known in _places() or known in KEPT_AS_THEY_ARE:
        return known
    target = BETTER_THAN_LINK.get(known) or _links().get(known, known)
    return "UTC" if target in ("Etc/UTC", "Etc/GMT") else target


@cache
def _aliases() -> dict[str, tuple[str, ...]]:
    """Zone name -> city names people type, then older names of the zone."""
    found: dict[str, list[str]] = {}
    for city, name in CITIES_PEOPLE_TYPE.items():
        found.setdefault(name, []).append(city)
    for name in sorted(_allowed().values()):
        current = suggest_zone(name)
        if current is not None and current != name:
            found.setdefault(current, []).append(name)
    return {name: tuple(names) for name, names in found.items()}


def zone_choices(now: datetime) -> tuple[ZoneChoice, ...]:
    """Every zone a person may pick, UTC first, then by city, with its offset in the hour of `now` (aware)."""
    return _choices_in_hour(int(now.timestamp()) // 3600)


@lru_cache(maxsize=4)
def _choices_in_hour(hour: int) -> tuple[ZoneChoice, ...]:
    rows = [_choice("UTC", "UTC", "", hour)]
    rows += sorted(
        (_choice(name, _city(name), country, hour) for name, country in _places().items()),
        key=lambda choice: (_plain(choice.city), choice.name),
    )
    return tuple(rows)


def _choice(name: str, city: str, country: str, hour: int) -> ZoneChoice:
    info = _zone_info(name)
    offset = datetime.fromtimestamp(hour * 3600, info).utcoffset()
    minutes = 0 if offset is None else int(offset.total_seconds() // 60)
    return ZoneChoice(name, city, country, minutes, _aliases().get(name, ()))


# --- Search -----------------------------------------------------------------------------------------------------

_OFFSET = re.compile(r"(?:utc|gmt)?\s*([+\-\u2212])\s*(\d{1,2})(?::?([0-5]\d))?", re.ASCII | re.IGNORECASE)


def _plain(text: str) -> str:
    """Lower case, without accents and with blanks for punctuation: what two spellings of a place share."""
    folded = unicodedata.normalize("NFKD", text.casefold())
    kept = (" " if char in "_/-,.'" else char for char in folded if not unicodedata.combining(char))
    return " ".join("".join(kept).split())


@lru_cache(maxsize=1024)
def _search_texts(name: str) -> tuple[tuple[str, ...], str]:
    """What a zone is found by: its names (city, aliases, own name), and its country."""
    country = _places().get(name, "")
    city = "UTC" if name == "UTC" else _city(name)
    names = (city, *_aliases().get(name, ()), name)
    return tuple(_plain(text) for text in names), _plain(country)


def _rank(choice: ZoneChoice, wanted: str) -> int | None:
    """How well a zone answers a plain query: 0 is best, None is not at all."""
    names, country = _search_texts(choice.name)
    if wanted in names or wanted == country:
        return 0
    if names[0].startswith(wanted):
        return 1
    if any(text.startswith(wanted) for text in names[1:]):
        return 2
    if country.startswith(wanted):
        return 3
    everything = " ".join((*names, country))
    if f" {wanted}" in everything:
        return 4
    words = wanted.split()
    if len(words) > 1 and all(f" {word}" in f" {everything}" for word in words):
        return 5
    return 6 if len(wanted) > 2 and wanted in everything else None


def search_zones(query: str, now: datetime, limit: int = 20) -> tuple[ZoneChoice, ...]:
    """The zones that answer a city, a country, an older name or an offset ("+5:30"), best first.

    An empty query answers the first `limit` choices. `now` is aware and decides the offsets.
    """
    choices = zone_choices(now)
    query = query[:200].strip()
    if not query:
        return choices[:limit]
    offset = _OFFSET.fullmatch(query)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        east = minutes if offset[1] == "+" else -minutes
        return tuple(choice for choice in choices if choice.offset_minutes == east)[:limit]
    wanted = _plain(query)
    if not wanted:
        return ()
    ranked = [(rank, choice) for choice in choices if (rank := _rank(choice, wanted)) is not None]
    ranked.sort(key=lambda pair: pair[0])
    return tuple(choice for _, choice in ranked[:limit])
