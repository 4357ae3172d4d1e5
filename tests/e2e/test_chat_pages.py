"""The pages of chats, approvals, mandates and the audit in a browser, everything on them hostile."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.e2e import chat_scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.e2e.test_pages import Look, look_at  # noqa: F401 - a fixture
from tests.support import hostile
from tests.support.browser import with_script_only

# What text of others may have made: none of it belongs to the middle of a page of ours.
MADE = """() => [...document.querySelectorAll("main :is(script, img, iframe, object, embed, link, meta, base, style)")]
    .map((element) => element.outerHTML.slice(0, 200))"""
# Handlers, and what htmx would act on, inside of what people and models wrote.
ARMED = """() => [...document.querySelectorAll("main [hx-ignore] *")]
    .flatMap((element) => [...element.attributes].map(({ name }) => name))
    .filter((name) => name.startsWith("on") || name.startsWith("hx-") || name === "style")"""


def assert_nothing_acted(page: Page) -> None:
    """No script ran, nothing was built that loads or acts; the text itself is there to be read."""
    assert page.evaluate("document.documentElement.dataset.alarm") is None
    assert page.evaluate(MADE) == []
    assert page.evaluate(ARMED) == []
    assert hostile.MARK in (page.locator("main").text_content() or "")


@with_script_only
def test_no_text_of_others_acts_on_any_page_and_each_is_fit_to_be_seen(
    site: Site,
    page: Page,
    look_at: Look,  # noqa: F811
) -> None:
    made = chat_scene.furnish(site)
    door.sign_in(page, made.owner, made.password)
    for address in (
        "/",
        "/chats",
        made.chat,
        made.quiet_chat,
        "/approvals",
        "/mandates",
        made.mandate,
        f"{made.mandate}/change",
        f"{made.mandate}/revoke",
        "/audit",
        made.schedule,
        made.proposed,
        f"{made.proposed}/confirm",
        f"{made.schedule}/edit",
        made.run,
        f"/schedules/new?chat={made.chat.rsplit('/', 1)[1]}",
    ):
        page.goto(address)
        look_at(address)
        assert_nothing_acted(page)
    # Another state of a template that was looked at.
    for address in (
        made.revoked_mandate,
        f"{made.mandate}/renew",
        f"{made.mandate}/pause",
        made.stopped_schedule,
    ):
        page.goto(address)
        assert_nothing_acted(page)


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
