"""Signing in and out, the first start, and what a session's cookie is worth, as a browser without script does it."""

from __future__ import annotations

import re
from http.cookies import SimpleCookie

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from tests.factories import PASSWORD, Cast, actor_of, make_user, signed_in
from webapp.clock import FrozenClock
from webapp.identity import operations
from webapp.identity.models import User
from webapp.store import reading

pytestmark = pytest.mark.usefixtures("quick_hashes")


def token_of(page: str) -> str:
    found = re.search(r'name="csrf_token" value="([^"]+)"', page)
    assert found, "the page has no form token"
    return found[1]


def sign_in(client: FlaskClient, name: str = "Alice", password: str = PASSWORD, **more: str):
    page = client.get("/sign-in").get_data(as_text=True)
    form = {"csrf_token": token_of(page), "name": name, "password": password, "next": "/", **more}
    return client.post("/sign-in", data=form)


def cookie(client: FlaskClient) -> str:
    found = client.get_cookie("carillon")
    assert found is not None
    return found.value


def is_in(client: FlaskClient) -> bool:
    answer = client.get("/settings")
    assert answer.status_code in (200, 303)
    return answer.status_code == 200


def test_a_person_signs_in_goes_on_to_where_they_wanted_and_signs_out(
    app: Flask, client: FlaskClient, cast: Cast
) -> None:
    sent_away = client.get("/settings?tokens_after=x")
    assert sent_away.status_code == 303
    assert sent_away.location == "/sign-in?next=/settings%3Ftokens_after%3Dx"
    answer = sign_in(client, next="/settings")
    assert (answer.status_code, answer.location) == (303, "/settings")
    page = client.get("/settings").get_data(as_text=True)
    assert "Alice" in page
    assert client.get("/sign-in").location == "/", "who is in has no need to sign in"
    out = client.post("/sign-out", data={"csrf_token": token_of(page)})
    assert (out.status_code, out.location) == (303, "/sign-in")
    assert not is_in(client)


def test_a_wrong_password_says_neither_which_half_was_wrong_nor_forgets_the_name(
    client: FlaskClient, cast: Cast
) -> None:
    for name in ("Alice", "Nobody"):
        answer = sign_in(client, name=name, password="something else", next="/settings")
        page = answer.get_data(as_text=True)
        assert answer.status_code == 401
        assert "Name or password is wrong." in page
        assert f'value="{name}"' in page
        assert 'value="/settings"' in page
        assert "something else" not in page
        assert "<title>Error: " in page


def test_too_many_tries_are_told_when_to_come_back(client: FlaskClient, cast: Cast) -> None:
    for _ in range(5):
        sign_in(client, password="wrong")
    answer = sign_in(client, password=PASSWORD)
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "30"
    assert "Try again in 30 s." in answer.get_data(as_text=True)


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example/",
        "evil.example",
        "javascript:alert(1)",
        "/%0d%0aLocation:x\r\n",
        "/\tevil",
        "",
        "/sign-out",
        "/sign-in?next=/",
        "/" + "x" * 3000,
    ],
)
def test_next_never_leads_away(client: FlaskClient, cast: Cast, target: str) -> None:
    assert sign_in(client, next=target).location == "/"
    client.post("/sign-out", headers={"X-CSRF-Token": token_of(client.get("/settings").text)})
    page = client.get("/sign-in", query_string={"next": target}).get_data(as_text=True)
    assert re.search(r'name="next"[^>]*value="/"', page)


def test_the_cookie_is_for_this_site_and_not_for_scripts(client: FlaskClient, cast: Cast) -> None:
    answer = sign_in(client)
    morsel = SimpleCookie(answer.headers["Set-Cookie"])["carillon"]
    assert morsel["httponly"]
    assert morsel["samesite"] == "Lax"
    assert morsel["path"] == "/"
    assert morsel["max-age"] or morsel["expires"]
    assert not morsel["secure"], "over http it would never come back"


def test_over_https_the_cookie_is_secure_whoever_ends_the_encryption(client: FlaskClient, cast: Cast) -> None:
    answer = client.get("/sign-in", base_url="https://localhost")
    assert SimpleCookie(answer.headers["Set-Cookie"])["carillon"]["secure"]


def test_a_session_planted_before_signing_in_is_worth_nothing_after_it(
    app: Flask, client: FlaskClient, cast: Cast
) -> None:
    client.get("/sign-in")
    planted = cookie(client)
    planted_token = token_of(client.get("/sign-in").text)
    sign_in(client)
    assert cookie(client) != planted
    attacker = app.test_client()
    attacker.set_cookie("carillon", planted)
    assert not is_in(attacker)
    assert is_in(client)
    forged = client.post("/sign-out", data={"csrf_token": planted_token})
    assert forged.status_code == 400, "the token of the planted session must not fit the new one"


