"""Steering in the browser: one is skipped and put back, many are paused and resumed, a run is held back, and a
session ends while somebody types. With script and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from playwright.sync_api import Page, expect

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.e2e.pages.common import remark
from tests.e2e.pages.schedules import ScheduleForm, SchedulePage
from tests.e2e.test_pages import look_at  # noqa: F401 - a fixture
from tests.support.browser import with_script_only

Look: TypeAlias = Callable[[str], None]


def test_schedules_are_steered_one_by_one_and_many_at_once(site: Site, page: Page, javascript: bool) -> None:
    made = scene.furnish(site)
    door.sign_in(page, made.owner, made.password)
    schedule = _create(page, script=javascript)
    _skip_and_undo(schedule)
    _move_and_undo(schedule)
    _pause_and_resume_two(page)
    _run_now_while_one_is_open(page, made.schedule, script=javascript)
    _session_ends_over_a_half_filled_form(page, made, script=javascript)


def _create(page: Page, *, script: bool) -> SchedulePage:
    form = ScheduleForm(page, script=script).open_new()
    form.fill(name="Evening sweep", node="atlas", task="Sweep the tower.")
    form.choose_kind("Daily")
    form.choose_time("23:00")
    form.choose_zone("Berlin", "Europe/Berlin")
    form.save()
    return SchedulePage(page, script=script).expect_open("Evening sweep")


def _skip_and_undo(schedule: SchedulePage) -> None:
    card = schedule.page.get_by_role("region", name="Next run")
    schedule.press("Skip this one")
    schedule.expect_said("Mon 30 Nov, 23:00 Berlin will be skipped.")
    expect(card).to_contain_text("is skipped by a person")
    expect(card.locator(".next__when")).to_contain_text("Tue 1 Dec, 23:00 Berlin")
    schedule.press("Undo the skip")
    schedule.expect_said("Undone.")
    expect(card.locator(".next__when")).to_contain_text("Mon 30 Nov, 23:00 Berlin")


def _move_and_undo(schedule: SchedulePage) -> None:
    page = schedule.page
    page.get_by_role("link", name="Move this one…").click()
    page.get_by_label("New time").fill("2026-12-01T06:00")
    page.get_by_role("button", name="Move it").click()
    schedule.expect_said("It rings Tue 1 Dec, 06:00 Berlin instead of Mon 30 Nov, 23:00 Berlin.")
    schedule.press("Undo the move")
    schedule.expect_said("Undone.")


def _pause_and_resume_two(page: Page) -> None:
    page.goto("/schedules")
    _pick(page, "Evening sweep", scene.MINUTE)
    page.get_by_role("button", name="Pause with a reason…").click()
    expect(page.locator(".page__say")).to_contain_text("2 schedules will be paused.")
    expect(page.get_by_role("row").filter(has_text=scene.MINUTE)).to_contain_text("1 run that nobody took up")
    page.get_by_label("Reason, shown to everyone").fill("The tower is closed.")
    page.get_by_role("button", name="Pause: 2 schedules").click()
    expect(remark(page)).to_contain_text("2 schedules paused.")
    expect(page.get_by_role("row").filter(has_text="Evening sweep")).to_contain_text("The tower is closed.")
    _pick(page, "Evening sweep", scene.MINUTE)
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


def _session_ends_over_a_half_filled_form(page: Page, made: scene.Scene, *, script: bool) -> None:
    form = ScheduleForm(page, script=script).open_new()
    form.fill(name="Half a thought", node="atlas", task="Not finished yet.")
    form.choose_kind("Daily")
    form.choose_time("05:45")
    page.context.clear_cookies()
    form.save()
    expect(page.get_by_role("heading", name="Sign in", level=1)).to_be_visible()
    expect(page.get_by_text("Nothing you typed is lost")).to_be_visible()
    assert "thought" not in page.url
    page.locator("#main").get_by_label("Name").fill(made.owner)
    page.get_by_label("Password").fill(made.password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="New schedule", level=1)).to_be_visible()
    expect(page.get_by_label("Name")).to_have_value("Half a thought")
    expect(page.get_by_label("What to do")).to_have_value("Not finished yet.")
    expect(page.locator("#time")).to_have_value("05:45")
    form.save()
    SchedulePage(page, script=script).expect_open("Half a thought")


@with_script_only
def test_the_pages_that_steer_are_for_everybody(site: Site, page: Page, look_at: Look) -> None:  # noqa: F811
    made = scene.furnish(site)
    scene.remember_a_year(site, made.schedule)
    door.sign_in(page, made.owner, made.password)
    for address in (
        made.schedule,
        f"{made.schedule}/move-next",
        f"{made.paused_schedule}/resume",
        f"{made.schedule}/pause",
        "/schedules?sort=name",
    ):
        page.goto(address)
        page.locator("details").evaluate_all("(all) => all.forEach((each) => { each.open = true; })")
        look_at(address)
    _pick(page, scene.MINUTE, "Competitor watch")
    page.get_by_role("button", name="Pause with a reason…").click()
    look_at("pause several")
    page.goto(made.schedule)
    page.get_by_role("button", name="Skip this one").click()
    expect(remark(page)).to_contain_text("will be skipped")
    look_at("a skipped slot")
    page.goto(f"{made.schedule}/edit")
    page.context.clear_cookies()
    page.get_by_label("Name").fill("Typed too late")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Nothing you typed is lost")).to_be_visible()
    look_at("signed out while typing")
