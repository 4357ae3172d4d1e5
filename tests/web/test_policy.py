"""Every route says who may call it, and nobody else gets past the door."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from flask import Flask

from tests.factories import Cast, bearer, make_node_token, make_token, signed_in
from webapp import create_app
from webapp.clock import FrozenClock
from webapp.config import Config
from webapp.identity.access import RULES
from webapp.nodes import operations as nodes
from webapp.web import policy
from webapp.web.policy import Door, Public, Route, access

ONE_ENGINE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def calls(app: Flask, *doors: Door) -> Iterator[tuple[Route, str, str]]:
    """Each route and method behind these doors, with an address that fits the route."""
    for route in policy.routes(app):
        if route.access.door in doors:
            address = re.sub(r"<(?:int:)?[^>]+>", "1", route.rule)
            for method in sorted(route.methods):
                yield route, method, address


@ONE_ENGINE
def test_an_app_with_a_route_that_nobody_declared_does_not_start(
    config: Config, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    import webapp

    def with_a_hole(app: Flask) -> None:
        app.add_url_rule("/hole", "hole", lambda: "open to all")
        app.add_url_rule("/fine", "fine", access(Public)(lambda: "said so"))

    monkeypatch.setattr(webapp, "_init_commands", with_a_hole)
    with pytest.raises(policy.UndeclaredRouteError, match=r"/hole \(hole\)") as refused:
        create_app(config, clock)
    assert "/fine" not in str(refused.value)


@ONE_ENGINE
def test_a_route_that_slipped_through_all_the_same_is_closed(own_app: Flask) -> None:
    own_app.add_url_rule("/hole", "hole", lambda: "open to all")
    assert own_app.test_client().get("/hole").status_code == 403


@ONE_ENGINE
def test_what_is_open_to_anybody_is_known_by_name(app: Flask) -> None:
    open_routes = {route.rule for route in policy.routes(app) if route.access.door is Public}
    assert open_routes <= {
        "/healthz",
        "/readyz",
        "/metrics",
        "/sign-in",
        "/setup",
        "/static/build/<name>",
        "/api/openapi.json",
    }


@ONE_ENGINE
def test_what_changes_something_names_its_verb(app: Flask) -> None:
    own_account = {"/sign-out", "/switch-network", "/settings/time-zone", "/settings/password", "/keys"}
    silent = {
        f"{sorted(route.methods & CHANGING)} {route.rule}"
        for route in policy.routes(app)
        if route.methods & CHANGING
        and route.access.door in (Door.USER_API, Door.SIGNED_IN)
        and route.access.verb is None
        and route.rule not in own_account
        and not route.rule.endswith("/preview")
    }
    assert silent == set()
    named = {route.access.verb for route in policy.routes(app)} - {None}
    assert named <= set(RULES)


@ONE_ENGINE
def test_a_stranger_gets_nowhere(app: Flask) -> None:
    client = app.test_client()
    seen = 0
    for route, method, address in calls(app, Door.USER_API, Door.NODE_API, Door.SIGNED_IN):
        answer = client.open(address, method=method)
        seen += 1
        if address.startswith("/api/"):
            assert (answer.status_code, answer.json["error"]) == (401, "unauthenticated"), route.rule
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        else:
            assert answer.status_code == 303, route.rule
            assert answer.location.startswith("/sign-in"), route.rule
    assert seen > 30


@ONE_ENGINE
def test_a_bad_token_gets_nowhere_even_with_a_good_session(app: Flask, cast: Cast) -> None:
    client = signed_in(app, cast.alice)
    for header in ("Bearer utok_" + "x" * 43, "Bearer ", "Basic YWxpY2U6eA==", "utok_x", "Bearer a b c"):
        answer = client.get("/api/me", headers={"Authorization": header})
        assert (answer.status_code, answer.json["error"]) == (401, "unauthenticated")


@ONE_ENGINE
def test_a_nodes_token_reaches_its_own_calls_alone(app: Flask, cast: Cast, clock: FrozenClock) -> None:
    with app.app_context():
        node, _ = nodes.create_node(None, cast.network.id, "atlas", now=clock.now())
        token = make_node_token(node.id, cast.network.id)
    client = app.test_client()
    for route, method, address in calls(app, Door.USER_API):
        answer = client.open(address, method=method, headers=bearer(token))
        assert (answer.status_code, answer.json["error"]) == (403, "user_token_required"), route.rule
    for address in ("/api/nowhere", "/api", "/api/"):
        assert client.get(address, headers=bearer(token)).json["error"] == "user_token_required"
    assert client.get("/settings", headers=bearer(token)).status_code == 303, "no page takes a token"
    beat = client.post("/api/node/heartbeat", json={"status": "idle"}, headers=bearer(token))
    assert beat.status_code == 200


@ONE_ENGINE
def test_people_cannot_speak_as_a_node(app: Flask, cast: Cast) -> None:
    with app.app_context():
        token = make_token(cast.alice)
    browser, script = signed_in(app, cast.alice), app.test_client()
    for route, method, address in calls(app, Door.NODE_API):
        for client, headers in ((browser, {}), (script, bearer(token))):
            answer = client.open(address, method=method, headers=headers)
            assert (answer.status_code, answer.json["error"]) == (403, "permission_denied"), route.rule


@ONE_ENGINE
def test_the_order_is_who_then_what_kind_then_where(app: Flask, cast: Cast) -> None:
    client = app.test_client()
    with app.app_context():
        headers = bearer(make_token(cast.alice))
    assert client.get("/api/nowhere").status_code == 401
    assert client.get("/api/nowhere", headers=headers).json["error"] == "not_found"
    wrong = client.delete("/api/me", headers=headers)
    assert (wrong.status_code, wrong.json["error"]) == (405, "method_not_allowed")
    assert "GET" in wrong.headers["Allow"]


def test_a_deactivated_person_is_nobody_with_any_token(app: Flask, cast: Cast, clock: FrozenClock) -> None:
    from webapp.identity import operations

    with app.app_context():
        token = make_token(cast.bob)
        client = app.test_client()
        assert client.get("/api/me", headers=bearer(token)).status_code == 200
        operations.deactivate_user(None, cast.bob.user_id, now=clock.now())
    assert client.get("/api/me", headers=bearer(token)).status_code == 401


def test_using_a_token_is_recorded_once_a_minute(app: Flask, cast: Cast, clock: FrozenClock) -> None:
    with app.app_context():
        headers = bearer(make_token(cast.bob))
    client = app.test_client()
    uses = []
    for _ in range(4):
        uses.append(client.get("/api/tokens", headers=headers).json["tokens"][0]["last_used_at"])
        clock.advance(seconds=25)
    assert uses[:3] == ["2026-11-30T08:12:00.000Z"] * 3
    assert uses[3] == "2026-11-30T08:13:15.000Z"
