"""Whose request this is, and whether its route lets them in. Runs before every view."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final

import structlog
from flask import Flask, Response, current_app, g, request
from sqlalchemy.exc import SQLAlchemyError

from webapp.errors import AppError
from webapp.identity import operations
from webapp.identity.access import Actor
from webapp.identity.queries import (
    NodePrincipal,
    Person,
    Place,
    UserPrincipal,
    authenticate_token,
    person_of,
)
from webapp.logs import get_logger
from webapp.store import db
from webapp.web import csrf, sessions
from webapp.web.origin import check_host
from webapp.web.policy import Door, access_of

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{8,64}")
_NODE_PREFIX: Final = "/api/node/"
_FORM_TYPES: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
# Asked every few seconds by machines: a line for each would drown the rest.
_QUIET: Final = ("/healthz", "/readyz", "/metrics", "/static/")
_log = get_logger(__name__)


@dataclass(frozen=True)
class Caller:
    """Who calls: a person, by session or by token, or a node. Nobody: both are None."""

    person: Person | None = None
    token: UserPrincipal | None = None
    node: NodePrincipal | None = None


def init_auth(app: Flask) -> None:
    """Have every request get its id and its instant, and have its caller checked at the door."""
    app.before_request(_begin)
    app.before_request(_admit)
    app.after_request(_sign)
    app.teardown_request(_forget)


def is_api() -> bool:
    """Whether this request is one that must be answered with JSON, whatever happens."""
    return request.path == "/api" or request.path.startswith("/api/")


def caller() -> Caller:
    """Who calls; found out once a request. Raises AppError `unauthenticated` for a bad token."""
    if "caller" not in g:
        g.caller = _find_caller()
    found: Caller = g.caller
    return found


def current_person() -> Person:
    """The person who calls. Raises AppError `unauthenticated` where none does."""
    person = caller().person
    if person is None:
        raise AppError("unauthenticated")
    return person


def current_actor() -> Actor:
    """The person who calls, with their roles. Raises AppError `unauthenticated` where none does."""
    return current_person().actor


def current_token() -> UserPrincipal | None:
    """The user token that this call was made with; None with a session."""
    return caller().token


def current_node() -> NodePrincipal:
    """The node that calls. Raises AppError `unauthenticated` where none does."""
    node = caller().node
    if node is None:
        raise AppError("unauthenticated")
    return node


def viewer_zone() -> str:
    """The time zone in which this viewer's pages show times: chosen in this browser, else the person's own."""
    person = caller().person
    return sessions.chosen_zone() or (person.timezone if person is not None else "UTC")


def viewer_place() -> Place | None:
    """The network whose pages are shown: the one chosen in this browser, else the first; None without any."""
    person = caller().person
    if person is None or not person.places:
        return None
    chosen = sessions.chosen_network_id()
    return next((place for place in person.places if place.network_id == chosen), person.places[0])


def _begin() -> None:
    structlog.contextvars.clear_contextvars()
    g.now = current_app.extensions["carillon_clock"].now()
    g.began = current_app.extensions["carillon_clock"].monotonic()
    g.request_id = _request_id()
    structlog.contextvars.bind_contextvars(request_id=g.request_id)
    check_host()
    _check_text()


def _request_id() -> str:
    # A proxy in front may have named the request already; anybody else's word for it is not taken.
    given = request.headers.get("X-Request-Id", "")
    trusted = current_app.extensions["carillon_config"].trusted_proxies > 0
    return given if trusted and _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def _check_text() -> None:
    """Refuse NUL, which no database text can hold, before anything asks a database with it."""
    if "\0" in request.path:
        raise AppError("not_found")
    if any("\0" in text for pair in request.args.items(multi=True) for text in pair):
        raise AppError("bad_request")
    # Reading a form would use up the body, which `/api` reads as it came; no call there takes a form.
    if (
        not is_api()
        and request.mimetype in _FORM_TYPES
        and any("\0" in text for pair in request.form.items(multi=True) for text in pair)
    ):
        raise AppError("bad_request")


def _admit() -> None:
    access = access_of(current_app, request.endpoint)
    door = access.door if access is not None else None
    if is_api() and door is not Door.PUBLIC:
        # Before the address is looked at: who is nobody learns no addresses.
        _admit_to_api(door)
    elif request.routing_exception is not None:
        return
    elif door is Door.SIGNED_IN:
        if caller().person is None:
            raise AppError("unauthenticated")
    elif door in (Door.USER_API, Door.NODE_API):
        _admit_to_api(door)
    elif door is not Door.PUBLIC:
        raise AppError("permission_denied")
    if request.routing_exception is None and not _by_token():
        csrf.check()


def _admit_to_api(door: Door | None) -> None:
    found = caller()
    if found.person is None and found.node is None:
        raise AppError("unauthenticated")
    for_nodes = door is Door.NODE_API or (door is None and request.path.startswith(_NODE_PREFIX))
    if found.node is not None and not for_nodes:
        raise AppError("user_token_required")
    if found.node is None and for_nodes:
        raise AppError("permission_denied", message="This call is for a node with its own token.")


def _by_token() -> bool:
    """Whether the caller sent a token of their own accord, which no other site can make a browser do."""
    found: Caller | None = g.get("caller")
    return found is not None and (found.token is not None or found.node is not None)


def _find_caller() -> Caller:
    header = request.headers.get("Authorization")
    takes_token = is_api() or _door() in (Door.USER_API, Door.NODE_API)
    if header is None or not takes_token:
        return Caller(person=sessions.person(g.now))
    return bearer_caller(header)


def _door() -> Door | None:
    access = access_of(current_app, request.endpoint)
    return access.door if access is not None else None


def bearer_caller(header: str) -> Caller:
    """Who an `Authorization` header stands for. Raises AppError `unauthenticated`."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "bearer":
        raise AppError("unauthenticated")
    principal = authenticate_token(db.session(), text.strip(), now=g.now)
    if isinstance(principal, NodePrincipal):
        _record_use(principal)
        return Caller(node=principal)
    person = person_of(db.session(), user_pk=principal.user_pk, network_pk=principal.network_pk)
    if person is None:
        raise AppError("unauthenticated")
    _record_use(principal)
    return Caller(person=person, token=principal)


def _record_use(principal: UserPrincipal | NodePrincipal) -> None:
    if not operations.use_is_worth_recording(principal.last_used_at, g.now):
        return
    try:
        operations.record_use(principal.token_pk, now=g.now)
    except SQLAlchemyError:
        # When it was last used is a courtesy; the call itself must not fail for it.
        _log.warning("a token's last use could not be recorded")


def _sign(response: Response) -> Response:
    response.headers["X-Request-Id"] = g.get("request_id", "")
    if is_api():
        response.headers.setdefault("Cache-Control", "no-store")
    if not request.path.startswith(_QUIET):
        _log_request(response)
    return response


def _log_request(response: Response) -> None:
    """One line a request. The address without its query, which may hold a secret (`/setup?token=`)."""
    elapsed = current_app.extensions["carillon_clock"].monotonic() - g.get("began", 0.0)
    say = _log.warning if response.status_code >= 500 else _log.info
    say(
        "request",
        method=request.method,
        path=request.path,
        status=response.status_code,
        ms=round(elapsed * 1000, 1),
    )


def _forget(_error: BaseException | None) -> None:
    structlog.contextvars.clear_contextvars()
