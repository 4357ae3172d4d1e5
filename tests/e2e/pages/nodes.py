"""The nodes: registering one and its token."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.e2e.pages.common import go_to


def register(page: Page, alias: str) -> str:
    """Register a node and return the token that is shown this once."""
    go_to(page, "Nodes")
    page.get_by_label("Alias").fill(alias)
    page.get_by_role("button", name="Register and show its token").click()
    shown = page.get_by_role("region", name=f"Token of {alias}")
    expect(shown).to_be_visible()
    token = (shown.text_content() or "").strip()
    assert token.startswith("ntok_")
    return token
