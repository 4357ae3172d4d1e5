"""Who may knock at which route. A route that does not say so is not served: the app refuses to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from flask import Flask

from webapp.identity.access import Verb

View = TypeVar("View", bound=Callable[..., Any])
_MARK: Final = "carillon_access"


class Door(Enum):
    """Whom a route lets in."""

    PUBLIC = "anybody"
    SIGNED_IN = "a person with a session"
    USER_API = "a person with a session or a user token"
    NODE_API = "a node with its token"


Public: Final = Door.PUBLIC
SignedIn: Final = Door.SIGNED_IN
UserApi: Final = Door.USER_API
NodeApi: Final = Door.NODE_API


@dataclass(frozen=True)
class Access:
    """What a view declares: its door, and the verb its operation demands (None where none is)."""

    door: Door
    verb: Verb | None


@dataclass(frozen=True)
class Route:
    """A route with its declaration, for checks and documents."""

    rule: str
    endpoint: str
    methods: frozenset[str]
    access: Access


class UndeclaredRouteError(Exception):
    """Some routes do not say who may call them."""


def access(door: Door, *, verb: Verb | None = None) -> Callable[[View], View]:
    """Declare who may call a view. Stands below the route's decorator.

    The door is checked before the view runs. The verb is a declaration: whether this person may do it to this
    thing is decided by the operation, which knows the thing, so that a foreign id is 404 before it is 403.
    """

    def declare(view: View) -> View:
        setattr(view, _MARK, Access(door, verb))
        return view

    return declare


def access_of(app: Flask, endpoint: str | None) -> Access | None:
    """What the view of an endpoint declares; None where there is no such view or no declaration."""
    view = app.view_functions.get(endpoint or "")
    return getattr(view, _MARK, None)


def routes(app: Flask) -> Iterator[Route]:
    """Every route that is declared, by address."""
    for rule in sorted(app.url_map.iter_rules(), key=lambda rule: rule.rule):
        declared = access_of(app, rule.endpoint)
        if declared is not None:
            methods = frozenset(rule.methods or ()) - {"HEAD", "OPTIONS"}
            yield Route(rule.rule, rule.endpoint, methods, declared)


def check_routes(app: Flask) -> None:
    """Refuse an app with a route that nobody declared. Raises UndeclaredRouteError naming them all."""
    undeclared = sorted(
        f"{rule.rule} ({rule.endpoint})"
        for rule in app.url_map.iter_rules()
        if access_of(app, rule.endpoint) is None
    )
    if undeclared:
        raise UndeclaredRouteError(f"these routes do not declare who may call them: {', '.join(undeclared)}")
