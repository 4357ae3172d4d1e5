"""Races at the doors, forged requests at every route that changes something, and a sweep for secrets."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from tests.factories import CSRF, actor_of, bearer, make_cast, make_token, signed_in
from tests.support.doctor import assert_doctor_clean
from tests.support.races import at_once
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.identity import operations as people
from webapp.identity.models import SignInThrottle, Token
from webapp.identity.queries import authenticate_token
from webapp.identity.sign_in import sign_in
from webapp.store import reading
from webapp.store.base import Base
from webapp.web.policy import Door, routes

CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
ONE_ENGINE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@ONE_ENGINE
def test_no_change_is_made_for_another_site_or_without_the_sessions_own_proof(app: Flask) -> None:
    with app.app_context():
        cast = make_cast()
    client = signed_in(app, cast.alice)
    cookie = client.get_cookie(app.config["SESSION_COOKIE_NAME"])
    assert cookie is not None
    tried = 0
    for route in routes(app):
        if route.access.door is Door.NODE_API or not route.methods & CHANGING:
            continue
        path = re.sub(r"<[^>]+>", "x_000000000000", route.rule)
        for method in sorted(route.methods & CHANGING):
            for headers, proof in (
                ({"Origin": "https://evil.example"}, CSRF),
                ({}, ""),
            ):
                client.environ_base["HTTP_X_CSRF_TOKEN"] = proof
                answer = client.open(path, method=method, headers=headers)
                assert answer.status_code == 400, (
                    f"{method} {path} with {headers or 'no proof'}: {answer.status_code}"
                )
                if path.startswith("/api/"):
                    assert answer.get_json()["error"] == "csrf_failed"
                tried += 1
    print(f"{tried} forged requests, none obeyed")
    assert tried > 150
    with app.app_context():
        assert_doctor_clean(app)


def test_one_set_up_link_makes_one_owner_and_is_then_worth_nothing(app: Flask, clock: FrozenClock) -> None:
    """Over HTTP, four browsers at one moment."""
    with app.app_context():
        link = people.issue_set_up_link(now=clock.now())
    assert link is not None
    browsers = [app.test_client() for _ in range(4)]

    def press(number: int) -> int:
        page = browsers[number].get(f"/setup?token={link}").text
        found = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', page)
        assert found is not None
        form = {
            "token": link,
            "name": f"Owner {number}",
            "password": "a long enough one",
            "network_name": f"Net {number}",
            "csrf_token": found.group(1),
        }
        return browsers[number].post("/setup", data=form).status_code

    statuses = at_once(app, [lambda number=number: _alone(lambda: press(number)) for number in range(4)])
    assert sorted(status == 303 for status in statuses) == [False, False, False, True], statuses
    assert app.test_client().get(f"/setup?token={link}").status_code >= 400


def test_a_token_that_is_revoked_while_it_is_used_is_worth_nothing_after(
    app: Flask, clock: FrozenClock
) -> None:
    with app.app_context():
        cast = make_cast()
        text = make_token(cast.bob)
        with reading() as session:
            principal = authenticate_token(session, text, now=clock.now())
            token_id = session.get_one(Token, principal.token_pk).token_id

    def use() -> list[int]:
        client = app.test_client()
        return [_alone(lambda: client.get("/api/me", headers=bearer(text)).status_code) for _ in range(6)]

    def revoke() -> list[int]:
        people.revoke_token(actor_of(cast.bob), token_id, now=clock.now())
        return [_alone(lambda: app.test_client().get("/api/me", headers=bearer(text)).status_code)]

    outcomes = at_once(app, [use, use, revoke, use])
    assert outcomes[2] == [401], "used after the revocation was acknowledged"
    for statuses in (outcomes[0], outcomes[1], outcomes[3]):
        assert isinstance(statuses, list)
        assert statuses == sorted(statuses), f"worth something again: {statuses}"
        assert set(statuses) <= {200, 401}


def test_guesses_at_one_moment_are_counted_exactly(app: Flask, clock: FrozenClock) -> None:
    with app.app_context():
        make_cast()

    def guess(number: int) -> None:
        sign_in("Alice", f"wrong {number}", "192.0.2.7", now=clock.now())

    found = at_once(app, [lambda number=number: guess(number) for number in range(8)])
    codes = [error.code for error in found if isinstance(error, AppError)]
    assert len(codes) == 8
    looked_at = codes.count("wrong_credentials")
    assert looked_at == 5, codes
    with app.app_context(), reading() as session:
        rows = session.execute(select(SignInThrottle.key, SignInThrottle.failures)).all()
    assert {key.partition(":")[0]: failures for key, failures in rows} == {"name": 5, "address": 5}


def test_after_a_busy_story_no_secret_lies_anywhere(app: Flask, clock: FrozenClock) -> None:
    """Passwords, tokens, keys and session ids: not in the database, the log, a page, the audit or an event."""
    with _log() as log:
        secrets, pages = _story(app, clock)
        words = log.getvalue()
    with app.app_context():
        stored = _everything_stored()
    assert len(secrets) >= 9
    assert len(pages) > 20
    assert "request" in words
    for name, secret in secrets.items():
        assert len(secret) > 7, name
        assert secret not in stored, f"{name} lies in the database"
        assert secret not in words, f"{name} lies in the log"
        shown = [path for path, text in pages if secret in text]
        assert shown == [], f"{name} is shown at {shown}"


def _alone(request: Callable[[], int]) -> int:
    """In a context of its own: within a test's, every request would share what the first one remembers."""
    return Context().run(request)


