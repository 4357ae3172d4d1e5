"""A prompt each day that must ask before it acts: ordered, asked, approved, done by a node, told in the history.

Real web, real worker with the built-in model, a real node process, a real browser; only the clock is moved by hand.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.e2e.conftest import Site
from tests.e2e.node_process import example_node
from tests.e2e.pages import door, nodes
from tests.e2e.pages.chats import Approvals, ChatPage
from tests.e2e.pages.common import go_to, seen
from tests.e2e.pages.schedules import SchedulePage
from tests.e2e.test_story import doctor_finds_nothing

ORDER = "Good morning.\n/send-task atlas: Count these five words"
# Monday 09:30 in Berlin.
SLOT = datetime(2026, 11, 30, 8, 30, tzinfo=UTC)


def test_a_daily_prompt_asks_is_approved_and_acts(
    site: Site, page: Page, javascript: bool, tmp_path: Path
) -> None:
    door.set_up(page, site.set_up_link)
    token = nodes.register(page, "atlas")
    with example_node(site.url, token, tmp_path):
        chat = ChatPage(page, script=javascript).begin("Morning papers")
        schedule = _order_the_prompt(page, script=javascript)
        site.clock.set(SLOT)
        _approve(page, script=javascript)
        _read_what_came_of_it(page, chat, schedule)
        _read_the_trail(page)
    doctor_finds_nothing(site)


def _order_the_prompt(page: Page, *, script: bool) -> SchedulePage:
    page.get_by_role("link", name="Have a schedule write here").click()
    expect(page.get_by_role("heading", name="New schedule", level=1)).to_be_visible()
    expect(page.get_by_label("In which chat")).to_be_visible()
    expect(page.get_by_label("Who does it")).to_be_hidden()
    page.get_by_label("Name").fill("Papers")
    page.get_by_label("What to do").fill(ORDER)
    page.get_by_role("radio", name="Ask me each time").check()
    page.locator("#time").fill("09:30")
    zone = page.get_by_label("Time zone", exact=True)
    if script:
        zone.click()
        zone.fill("Berlin")
        page.get_by_role("option", name="Berlin").first.click()
    else:
        zone.select_option("Europe/Berlin")
    page.get_by_role("button", name="Create schedule").click()
    schedule = SchedulePage(page, script=script).expect_open("Papers")
    expect(page.get_by_text("It speaks in Morning papers, for Alice.")).to_be_visible()
    expect(page.locator("#schedule-order")).to_contain_text("it asks each time it wants to act")
    return schedule


def _approve(page: Page, *, script: bool) -> None:
    approvals = Approvals(page, script=script).open()
    asked = approvals.ask("Count these five words")
    seen(page, asked, live=script, seconds=20)
    expect(asked).to_contain_text("The schedule Papers, for Alice, asks this in the chat Morning papers")
    expect(asked.get_by_role("region", name="Exact arguments")).to_contain_text("nodes.send_task")
    asked.get_by_role("button", name="Approve this once").click()
    expect(page.locator("#flash")).to_contain_text("Approved, this once.")


def _read_what_came_of_it(page: Page, chat: ChatPage, schedule: SchedulePage) -> None:
    go_to(page, "Chats")
    page.get_by_role("link", name="Morning papers").first.click()
    expect(chat.talk.get_by_text("schedule Papers, for Alice").first).to_be_visible()
    chat.expect_said("This came of it:")
    expect(chat.talk.get_by_text("Send a task to atlas: Count these five words")).to_be_visible()
    go_to(page, "Nodes")
    page.get_by_role("link", name="atlas").first.click()
    seen(page, page.locator("#node-state").get_by_text("replied"), live=schedule.script, seconds=20)
    go_to(page, "Schedules")
    page.get_by_role("link", name="Papers").first.click()
    schedule.expect_run("09:30", "scheduled", "completed")
    schedule.row("09:30", "completed").get_by_role("link").first.click()
    story = page.locator("#run-story")
    expect(story).to_contain_text("Turn created")
    expect(story).to_contain_text("Turn begun")
    story.get_by_role("link", name="what it said").click()
    expect(page.get_by_role("heading", name="Morning papers", level=1)).to_be_visible()


def _read_the_trail(page: Page) -> None:
    go_to(page, "Mandates")
    page.get_by_role("link", name="Papers").first.click()
    expect(page.get_by_role("heading", name="Mandate of Papers", level=1)).to_be_visible()
    trail = page.locator("#mandate-trail")
    for done in ("mandate created", "mandate used", "mandate asked a person"):
        expect(trail).to_contain_text(done)
    go_to(page, "Approvals")
    expect(page.locator("#approvals-past").get_by_role("row").filter(has_text="approved")).to_have_count(1)
