"""The main ways by keyboard alone, with script and without: in, write an order, steer it, several at once, out."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.e2e.pages.common import remark
from tests.e2e.pages.keyboard import Keyboard


def test_who_has_a_keyboard_alone_writes_and_steers_schedules(site: Site, page: Page) -> None:
    made = scene.begin(site)
    keys = Keyboard(page)
    _comes_in(keys, made)
    _writes_an_order(keys)
    _skips_one_and_undoes_it(keys)
    _pauses_and_resumes(keys)
    _pauses_several(keys)
    _goes_out(keys)


def _comes_in(keys: Keyboard, made: scene.Beginning) -> None:
    page = keys.page
    page.goto("/sign-in")
    main = page.locator("#main")
    keys.type(main.get_by_label("Name"), made.owner)
    keys.type(main.get_by_label("Password"), made.password)
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    # The way past the menu comes first.
    keys.press(page.get_by_role("link", name="Skip to content"))
    assert page.url.endswith("#main")
    keys.press(page.get_by_role("navigation", name="Main").get_by_role("link", name="Schedules"))
    expect(page.get_by_role("heading", name="Schedules", level=1)).to_be_visible()


def _writes_an_order(keys: Keyboard) -> None:
    page = keys.page
    keys.press(page.get_by_role("link", name="New schedule"))
    expect(page.get_by_role("heading", name="New schedule", level=1)).to_be_visible()
    keys.type(page.get_by_label("Name", exact=True), "Tower check")
    keys.to(page.get_by_label("Who does it"))
    page.keyboard.type("atlas")
    keys.type(page.get_by_label("What to do"), "Check the tower.")
    # A group of radio buttons is one stop, at the chosen one; arrows choose.
    keys.to(page.get_by_role("radio", name="Daily", exact=True))
    for _ in range(5):
        if page.get_by_role("radio", name="Weekly", exact=True).is_checked():
            break
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="Weekly", exact=True)).to_be_checked()
    for day in ("Monday", "Friday"):
        box = page.get_by_role("checkbox", name=day)
        if not box.is_checked():
            keys.press(box, "Space")
        expect(box).to_be_checked()
    keys.type(page.locator("#time"), "02:30")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Tower check", level=1)).to_be_visible()
    expect(page.locator(".page__say")).to_contain_text(re.compile("Mondays.*Fridays.*02:30"))


def _skips_one_and_undoes_it(keys: Keyboard) -> None:
    page = keys.page
    keys.press(page.get_by_role("button", name="Skip this one"))
    expect(remark(page)).to_contain_text("will be skipped.")
    keys.press(page.get_by_role("button", name="Undo the skip"))
    expect(remark(page)).to_contain_text("Undone.")


def _pauses_and_resumes(keys: Keyboard) -> None:
    page = keys.page
    keys.press(page.get_by_role("link", name="Pause…"))
    keys.type(page.get_by_label("Reason, shown to everyone"), "The tower is closed.")
    page.keyboard.press("Enter")
    expect(page.locator("#schedule-now")).to_contain_text("The tower is closed.")
    keys.press(page.get_by_role("link", name="Resume…"))
    keys.press(page.get_by_role("button", name="Resume", exact=True))
    expect(remark(page)).to_contain_text("Resumed.")


def _pauses_several(keys: Keyboard) -> None:
    page = keys.page
    keys.press(page.get_by_role("navigation", name="Main").get_by_role("link", name="Schedules"))
    for name in ("Tower check", scene.MINUTE):
        box = page.get_by_role("checkbox", name=f"Pick {name}", exact=True)
        keys.press(box, "Space")
        expect(box).to_be_checked()
    keys.press(page.get_by_role("button", name="Pause with a reason…"))
    expect(page.locator(".page__say")).to_contain_text("2 schedules will be paused.")
    keys.press(page.get_by_role("button", name="Pause: 2 schedules"))
    expect(remark(page)).to_contain_text("2 schedules paused.")


def _goes_out(keys: Keyboard) -> None:
    keys.press(keys.page.get_by_role("button", name="Sign out"))
    expect(keys.page.get_by_role("heading", name="Sign in", level=1)).to_be_visible()
