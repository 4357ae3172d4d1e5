"""Small words that sentences are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
WEEKDAYS_SHORT: Final = tuple(name[:3] for name in WEEKDAYS)
MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
MONTHS_SHORT: Final = tuple(name[:3] for name in MONTHS)
ORDINALS: Final = ("first", "second", "third", "fourth", "fifth")


def listed(parts: Sequence[str], last: str = "and") -> str:
    """ "a", "a and b", "a, b and c". `parts` is not empty."""
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def from_monday(weekdays: Sequence[int]) -> list[int]:
    """Weekdays (0 = Sunday) in the order people read them: Monday first."""
    return sorted(weekdays, key=lambda day: (day - 1) % 7)


def weekdays_plural(weekdays: Sequence[int]) -> str:
    """ "Weekdays", "Weekends", "Every day", or "Mondays and Fridays"."""
    chosen = frozenset(weekdays)
    if chosen == frozenset(range(1, 6)):
        return "Weekdays"
    if chosen == frozenset({0, 6}):
        return "Weekends"
    if len(chosen) == 7:
        return "Every day"
    return listed([f"{WEEKDAYS[day]}s" for day in from_monday(tuple(chosen))])


def ordinal(number: int) -> str:
    """ "1st", "2nd", "23rd", "11th"."""
    suffix = "th" if 10 < number < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
