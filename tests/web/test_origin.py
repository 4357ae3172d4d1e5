"""Which hosts are served, whose word about addresses is taken, and which paths stay here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.support.databases import dispose_engines
from webapp import create_app
from webapp.clock import FrozenClock
from webapp.config import Config
from webapp.web.origin import is_local_path, safe_next

ONE_ENGINE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
PUBLIC = "https://carillon.example"


@pytest.mark.parametrize(
    ("path", "goes_to"),
    [
        ("/", "/"),
        ("/runs?status=failed&x=//y", "/runs?status=failed&x=//y"),
        ("/a//b", "/a//b"),
        ("/sign-ins", "/sign-ins"),
        (None, "/"),
        ("", "/"),
        ("runs", "/"),
        ("//evil.example", "/"),
        ("///evil.example", "/"),
        ("/\\evil.example", "/"),
        ("\\/evil.example", "/"),
        ("/a\\b", "/"),
        ("/\t/evil.example", "/"),
        ("/\n/evil.example", "/"),
        ("/ /evil.example", "/"),
        ("/\x00", "/"),
        ("/\x7f", "/"),
        ("http://evil.example/", "/"),
        ("HTTPS:/evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("data:text/html,x", "/"),
        ("/sign-in", "/"),
        ("/sign-out", "/"),
        ("/setup?token=x", "/"),
        ("/" + "x" * 2000, "/"),
    ],
)
def test_only_a_path_of_this_site_is_gone_to(path: str | None, goes_to: str) -> None:
    assert safe_next(path) == goes_to
    assert is_local_path(goes_to)


@contextmanager
def client_of(config: Config, clock: FrozenClock, **changes: object) -> Iterator[FlaskClient]:
    app = create_app(replace(config, **changes), clock)
    yield app.test_client()
    dispose_engines(app)


@ONE_ENGINE
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("carillon.example", 200),
        ("CARILLON.example:443", 200),
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("[::1]:8000", 200),
        ("evil.example", 400),
        ("carillon.example.evil.example", 400),
        ("carillon.example@evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("", 400),
        ("a b", 400),
        ("carillon.example:port", 400),
    ],
)
def test_with_a_public_address_other_hosts_are_not_served(
    config: Config, clock: FrozenClock, host: str, status: int
) -> None:
    with client_of(config, clock, public_url=PUBLIC) as client:
        assert client.get("/sign-in", headers={"Host": host}).status_code == status
        answer = client.get("/api/me", headers={"Host": host})
        assert answer.status_code == (401 if status == 200 else 400)
        assert answer.is_json


@ONE_ENGINE
def test_with_a_public_https_address_the_cookie_is_bound_to_the_host(
    config: Config, clock: FrozenClock
) -> None:
    with client_of(config, clock, public_url=PUBLIC) as client:
        cookie = client.get("/sign-in", base_url=PUBLIC).headers["Set-Cookie"]
    assert cookie.startswith("__Host-carillon=")
    assert "; Secure" in cookie
    assert "; Path=/" in cookie
    assert "Domain" not in cookie


@ONE_ENGINE
def test_a_forwarded_address_is_believed_from_as_many_proxies_as_are_trusted(
    config: Config, clock: FrozenClock
) -> None:
    forged = {"X-Forwarded-For": "203.0.113.1", "X-Forwarded-Proto": "https"}
    for proxies, secure in ((0, False), (1, True)):
        with client_of(config, clock, trusted_proxies=proxies) as client:
            cookie = client.get("/sign-in", headers=forged).headers["Set-Cookie"]
            assert ("; Secure" in cookie) == secure


@ONE_ENGINE
@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("127.8.8.8", {}, 200),
        ("192.0.2.1", {}, 401),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.1"}, 401),
        ("127.0.0.1", {"Forwarded": "for=192.0.2.1"}, 401),
        ("127.0.0.1", {"X-Real-IP": "192.0.2.1"}, 401),
        ("127.0.0.1", {"Via": "1.1 proxy"}, 401),
        ("192.0.2.1", {"X-Forwarded-For": "127.0.0.1"}, 401),
        ("127.0.0.1", {"Authorization": "Bearer utok_wrong"}, 401),
    ],
)
@pytest.mark.parametrize("proxies", [0, 1])
def test_metrics_are_for_this_machine_itself(
    config: Config,
    clock: FrozenClock,
    address: str,
    headers: dict[str, str],
    status: int,
    proxies: int,
) -> None:
    with client_of(config, clock, trusted_proxies=proxies) as client:
        answer = client.get("/metrics", headers=headers, environ_base={"REMOTE_ADDR": address})
    assert answer.status_code == status
    if status == 401:
        assert answer.json["error"] == "unauthenticated"


@ONE_ENGINE
def test_a_request_id_is_ours_unless_a_trusted_proxy_gave_one(
    app: Flask, config: Config, clock: FrozenClock
) -> None:
    given = {"X-Request-Id": "proxy-4711-abcdef"}
    assert app.test_client().get("/healthz", headers=given).headers["X-Request-Id"] != given["X-Request-Id"]
    with client_of(config, clock, trusted_proxies=1) as client:
        assert client.get("/healthz", headers=given).headers["X-Request-Id"] == given["X-Request-Id"]
        for odd in ("short", "x" * 65, "a b c d e f", "<script>"):
            answer = client.get("/healthz", headers={"X-Request-Id": odd})
            assert answer.headers["X-Request-Id"] != odd
