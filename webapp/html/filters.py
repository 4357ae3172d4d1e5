"""How values read on a page: instants in a named zone, spans of time, counts, states. Pure functions.

Every instant is an aware ``datetime``; a zone is an IANA name. ``None`` reads as a dash, so that a template
may print what has not happened yet. `static/js/app.js` repeats `relative` for the ticking clocks:
change both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from webapp.errors import sentence_of
from webapp.html.markdown import to_markup
from webapp.store.counting import AtLeast
from webapp.timetable import on_clock, utc_text

DASH: Final = "–"
THIN_SPACE: Final = "\u202f"  # narrow and unbreakable: "10 000" never breaks at a line's end
MINUS: Final = "−"

_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_DAYS_SHOWN_WITH_HOURS: Final = 10


class Look(NamedTuple):
    """How a state is drawn: colour class, symbol of the sprite, word."""

    tone: str
    icon: str
    word: str


_LOOKS: Final[Mapping[str, Mapping[str, Look]]] = {
    "schedule": {
        "active": Look("good", "active", "active"),
        "paused": Look("rest", "paused", "paused"),
        "needs_attention": Look("warn", "attention", "needs attention"),
        "proposed": Look("due", "proposed", "proposed"),
        "completed": Look("good", "done", "completed"),
        "cancelled": Look("rest", "cancelled", "cancelled"),
    },
    "run": {
        "queued": Look("busy", "queued", "queued"),
        "delivered": Look("busy", "delivered", "delivered"),
        "running": Look("busy", "running", "running"),
        "completed": Look("good", "completed", "completed"),
        "failed": Look("bad", "failed", "failed"),
        "cancelled": Look("rest", "cancelled", "cancelled"),
        "expired": Look("warn", "expired", "expired"),
        "skipped": Look("rest", "skipped", "skipped"),
    },
    "task": {
        "created": Look("busy", "queued", "in the inbox"),
        "delivered": Look("busy", "delivered", "delivered"),
        "acked": Look("busy", "delivered", "acknowledged"),
        "running": Look("busy", "running", "running"),
        "replied": Look("good", "completed", "replied"),
        "failed": Look("bad", "failed", "failed"),
        "cancelled": Look("rest", "cancelled", "cancelled"),
        "expired": Look("warn", "expired", "expired"),
    },
    "node": {
        "working": Look("busy", "running", "working"),
        "idle": Look("good", "completed", "idle"),
        "blocked": Look("warn", "waiting", "blocked"),
        "error": Look("bad", "failed", "error"),
        "waiting_input": Look("warn", "waiting", "waiting for input"),
        "offline": Look("warn", "offline", "offline"),
        "active": Look("good", "active", "active"),
        "stopping": Look("rest", "paused", "stopping"),
        "stopped": Look("rest", "paused", "stopped"),
        "deleting": Look("rest", "cancelled", "deleting"),
    },
    "turn": {
        "queued": Look("busy", "queued", "waiting its turn"),
        "running": Look("busy", "running", "at work"),
        "waiting_for_action": Look("warn", "waiting", "waits for an answer"),
        "completed": Look("good", "completed", "completed"),
        "failed": Look("bad", "failed", "failed"),
        "aborted": Look("rest", "cancelled", "aborted"),
    },
    "approval": {
        "pending": Look("warn", "waiting", "waits for an answer"),
        "approved": Look("good", "done", "approved"),
        "denied": Look("bad", "failed", "denied"),
        "expired": Look("warn", "expired", "ran out"),
        "withdrawn": Look("rest", "cancelled", "withdrawn"),
    },
    # `expired` and `unconfirmed` are no states of their own: an instant, and a person who is still to be asked.
    "mandate": {
        "active": Look("good", "active", "active"),
        "paused": Look("rest", "paused", "paused"),
        "revoked": Look("rest", "cancelled", "revoked"),
        "expired": Look("warn", "expired", "expired"),
        "unconfirmed": Look("due", "proposed", "to be confirmed"),
    },
}


def look(kind: str, status: str) -> Look:
    """The drawing of a status; an unknown one gets a plain ring. ``kind``: what it is a status of, as above."""
    return _LOOKS[kind].get(status, Look("rest", "queued", status.replace("_", " ")))


def known_statuses(kind: str) -> frozenset[str]:
    """The statuses that have a drawing of their own, so that a test can compare them with a lifecycle."""
    return frozenset(_LOOKS[kind])


def iso(instant: datetime | None) -> str:
    """UTC ISO 8601 with milliseconds and ``Z``; the empty string for ``None``."""
    if instant is None:
        return ""
    return utc_text(instant)


def zone_city(zone: str) -> str:
    """The part of a zone's name people say: ``America/New_York`` is "New York", ``UTC`` stays."""
    if zone.startswith("Etc/"):
        return zone.removeprefix("Etc/")
    return zone.rpartition("/")[2].replace("_", " ")


