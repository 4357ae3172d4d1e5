"""What goes wrong is answered in the caller's language: JSON on /api, a page elsewhere; and it is safe to say."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from flask import Blueprint, Flask
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from tests.factories import PASSWORD, Cast, bearer, make_token, signed_in
from webapp.errors import AppError
from webapp.store import db
from webapp.web.policy import Public, UserApi, access

SECRET = "hunter2-in-a-database-error"


@pytest.fixture
def broken(own_app: Flask) -> Flask:
    """The app with routes that fail in several ways."""
    blueprint = Blueprint("broken", __name__)

    def views() -> Iterator[tuple[str, object]]:
        def crash() -> str:
            raise ZeroDivisionError(SECRET)

        def database() -> str:
            db.session.execute(text("SELECT nothing FROM nowhere WHERE x = :secret"), {"secret": SECRET})
            return "unreachable"

        def away() -> str:
            raise OperationalError(None, None, OSError("no route to the database"))

        def refusal() -> str:
            raise AppError("revision_conflict", field="revision", current_revision=7)

        def late() -> str:
            raise AppError("rate_limited", retry_after=17)

        def teapot() -> tuple[str, int]:
            from flask import abort

            abort(418)

        yield from {
            "crash": crash,
            "database": database,
            "away": away,
            "refusal": refusal,
            "late": late,
            "teapot": teapot,
        }.items()

    for name, view in views():
        blueprint.add_url_rule(f"/api/{name}", f"api_{name}", access(UserApi)(view))
        blueprint.add_url_rule(f"/{name}", f"page_{name}", access(Public)(lambda view=view: view()))
    own_app.register_blueprint(blueprint)
    return own_app


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("crash", 500, "internal_error"),
        ("database", 500, "internal_error"),
        ("away", 503, "not_ready"),
        ("refusal", 409, "revision_conflict"),
        ("late", 429, "rate_limited"),
        ("teapot", 418, "bad_request"),
        ("nowhere", 404, "not_found"),
    ],
)
def test_each_failure_is_json_on_the_api_and_a_page_elsewhere(
    broken: Flask, cast: Cast, path: str, status: int, code: str
) -> None:
    client = signed_in(broken, cast.alice)
    answer = client.get(f"/api/{path}")
    assert answer.status_code == status
    assert answer.content_type == "application/json"
    assert (answer.json["ok"], answer.json["error"]) == (False, code)
    assert answer.json["message"].endswith(".")
    page = client.get(f"/{path}")
    assert page.status_code == status
    assert page.content_type == "text/html; charset=utf-8"
    assert code in page.text
    for response in (answer, page):
        assert len(response.headers["X-Request-Id"]) >= 8
        assert SECRET not in response.text
        assert "nowhere WHERE" not in response.text
        assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_details_stand_beside_the_code(broken: Flask, cast: Cast) -> None:
    client = signed_in(broken, cast.alice)
    assert client.get("/api/refusal").json == {
        "ok": False,
        "error": "revision_conflict",
        "message": "Somebody changed this in the meantime. Nothing you typed is lost.",
        "field": "revision",
        "current_revision": 7,
    }
    late = client.get("/api/late")
    assert late.headers["Retry-After"] == "17"
    assert late.json["retry_after"] == 17


def test_a_failure_is_logged_with_the_requests_id_and_without_what_was_bound(
    broken: Flask, cast: Cast, log: io.StringIO
) -> None:
    client = signed_in(broken, cast.alice)
    answer = client.get("/api/database")
    words = log.getvalue()
    failure = next(line for line in words.splitlines() if "a request failed" in line)
    assert answer.headers["X-Request-Id"] in failure
    assert "nowhere" in words, "the statement helps whoever reads the log"
    assert SECRET not in words


def test_a_session_that_failed_does_not_spoil_the_next_request(broken: Flask, cast: Cast) -> None:
    client = signed_in(broken, cast.alice)
    for _ in range(3):
        assert client.get("/api/database").status_code == 500
        assert client.get("/api/me").status_code == 200


@pytest.mark.parametrize("address", ["/api/tokens", "/settings/tokens"])
def test_too_large_a_request_is_refused_by_its_size(app: Flask, cast: Cast, address: str) -> None:
    client = signed_in(app, cast.alice)
    large = "x" * (256 * 1024 + 1)
    if address.startswith("/api"):
        answer = client.post(address, data=f'{{"label": "{large}"}}', content_type="application/json")
        assert answer.json["error"] == "payload_too_large"
    else:
        answer = client.post(address, data={"label": large})
    assert answer.status_code == 413


@pytest.mark.parametrize("address", ["/api/tokens/%00", "/%00", "/api/me?x=%00", "/runs?status=%00"])
def test_nul_in_an_address_never_reaches_a_database(app: Flask, cast: Cast, address: str) -> None:
    client = signed_in(app, cast.alice)
    assert client.get(address).status_code in (400, 404)


def test_nul_in_a_form_never_reaches_a_database(app: Flask, cast: Cast) -> None:
    client = signed_in(app, cast.alice)
    assert client.post("/settings/tokens", data={"label": "a\0b"}).status_code == 400
    assert client.post("/settings/tokens", data={"label\0": "b"}).status_code == 400


def test_answers_of_the_api_are_kept_by_no_cache(app: Flask, cast: Cast) -> None:
    assert signed_in(app, cast.alice).get("/api/me").headers["Cache-Control"] == "no-store"


@pytest.mark.usefixtures("quick_hashes")
def test_no_secret_is_ever_logged(app: Flask, cast: Cast, log: io.StringIO) -> None:
    logging.getLogger().setLevel(logging.DEBUG)
    try:
        secrets = _use_every_secret(app, cast)
    finally:
        logging.getLogger().setLevel(logging.INFO)
    words = log.getvalue()
    assert words.count("request") > 5, "the log is the one that would hold them"
    assert [secret for secret in secrets if secret in words] == []


def _use_every_secret(app: Flask, cast: Cast) -> list[str]:
    """Send passwords, tokens and links, right and wrong ones, through every door that takes them."""
    client = app.test_client()
    page = client.get("/sign-in").text
    csrf = page.split('name="csrf_token" value="')[1].split('"')[0]
    wrong = "a wrong password typed"
    for password in (wrong, PASSWORD):
        client.post("/sign-in", data={"name": "Alice", "password": password, "csrf_token": csrf})
    link = "the-secret-of-a-set-up-link"
    client.get("/setup", query_string={"token": link})
    browser = signed_in(app, cast.alice)
    made = browser.post("/api/tokens", json={"label": "ci"}).json["secret"]
    browser.get("/api/me", headers=bearer(made))
    with app.app_context():
        other = make_token(cast.bob)
    browser.get("/api/me", headers=bearer(other + "x"))
    new = "the next long password"
    form = {"current_password": PASSWORD, "password": new}
    browser.post("/settings/password", data=form)
    cookie = browser.get_cookie("carillon")
    assert cookie is not None
    return [wrong, PASSWORD, link, made, other, new, cookie.value, csrf]
