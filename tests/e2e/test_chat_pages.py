"""Approvals answered by keyboard, and a turn that shows itself as it goes. How the pages look: views.py."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.e2e import chat_scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.support.browser import with_script_only


@with_script_only
def test_answers_by_keyboard_and_a_turn_that_shows_itself_as_it_goes(site: Site, page: Page) -> None:
    made = chat_scene.furnish(site)
    door.sign_in(page, made.owner, made.password)
    _answers_by_keyboard(page)
    _a_turn_as_it_goes(page, made.quiet_chat)


def _answers_by_keyboard(page: Page) -> None:
    """A frame shows which one is meant; without it no key answers anything."""
    page.goto("/approvals")
    articles = page.get_by_role("article")
    expect(articles).to_have_count(2)
    # Nothing is in the frame yet, so no key answers anything.
    page.keyboard.press("a")
    page.keyboard.press("d")
    expect(articles).to_have_count(2)
    page.keyboard.press("j")
    expect(articles.first).to_be_focused()
    outline = articles.first.evaluate("element => getComputedStyle(element).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("ArrowDown")
    expect(articles.last).to_be_focused()
    page.keyboard.press("k")
    expect(articles.first).to_be_focused()
    page.keyboard.press("d")
    expect(page.locator("#flash")).to_contain_text("Denied.")
    expect(articles).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(page.locator("#flash")).to_contain_text("Approved, this once.")
    expect(page.get_by_role("heading", level=1)).to_have_text("No agent waits for your answer")


def _a_turn_as_it_goes(page: Page, chat: str) -> None:
    """What the model says appears without a reload."""
    page.goto(chat)
    page.get_by_label("Your message").fill("Good morning")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("region", name="What was said")).to_contain_text("Good morning")
    expect(
        page.get_by_role("region", name="What was said").get_by_text("[echo: no model is set up]")
    ).to_have_count(2)
    expect(page.get_by_text("It is quiet.")).to_be_visible()
