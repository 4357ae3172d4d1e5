"""Writing schedules in the browser: one of each kind, an edit that meets another's, a session that ends meanwhile.

With script and without. What the form says while somebody types is in test_form.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.e2e.pages import door
from tests.e2e.pages.schedules import ScheduleForm, SchedulePage


def test_schedules_of_each_kind_are_written_and_no_word_is_lost(
    site: Site, page: Page, open_page: Callable[..., Page], javascript: bool
) -> None:
    made = scene.begin(site)
    door.sign_in(page, made.owner, made.password)
    for name, fill, says, rings in (
        ("Once", _once, "Once, Thu 24 Dec 2026 at 18:00", "Thu 24 Dec, 18:00 Berlin"),
        ("Interval", _interval, "Every 90 minutes", "Mon 30 Nov, 10:42 Berlin"),
        ("Daily", _daily, "Daily at 23:00", "Mon 30 Nov, 23:00 Berlin"),
        ("Weekly", _weekly, "Mondays and Thursdays at 02:30", "Thu 3 Dec, 02:30 Berlin"),
        ("Cron", _cron, "On the last day of the month at 18:00", "Mon 30 Nov, 18:00 Berlin"),
    ):
        _write(page, name, fill, says, rings, script=javascript)
    _an_edit_meets_anothers(page, open_page, made, script=javascript)
    _session_ends_over_a_half_filled_form(page, made, script=javascript)


def _once(form: ScheduleForm) -> None:
    form.page.get_by_label("Date and time").fill("2026-12-24T18:00")


def _interval(form: ScheduleForm) -> None:
    form.page.get_by_label("Every", exact=True).fill("90")
    form.page.get_by_label("Unit").select_option("minutes")


def _daily(form: ScheduleForm) -> None:
    form.choose_time("23:00")


def _weekly(form: ScheduleForm) -> None:
    form.choose_days("Monday", "Thursday")
    form.choose_time("02:30")


def _cron(form: ScheduleForm) -> None:
    form.page.get_by_label("Cron expression").fill("0 18 L * *")


def _write(
    page: Page, kind: str, fill: Callable[[ScheduleForm], None], says: str, rings: str, *, script: bool
) -> None:
    form = ScheduleForm(page, script=script).open_new()
    form.fill(name=f"{kind} sweep", node="atlas", task="Sweep the tower.")
    form.choose_kind(kind)
    fill(form)
    form.choose_zone("Berlin", "Europe/Berlin")
    form.save()
    SchedulePage(page, script=script).expect_open(f"{kind} sweep")
    expect(page.locator(".page__say")).to_contain_text(says)
    expect(page.locator(".next__when")).to_contain_text(rings)
    # It opens again in the kind that it was saved in.
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_role("radio", name=kind, exact=True)).to_be_checked()


def _an_edit_meets_anothers(
    page: Page, open_page: Callable[..., Page], made: scene.Beginning, *, script: bool
) -> None:
    """Both sides stand beside each other; what only one changed is merged, what both changed is chosen."""
    page.goto("/schedules")
    page.get_by_role("link", name="Morning briefing").click()
    mine = SchedulePage(page, script=script).expect_open("Morning briefing").edit()
    other = open_page(storage_state=page.context.storage_state())
    other.goto(page.url)
    theirs = ScheduleForm(other, script=script)
    other.get_by_label("Name").fill("Briefing of the day")
    theirs.choose_time("08:30")
    theirs.save()
    SchedulePage(other, script=script).expect_open("Briefing of the day")
    other.context.close()
    page.get_by_label("Name").fill("Briefing, short")
    page.get_by_label("What to do").fill("Say it in three sentences.")
    mine.save()
    expect(page.get_by_role("heading", name="Alice saved this while you were typing")).to_be_visible()
    merged = page.get_by_role("region", name="Merged, nothing to choose")
    expect(merged.get_by_role("row").filter(has_text="08:30")).to_contain_text("Alice")
    expect(merged.get_by_role("row").filter(has_text="Say it in three sentences.")).to_contain_text("you")
    page.get_by_role("radio", name=re.compile("Name: saved now")).check(force=True)
    page.get_by_role("button", name="Save as chosen above").click()
    SchedulePage(page, script=script).expect_open("Briefing of the day")
    expect(page.locator(".page__say")).to_contain_text("08:30")
    expect(page.locator("#schedule-order")).to_contain_text("Say it in three sentences.")


def _session_ends_over_a_half_filled_form(page: Page, made: scene.Beginning, *, script: bool) -> None:
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
