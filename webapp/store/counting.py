"""Counting that gives up: a page never counts a million rows to say how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

K = TypeVar("K")

MOST_COUNTED = 10_000


class AtLeast(int):
    """A count that was given up at this number: there are more. Pages print it with a plus sign."""


def count_each(
    session: Session, statements: Mapping[K, Select[Any]], *, most: int = MOST_COUNTED
) -> dict[K, int]:
    """How many rows each statement finds, up to `most`, in one statement; what finds nothing is left out."""
    counted = [
        select(func.count())
        .select_from(statement.limit(most + 1).subquery())
        .scalar_subquery()
        .label(f"number_{place}")
        for place, statement in enumerate(statements.values())
    ]
    numbers = session.execute(select(*counted)).one()
    return {
        key: number if number <= most else AtLeast(most)
        for key, number in zip(statements, numbers, strict=True)
        if number
    }


def count_up_to(session: Session, statement: Select[Any], *, most: int = MOST_COUNTED) -> int:
    """How many rows a statement finds, up to `most`."""
    return count_each(session, {"": statement}, most=most).get("", 0)


def add_up(counts: Iterable[int]) -> int:
    """The sum; `AtLeast` where one of them is."""
    found = list(counts)
    total = sum(found)
    return AtLeast(total) if any(isinstance(count, AtLeast) for count in found) else total
