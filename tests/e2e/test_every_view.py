"""Every page and state, in each theme and width: accessible by axe, nothing beyond the edge, no word of others acts.

`CARILLON_PROOF_LONG=1` (`make proof-long`) looks at all of them in all four looks; else at the first view of each
page, in looks that take turns. `CARILLON_VIEWS=mandate` looks at those alone whose page or state says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any, Literal

import pytest
from flask import Flask
from playwright.sync_api import Page, expect

from tests.e2e import house
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.e2e.views import EMPTY, FIRST_START, FURNISHED, NO_PAGE, NOBODY, View
from tests.support import hostile
from tests.support.browser import assert_accessible, assert_fits, with_script_only

# A part of the list, by words of the page or its state: while one view is being mended.
ONLY = os.environ.get("CARILLON_VIEWS", "")
LONG = os.environ.get("CARILLON_PROOF_LONG") == "1"
Look = tuple[Literal["light", "dark"], Any]
DESK: Any = {"width": 1280, "height": 900}
PHONE: Any = {"width": 320, "height": 640}
LOOKS: tuple[Look, ...] = (("light", DESK), ("dark", PHONE), ("dark", DESK), ("light", PHONE))
# What text of others may have made: none of it belongs to the middle of a page of ours.
MADE = """() => [...document.querySelectorAll("main :is(script, img, iframe, object, embed, link, meta, base, style)")]
    .map((element) => element.outerHTML.slice(0, 200))"""
# Handlers, and what htmx would act on, inside of what people and models wrote.
ARMED = """() => [...document.querySelectorAll("main [hx-ignore] *")]
    .flatMap((element) => [...element.attributes].map(({ name }) => name))
    .filter((name) => name.startsWith("on") || name.startsWith("hx-") || name === "style")"""


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_no_page_of_the_url_map_is_missing_from_the_list(app: Flask) -> None:
    listed = {view.page for view in (*FIRST_START, *EMPTY, *FURNISHED)}
    shown = {
        rule.endpoint
        for rule in app.url_map.iter_rules()
        if "GET" in (rule.methods or ())
        and not rule.rule.startswith("/api/")
        and not rule.endpoint.startswith("health.")
        # Where a form was refused, loading its address again leads back.
        and ".leave_" not in rule.endpoint
    }
    assert shown - listed - set(NO_PAGE) == set()
    assert listed - shown == {""}, "the list names pages that do not exist"


@with_script_only
def test_every_view_is_for_everybody_and_no_text_of_others_acts(
    site: Site, open_page: Callable[..., Page], subtests: pytest.Subtests
) -> None:
    walk = _Walk(open_page, subtests)
    assert site.set_up_link is not None
    walk.go(FIRST_START, {"set_up": site.set_up_link})
    owner = walk.page_of(NOBODY)
    door.set_up(owner, site.set_up_link)
    walk.pages = {door.OWNER: owner}
    walk.go(EMPTY, {})
    owner.context.close()
    made = house.furnish(site)
    walk.pages = {NOBODY: open_page()}
    walk.password_of = made.password_of
    walk.go(FURNISHED, made.places)


class _Walk:
    """Goes from view to view with one page for each person, who signs in once."""

    def __init__(self, open_page: Callable[..., Page], subtests: pytest.Subtests) -> None:
        self.open_page = open_page
        self.subtests = subtests
        self.pages: dict[str, Page] = {}
        self.password_of: Callable[[str], str] = lambda who: door.PASSWORD
        self.turns = cycle(LOOKS)

    def page_of(self, who: str) -> Page:
        if who not in self.pages:
            self.pages[who] = self.open_page()
            if who != NOBODY:
                door.sign_in(self.pages[who], who, self.password_of(who))
        return self.pages[who]

    def go(self, views: Sequence[View], places: dict[str, str]) -> None:
        wanted = [view for view in views if ONLY in f"{view.page} {view.state}"]
        for view in wanted if LONG else _first_of_each_page(wanted):
            with self.subtests.test(f"{view.page} {view.state}"):
                self.visit(view, places)

    def visit(self, view: View, places: dict[str, str]) -> None:
        page = self.page_of(view.who)
        page.goto(view.address.format_map(places), wait_until="domcontentloaded")
        if view.deed is not None:
            view.deed(page)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if view.hostile:
            assert_nothing_acted(page)
        looks = LOOKS if LONG else (next(self.turns),)
        try:
            for look in looks:
                self.look(page, look, f"{view.page} {view.state}")
        finally:
            page.context.set_offline(False)
            page.set_viewport_size(DESK)

    def look(self, page: Page, look: Look, what: str) -> None:
        scheme, size = look
        # Colours that are still on their way from one theme to the other are nobody's sight.
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.set_viewport_size(size)
        with self.subtests.test(f"{what}: {scheme}, {size['width']} px"):
            assert_accessible(page)
            assert_fits(page)


def _first_of_each_page(views: Sequence[View]) -> Iterator[View]:
    seen: set[str] = set()
    for view in views:
        # Refusals share one template; the usual ones are looked at each time.
        if view.page not in seen or (not view.page and view.state in ("403", "404")):
            seen.add(view.page)
            yield view


def assert_nothing_acted(page: Page) -> None:
    """No script ran, nothing was built that loads or acts; the text itself is there to be read."""
    assert page.evaluate("document.documentElement.dataset.alarm") is None
    assert page.evaluate(MADE) == []
    assert page.evaluate(ARMED) == []
    assert hostile.MARK in (page.locator("main").text_content() or "")
