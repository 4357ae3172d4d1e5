"""What stands around every page: the keys and their dialog, the menu on a phone, search and filters folded away."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.support.browser import with_script_only


@with_script_only
def test_single_keys_search_begin_and_help_until_they_are_switched_off(site: Site, page: Page) -> None:
    made = scene.begin(site)
    door.sign_in(page, made.owner, made.password)
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keys")
    expect(help_).to_be_visible()
    page.keyboard.press("Escape")
    expect(help_).to_be_hidden()
    # The overview has no search of its own.
    page.keyboard.press("/")
    search = page.get_by_role("searchbox")
    expect(search).to_be_focused()
    search.press_sequentially("n/?")
    expect(search).to_have_value("n/?")
    expect(help_).to_be_hidden()
    search.blur()
    page.keyboard.press("n")
    page.wait_for_url("**/schedules/new")
    page.get_by_role("link", name="Keys").click()
    help_.get_by_role("button", name="Turn single keys off").click()
    expect(page.get_by_text("Single keys are off: none does anything")).to_be_visible()
    page.goto("/")
    page.keyboard.press("?")
    page.keyboard.press("/")
    expect(help_).to_be_hidden()
    assert page.url.endswith("/")


def test_on_a_phone_menu_and_filters_are_folded_and_open_by_keyboard(site: Site, page: Page) -> None:
    made = scene.begin(site)
    door.sign_in(page, made.owner, made.password)
    page.set_viewport_size({"width": 320, "height": 640})
    menu = page.get_by_role("navigation", name="Main")
    expect(menu).to_be_hidden()
    page.get_by_text("Menu").focus()
    page.keyboard.press("Enter")
    menu.get_by_role("link", name="Schedules").click()
    expect(page.get_by_role("searchbox")).to_be_hidden()
    page.get_by_text("Search", exact=True).first.click()
    page.get_by_role("searchbox").fill("briefing")
    page.get_by_role("button", name="Search").click()
    # What narrows the list stands open.
    expect(page.get_by_role("searchbox")).to_have_value("briefing")
    expect(page.get_by_role("searchbox")).to_be_visible()
    expect(page.get_by_role("rowheader")).to_have_count(1)
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(menu).to_be_visible()
