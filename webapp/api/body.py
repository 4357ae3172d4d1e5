"""Reading bodies is the same for forms and lives with what both edges share; here is what only JSON has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webapp.errors import AppError
from webapp.nodes.bodies import NoBody
from webapp.web.body import Model, parse
from webapp.web.requests import json_body, revision_of_change

__all__ = ["Model", "bare_change", "change", "parse"]


def change(*, optional: bool = False) -> tuple[dict[str, Any], Callable[[], int | None]]:
    """The fields of a change, and the reader of the revision that it was made against.

    The reader raises AppError `invalid_revision`; `optional` lets the call come without a body.
    """
    data = json_body(optional=optional)
    named = "revision" in data
    given = data.pop("revision", None)

    def revision() -> int | None:
        if named and given is None:
            raise AppError("invalid_revision", field="revision")
        return revision_of_change(given)

    return data, revision


def bare_change() -> Callable[[], int | None]:
    """The same for a call that takes no field but the revision."""
    data, revision = change(optional=True)

    def read() -> int | None:
        seen = revision()
        parse(NoBody, data)
        return seen

    return read
