"""What the JSON edge reads from a request: body, keys, revisions, pages, and the network of a write."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

from flask import request

from webapp.errors import AppError
from webapp.identity.idempotency import Request, check_key
from webapp.identity.queries import Place
from webapp.store.paging import PageRequest, parse_limit
from webapp.web.auth import current_actor, current_person

MAX_BODY_BYTES: Final = 256 * 1024
_REVISION: Final = re.compile(r'(?:W/)?"([1-9][0-9]{0,17})"')
_HALF_OF_A_PAIR: Final = re.compile(rb"\\u(?:[dD][89a-fA-F]|0000)")
_MAX_CURSOR: Final = 200


def json_body(*, optional: bool = False) -> dict[str, Any]:
    """The body as a JSON object; with `optional`, no body at all is an empty object.

    Refused are: another type than an object, keys that occur twice, NaN and infinite numbers, nesting or
    numbers beyond what can be read, and text that no database can hold. Raises AppError
    `unsupported_media_type`, `invalid_json`, `payload_too_large`.
    """
    raw = request.get_data(cache=True)
    if optional and not raw:
        return {}
    if not request.is_json:
        raise AppError("unsupported_media_type")
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_without_repeats,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except (ValueError, RecursionError):
        raise AppError("invalid_json") from None
    if not isinstance(value, dict):
        raise AppError("invalid_json")
    if _HALF_OF_A_PAIR.search(raw) or b"\0" in raw:
        _check_text(value)
    return value


def idempotency_request(operation: str, canonical_input: Any) -> Request | None:
    """The keyed request that the header `Idempotency-Key` makes of this call; None without the header.

    `canonical_input` is what the call asks for, JSON-able, in the form in which equal wishes are equal. Raises
    AppError `invalid_idempotency_key`.
    """
    key = check_key(request.headers.get("Idempotency-Key"))
    if key is None:
        return None
    return Request(current_actor().user_pk, operation, key, canonical_input)


def if_match_revision() -> int | None:
    """The revision in `If-Match: "<revision>"`; None without the header or with `*`.

    Raises AppError `invalid_revision` for another shape.
    """
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    found = _REVISION.fullmatch(header.strip())
    if found is None:
        raise AppError("invalid_revision", field="revision")
    return int(found[1])


def revision_of_change(body_revision: object) -> int | None:
    """The revision a change was made against, from the body or from `If-Match`; None where neither says.

    Raises AppError `invalid_revision` for what is no whole number from 1, or where the two disagree.
    """
    header = if_match_revision()
    if body_revision is None:
        return header
    if type(body_revision) is not int or body_revision < 1:
        raise AppError("invalid_revision", field="revision")
    if header is not None and header != body_revision:
        raise AppError("invalid_revision", field="revision")
    return body_revision


def page_request() -> PageRequest:
    """The `?limit=` (default 50, clamped to 1-200) and `?cursor=` of a list.

    Raises AppError `invalid_limit`, `invalid_cursor`.
    """
    cursor = request.args.get("cursor")
    if cursor is not None and not 1 <= len(cursor) <= _MAX_CURSOR:
        raise AppError("invalid_cursor", field="cursor")
    return PageRequest(parse_limit(request.args.get("limit")), cursor)


def network_of_write(body_network_id: object = None) -> Place:
    """The network that a write goes to: the token's, else the one named, else the caller's only one.

    A token bound to one network reaches that one alone, so naming another is `network_not_found`, as is a
    network of others. Raises AppError `invalid_network_id`, `network_not_found`, `network_id_required`,
    `permission_denied` for somebody who belongs to none.
    """
    places = current_person().places
    if body_network_id is not None:
        if not isinstance(body_network_id, str):
            raise AppError("invalid_network_id", field="network_id")
        for place in places:
            if place.network_id == body_network_id:
                return place
        raise AppError("network_not_found", field="network_id")
    if not places:
        raise AppError("permission_denied", message="You belong to no network.")
    if len(places) > 1:
        raise AppError("network_id_required", field="network_id")
    return places[0]


def networks_of_read() -> frozenset[int]:
    """Primary keys of the networks that a list may show: all of the caller's, or the one of `?network_id=`.

    Raises AppError `network_not_found` for another network.
    """
    wanted = request.args.get("network_id")
    reached = frozenset(place.network_pk for place in current_person().places)
    if wanted is None:
        return reached
    return frozenset({network_of_write(wanted).network_pk})


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Which of two values is meant, the sender must say: readers of JSON disagree about it.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number beyond reach")
    return value


def _check_text(body: dict[str, Any]) -> None:
    """Refuse NUL and halves of surrogate pairs: neither can be stored as text."""
    for key, value in body.items():
        text = json.dumps([key, value], ensure_ascii=False)
        if "\\u0000" in text.replace("\\\\", "") or not _can_be_written(text):
            field = key if _can_be_written(key) and "\0" not in key else None
            raise AppError(
                "invalid_json", field=field, message="The text holds characters that cannot be stored."
            )


def _can_be_written(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
