"""People, networks and tokens over JSON."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.factories import PASSWORD, Cast, bearer, make_member, make_token, make_user, signed_in
from webapp.identity.models import User

pytestmark = pytest.mark.usefixtures("quick_hashes")


@pytest.fixture
def ada(app: Flask, cast: Cast) -> User:
    """A system administrator who is admin of Alice's network."""
    with app.app_context():
        user = make_user("Ada", is_admin=True)
        make_member(user, cast.network, "admin")
    return user


def script(app: Flask, user: User, **more: object) -> FlaskClient:
    """A script with a token of the person."""
    client = app.test_client()
    with app.app_context():
        client.environ_base["HTTP_AUTHORIZATION"] = bearer(make_token(user, **more))["Authorization"]  # type: ignore[arg-type]
    return client


def test_who_am_i(app: Flask, cast: Cast) -> None:
    assert script(app, cast.bob).get("/api/me").json == {
        "ok": True,
        "user": {
            "user_id": cast.bob.user_id,
            "name": "Bob",
            "admin": False,
            "timezone": "UTC",
            "networks": [
                {
                    "network_id": cast.network.network_id,
                    "slug": "harbour",
                    "name": "Harbour",
                    "role": "member",
                }
            ],
        },
    }


def test_a_token_is_made_shown_once_used_listed_and_ended(app: Flask, cast: Cast) -> None:
    client = script(app, cast.bob)
    body = {"label": "ci", "expires_days": 30}
    made = client.post("/api/tokens", json=body, headers={"Idempotency-Key": "k1"})
    assert made.status_code == 201
    secret, token = made.json["secret"], made.json["token"]
    assert (token["label"], token["hint"]) == ("ci", secret[-4:])
    assert token["expires_at"] == "2026-12-30T08:12:00.000Z"
    replay = client.post("/api/tokens", json=body, headers={"Idempotency-Key": "k1"})
    assert replay.status_code == 201
    assert replay.json == {"ok": True, "token": token}
    conflict = client.post("/api/tokens", json={"label": "x"}, headers={"Idempotency-Key": "k1"})
    assert (conflict.status_code, conflict.json["error"]) == (409, "idempotency_conflict")
    with_it = app.test_client()
    assert with_it.get("/api/me", headers=bearer(secret)).status_code == 200
    listed = client.get("/api/tokens").json
    assert [row["label"] for row in listed["tokens"]] == ["ci", ""]
    assert secret not in str(listed)
    for _ in range(2):
        ended = client.delete(f"/api/tokens/{token['token_id']}")
        assert ended.json["token"]["revoked_at"] == "2026-11-30T08:12:00.000Z"
    assert with_it.get("/api/me", headers=bearer(secret)).status_code == 401
    assert script(app, cast.alice).delete(f"/api/tokens/{token['token_id']}").status_code == 404


def test_lists_come_in_pages(app: Flask, cast: Cast) -> None:
    client = script(app, cast.bob)
    for number in range(4):
        client.post("/api/tokens", json={"label": str(number)})
    labels: list[str] = []
    cursor, pages = "", 0
    while cursor is not None:
        answer = client.get(
            "/api/tokens", query_string={"limit": 2, **({"cursor": cursor} if cursor else {})}
        )
        labels += [row["label"] for row in answer.json["tokens"]]
        cursor, pages = answer.json["next_cursor"], pages + 1
    assert sorted(labels) == ["", "0", "1", "2", "3"]
    assert pages == 3
    names = [row["name"] for row in client.get("/api/users?limit=200").json["users"]]
    assert sorted(names) == ["Alice", "Bob", "Vera"], "a stranger of another network is not shown"


@pytest.mark.parametrize(
    ("path", "body", "code", "field"),
    [
        ("/api/tokens", {"label": 7}, "invalid_label", "label"),
        ("/api/tokens", {"label": "x" * 121}, "invalid_label", "label"),
        ("/api/tokens", {"expires_days": "30"}, "invalid_expires_days", "expires_days"),
        ("/api/tokens", {"expires_days": True}, "invalid_expires_days", "expires_days"),
        ("/api/tokens", {"network_id": 7}, "invalid_network_id", "network_id"),
        ("/api/tokens", {"scope": "all"}, "unknown_field", "scope"),
        ("/api/users", {"name": "Dora"}, "invalid_password", "password"),
        ("/api/users", {"name": "Dora", "password": "short"}, "invalid_password", "password"),
        ("/api/users", {"name": "", "password": PASSWORD}, "invalid_user_name", "name"),
        ("/api/users", {"name": "D", "password": PASSWORD, "role": "king"}, "invalid_role", "role"),
        ("/api/users", {"name": "D", "password": PASSWORD, "admin": 1}, "invalid_admin", "admin"),
        ("/api/networks", {"name": "Yard", "slug": "Y"}, "invalid_slug", "slug"),
        ("/api/networks", {"name": " ", "slug": "yard"}, "invalid_network_name", "name"),
    ],
)
def test_a_wrong_field_is_named(
    app: Flask, ada: User, path: str, body: dict[str, object], code: str, field: str
) -> None:
    answer = script(app, ada).post(path, json=body)
    assert (answer.status_code, answer.json["error"], answer.json["field"]) == (400, code, field)


