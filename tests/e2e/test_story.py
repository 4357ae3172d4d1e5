"""The whole story, once through: from the set-up link to a reply in the history, and what people do after it.

Real web, real worker, a real node process, a real browser; only the clock is moved by hand.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Site
from tests.e2e.node_process import example_node
from tests.e2e.pages import door, nodes
from tests.e2e.pages.common import go_to, seen
from tests.e2e.pages.schedules import ScheduleForm, SchedulePage
from tests.support.databases import config_for, dispose_engines
from tests.support.doctor import assert_doctor_clean

TASK = "Count the words of this standing order."
# Monday 09:12 in Berlin when the story begins; the slot is at 09:30 there.
SLOT = datetime(2026, 11, 30, 8, 30, tzinfo=UTC)
EDITED_SLOT = datetime(2026, 11, 30, 8, 45, tzinfo=UTC)


@pytest.mark.parametrize(
    ("database_url", "javascript"),
    [("sqlite", True), ("sqlite", False), ("postgresql", True)],
    indirect=True,
    ids=["sqlite-script", "sqlite-plain", "postgresql-script"],
)
def test_a_standing_order_from_the_set_up_link_to_its_end(
    site: Site, page: Page, javascript: bool, tmp_path: Path
) -> None:
    answer = page.goto("/healthz")
    assert answer is not None
    assert answer.status == 200
    assert site.set_up_link is not None
    assert site.set_up_link.startswith(site.url)
    door.set_up(page, site.set_up_link)
    token = nodes.register(page, "atlas")
    with example_node(site.url, token, tmp_path):
        _node_is_heard(page, live=javascript)
        schedule = _write_the_order(page, script=javascript)
        _slot_is_answered(site, schedule)
        _order_is_changed(schedule)
        _pause_lets_nothing_ring(site, schedule)
        _rings_by_hand(schedule)
        _ends_for_good(schedule)
    doctor_finds_nothing(site)


def _node_is_heard(page: Page, *, live: bool) -> None:
    page.get_by_role("link", name="To atlas").click()
    expect(page.get_by_role("heading", name="atlas", level=1)).to_be_visible()
    # Whether it is idle or at work is the node's to say; that it was heard is what counts here.
    seen(page, page.locator("#node-state").get_by_text("seen", exact=False).first, live=live)


def _write_the_order(page: Page, *, script: bool) -> SchedulePage:
    form = ScheduleForm(page, script=script).open_new()
    form.fill(name="Word count", node="atlas", task=TASK)
    form.choose_kind("Weekly")
    form.choose_days("Monday", "Wednesday")
    form.choose_time("09:30")
    form.choose_zone("Berlin", "Europe/Berlin")
    form.show_preview()
    expect(form.preview).to_contain_text("09:30, Europe/Berlin")
    # The first slot on both clocks: the schedule's, and the viewer's, whose zone only script can tell.
    first = form.preview.get_by_role("table", name="Next runs").get_by_role("row").nth(1)
    expect(first).to_contain_text("09:30")
    expect(first).to_contain_text("03:30" if script else "08:30")
    form.save()
    schedule = SchedulePage(page, script=script).expect_open("Word count")
    expect(page.locator("#schedule-now")).to_contain_text("Mon 30 Nov, 09:30 Berlin")
    return schedule


def _slot_is_answered(site: Site, schedule: SchedulePage) -> None:
    site.clock.set(SLOT)
    schedule.expect_run("09:30", "scheduled", "completed", "7 words")
    schedule.row("09:30", "completed").get_by_role("link").first.click()
    page = schedule.page
    expect(page.get_by_role("region", name="Text of the run")).to_have_text(TASK)
    expect(page.get_by_role("region", name="Output of atlas")).to_contain_text("7 words")
    page.go_back()
    schedule.expect_open("Word count")


def _order_is_changed(schedule: SchedulePage) -> None:
    form = schedule.edit()
    form.fill(name="Word count, later", node="atlas", task=TASK)
    form.choose_time("09:45")
    form.save()
    schedule.expect_open("Word count, later")
    expect(schedule.page.locator("#schedule-now")).to_contain_text("09:45")


def _pause_lets_nothing_ring(site: Site, schedule: SchedulePage) -> None:
    schedule.pause("The words are being written anew.")
    schedule.expect_said("Paused.")
    expect(schedule.page.locator("#schedule-now")).to_contain_text("The words are being written anew.")
    site.clock.set(EDITED_SLOT)
    site.clock.advance(minutes=1)
    schedule.resume()
    schedule.expect_said("Resumed. Next: Wed 2 Dec, 09:45")
    # What fell due during the pause has left no run: it was not the schedule's time.
    expect(schedule.row("09:45")).to_have_count(0)


def _rings_by_hand(schedule: SchedulePage) -> None:
    schedule.press("Run now")
    schedule.expect_said("A run is on its way.")
    schedule.expect_run("by hand", door.OWNER, "completed", "7 words")


def _ends_for_good(schedule: SchedulePage) -> None:
    schedule.cancel()
    schedule.expect_said("Cancelled. Its history stays.")
    expect(schedule.page.get_by_role("button", name="Run now")).to_have_count(0)
    go_to(schedule.page, "Runs")
    expect(schedule.page.locator("#run-list").get_by_role("row").filter(has_text="completed")).to_have_count(
        2
    )


def doctor_finds_nothing(site: Site) -> None:
    from webapp import create_app

    app = create_app(config_for(site.database_url), site.clock)
    try:
        assert_doctor_clean(app)
    finally:
        dispose_engines(app)
