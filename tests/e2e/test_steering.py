"""Steering in the browser: one is skipped and put back, many are paused and resumed, a run is held back, a long
history is narrowed, a node gets a new token. With script and without.
"""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.e2e.pages.common import remark
from tests.e2e.pages.schedules import SchedulePage

BACKUP = "Check of the nightly backup"


def test_schedules_are_steered_one_by_one_and_many_at_once(site: Site, page: Page, javascript: bool) -> None:
    made = scene.furnish(site)
    history = scene.long_history(site)
    door.sign_in(page, made.owner, made.password)
    page.goto("/schedules")
    page.get_by_role("link", name=BACKUP).click()
    schedule = SchedulePage(page, script=javascript).expect_open(BACKUP)
    _skip_and_undo(schedule)
    _move_and_undo(schedule)
    _pause_and_resume_two(page)
    _run_now_while_one_is_open(page, made.schedule, script=javascript)
    _a_long_history_is_read_page_by_page(page, history, script=javascript)
    _a_node_gets_a_new_token(page, made.node)


def _skip_and_undo(schedule: SchedulePage) -> None:
    card = schedule.page.get_by_role("region", name="Next run")
    schedule.press("Skip this one")
    schedule.expect_said("Tue 1 Dec, 02:30 Berlin will be skipped.")
    expect(card).to_contain_text("is skipped by a person")
    expect(card.locator(".next__when")).to_contain_text("Wed 2 Dec, 02:30 Berlin")
    schedule.press("Undo the skip")
    schedule.expect_said("Undone.")
    expect(card.locator(".next__when")).to_contain_text("Tue 1 Dec, 02:30 Berlin")


def _move_and_undo(schedule: SchedulePage) -> None:
    page = schedule.page
    page.get_by_role("link", name="Move this one…").click()
    page.get_by_label("New time").fill("2026-12-01T06:00")
    page.get_by_role("button", name="Move it").click()
    schedule.expect_said("It rings Tue 1 Dec, 06:00 Berlin instead of Tue 1 Dec, 02:30 Berlin.")
    schedule.press("Undo the move")
    schedule.expect_said("Undone.")


def _pause_and_resume_two(page: Page) -> None:
    page.goto("/schedules")
    _pick(page, BACKUP, scene.MINUTE)
    page.get_by_role("button", name="Pause with a reason…").click()
    expect(page.locator(".page__say")).to_contain_text("2 schedules will be paused.")
    expect(page.get_by_role("row").filter(has_text=scene.MINUTE)).to_contain_text("1 run that nobody took up")
    page.get_by_label("Reason, shown to everyone").fill("The tower is closed.")
    page.get_by_role("button", name="Pause: 2 schedules").click()
    expect(remark(page)).to_contain_text("2 schedules paused.")
    expect(page.get_by_role("row").filter(has_text=BACKUP)).to_contain_text("The tower is closed.")
    _pick(page, BACKUP, scene.MINUTE)
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("button", name="Resume: 2 schedules").click()
    expect(remark(page)).to_contain_text("2 schedules resumed.")


def _pick(page: Page, *names: str) -> None:
    for name in names:
        page.get_by_role("checkbox", name=f"Pick {name}", exact=True).check()


def _run_now_while_one_is_open(page: Page, address: str, *, script: bool) -> None:
    page.goto(address)
    schedule = SchedulePage(page, script=script).expect_open(scene.MINUTE)
    schedule.press("Run now")
    schedule.expect_said("A run is on its way.")
    schedule.press("Run now")
    expect(page.get_by_role("alert")).to_contain_text("previous_run_active")
    expect(page.get_by_role("alert")).to_contain_text("Wait for the earlier run to end")
    page.get_by_role("link", name="See the earlier run").click()
    page.wait_for_url("**/runs/*")


def _a_long_history_is_read_page_by_page(page: Page, address: str, *, script: bool) -> None:
    """The address says what is looked at, so that it can be sent to somebody; back leads back."""
    page.goto(address)
    schedule = SchedulePage(page, script=script).expect_open(scene.BUSY)
    rows = schedule.history.get_by_role("row")
    expect(rows).to_have_count(1 + 25)
    schedule.history.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(1 + 3)
    assert "cursor=" in page.url
    page.go_back()
    expect(rows).to_have_count(1 + 25)
    schedule.history.get_by_role("link", name="failed 2").click()
    expect(rows).to_have_count(1 + 2)
    assert page.url.endswith("?status=failed")
    page.reload()
    expect(rows).to_have_count(1 + 2)
    expect(schedule.history.get_by_role("link", name="failed 2")).to_have_attribute("aria-current", "true")


def _a_node_gets_a_new_token(page: Page, address: str) -> None:
    """What it means is said before; the token is shown once; the old one no longer works."""
    page.goto(address)
    page.get_by_role("link", name="New token…").click()
    expect(page.get_by_role("heading", name="New token for atlas?", level=1)).to_be_visible()
    expect(page.locator(".page__say")).to_contain_text("atlas is cut off at once")
    page.get_by_role("button", name="Make a new token and show it once").click()
    shown = page.get_by_role("region", name="Token of atlas")
    expect(shown).to_contain_text("ntok_")
    token = (shown.text_content() or "").strip()
    heard = page.request.get("/api/node/inbox", headers={"Authorization": f"Bearer {token}"})
    assert heard.ok, heard.text()
    page.reload()
    expect(page.get_by_text(token)).to_have_count(0)
