"""Keyset pages: a cursor says after which row to go on, and costs the same on every page."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, or_
from sqlalchemy.orm import InstrumentedAttribute, Session

from webapp.errors import AppError
from webapp.store.base import from_milliseconds, to_milliseconds

T = TypeVar("T")

DEFAULT_LIMIT = 50
MAX_LIMIT = 200


@dataclass(frozen=True)
class Page(Generic[T]):
    """Rows of one page, and the cursor of the next (None at the end)."""

    rows: Sequence[T]
    next_cursor: str | None


@dataclass(frozen=True)
class PageRequest:
    """How many rows (already clamped to 1-200) and after which cursor."""

    limit: int = DEFAULT_LIMIT
    cursor: str | None = None


def parse_limit(text: str | None) -> int:
    """A `?limit=` clamped to 1-200. Raises AppError `invalid_limit` for what is not a whole number."""
    if text is None:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 10:
        raise AppError("invalid_limit", field="limit")
    return max(1, min(MAX_LIMIT, int(text)))


def newest_first(
    session: Session,
    statement: Select[T],
    instant: InstrumentedAttribute[Any],
    key: InstrumentedAttribute[int],
    request: PageRequest,
    values: Callable[[T], tuple[Any, int]],
) -> Page[T]:
    """A page of `statement`, newest `instant` first, then highest `key`.

    `values` gives a row's (instant, key), the place from which the next page goes on. Raises AppError
    `invalid_cursor`.
    """
    if request.cursor is not None:
        at, after = _decode(request.cursor)
        # The first condition alone says where in the index to go on: a choice of two would be read from the top.
        statement = statement.where(instant <= at, or_(instant < at, key < after))
    statement = statement.order_by(instant.desc(), key.desc()).limit(request.limit + 1)
    rows = list(session.scalars(statement))
    cursor = None
    if len(rows) > request.limit:
        rows.pop()
        cursor = _encode(*values(rows[-1]))
    return Page(rows, cursor)


def _encode(instant: Any, key: int) -> str:
    payload = json.dumps([to_milliseconds(instant), key], separators=(",", ":"))
    return base64.urlsafe_b64encode(payload.encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[Any, int]:
    try:
        if len(cursor) > 100:
            raise ValueError
        raw = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        milliseconds, key = json.loads(raw)
        if type(milliseconds) is not int or type(key) is not int or not 0 <= key < 2**63:
            raise ValueError
        return from_milliseconds(milliseconds), key
    except (ValueError, TypeError, OverflowError, binascii.Error, RecursionError):
        raise AppError("invalid_cursor", field="cursor") from None
