"""The shape of what the doctor reports."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Violation: TypeAlias = dict[str, Any]
"""`invariant` (its number in the product's list), `code`, `message`, and the public ids that it is about."""

MOST_LISTED: Final = 100


def violation(invariant: int, code: str, message: str, **about: Any) -> Violation:
    """One violated invariant; `about` is JSON-able."""
    return {"invariant": invariant, "code": code, "message": message, **about}