def _story(app: Flask, clock: FrozenClock) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Set-up, sign-in, tokens, a node, a changed password, a sign-out; what was secret, and what was shown after."""
    with app.app_context():
        link = people.issue_set_up_link(now=clock.now())
        assert link is not None
        people.create_first_owner(
            link, "Olga", "the first password", "Home", "home", timezone="UTC", now=clock.now()
        )
    browser, secrets = app.test_client(), {"set-up link": link, "first password": "the first password"}
    secrets["the server's key"] = str(app.secret_key)

    def csrf(path: str) -> str:
        found = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', browser.get(path).text)
        assert found is not None
        return found.group(1)

    def post(path: str, page: str, **form: str) -> str:
        answer = browser.post(path, data={**form, "csrf_token": csrf(page)})
        assert answer.status_code < 400, (path, answer.status_code)
        return answer.text

    post("/sign-in", "/sign-in", name="Olga", password="the first password")
    with browser.session_transaction() as session:
        secrets["session id"] = session["sid"]
    secrets["session cookie"] = _cookie(app, browser)
    shown = post("/settings/tokens", "/settings", label="script", expires_days="30")
    secrets["token of the page"] = _token(shown)
    headers = bearer(secrets["token of the page"])
    made = browser.post("/api/nodes", json={"alias": "atlas"}, headers=headers)
    secrets["node token"] = _token(made.text)
    node_id = made.get_json()["node"]["node_id"]
    rotated = browser.post(f"/api/nodes/{node_id}/token", json={}, headers=headers)
    secrets["rotated node token"] = _token(rotated.text)
    node = bearer(secrets["rotated node token"])
    assert browser.post("/api/node/heartbeat", json={"status": "idle"}, headers=node).status_code == 200
    assert browser.get("/api/node/inbox", headers=node).status_code == 200
    made = browser.post(
        "/api/tokens", json={"label": "other"}, headers={**headers, "Idempotency-Key": "once"}
    )
    secrets["token of the API"] = _token(made.text)
    browser.delete(f"/api/tokens/{made.get_json()['token']['token_id']}", headers=headers)
    browser.get("/api/me", headers=bearer(secrets["token of the API"]))
    post(
        "/settings/password",
        "/settings",
        current_password="the first password",
        password="the second password",
    )
    secrets["second password"] = "the second password"
    wrong = app.test_client()
    page = wrong.get("/sign-in").text
    found = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', page)
    assert found is not None
    secrets["mistyped password"] = "a mistyped password"
    form = {"name": "Olga", "password": "a mistyped password", "csrf_token": found.group(1)}
    pages = [("/sign-in, refused", wrong.post("/sign-in", data=form).text)]
    for route in routes(app):
        if "GET" in route.methods and "<" not in route.rule and route.access.door is not Door.NODE_API:
            answer = browser.get(
                route.rule, headers=headers if route.rule.startswith("/api") else {}, buffered=False
            )
            if answer.mimetype != "text/event-stream":
                pages.append((route.rule, answer.get_data(as_text=True)))
            answer.close()
    pages.append((f"/nodes/{node_id}", browser.get(f"/nodes/{node_id}").text))
    post("/sign-out", "/settings")
    return secrets, pages


def _cookie(app: Flask, browser: FlaskClient) -> str:
    cookie = browser.get_cookie(app.config["SESSION_COOKIE_NAME"])
    assert cookie is not None
    return cookie.value


def _token(text: str) -> str:
    found = re.search(r"[un]tok_[A-Za-z0-9_-]{27,80}", text)
    assert found is not None, text
    return found.group()


def _everything_stored() -> str:
    """Every column of every row, as text."""
    with reading() as session:
        rows = [
            str(tuple(row))
            for table in Base.metadata.sorted_tables
            for row in session.execute(select(*table.columns))
        ]
    return "\n".join(rows)


@contextmanager
def _log() -> Iterator[io.StringIO]:
    """Everything the product logs in the block, as an operator would read it."""
    words = io.StringIO()
    handler = next(one for one in logging.getLogger().handlers if type(one) is logging.StreamHandler)
    before = handler.setStream(words)
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.DEBUG)
    try:
        yield words
    finally:
        logging.getLogger().setLevel(level)
        handler.setStream(before or sys.stderr)
