"""The form of a schedule, and the page of one."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.e2e.pages.common import remark, seen


class ScheduleForm:
    """New, edit and duplicate: the same form. `script`: whether the browser runs script."""

    def __init__(self, page: Page, *, script: bool) -> None:
        self.page = page
        self.script = script
        self.preview = page.get_by_role("region", name="What the engine will do")

    def open_new(self) -> ScheduleForm:
        """Go to the form by the list's button, where there is one yet."""
        self.page.goto("/schedules")
        button = self.page.get_by_role("link", name=re.compile("New schedule|Write the first schedule"))
        if button.count():
            button.click()
        else:
            self.page.goto("/schedules/new")
        expect(self.page.get_by_role("heading", name="New schedule", level=1)).to_be_visible()
        return self

    def fill(self, *, name: str, node: str, task: str) -> None:
        """What is to be done, and by whom."""
        self.page.get_by_label("Name").fill(name)
        nodes = self.page.get_by_label("Who does it")
        # Each is listed with how it is at the moment: "atlas (idle)".
        listed = nodes.get_by_role("option").filter(has_text=re.compile(rf"^\s*{re.escape(node)} \("))
        nodes.select_option(listed.get_attribute("value"))
        self.page.get_by_label("What to do").fill(task)

    def choose_kind(self, kind: str) -> None:
        """One of Once, Interval, Daily, Weekly, Cron."""
        self.page.get_by_role("radio", name=kind, exact=True).check(force=True)

    def choose_days(self, *days: str) -> None:
        """Exactly these weekdays, by their long names."""
        for box in self.page.get_by_role("group", name="On these days").get_by_role("checkbox").all():
            label = box.get_attribute("aria-label")
            box.set_checked(label in days, force=True)

    def choose_time(self, time: str) -> None:
        """HH:MM, for daily and weekly."""
        self.page.locator("#time").fill(time)

    def choose_zone(self, city: str, zone: str) -> None:
        """A zone as people look for it: by city where script helps, else in the list."""
        field = self.page.get_by_label("Time zone", exact=True)
        if not self.script:
            field.select_option(zone)
            return
        field.click()
        field.fill(city)
        self.page.get_by_role("option", name=city).first.click()

    def show_preview(self) -> None:
        """With script it comes by itself while typing."""
        if not self.script:
            self.page.get_by_role("button", name="Preview").click()

    def save(self) -> None:
        """Create or save."""
        self.page.get_by_role("button", name="Create schedule").or_(
            self.page.get_by_role("button", name="Save", exact=True)
        ).click()


class SchedulePage:
    """One schedule with its buttons and its history."""

    def __init__(self, page: Page, *, script: bool) -> None:
        self.page = page
        self.script = script
        self.history = page.get_by_role("region", name="What became of each slot")

    def expect_open(self, name: str) -> SchedulePage:
        """Wait until the page of this schedule stands."""
        expect(self.page.get_by_role("heading", name=name, level=1)).to_be_visible()
        return self

    def row(self, *words: str) -> Locator:
        """A line of the history that says all of these words."""
        found = self.history.get_by_role("row")
        for word in words:
            found = found.filter(has_text=word)
        return found

    def expect_run(self, *words: str) -> None:
        """Wait until a line of the history says all of these words."""
        seen(self.page, self.row(*words), live=self.script)

    def press(self, label: str) -> None:
        """A button that acts at once."""
        self.page.get_by_role("button", name=label, exact=True).click()

    def expect_said(self, words: str) -> None:
        """What the page says about what was just done."""
        expect(remark(self.page)).to_contain_text(words)

    def edit(self) -> ScheduleForm:
        """Open the form of this schedule."""
        self.page.get_by_role("link", name="Edit", exact=True).click()
        expect(self.page.get_by_role("heading", name="Edit schedule", level=1)).to_be_visible()
        return ScheduleForm(self.page, script=self.script)

    def pause(self, reason: str) -> None:
        """Pause with a reason, through the page that says what that will do."""
        self.page.get_by_role("link", name="Pause…").click()
        self.page.get_by_label("Reason, shown to everyone").fill(reason)
        self.page.get_by_role("button", name="Pause", exact=True).click()

    def resume(self) -> None:
        """Go on, through the page that says what that will do."""
        self.page.get_by_role("link", name="Resume…").click()
        self.page.get_by_role("button", name="Resume", exact=True).click()

    def cancel(self) -> None:
        """Cancel for good, through the page that says what that will do."""
        self.page.get_by_role("link", name="Cancel…").click()
        self.page.get_by_role("button", name="Cancel this schedule").click()