def offset(instant: datetime, zone: str) -> str:
    """The offset from UTC in force at an instant: "UTC+1", "UTC−3:30", "UTC"."""
    shift = on_clock(instant, ZoneInfo(zone)).utcoffset() or timedelta()
    minutes = round(abs(shift).total_seconds() / _MINUTE)
    if not minutes:
        return "UTC"
    sign = "+" if shift > timedelta() else MINUS
    hours, rest = divmod(minutes, 60)
    return f"UTC{sign}{hours}" + (f":{rest:02d}" if rest else "")


def wall(instant: datetime | None, zone: str, style: str = "long", now: datetime | None = None) -> str:
    """An instant on the wall clock of a zone.

    Styles: ``long`` "Tue 1 Dec, 02:30 Berlin" · ``table`` "Tue 1 Dec 02:30" · ``date`` "Tue 1 Dec" ·
    ``clock`` "02:30" · ``seconds`` "02:30:11" · ``stamp`` "02:30:11.412" ·
    ``day`` "Tuesday 1 December 2026" · ``full`` "Tuesday 1 December 2026, 02:30 Europe/Berlin" ·
    ``exact`` "Tue 1 Dec 2026, 02:30:11 UTC+1, Europe/Berlin" · ``field`` "2026-12-01 02:30".
    With ``now``, the short dates name the year when it is another one. Raises ``KeyError`` for an unknown style.
    """
    if instant is None:
        return DASH
    local = on_clock(instant, ZoneInfo(zone))
    with_year = now is not None and on_clock(now, ZoneInfo(zone)).year != local.year
    return _WALL[style](local, zone, with_year)


def _date(local: datetime, with_year: bool) -> str:
    year = f" {local.year}" if with_year else ""
    return f"{_DAYS[local.weekday()][:3]} {local.day} {_MONTHS[local.month - 1][:3]}{year}"


def _day(local: datetime) -> str:
    return f"{_DAYS[local.weekday()]} {local.day} {_MONTHS[local.month - 1]} {local.year}"


_WALL: Final[Mapping[str, Callable[[datetime, str, bool], str]]] = {
    "long": lambda at, zone, year: f"{_date(at, year)}, {at:%H:%M} {zone_city(zone)}",
    "table": lambda at, _zone, year: f"{_date(at, year)} {at:%H:%M}",
    "date": lambda at, _zone, year: _date(at, year),
    "clock": lambda at, _zone, _year: f"{at:%H:%M}",
    "seconds": lambda at, _zone, _year: f"{at:%H:%M:%S}",
    "stamp": lambda at, _zone, _year: f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}",
    "day": lambda at, _zone, _year: _day(at),
    "full": lambda at, zone, _year: f"{_day(at)}, {at:%H:%M} {zone}",
    "exact": lambda at, zone, _year: f"{_date(at, True)}, {at:%H:%M:%S} {offset(at, zone)}, {zone}",
    "field": lambda at, _zone, _year: f"{at:%Y-%m-%d %H:%M}",
}


