"""No other site may have a signed-in browser change something here."""

from __future__ import annotations

import pytest
from flask import Flask

from tests.factories import CSRF, Cast, bearer, make_token, signed_in
from webapp import create_app
from webapp.clock import FrozenClock
from webapp.config import Config

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
HERE = "http://localhost"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://localhost:8001"},
        {"Origin": "https://evil.example", "X-Forwarded-Host": "evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site", "Origin": HERE},
    ],
    ids=str,
)
def test_another_site_is_refused_even_with_the_right_token(
    app: Flask, cast: Cast, headers: dict[str, str]
) -> None:
    client = signed_in(app, cast.alice)
    page = client.post("/settings/time-zone", data={"timezone": "Europe/Berlin"}, headers=headers)
    assert page.status_code == 400
    assert "came from another site" in page.text
    call = client.post("/api/tokens", json={}, headers=headers)
    assert (call.status_code, call.json["error"]) == (400, "csrf_failed")
    assert client.get("/api/tokens").json["tokens"] == []
    assert client.get("/api/me").json["user"]["timezone"] == "UTC"


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": HERE}, {"Sec-Fetch-Site": "same-origin"}, {"Origin": "https://localhost"}],
    ids=str,
)
def test_this_site_is_obeyed(app: Flask, cast: Cast, headers: dict[str, str]) -> None:
    client = signed_in(app, cast.alice)
    page = client.post("/settings/time-zone", data={"timezone": "Europe/Berlin"}, headers=headers)
    assert page.status_code == 303
    assert client.post("/api/tokens", json={}, headers=headers).status_code == 201


@pytest.mark.parametrize("token", [None, "", "another", CSRF + "x", "ü"])
def test_a_change_without_the_sessions_token_is_refused(app: Flask, cast: Cast, token: str | None) -> None:
    client = signed_in(app, cast.alice)
    del client.environ_base["HTTP_X_CSRF_TOKEN"]
    form = {"timezone": "Europe/Berlin"} | ({} if token is None else {"csrf_token": token})
    assert client.post("/settings/time-zone", data=form).status_code == 400
    headers = {} if token is None else {"X-CSRF-Token": token.encode("latin-1", "ignore").decode("latin-1")}
    call = client.post("/api/tokens", json={"csrf_token": CSRF}, headers=headers)
    assert (call.status_code, call.json["error"]) == (400, "csrf_failed")


def test_the_token_may_come_in_the_form(app: Flask, cast: Cast) -> None:
    client = signed_in(app, cast.alice)
    del client.environ_base["HTTP_X_CSRF_TOKEN"]
    form = {"timezone": "Europe/Berlin", "csrf_token": CSRF}
    assert client.post("/settings/time-zone", data=form).status_code == 303


def test_the_token_of_one_person_is_none_of_anothers(app: Flask, cast: Cast) -> None:
    bob = signed_in(app, cast.bob)
    with bob.session_transaction() as session:
        session["csrf"] = "the token of Bob's session"
    assert bob.post("/api/tokens", json={}, headers={"X-CSRF-Token": CSRF}).status_code == 400


def test_signing_in_needs_a_form_of_this_browser(app: Flask, cast: Cast) -> None:
    """Else another site could sign a browser in as somebody it watches."""
    client = app.test_client()
    answer = client.post("/sign-in", data={"name": "Alice", "password": "x", "csrf_token": "x"})
    assert answer.status_code == 400


def test_a_token_of_its_own_needs_no_such_proof(app: Flask, cast: Cast) -> None:
    with app.app_context():
        headers = bearer(make_token(cast.alice))
    client = app.test_client()
    assert client.post("/api/tokens", json={}, headers=headers).status_code == 201
    foreign = {**headers, "Origin": "https://tool.example", "Sec-Fetch-Site": "cross-site"}
    assert client.post("/api/tokens", json={}, headers=foreign).status_code == 201


def test_a_session_beside_a_bad_token_changes_nothing(app: Flask, cast: Cast) -> None:
    client = signed_in(app, cast.alice)
    headers = {"Authorization": "Bearer nothing", "Origin": "https://evil.example"}
    assert client.post("/api/tokens", json={}, headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://carillon.example", 303),
        ("https://carillon.example:443", 303),
        ("http://carillon.example", 400),
        ("https://carillon.example:8443", 400),
        ("https://sub.carillon.example", 400),
    ],
)
def test_behind_a_public_address_that_is_the_only_origin(
    config: Config, clock: FrozenClock, cast: Cast, origin: str, status: int
) -> None:
    from dataclasses import replace

    from tests.support.databases import dispose_engines

    app = create_app(replace(config, public_url="https://carillon.example", trusted_proxies=1), clock)
    client = app.test_client()
    with client.session_transaction(base_url="https://carillon.example") as session:
        session.update(user=cast.alice.user_id, epoch=0, sid="s", renewed=2**40, csrf=CSRF)
    answer = client.post(
        "/settings/time-zone",
        data={"timezone": "Europe/Berlin", "csrf_token": CSRF},
        base_url="https://carillon.example",
        headers={"Origin": origin, "X-Forwarded-Proto": "https"},
    )
    dispose_engines(app)
    assert answer.status_code == status