def test_permission_is_spoken_of_before_fields(app: Flask, cast: Cast) -> None:
    for path in ("/api/users", "/api/networks", f"/api/networks/{cast.network.network_id}/members"):
        answer = script(app, cast.bob).post(path, json={"nonsense": 1})
        assert (answer.status_code, answer.json["error"]) == (403, "permission_denied"), path
    foreign = script(app, cast.charlie).post(
        f"/api/networks/{cast.network.network_id}/members", json={"nonsense": 1}
    )
    assert (foreign.status_code, foreign.json["error"]) == (404, "network_not_found")


def test_nobody_without_the_right_learns_who_exists(app: Flask, cast: Cast) -> None:
    path = f"/api/networks/{cast.network.network_id}/members"
    answers = [script(app, cast.bob).post(path, json={"name": name}) for name in ("Charlie", "Nobody")]
    assert [answer.status_code for answer in answers] == [403, 403]


def test_an_administrator_makes_a_person_a_network_and_places(app: Flask, cast: Cast, ada: User) -> None:
    client = script(app, ada)
    body = {"name": "Dora", "password": PASSWORD}
    made = client.post("/api/users", json=body, headers={"Idempotency-Key": "k1"})
    assert made.status_code == 201
    dora = made.json["user"]
    assert (dora["name"], dora["active"], dora["admin"]) == ("Dora", True, False)
    assert client.post("/api/users", json=body, headers={"Idempotency-Key": "k1"}).json["user"] == dora
    taken = client.post("/api/users", json=body)
    assert (taken.status_code, taken.json["error"]) == (409, "user_name_taken")
    yard = client.post("/api/networks", json={"name": "Yard", "slug": "yard"}).json["network"]
    assert yard["role"] == "owner"
    members = f"/api/networks/{yard['network_id']}/members"
    added = client.post(members, json={"name": "dora", "role": "viewer"})
    assert (added.status_code, added.json["member"]["role"]) == (201, "viewer")
    changed = client.patch(f"{members}/{dora['user_id']}", json={"role": "admin"})
    assert changed.json["member"]["role"] == "admin"
    listed = client.get(members).json["members"]
    assert {row["name"]: row["role"] for row in listed} == {"Ada": "owner", "Dora": "admin"}
    assert client.delete(f"{members}/{dora['user_id']}").json == {"ok": True}
    assert client.delete(f"{members}/{dora['user_id']}").json["error"] == "user_not_found"
    last = client.delete(f"{members}/{ada.user_id}")
    assert (last.status_code, last.json["error"]) == (409, "last_owner")


def test_an_administrator_shuts_out_and_lets_in(app: Flask, cast: Cast, ada: User) -> None:
    client, bob = script(app, ada), script(app, cast.bob)
    path = f"/api/users/{cast.bob.user_id}"
    assert client.patch(path, json={"active": False}).json["user"]["active"] is False
    assert bob.get("/api/me").status_code == 401
    assert client.patch(path, json={"active": True}).json["user"]["active"] is True
    assert bob.get("/api/me").status_code == 200
    assert client.patch("/api/users/user_nobody", json={"active": True}).json["error"] == "user_not_found"
    last = client.patch(f"/api/users/{ada.user_id}", json={"active": False})
    assert (last.status_code, last.json["error"]) == (409, "last_admin")


def test_a_bound_token_is_no_administrators(app: Flask, cast: Cast, ada: User) -> None:
    client = script(app, ada, network=cast.network)
    assert client.get("/api/me").json["user"]["admin"] is False
    answer = client.post("/api/networks", json={"name": "Yard", "slug": "yard"})
    assert answer.json["error"] == "permission_denied"


def test_a_session_may_use_the_api_as_well(app: Flask, cast: Cast) -> None:
    assert signed_in(app, cast.alice).get("/api/networks").json["networks"][0]["slug"] == "harbour"
