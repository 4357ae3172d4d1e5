"""What all pages share."""

from __future__ import annotations

import time

from playwright.sync_api import Locator, Page, expect

SECONDS = 10.0


def seen(page: Page, what: Locator, *, live: bool, seconds: float = SECONDS) -> None:
    """Wait until something is visible. A live page shows it by itself; without script somebody reloads."""
    if live:
        expect(what.first).to_be_visible(timeout=seconds * 1000)
        return
    deadline = time.monotonic() + seconds
    while not what.first.is_visible():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        # The page has no way to tell us: a person would press reload as often.
        page.wait_for_timeout(100)
        page.reload()


def remark(page: Page) -> Locator:
    """What the page says about what was just done."""
    return page.locator("#flash")


def go_to(page: Page, area: str) -> None:
    """Follow the main menu."""
    page.get_by_role("navigation", name="Main").get_by_role("link", name=area).click()
    expect(page.get_by_role("navigation", name="Main").get_by_role("link", name=area)).to_have_attribute(
        "aria-current", "page"
    )
