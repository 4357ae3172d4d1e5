"""What narrows a list, read from the query string. A wrong value is refused with `invalid_<name>`."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from flask import request

from webapp.clock import parse_instant
from webapp.errors import AppError
from webapp.ids import is_public_id

Choice = TypeVar("Choice", bound=StrEnum)


def choice_of(name: str, enum: type[Choice]) -> Choice | None:
    """`?name=` as a member of `enum`; None where it is not given."""
    text = request.args.get(name)
    if text is None:
        return None
    try:
        return enum(text)
    except ValueError:
        raise AppError(f"invalid_{name}", field=name) from None


def instant_of(name: str) -> datetime | None:
    """`?name=` as an instant with its offset, UTC; None where it is not given."""
    text = request.args.get(name)
    if text is None:
        return None
    try:
        return parse_instant(text)
    except ValueError:
        raise AppError(f"invalid_{name}", field=name) from None


def id_of(name: str) -> str | None:
    """`?name=` in the shape of a public id; None where it is not given."""
    text = request.args.get(name)
    if text is not None and not is_public_id(text):
        raise AppError(f"invalid_{name}", field=name)
    return text


def line_of(name: str, shortest: int, longest: int) -> str | None:
    """`?name=` as one line of so many characters; None where it is not given."""
    text = request.args.get(name)
    if text is not None and not (shortest <= len(text) <= longest and _is_one_line(text)):
        raise AppError(f"invalid_{name}", field=name)
    return text


def _is_one_line(text: str) -> bool:
    return all(unicodedata.category(letter) not in ("Cc", "Cs", "Zl", "Zp") for letter in text)
