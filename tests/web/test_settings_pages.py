"""The settings page, as a browser without script uses it."""

from __future__ import annotations

import html
import re

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.factories import PASSWORD, Cast, bearer, make_member, make_user, signed_in
from tests.identity.reading import roles
from webapp.identity.models import User

pytestmark = pytest.mark.usefixtures("quick_hashes")


@pytest.fixture
def ada(app: Flask, cast: Cast) -> User:
    """A system administrator who owns Alice's network too."""
    with app.app_context():
        user = make_user("Ada", is_admin=True)
        make_member(user, cast.network, "owner")
    return user


def words(page: str) -> str:
    """What a page says, without its tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def after(client: FlaskClient, path: str, **form: str) -> str:
    """Send a form that is obeyed, go where it leads, and read the page."""
    answer = client.post(path, data=form)
    assert (answer.status_code, answer.location) == (303, "/settings"), words(answer.text)[:500]
    return words(client.get("/settings").text)


def harbour(app: Flask, cast: Cast) -> dict[str, str]:
    with app.app_context():
        return roles(cast.network)


def test_everybody_sees_the_people_and_only_who_may_sees_the_controls(app: Flask, cast: Cast) -> None:
    for user, may in ((cast.alice, True), (cast.bob, False), (cast.vera, False)):
        page = signed_in(app, user).get("/settings")
        assert page.status_code == 200
        for name in ("Alice", "Bob", "Vera"):
            assert name in page.text
        assert "Charlie" not in page.text
        assert ("Add somebody who has an account" in page.text) == may
        assert (f"/settings/members/{cast.bob.user_id}/role" in page.text) == may
        assert "Everybody with an account" not in page.text


def test_somebody_of_no_network_is_told_so(app: Flask, cast: Cast) -> None:
    with app.app_context():
        nora = make_user("Nora")
    assert "You belong to no network" in words(signed_in(app, nora).get("/settings").text)


def test_an_owner_adds_changes_and_removes(app: Flask, cast: Cast) -> None:
    client = signed_in(app, cast.alice)
    assert "Charlie is viewer of Harbour." in after(
        client, "/settings/members", name="charlie", role="viewer"
    )
    role = f"/settings/members/{cast.charlie.user_id}/role"
    assert "Charlie is now admin of Harbour." in after(client, role, role="admin")
    assert harbour(app, cast)["Charlie"] == "admin"
    remove = f"/settings/members/{cast.charlie.user_id}/remove"
    asked = client.get(remove)
    assert "Charlie sees nothing of Harbour any more" in words(asked.text)
    assert harbour(app, cast)["Charlie"] == "admin", "asking changes nothing"
    assert "Charlie does not belong to Harbour any more." in after(client, remove)
    assert "Charlie" not in harbour(app, cast)


def test_a_name_that_nobody_has_stands_in_the_form_again(app: Flask, cast: Cast) -> None:
    answer = signed_in(app, cast.alice).post("/settings/members", data={"name": "Nobody", "role": "viewer"})
    assert answer.status_code == 422
    assert "There is no such person." in answer.text
    assert 'value="Nobody"' in answer.text
    assert "<title>Error: Settings" in answer.text


@pytest.mark.parametrize("who", ["bob", "vera", "charlie"])
def test_who_may_not_is_refused_and_learns_no_names(app: Flask, cast: Cast, who: str) -> None:
    client = signed_in(app, getattr(cast, who))
    for name in ("Charlie", "Nobody"):
        if who != "charlie":
            assert client.post("/settings/members", data={"name": name, "role": "viewer"}).status_code == 403
    for path in (
        f"/settings/members/{cast.alice.user_id}/role",
        f"/settings/members/{cast.alice.user_id}/remove",
    ):
        assert client.post(path, data={"role": "viewer"}).status_code == (404 if who == "charlie" else 403)
    for path in ("users", f"users/{cast.alice.user_id}/deactivate", "networks"):
        assert client.post(f"/settings/{path}", data={"name": "x", "slug": "xx"}).status_code in (403, 404)
    assert client.get(f"/settings/users/{cast.alice.user_id}/deactivate").status_code == 403
    assert harbour(app, cast)["Alice"] == "owner"


def test_the_last_owner_is_told_why_not(app: Flask, cast: Cast) -> None:
    client = signed_in(app, cast.alice)
    answer = client.post(f"/settings/members/{cast.alice.user_id}/remove")
    assert answer.status_code == 409
    assert "A network needs at least one owner." in answer.text


def test_a_token_is_shown_once_and_a_second_press_shows_it_not(app: Flask, cast: Cast) -> None:
    client = signed_in(app, cast.bob)
    key = re.search(r'id="token-key"[^>]*value="([^"]+)"', client.get("/settings").text)
    assert key
    form = {"label": "laptop", "network_id": "", "expires_days": "90", "idempotency_key": key[1]}
    first = client.post("/settings/tokens", data=form)
    assert first.headers["Cache-Control"] == "no-store"
    secret = re.search(r"utok_[A-Za-z0-9_-]+", first.text)
    assert secret
    assert app.test_client().get("/api/me", headers=bearer(secret[0])).json["user"]["name"] == "Bob"
    second = client.post("/settings/tokens", data=form)
    assert secret[0] not in second.text
    assert "It was shown already" in second.text
    page = client.get("/settings").text
    assert secret[0] not in page
    assert "laptop" in page
    token_id = re.search(r"/settings/tokens/(tok_[a-z0-9]+)/revoke", page)
    assert token_id
    assert "does not work any more" in after(client, f"/settings/tokens/{token_id[1]}/revoke")
    assert app.test_client().get("/api/me", headers=bearer(secret[0])).status_code == 401


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"label": "x" * 121}, "A label has at most 120 characters."),
        ({"expires_days": "9999"}, "expires_days is a whole number from 1 to 3650."),
        ({"expires_days": "soon"}, "expires_days is a whole number from 1 to 3650."),
    ],
)
def test_a_token_form_that_is_wrong_says_where(
    app: Flask, cast: Cast, form: dict[str, str], sentence: str
) -> None:
    wish = {"label": "", "network_id": "", "expires_days": "90"} | form
    answer = signed_in(app, cast.bob).post("/settings/tokens", data=wish)
    assert answer.status_code == 422
    assert sentence in html.unescape(answer.text)
    assert "utok_" not in answer.text


def test_a_foreign_network_is_no_choice(app: Flask, cast: Cast) -> None:
    wish = {"label": "", "network_id": cast.elsewhere.network_id, "expires_days": "90"}
    assert signed_in(app, cast.bob).post("/settings/tokens", data=wish).status_code == 404


def test_a_wrong_present_password_stands_beside_its_field(app: Flask, cast: Cast) -> None:
    form = {"current_password": "not mine", "password": "another long password"}
    answer = signed_in(app, cast.alice).post("/settings/password", data=form)
    assert answer.status_code == 422
    assert "This is not your present password." in answer.text
    assert "not mine" not in answer.text
    assert "another long password" not in answer.text


def test_an_administrator_creates_shuts_out_and_lets_in(app: Flask, cast: Cast, ada: User) -> None:
    client = signed_in(app, ada)
    form = {"name": "Dora", "password": PASSWORD, "role": "member"}
    assert "Dora can sign in now." in after(client, "/settings/users", **form)
    assert harbour(app, cast)["Dora"] == "member"
    again = client.post("/settings/users", data=form)
    assert again.status_code == 422
    assert "Somebody has this name already." in again.text
    assert PASSWORD not in again.text
    path = f"/settings/users/{cast.bob.user_id}"
    assert "Schedules that act on their authority stop" in words(client.get(f"{path}/deactivate").text)
    bob = signed_in(app, cast.bob)
    assert "Bob is deactivated." in after(client, f"{path}/deactivate")
    assert bob.get("/settings").status_code == 303
    assert "Bob can sign in again." in after(client, f"{path}/reactivate")


def test_a_new_network_is_looked_at_and_can_be_left_for_another(app: Flask, cast: Cast, ada: User) -> None:
    client = signed_in(app, ada)
    page = after(client, "/settings/networks", name="Yard", slug="yard")
    assert "Yard stands; you look at it now." in page
    assert "People of Yard" in page
    switched = client.post("/switch-network", data={"network_id": cast.network.network_id})
    assert switched.status_code == 303
    assert "People of Harbour" in words(client.get("/settings").text)
    foreign = client.post("/switch-network", data={"network_id": cast.elsewhere.network_id})
    assert foreign.status_code == 404


@pytest.mark.parametrize("zone", ["CEST", "", "Europe/Nowhere", "../../etc/passwd"])
def test_a_zone_that_is_none_is_refused_with_the_list_still_there(app: Flask, cast: Cast, zone: str) -> None:
    answer = signed_in(app, cast.alice).post("/settings/time-zone", data={"timezone": zone})
    assert answer.status_code == 422
    assert "Choose a time zone by its IANA name" in answer.text
    assert 'value="Europe/Berlin"' in answer.text


def test_an_older_name_of_a_zone_stays_chosen(app: Flask, cast: Cast) -> None:
    client = signed_in(app, cast.alice)
    after(client, "/settings/time-zone", timezone="Asia/Calcutta")
    assert re.search(r'value="Asia/Calcutta"[^>]* selected', client.get("/settings").text)


def test_what_people_are_called_is_shown_as_text(app: Flask, cast: Cast, ada: User) -> None:
    client = signed_in(app, ada)
    name = '<img src=x onerror=alert(1)>"&'
    after(client, "/settings/users", name=name, password=PASSWORD, role="viewer")
    page = client.get("/settings").text
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
