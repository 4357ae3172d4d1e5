"""Each thing that no page may do is seen by the watch, and an innocent page passes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import Watch, assert_accessible, shoot

pytestmark = pytest.mark.e2e

_PAGE = "<!doctype html><html lang=en><title>Bells</title><main><h1>Bells</h1>{}</main></html>"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src *; img-src *; form-action 'self'"
)


class _Pages(BaseHTTPRequestHandler):
    bodies: ClassVar[dict[str, tuple[int, str, str]]] = {
        "/innocent": (200, "text/html", _PAGE.format("<p>Nothing happens.</p>")),
        "/inline-style": (200, "text/html", _PAGE.format("<p style='color: red'>Red.</p>")),
        "/inline-script": (200, "text/html", _PAGE.format("<script>1</script>")),
        "/throws": (200, "text/html", _PAGE.format("<script src=/throw.js></script>")),
        "/throw.js": (200, "text/javascript", "throw new Error('cracked')"),
        "/complains": (200, "text/html", _PAGE.format("<script src=/complain.js></script>")),
        "/complain.js": (200, "text/javascript", "console.error('flat')"),
        "/elsewhere": (200, "text/html", _PAGE.format("<img alt=a src='http://elsewhere.invalid/a.png'>")),
        "/no-image": (200, "text/html", _PAGE.format("<img alt=a src=/none.png>")),
        "/broken": (500, "text/html", _PAGE.format("<p>Broken.</p>")),
        "/refused": (422, "text/html", _PAGE.format("<p>Try again.</p>")),
        "/unnamed": (200, "text/html", _PAGE.format("<input>")),
    }

    def do_GET(self) -> None:
        status, kind, body = self.bodies.get(self.path, (404, "text/plain", "nothing here"))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", _POLICY)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _watched(browser: Browser, address: str, path: str, *, javascript: bool) -> tuple[Page, Watch]:
    context = browser.new_context(base_url=address, java_script_enabled=javascript)
    watch = Watch(context)
    page = context.new_page()
    # The browser asks for an icon by itself; the product has one.
    page.route("**/favicon.ico", lambda route: route.fulfill(status=200, body=b""))
    page.goto(path, wait_until="load")
    return page, watch


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "plain"])
@pytest.mark.parametrize("path", ["/innocent", "/refused"])
def test_an_innocent_page_passes(browser: Browser, address: str, path: str, javascript: bool) -> None:
    page, watch = _watched(browser, address, path, javascript=javascript)
    page.context.close()
    watch.assert_clean()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/inline-style", "Content Security Policy"),
        ("/inline-script", "Content Security Policy"),
        ("/throws", "uncaught exception: cracked"),
        ("/complains", "console error: flat"),
        ("/elsewhere", "request to another host: http://elsewhere.invalid/a.png"),
        ("/no-image", "image answered 404"),
        ("/broken", "document answered 500"),
    ],
)
def test_what_no_page_may_do_fails_the_test(browser: Browser, address: str, path: str, words: str) -> None:
    page, watch = _watched(browser, address, path, javascript=True)
    page.context.close()
    with pytest.raises(AssertionError, match=words):
        watch.assert_clean()


@pytest.mark.parametrize(
    ("path", "words"),
    [("/elsewhere", "request to another host"), ("/no-image", "image answered 404")],
)
def test_it_watches_without_script_too(browser: Browser, address: str, path: str, words: str) -> None:
    page, watch = _watched(browser, address, path, javascript=False)
    page.context.close()
    with pytest.raises(AssertionError, match=words):
        watch.assert_clean()


def test_axe_names_a_control_without_a_label_under_the_strict_policy(browser: Browser, address: str) -> None:
    page, watch = _watched(browser, address, "/unnamed", javascript=True)
    with pytest.raises(AssertionError, match="label"):
        assert_accessible(page)
    page.goto("/innocent")
    assert_accessible(page)
    page.context.close()
    watch.assert_clean()


def test_pictures_are_kept_only_when_somebody_asks(
    browser: Browser, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, _ = _watched(browser, address, "/innocent", javascript=True)
    usual = page.viewport_size
    monkeypatch.delenv("CARILLON_SCREENS", raising=False)
    shoot(page, "innocent")
    monkeypatch.setenv("CARILLON_SCREENS", str(tmp_path))
    shoot(page, "asked")
    assert page.viewport_size == usual
    page.context.close()
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert sorted(kept) == ["asked-dark.png", "asked-light.png", "asked-phone.png"]
    assert kept["asked-phone.png"] != kept["asked-light.png"]
    assert all(picture.startswith(b"\x89PNG") for picture in kept.values())