def relative(instant: datetime | None, now: datetime) -> str:
    """How far off an instant is: "in 12 h 18 min", "2 s ago", "now"."""
    if instant is None:
        return DASH
    seconds = (instant - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    span = _coarse(int(abs(seconds)))
    return f"in {span}" if seconds > 0 else f"{span} ago"


def _coarse(seconds: int) -> str:
    """Whole seconds as one or two units, the finer one only where it still tells something."""
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min"
    if seconds < _DAY:
        return _two(seconds // _HOUR, "h", seconds % _HOUR // _MINUTE, "min")
    days = seconds // _DAY
    hours = seconds % _DAY // _HOUR if days < _DAYS_SHOWN_WITH_HOURS else 0
    return _two(days, "day" if days == 1 else "days", hours, "h")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit}" + (f" {small} {small_unit}" if small else "")


def duration(span: timedelta | float | None) -> str:
    """A span of time, in seconds where it is a number: "6 ms", "0.4 s", "31 s", "6 min 2 s", "2 h 30 min"."""
    if span is None:
        return DASH
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if seconds < 0:
        return MINUS + duration(-seconds)
    if seconds < 0.1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 10:
        return f"{round(seconds, 1):g} s"
    whole = math.floor(seconds + 0.5)
    if _MINUTE <= whole < _HOUR:
        return _two(whole // _MINUTE, "min", whole % _MINUTE, "s")
    return _coarse(whole)


def number(value: int | None) -> str:
    """A whole number with narrow spaces between the thousands: "10 000"; one that counting gave up at: "10 000+"."""
    if value is None:
        return DASH
    more = "+" if isinstance(value, AtLeast) else ""
    return f"{int(value):,}".replace(",", THIN_SPACE).replace("-", MINUS) + more


def plural(value: int, one: str, many: str | None = None) -> str:
    """A count with its noun: "1 run", "2 runs", "3 entries" by ``many``."""
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def size(octets: int | None) -> str:
    """A number of bytes: "312 bytes", "1.8 KiB", "2 MiB"."""
    if octets is None:
        return DASH
    if octets < 1024:
        return plural(octets, "byte")
    kibibytes = octets / 1024
    return f"{kibibytes:.3g} KiB" if kibibytes < 999.5 else f"{kibibytes / 1024:.3g} MiB"


def tally(statuses: Sequence[str], one: str = "run") -> str:
    """What a strip of results says in words: "Last 3 runs, newest last: 2 completed, 1 failed"."""
    parts = ", ".join(f"{times} {status}" for status, times in Counter(statuses).most_common())
    return f"Last {plural(len(statuses), one)}, newest last: {parts}"


def attributes(values: Mapping[str, Any]) -> Markup:
    """HTML attributes from a mapping, each with a leading blank and escaped.

    ``True`` prints the bare name, ``None`` and ``False`` print nothing. Names come from templates, never from
    a request.
    """
    parts = [
        f" {escape(name)}" if value is True else f' {escape(name)}="{escape(value)}"'
        for name, value in values.items()
        if value is not None and value is not False
    ]
    return Markup("".join(parts))  # noqa: S704 - each part was escaped above


def is_before(instant: datetime, other: datetime) -> bool:
    """Template test: ``{% if run.expires_at is before(now) %}``."""
    return instant < other


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "attributes": attributes,
    "duration": duration,
    "iso": iso,
    "markdown": to_markup,
    "look": lambda status, kind: look(kind, status),
    "number": number,
    "offset": offset,
    "plural": plural,
    "relative": relative,
    "sentence": sentence_of,
    "size": size,
    "tally": tally,
    "wall": wall,
    "zone_city": zone_city,
}

TESTS: Final[Mapping[str, Callable[..., bool]]] = {"before": is_before}
