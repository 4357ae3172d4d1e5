"""Open pages follow what happens, also what happens before their stream stands."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.support.browser import with_script_only
from tests.support.processes import HOST, Herd, forked_web, free_port

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


def test_an_open_page_says_that_it_is_cut_off_and_is_live_again_by_itself(
    site: Site, herd: Herd, javascript: bool, new_context: Callable[..., BrowserContext]
) -> None:
    # Not watched: each connection that is refused is an error to the browser's console.
    port = free_port()
    page = new_context(base_url=f"http://{HOST}:{port}").new_page()
    made = scene.begin(site)
    foot, cut = page.locator("#foot"), page.locator("#cut")
    with forked_web(herd, site.database_url, site.clock, port=port):
        door.sign_in(page, made.owner, made.password)
        page.goto(made.schedule)
        expect(foot).to_contain_text("Live last news")
    expect(cut).to_contain_text("Cut off from Carillon What you see is from")
    expect(foot).to_contain_text("Cut off")
    # What happens meanwhile is shown when the stream is back, without a word of the person.
    scene.pause(site, made.schedule)
    with forked_web(herd, site.database_url, site.clock, port=port):
        # A machine at rest needs two or three seconds; this one may be starting other servers.
        expect(page.get_by_role("link", name="Resume…")).to_be_visible(timeout=15_000)
        expect(cut.get_by_text("Cut off")).to_be_hidden()
        expect(foot).to_contain_text("Live last news")
        page.close()