def test_a_copied_cookie_dies_with_the_sign_out_and_other_devices_stay(
    app: Flask, client: FlaskClient, cast: Cast
) -> None:
    sign_in(client)
    copied = cookie(client)
    other_device = app.test_client()
    sign_in(other_device)
    client.post("/sign-out", data={"csrf_token": token_of(client.get("/settings").text)})
    thief = app.test_client()
    thief.set_cookie("carillon", copied)
    assert not is_in(thief)
    assert is_in(other_device)


def test_a_new_password_ends_every_other_session_and_keeps_this_one(
    app: Flask, client: FlaskClient, cast: Cast
) -> None:
    sign_in(client)
    other_device = app.test_client()
    sign_in(other_device)
    old = cookie(client)
    form = {
        "csrf_token": token_of(client.get("/settings").text),
        "current_password": PASSWORD,
        "password": "another long password",
    }
    assert client.post("/settings/password", data=form).status_code == 303
    assert is_in(client)
    assert not is_in(other_device)
    thief = app.test_client()
    thief.set_cookie("carillon", old)
    assert not is_in(thief)


def test_deactivating_ends_sessions_at_once_and_reactivating_does_not_bring_them_back(
    app: Flask, client: FlaskClient, cast: Cast, clock: FrozenClock
) -> None:
    sign_in(client, name="Bob")
    with app.app_context():
        ada = actor_of(make_user("Ada", is_admin=True))
        operations.deactivate_user(ada, cast.bob.user_id, now=clock.now())
        assert not is_in(client)
        operations.reactivate_user(ada, cast.bob.user_id, now=clock.now())
    assert not is_in(client)


@pytest.mark.parametrize("change", [{"user": 7}, {"epoch": 99}, {"sid": None}, {"sid": 5}, {"renewed": 0}])
def test_a_session_that_does_not_fit_is_nobody(app: Flask, cast: Cast, change: dict[str, object]) -> None:
    client = signed_in(app, cast.alice)
    assert is_in(client)
    with client.session_transaction() as session:
        session.update(change)
    assert is_in(client) == (change == {"renewed": 0}), "an old but good session is only renewed"


def test_the_first_start_makes_the_owner_by_the_page(
    app: Flask, client: FlaskClient, clock: FrozenClock
) -> None:
    with app.app_context():
        link = operations.issue_set_up_link(now=clock.now())
    assert "Nobody is here yet" in client.get("/sign-in").text
    page = client.get("/setup", query_string={"token": link})
    assert page.status_code == 200
    assert page.headers["Cache-Control"] == "no-store"
    form = {
        "csrf_token": token_of(page.text),
        "token": link,
        "name": "Alice",
        "password": "short",
        "network_name": "Harbour Master & Söhne",
        "timezone": "Asia/Calcutta",
    }
    again = client.post("/setup", data=form)
    assert again.status_code == 422
    assert "A password has 12 to 200 characters." in again.text
    assert "short" not in re.findall(r'value="([^"]*)"', again.text)
    done = client.post("/setup", data={**form, "password": PASSWORD})
    assert (done.status_code, done.location) == (303, "/")
    settings = client.get("/settings").text
    assert "harbour-master-sohne" in settings
    with app.app_context(), reading() as session:
        user = session.scalars(select(User)).one()
    assert (user.is_admin, user.timezone) == (True, "Asia/Kolkata")
    for answer in (
        client.get("/setup", query_string={"token": link}),
        client.post("/setup", data={**form, "csrf_token": token_of(settings), "name": "Mallory"}),
    ):
        assert answer.status_code == 403
        assert "This set-up link is not valid any more." in answer.text


@pytest.mark.parametrize("token", ["", "x", "🔔" * 50, "x" * 5000])
def test_a_wrong_link_shows_no_form(client: FlaskClient, token: str) -> None:
    answer = client.get("/setup", query_string={"token": token})
    assert answer.status_code == 403
    assert "<form" not in answer.text


def test_the_zone_that_the_browser_says_is_used_until_one_is_chosen(
    app: Flask, client: FlaskClient, cast: Cast
) -> None:
    sign_in(client, timezone="America/New_York")
    page = client.get("/settings").text
    assert 'data-clock="America/New_York"' in page
    form = {"csrf_token": token_of(page), "timezone": "Europe/Berlin"}
    assert client.post("/settings/time-zone", data=form).status_code == 303
    assert 'data-clock="Europe/Berlin"' in client.get("/settings").text
    other_device = app.test_client()
    sign_in(other_device, timezone="America/New_York")
    assert 'data-clock="Europe/Berlin"' in other_device.get("/settings").text


@pytest.mark.parametrize("zone", ["nonsense", "../etc/passwd", "", "🔔"])
def test_a_zone_that_is_none_is_ignored(client: FlaskClient, cast: Cast, zone: str) -> None:
    assert sign_in(client, timezone=zone).status_code == 303
    assert 'data-clock="UTC"' in client.get("/settings").text
