"""Wishes that are refused with a code, by the product or by rules that are said plainly beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Refused(Exception):
    """What the plain rules answer with a code; it changes nothing."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def code_of(wish: Callable[[], Any], refusal: type[Exception]) -> str | None:
    """Make the wish; returns the code of a refusal of that kind, or None where it is granted."""
    try:
        wish()
    except refusal as refused:
        return str(refused.code)  # type: ignore[attr-defined]
    return None
