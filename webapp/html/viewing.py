"""What a page of this request looks at: networks, filters, the keys of its forms."""

from __future__ import annotations

import secrets
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlencode

from flask import request

from webapp.errors import AppError
from webapp.identity.idempotency import Request, check_key
from webapp.web.auth import current_actor, viewer_place

Choice = TypeVar("Choice", bound=StrEnum)


def shown_networks() -> frozenset[int]:
    """Primary keys of the networks that lists show: the one that is looked at; none for who has none."""
    place = viewer_place()
    return frozenset() if place is None else frozenset({place.network_pk})


def reached_networks() -> frozenset[int]:
    """Primary keys of all networks of the viewer: a link to a thing works whichever one is looked at."""
    return current_actor().networks


def asked(name: str) -> str | None:
    """A value of the query; an empty one, as a form sends it for "all", is none."""
    return request.args.get(name) or None


def asked_choice(name: str, choices: type[Choice]) -> Choice | None:
    """A value of the query that is one of `choices`. Raises AppError `invalid_<name>` for another."""
    text = asked(name)
    if text is None:
        return None
    try:
        return choices(text)
    except ValueError:
        raise AppError(f"invalid_{name}", field=name) from None


def address(path: str | None = None, /, **query: object) -> str:
    """A path, this one if none is named, with a query of the values that are not None."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    path = path or request.path
    return f"{path}?{urlencode(given)}" if given else path


def new_form_key() -> str:
    """The key of a form that creates something: pressed twice, it creates once."""
    return secrets.token_urlsafe(18)


def keyed_request(operation: str, canonical_input: Any) -> Request | None:
    """The keyed request that the hidden field `idempotency_key` makes of a form; None without the field.

    Raises AppError `invalid_idempotency_key`.
    """
    key = check_key(request.form.get("idempotency_key") or None)
    return None if key is None else Request(current_actor().user_pk, operation, key, canonical_input)
