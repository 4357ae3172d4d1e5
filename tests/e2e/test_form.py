"""The form while somebody types: remarks with their buttons, and what the policies would do; no word is lost."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.e2e.pages.schedules import ScheduleForm, SchedulePage
from tests.support.browser import shoot, with_script_only


@with_script_only
def test_the_form_answers_what_is_typed(site: Site, page: Page) -> None:
    made = scene.begin(site)
    door.sign_in(page, made.owner, made.password)
    form = ScheduleForm(page, script=True).open_new()
    form.fill(name="Sweep", node="atlas", task="Sweep the tower.")
    _policies_follow_the_timetable(form)
    _another_kind_takes_over_what_it_can(form)
    _a_step_that_does_not_divide_becomes_an_interval(form)
    shoot(page, "schedule-form-offers")
    # Enter in a field saves, and presses no button of the preview.
    page.get_by_label("Name", exact=True).press("Enter")
    SchedulePage(page, script=True).expect_open("Sweep")
    expect(page.locator(".page__say")).to_contain_text("Every 45 minutes")


def _policies_follow_the_timetable(form: ScheduleForm) -> None:
    form.choose_kind("Weekly")
    form.choose_time("02:30")
    form.page.get_by_role("button", name="Weekdays").click()
    expect(form.preview).to_contain_text("Weekdays at 02:30, America/New_York")
    expect(form.preview).to_contain_text("It says that it stands for 2 older slots.")
    form.page.get_by_role("radio", name="Catch up on all").check(force=True)
    expect(form.preview).to_contain_text("3 runs from 03:00 on, oldest first")
    form.page.get_by_role("radio", name="Run both").check(force=True)
    expect(form.preview).to_contain_text("and has both at once.")
    form.page.get_by_role("button", name="Clear").click()
    expect(form.preview).to_contain_text("choose at least one weekday")


def _another_kind_takes_over_what_it_can(form: ScheduleForm) -> None:
    form.page.get_by_role("button", name="Weekend").click()
    form.choose_kind("Cron")
    form.preview.get_by_role("button", name="Take 30 2 * * 0,6").click()
    cron = form.page.get_by_label("Cron expression")
    expect(cron).to_have_value("30 2 * * 0,6")
    expect(cron).to_be_focused()
    expect(form.page.get_by_label("Name", exact=True)).to_have_value("Sweep")
    expect(form.preview).to_contain_text("Weekends at 02:30")


def _a_step_that_does_not_divide_becomes_an_interval(form: ScheduleForm) -> None:
    form.page.get_by_label("Cron expression").fill("*/45 * * * *")
    expect(form.preview).to_contain_text("it runs at :00 and :45.")
    form.preview.get_by_role("button", name="Every 45 minutes, as an interval").click()
    expect(form.page.get_by_role("radio", name="Interval")).to_be_checked()
    expect(form.page.get_by_label("Every", exact=True)).to_have_value("45")
    expect(form.page.get_by_label("Every", exact=True)).to_be_focused()
    expect(form.preview).to_contain_text("Every 45 minutes")
