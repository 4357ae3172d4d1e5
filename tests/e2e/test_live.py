"""Open pages follow what happens, also what happens before their stream stands."""

from __future__ import annotations

from playwright.sync_api import Page, Route, expect

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.support.browser import with_script_only

pytestmark = with_script_only


def test_what_happens_between_the_drawing_of_a_page_and_its_stream_is_not_missed(
    site: Site, page: Page
) -> None:
    made = scene.begin(site)
    door.sign_in(page, made.owner, made.password)
    late: list[str] = []

    def change_first(route: Route) -> None:
        if not late:
            late.append(route.request.url)
            scene.pause(site, made.schedule)
        route.continue_()

    page.route("**/api/events*", change_first)
    page.goto(made.schedule)
    expect(page.get_by_role("link", name="Resume…")).to_be_visible()
    assert len(late) == 1
