"""Setting up and signing in."""

from __future__ import annotations

from playwright.sync_api import Page, expect

OWNER = "Alice"
PASSWORD = "correct horse battery"
NETWORK = "Northwind Lab"


def set_up(page: Page, link: str | None) -> None:
    """Create the owner and the network by the link of the first start; ends on the overview, signed in."""
    assert link is not None, "no set-up link was printed"
    page.goto(link)
    page.get_by_label("Your name").fill(OWNER)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Network", exact=True).fill(NETWORK)
    page.get_by_role("button", name="Create and sign in").click()
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()


def sign_in(page: Page, name: str = OWNER, password: str = PASSWORD) -> None:
    """Sign in; ends on a page with the main menu."""
    page.goto("/sign-in")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
