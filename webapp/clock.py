"""The only place that reads the time of day."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_INSTANT = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)


def to_millisecond(instant: datetime) -> datetime:
    """Cut an aware instant to UTC with whole milliseconds, the precision that is stored and compared."""
    instant = instant.astimezone(UTC)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def parse_instant(text: object) -> datetime:
    """An instant written with its offset (ISO 8601), as UTC to the millisecond.

    Raises ValueError for anything else: another type, a time without an offset, a date that does not exist.
    """
    if not isinstance(text, str) or len(text) > 40 or _INSTANT.fullmatch(text) is None:
        raise ValueError("not an instant with an offset")
    try:
        return to_millisecond(datetime.fromisoformat(text.upper()))
    except OverflowError as error:
        raise ValueError("out of range") from error


class Clock(Protocol):
    """Tells the present instant, aware, UTC, in whole milliseconds; and seconds that only grow."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The present instant, UTC, to the millisecond."""
        return to_millisecond(datetime.now(UTC))

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back, whatever happens to the wall clock."""
        return time.monotonic()


class FrozenClock:
    """A clock that moves only when told; for tests, demos and what-if questions."""

    def __init__(self, start: datetime) -> None:
        self._now = to_millisecond(start)
        self._elapsed_seconds = 0.0

    def now(self) -> datetime:
        """The instant last set, UTC."""
        return self._now

    def monotonic(self) -> float:
        """Seconds advanced since the start; setting the clock back does not lower it."""
        return self._elapsed_seconds

    def advance(self, **parts: float) -> datetime:
        """Move forward by `timedelta(**parts)`; returns the new instant."""
        step = timedelta(**parts)
        self._elapsed_seconds += max(0.0, step.total_seconds())
        self._now = to_millisecond(self._now + step)
        return self._now

    def set(self, instant: datetime) -> None:
        """Jump to any instant, also into the past."""
        self._elapsed_seconds += max(0.0, (instant - self._now).total_seconds())
        self._now = to_millisecond(instant)
