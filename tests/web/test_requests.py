"""What the JSON edge reads from a request, and what it refuses to read."""

from __future__ import annotations

import pytest
from flask import Flask, jsonify
from flask.testing import FlaskClient

from tests.factories import Cast, bearer, make_member, make_token, make_user, signed_in
from webapp.web.policy import UserApi, access
from webapp.web.requests import (
    idempotency_request,
    json_body,
    network_of_write,
    networks_of_read,
    page_request,
    revision_of_change,
)

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
JSON = "application/json"


@pytest.fixture
def probe(own_app: Flask, cast: Cast) -> FlaskClient:
    """Alice's browser on an app with calls that say what they read."""

    @own_app.post("/api/probe/body")
    @access(UserApi)
    def body():
        return jsonify(ok=True, body=json_body())

    @own_app.post("/api/probe/optional")
    @access(UserApi)
    def optional():
        return jsonify(ok=True, body=json_body(optional=True))

    @own_app.post("/api/probe/key")
    @access(UserApi)
    def key():
        found = idempotency_request("probe", {"a": 1})
        return jsonify(ok=True, key=None if found is None else found.key)

    @own_app.post("/api/probe/revision")
    @access(UserApi)
    def revision():
        return jsonify(ok=True, revision=revision_of_change(json_body(optional=True).get("revision")))

    @own_app.get("/api/probe/page")
    @access(UserApi)
    def page():
        found = page_request()
        return jsonify(ok=True, limit=found.limit, cursor=found.cursor)

    @own_app.post("/api/probe/network")
    @access(UserApi)
    def network():
        return jsonify(ok=True, slug=network_of_write(json_body(optional=True).get("network_id")).slug)

    @own_app.get("/api/probe/networks")
    @access(UserApi)
    def networks():
        return jsonify(ok=True, count=len(networks_of_read()))

    return signed_in(own_app, cast.alice)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"   ",
        b"null",
        b"[]",
        b'"text"',
        b"7",
        b"{",
        b"{}{}",
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 30_000,
        b'\xff\xfe{"a": 1}',
        b"\xef\xbb\xbf{}",
        b'{"a": "\xc3\x28"}',
        b'{"a": "\\ud800"}',
        b'{"\\ud800": 1}',
        b'{"a": "\\u0000"}',
        b'{"a": ["deep", {"b": "\\u0000"}]}',
        b'{"a": "\x00"}',
        b"\x00",
    ],
    ids=lambda raw: repr(raw[:24]),
)
def test_what_is_no_good_json_object_is_refused(probe: FlaskClient, raw: bytes) -> None:
    answer = probe.post("/api/probe/body", data=raw, content_type=JSON)
    assert (answer.status_code, answer.json["error"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"{}", {}),
        (b' {"a": [1, 2.5, true, null]} ', {"a": [1, 2.5, True, None]}),
        ('{"a": "Ünïcode 🔔"}'.encode(), {"a": "Ünïcode 🔔"}),
        (b'{"a": "\\ud83d\\udd14"}', {"a": "🔔"}),
        (b'{"a": "\\\\u0000"}', {"a": "\\u0000"}),
        (b'{"a": {"b": 1}, "b": {"b": 1}}', {"a": {"b": 1}, "b": {"b": 1}}),
    ],
)
def test_a_good_object_is_read_as_it_is(probe: FlaskClient, raw: bytes, body: dict[str, object]) -> None:
    answer = probe.post("/api/probe/body", data=raw, content_type=JSON)
    assert answer.json == {"ok": True, "body": body}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""])
