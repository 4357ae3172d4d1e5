"""The real browser: how it is started, what makes any page fail a test, and the accessibility check."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    ViewportSize,
    WebError,
)

# A browser that calls home would break the rule that no page reaches for another host.
_QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]
_OWN_HOSTS = {"127.0.0.1", "localhost"}
# A refusal is an answer that pages are made for; the browser's console calls each of them an error.
_REFUSALS = {400, 401, 403, 404, 409, 410, 413, 422, 429}
_FAILED_LOAD = "Failed to load resource: the server responded with a status of "
_DESK: ViewportSize = {"width": 1280, "height": 900}
_PHONE: ViewportSize = {"width": 320, "height": 640}
_LOOKS: list[tuple[str, Literal["light", "dark"], ViewportSize]] = [
    ("light", "light", _DESK),
    ("dark", "dark", _DESK),
    ("phone", "light", _PHONE),
]

with_script_only = pytest.mark.parametrize("javascript", [True], indirect=True, ids=["script"])
without_script_only = pytest.mark.parametrize("javascript", [False], indirect=True, ids=["plain"])


def launch_arguments() -> dict[str, Any]:
    """The options for `BrowserType.launch`: a Chromium of this machine, or playwright's own where none is."""
    path = os.environ.get("CHROMIUM_PATH") or shutil.which("chromium")
    arguments: dict[str, Any] = {"args": _QUIET}
    if path:
        arguments["executable_path"] = path
    return arguments


class Watch:
    """Collects what no page of ours may do, from every page of a browser context.

    Errors in the console and uncaught exceptions, violations of the content security policy, requests to
    other hosts, answers of 500 and above, and scripts, styles or images that do not load.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.problems: list[str] = []
        context.on("console", self._console)
        context.on("weberror", self._exception)
        context.on("request", self._request)
        context.on("response", self._response)

    def assert_clean(self) -> None:
        """Fail with everything that was seen."""
        assert not self.problems, "the browser saw:\n" + "\n".join(self.problems)

    def _console(self, message: ConsoleMessage) -> None:
        # What did not load is judged by its answer, which says more than the console does.
        if message.type == "error" and not message.text.startswith(_FAILED_LOAD):
            self.problems.append(f"console error: {message.text}")

    def _exception(self, error: WebError) -> None:
        self.problems.append(f"uncaught exception: {error.error}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in _OWN_HOSTS:
            self.problems.append(f"request to another host: {request.url}")

    def _response(self, response: Response) -> None:
        kind = response.request.resource_type
        refused = response.status in _REFUSALS and kind in ("document", "fetch", "xhr", "eventsource")
        if response.status >= 400 and not refused:
            self.problems.append(f"{kind} answered {response.status}: {response.url}")


def shoot(page: Page, name: str) -> None:
    """Keep pictures of the page as it stands, where `make screens` asks for them; else do nothing.

    `name` becomes `name-light.png`, `name-dark.png` and `name-phone.png` (320 px wide), each as much as a window
    shows. The page is left as it was.
    """
    folder = os.environ.get("CARILLON_SCREENS")
    if not folder:
        return
    usual = page.viewport_size
    for look, scheme, size in _LOOKS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(size)
        page.screenshot(path=Path(folder) / f"{name}-{look}.png", animations="disabled")
    page.emulate_media(color_scheme="null")
    if usual:
        page.set_viewport_size(usual)


def assert_accessible(page: Page, *, without: Sequence[str] = ()) -> None:
    """Fail with the violations that axe finds on the page as it stands (script must be on).

    WCAG 2.0 to 2.2, A and AA, and best practice. `without` names rules left out, each with its reason at the place
    of the call.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options = {
        "resultTypes": ["violations"],
        # Preloading resolves the imports of a style sheet against the page and asks for what is not there.
        "preload": False,
        "rules": {
            # The one rule of WCAG 2.2 AA that axe leaves out unless it is asked for.
            "target-size": {"enabled": True},
            **{rule: {"enabled": False} for rule in without},
        },
    }
    found = page.evaluate("options => axe.run(options)", options)["violations"]
    lines = [
        f"{violation['id']} ({violation['impact']}): {violation['help']}\n"
        + "\n".join(f"    {node['target']}: {node['html'][:200]}" for node in violation["nodes"])
        for violation in found
    ]
    assert not lines, f"axe on {page.url}:\n" + "\n".join(lines)


def assert_fits(page: Page) -> None:
    """Fail where the page is wider than its window, with what reaches beyond the right edge, outermost first."""
    width, beyond = page.evaluate(
        """() => [document.documentElement.scrollWidth - innerWidth, [...document.querySelectorAll("body *")]
            .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest(".table-box"))
            .map((each) => each.outerHTML.slice(0, 120)).slice(0, 3)]"""
    )
    assert width <= 0, f"{page.url} is {width} px wider than its window: {beyond}"
