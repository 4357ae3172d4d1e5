"""The whole product in a real browser: real web, real worker, one file clock, a database of its own.

Every test here runs with script and without, since every journey must work both ways. One that is about
script alone says `@with_script_only` (tests/support/browser.py). SQLite is the engine unless a test says
`@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser import Watch
from tests.support.databases import START, DatabaseSource
from tests.support.file_clock import FileClock
from tests.support.processes import Herd, forked_web

# What a machine at rest does in a moment takes seconds where others compute.
_PATIENCE_MS = 20_000
expect.set_options(timeout=_PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here, so that `-m "not e2e"` leaves the browser out."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@dataclass(frozen=True)
class Site:
    """The running product as a browser and an operator see it."""

    url: str
    database_url: str
    clock: FileClock
    # What the operator reads at the first start: the way in for the first person.
    set_up_link: str | None


@pytest.fixture(params=["sqlite"])
def database_url(request: pytest.FixtureRequest, databases: DatabaseSource) -> Iterator[str]:
    """A migrated, empty database; on one engine unless the test asks for both."""
    with databases.lend(request.param) as url:
        yield url


@pytest.fixture(params=[True, False], ids=["script", "plain"])
def javascript(request: pytest.FixtureRequest) -> bool:
    """Whether the browser runs script."""
    return bool(request.param)


@pytest.fixture
def site_clock(tmp_path: Path) -> FileClock:
    """The clock of web and worker: Monday 30 November 2026, 08:12 UTC, until the test moves it."""
    return FileClock(tmp_path / "clock", START)


@pytest.fixture
def site(database_url: str, site_clock: FileClock, herd: Herd) -> Iterator[Site]:
    """Web and worker, running; both must leave cleanly at the end."""
    environment = {"CARILLON_DATABASE_URL": database_url, "CARILLON_TICK_SECONDS": "0.2"}
    worker = herd.start_program(site_clock, "scheduler_worker.py", environment=environment)
    with forked_web(herd, database_url, site_clock, environment=environment) as web:
        herd.until(worker, lambda: "worker started" in herd.words(worker))
        yield Site(web.url, database_url, site_clock, web.set_up_link())
        herd.end(worker)


@pytest.fixture
def open_page(
    site: Site, javascript: bool, new_context: Callable[..., BrowserContext]
) -> Iterator[Callable[..., Page]]:
    """Opens a page in a browser context of its own (another person, another device).

    A viewer in New York at a desk, unless the options of `Browser.new_context` say otherwise. Every page is
    watched to the end of the test.
    """
    watches: list[Watch] = []
    usual: dict[str, Any] = {
        "base_url": site.url,
        "java_script_enabled": javascript,
        "locale": "en-US",
        "timezone_id": "America/New_York",
        "viewport": {"width": 1280, "height": 900},
    }

    def open_one(**options: Any) -> Page:
        context = new_context(**{**usual, **options})
        context.set_default_timeout(_PATIENCE_MS)
        watches.append(Watch(context))
        return context.new_page()

    yield open_one
    for watch in watches:
        watch.assert_clean()


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    """One page of one person; `page.goto("/schedules")` goes to the running product."""
    return open_page()
