"""Wall times of a pattern -> slots, through clock changes. Instants are whole seconds since 1970 (UTC).

Two ways to live with a clock change, and one in between:

- `FixedSlots`: a time of day. Happens twice: once, at the first. Does not exist: once, at the jump.
- `ElapsedSlots`: a rhythm that follows elapsed time. Whatever the clock shows counts, twice if it shows it twice;
  what it never shows is left out.
- `ElapsedSlots(make_up=True)`: the rhythm repeats with the clock, but a time that does not exist is made up once.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Protocol

from webapp.timetable.calendar_days import LONGEST_GAP_YEARS, WallPattern
from webapp.timetable.walltime import DAY, ZoneClock

_LONGEST_GAP: Final = LONGEST_GAP_YEARS * 366 * DAY


class Slots(Protocol):
    """An ascending set of instants."""

    clock: ZoneClock
    pattern: WallPattern

    def next(self, after: int) -> int | None:
        """The first slot later than `after`."""

    def prev(self, until: int) -> int | None:
        """The last slot at or before `until`."""

    def count(self, after: int, until: int) -> int:
        """How many slots lie in (after, until]."""


class FixedSlots:
    """Each wall time falls on the first instant at which the clock has reached it."""

    __slots__ = ("clock", "pattern")

    def __init__(self, clock: ZoneClock, pattern: WallPattern) -> None:
        self.clock = clock
        self.pattern = pattern

    def next(self, after: int) -> int | None:
        wall = self.pattern.next(self.clock.reached(after))
        return None if wall is None else self.clock.first(wall)

    def prev(self, until: int) -> int | None:
        wall = self.pattern.prev(self.clock.reached(until))
        return None if wall is None else self.clock.first(wall)

    def count(self, after: int, until: int) -> int:
        if until <= after:
            return 0
        pattern = self.pattern
        total = pattern.count(self.clock.reached(after), self.clock.reached(until))
        # All skipped matches of one gap, and a genuine match at the landing, are one slot.
        table = self.clock.through(until)
        for index in range(bisect_right(table.starts, after), bisect_right(table.starts, until)):
            landing = table.starts[index] + table.offsets[index]
            together = pattern.count(table.reach[index - 1] - 1, landing)
            if together > 1:
                total -= together - 1
        return total


class ElapsedSlots:
    """Each instant at which the clock shows a wall time of the pattern."""

    __slots__ = ("clock", "make_up", "pattern")

    def __init__(self, clock: ZoneClock, pattern: WallPattern, *, make_up: bool) -> None:
        """`make_up`: wall times that a gap swallows fire once, at the jump."""
        self.clock = clock
        self.pattern = pattern
        self.make_up = make_up

    def next(self, after: int) -> int | None:
        clock, pattern = self.clock, self.pattern
        starts, offsets, _ = clock.through(after)
        index = bisect_right(starts, after) - 1
        shown = after + offsets[index]
        # A rhythm may name nothing but times that the clock skips every year: it never fires.
        last_wall = shown + _LONGEST_GAP
        while True:
            wall = pattern.next(shown)
            if wall is None or wall > last_wall:
                return None
            if wall >= clock.horizon:
                starts, offsets, _ = clock.through(wall)
            # Nothing of the pattern lies in (shown, wall): walk the segments until one shows `wall`.
            while True:
                instant = wall - offsets[index]
                if instant < starts[index + 1]:
                    return instant
                index += 1
                begins = starts[index] + offsets[index]
                if begins > wall:  # swallowed by a gap
                    if self.make_up:
                        return starts[index]
                    shown = begins - 1
                    break
                if begins <= shown:  # a fold leads back to where there may be earlier matches
                    shown = begins - 1
                    break

    def prev(self, until: int) -> int | None:
        clock, pattern = self.clock, self.pattern
        starts, offsets, _ = clock.through(until)
        index = bisect_right(starts, until) - 1
        shown = until + offsets[index]
        while True:
            wall = pattern.prev(shown)
            if wall is None:
                return None
            # Nothing of the pattern lies in (wall, shown]: walk the segments back until one shows `wall`.
            while True:
                instant = wall - offsets[index]
                if instant >= starts[index]:
                    return instant
                ended = starts[index] + offsets[index - 1]
                if self.make_up and wall >= ended:  # swallowed by a gap
                    return starts[index]
                index -= 1
                if wall >= ended or ended - 1 > shown:
                    shown = ended - 1
                    break

    def count(self, after: int, until: int) -> int:
        if until <= after:
            return 0
        starts, offsets, _ = self.clock.through(until)
        pattern = self.pattern
        first = bisect_right(starts, after) - 1
        total = 0
        for index in range(first, bisect_right(starts, until)):
            offset = offsets[index]
            begins = starts[index] + offset
            shown_before = after + offset if index == first else begins - 1
            total += pattern.count(shown_before, min(until, starts[index + 1] - 1) + offset)
            if self.make_up and index > first:
                ended = starts[index] + offsets[index - 1]
                skipped = pattern.count(ended - 1, begins - 1) > 0
                total += skipped and not pattern.count(begins - 1, begins)
        return total