def test_another_content_type_is_refused(probe: FlaskClient, kind: str) -> None:
    answer = probe.post("/api/probe/body", data=b'{"a": 1}', content_type=kind)
    assert (answer.status_code, answer.json["error"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("kind", [JSON, "application/json; charset=utf-8", "APPLICATION/JSON"])
def test_json_is_known_by_its_type(probe: FlaskClient, kind: str) -> None:
    assert probe.post("/api/probe/body", data=b"{}", content_type=kind).status_code == 200


def test_a_body_that_may_be_missing_may_be_missing(probe: FlaskClient) -> None:
    assert probe.post("/api/probe/optional").json["body"] == {}
    assert probe.post("/api/probe/optional", data=b"[]", content_type=JSON).status_code == 400


@pytest.mark.parametrize(
    ("key", "status"),
    [("a", 200), ("x" * 200, 200), ("~!", 200), ("", 400), ("x" * 201, 400), ("a b", 400), ("ü", 400)],
)
def test_a_key_is_visible_ascii(probe: FlaskClient, key: str, status: int) -> None:
    answer = probe.post("/api/probe/key", headers={"Idempotency-Key": key})
    assert answer.status_code == status
    if status == 200:
        assert answer.json["key"] == key
    else:
        assert answer.json["error"] == "invalid_idempotency_key"


@pytest.mark.parametrize(
    ("header", "body", "revision"),
    [
        (None, None, None),
        ('"7"', None, 7),
        ('W/"7"', None, 7),
        ("*", None, None),
        (None, 3, 3),
        ('"3"', 3, 3),
        ("7", None, "refused"),
        ('"0"', None, "refused"),
        ('"7", "8"', None, "refused"),
        ('"x"', None, "refused"),
        ('"3"', 4, "refused"),
        (None, True, "refused"),
        (None, 0, "refused"),
        (None, "3", "refused"),
        (None, 3.0, "refused"),
    ],
)
def test_a_revision_comes_from_the_body_or_the_header(
    probe: FlaskClient, header: str | None, body: object, revision: object
) -> None:
    headers = {} if header is None else {"If-Match": header}
    sent = {} if body is None else {"revision": body}
    answer = probe.post("/api/probe/revision", json=sent, headers=headers)
    if revision == "refused":
        assert (answer.status_code, answer.json["error"]) == (400, "invalid_revision")
    else:
        assert answer.json["revision"] == revision


@pytest.mark.parametrize(
    ("query", "limit"), [("", 50), ("limit=7", 7), ("limit=0", 1), ("limit=-5", 1), ("limit=999", 200)]
)
def test_a_limit_is_clamped(probe: FlaskClient, query: str, limit: int) -> None:
    assert probe.get(f"/api/probe/page?{query}").json["limit"] == limit


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=x", "invalid_limit"),
        ("limit=1.5", "invalid_limit"),
        ("limit=", "invalid_limit"),
        ("limit=٣", "invalid_limit"),
        ("cursor=", "invalid_cursor"),
        ("cursor=" + "x" * 300, "invalid_cursor"),
    ],
)
def test_an_odd_page_is_refused(probe: FlaskClient, query: str, code: str) -> None:
    answer = probe.get(f"/api/probe/page?{query}")
    assert (answer.status_code, answer.json["error"]) == (400, code)


def test_the_network_of_a_write_is_found_by_the_rule(own_app: Flask, probe: FlaskClient, cast: Cast) -> None:
    def asked(client: FlaskClient, network_id: object = None, token: str | None = None):
        body = {} if network_id is None else {"network_id": network_id}
        headers = {} if token is None else bearer(token)
        answer = client.post("/api/probe/network", json=body, headers=headers)
        return answer.json.get("slug") or (answer.status_code, answer.json["error"])

    home, away = cast.network.network_id, cast.elsewhere.network_id
    assert asked(probe) == "harbour"
    assert asked(probe, home) == "harbour"
    assert asked(probe, away) == (404, "network_not_found")
    assert asked(probe, "net_nowhere") == (404, "network_not_found")
    assert asked(probe, 7) == (400, "invalid_network_id")
    with own_app.app_context():
        make_member(cast.alice, cast.elsewhere)
        bound = make_token(cast.alice, network=cast.elsewhere)
        nobody = make_user("Nora")
    assert asked(probe) == (400, "network_id_required")
    assert asked(probe, away) == "elsewhere"
    script = own_app.test_client()
    assert asked(script, token=bound) == "elsewhere"
    assert asked(script, away, token=bound) == "elsewhere"
    assert asked(script, home, token=bound) == (404, "network_not_found"), (
        "named another: not silently elsewhere"
    )
    assert asked(signed_in(own_app, nobody)) == (403, "permission_denied")


def test_a_list_shows_all_networks_or_the_one_that_is_named(
    app: Flask, probe: FlaskClient, cast: Cast
) -> None:
    with app.app_context():
        make_member(cast.alice, cast.elsewhere)
    assert probe.get("/api/probe/networks").json["count"] == 2
    named = probe.get("/api/probe/networks", query_string={"network_id": cast.network.network_id})
    assert named.json["count"] == 1
    assert probe.get("/api/probe/networks?network_id=net_nowhere").status_code == 404
