"""Every page in its states: accessible by axe, light at a desk and dark on a small phone, nothing beyond the edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from playwright.sync_api import Page, expect

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.e2e.pages.schedules import ScheduleForm
from tests.support.browser import assert_accessible, with_script_only

DESK: Any = {"width": 1280, "height": 900}
Look: TypeAlias = Callable[[str], None]
PHONE: Any = {"width": 320, "height": 640}
pytestmark = with_script_only


# What reaches beyond the right edge of the window, outermost first.
BEYOND = """() => [...document.querySelectorAll("body *")]
    .filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".table-box"))
    .map((element) => element.outerHTML.slice(0, 120)).slice(0, 3)"""


@pytest.fixture
def look_at(page: Page, subtests: pytest.Subtests) -> Callable[[str], None]:
    """Examines the page as it stands, in both looks; one that fails does not hide the next."""

    def look(what: str) -> None:
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        for scheme, size in (("light", DESK), ("dark", PHONE)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size(size)
            with subtests.test(f"{what}: accessible", scheme=scheme):
                assert_accessible(page)
            with subtests.test(f"{what}: no sideways scroll", width=size["width"]):
                width = page.evaluate("document.documentElement.scrollWidth")
                assert width <= size["width"], f"it is {width} px wide: {page.evaluate(BEYOND)}"
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(DESK)

    return look


def test_the_door_and_the_empty_pages(site: Site, page: Page, look_at: Look) -> None:
    page.goto("/sign-in")
    look_at("sign-in")
    assert site.set_up_link is not None
    page.goto(site.set_up_link)
    look_at("set-up")
    page.get_by_role("button", name="Create and sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    look_at("set-up, refused")
    door.set_up(page, site.set_up_link)
    look_at("overview, empty")
    for address in ("/schedules", "/runs", "/nodes", "/no-such-page"):
        page.goto(address)
        look_at(f"{address}, empty")
    _refused_schedule_says_what_to_mend(page)
    look_at("new schedule, refused")


def _refused_schedule_says_what_to_mend(page: Page) -> None:
    form = ScheduleForm(page, script=True).open_new()
    form.choose_kind("Weekly")
    form.choose_days()
    form.save()
    summary = page.get_by_role("alert")
    expect(summary).to_contain_text("to mend before this can be saved")
    expect(summary).to_be_focused()
    expect(page).to_have_title("Error: New schedule · Carillon")
    summary.get_by_role("link", name="Choose at least one weekday.").click()
    expect(page.get_by_role("checkbox", name="Monday")).to_be_focused()


def test_the_pages_of_a_network_at_work(site: Site, page: Page, look_at: Look) -> None:
    made = scene.furnish(site)
    door.sign_in(page, made.owner, made.password)
    page.goto("/")
    look_at("overview")
    for address in (
        "/schedules",
        made.paused_schedule,
        f"{made.schedule}/edit",
        f"{made.schedule}/pause",
        f"{made.schedule}/cancel",
        "/runs",
        made.run,
        made.failed_run,
        made.skipped_run,
        "/nodes",
        made.node,
        made.task,
        "/settings",
    ):
        page.goto(address)
        look_at(address)
    page.goto(made.schedule)
    look_at(made.schedule)
