"""A clock for tests with several processes: all of them read the instant from one small file."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from pathlib import Path

from webapp.clock import to_millisecond


class FileClock:
    """Tells the instant that a file holds; the test moves every process at once by writing it.

    Where no file exists yet, making the clock with `start` writes it.
    """

    def __init__(self, path: Path, start: datetime | None = None) -> None:
        self.path = path
        if start is not None:
            self.set(start)

    def now(self) -> datetime:
        """The instant in the file, aware, UTC, to the millisecond."""
        return to_millisecond(datetime.fromisoformat(self.path.read_text()))

    def monotonic(self) -> float:
        """Real seconds: how long something takes is not part of the scene."""
        return time.monotonic()

    def set(self, instant: datetime) -> None:
        """Jump to an instant (aware) in every process; readers see the old one or the new one, never half."""
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        draft.write_text(to_millisecond(instant).isoformat())
        draft.replace(self.path)

    def advance(self, **parts: float) -> datetime:
        """Move forward by `timedelta(**parts)`; returns the new instant."""
        instant = self.now() + timedelta(**parts)
        self.set(instant)
        return instant
