"""One slot, one instant: whoever is asked about a slot at a change of the clock says the same moment.

List, page, calendar, overview, form, preview, history, the page of the run and the API; before it rings and after.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.factories import CSRF
from tests.html.browsing import Browser, House
from webapp.scheduling.models import Schedule
from webapp.web.csrf import HEADER

_ZONE = "Europe/Berlin"
# Spring: 02:00 becomes 03:00, at 01:00 UTC. Autumn: 03:00 becomes 02:00, at 01:00 UTC. Times of the timetable, and
# the UTC instants of the slot on the day of the change and of the day after.
SPRING = {
    "01:59": ("2027-03-28T00:59", "2027-03-28T23:59"),
    "02:00": ("2027-03-28T01:00", "2027-03-29T00:00"),
    "02:30": ("2027-03-28T01:00", "2027-03-29T00:30"),
    "03:00": ("2027-03-28T01:00", "2027-03-29T01:00"),
    "03:01": ("2027-03-28T01:01", "2027-03-29T01:01"),
}
AUTUMN = {
    "01:59": ("2027-10-30T23:59", "2027-11-01T00:59"),
    "02:00": ("2027-10-31T00:00", "2027-11-01T01:00"),
    "02:30": ("2027-10-31T00:30", "2027-11-01T01:30"),
    "03:00": ("2027-10-31T02:00", "2027-11-01T02:00"),
}
# Both turns of the doubled hour, for what is meant to ring every half hour.
HALF_HOURS = (
    "2027-10-30T23:30",
    "2027-10-31T00:00",
    "2027-10-31T00:30",
    "2027-10-31T01:00",
    "2027-10-31T01:30",
    "2027-10-31T02:00",
)


@pytest.mark.parametrize(
    ("noon_before", "slots"),
    [("2027-03-27T12:00", SPRING), ("2027-10-30T12:00", AUTUMN)],
    ids=["an hour is skipped", "an hour comes twice"],
)
def test_a_slot_at_a_clock_change_is_the_same_instant_everywhere(
    house: House, noon_before: str, slots: dict[str, tuple[str, str]]
) -> None:
    clock, browser = house.stage.clock, house.alice
    clock.set(_utc(noon_before))
    with house.backstage() as stage:
        made = {
            at: stage.create(name=f"at {at}", timezone=_ZONE, schedule={"type": "daily", "time": at})
            for at in slots
        }
    overview, listed = browser.get("/"), browser.get("/schedules")
    for at, schedule in made.items():
        first, second = map(_utc, slots[at])
        assert first in _instants(_row(listed, f"at {at}")), f"the list, {at}"
        assert first in _instants(_row(overview, f"at {at}")), f"the overview, {at}"
        _is_said_before_it_rings(browser, schedule, first, second)
    clock.set(_utc(max(first for first, _ in slots.values())) + timedelta(minutes=1))
    with house.backstage() as stage:
        stage.tick()
    for at, schedule in made.items():
        _is_said_after_it_rang(browser, schedule, *map(_utc, slots[at]))


def test_both_turns_of_a_doubled_hour_are_told_apart_everywhere(house: House) -> None:
    house.stage.clock.set(_utc("2027-10-30T23:01"))
    expected = [_utc(text) for text in HALF_HOURS]
    timetables: tuple[dict[str, Any], ...] = (
        {"type": "cron", "cron": "*/30 * * * *"},
        {"type": "interval", "every_seconds": 1800, "anchor_at": "2027-10-30T22:30:00Z"},
    )
    browser = house.alice
    for number, timetable in enumerate(timetables):
        with house.backstage() as stage:
            schedule = stage.create(name=f"half hours {number}", timezone=_ZONE, schedule=timetable)
        assert _previewed(browser, schedule, 6) == expected
        # One column for each zone says it again.
        form = _instants(_part(browser.get(f"{_page(schedule)}/edit"), "preview"))
        assert list(dict.fromkeys(form))[:5] == expected[:5]


def _is_said_before_it_rings(browser: Browser, schedule: Schedule, first: datetime, second: datetime) -> None:
    page = browser.get(_page(schedule))
    assert _instants(_part(page, "schedule-now"))[0] == first, "its page"
    calendar = _instants(_part(page, "schedule-calendar"))
    assert first in calendar, "the calendar"
    assert second in calendar, "the calendar, the day after"
    form = _instants(_part(browser.get(f"{_page(schedule)}/edit"), "preview"))
    assert form[0] == first, "the form"
    assert second in form, "the form, the day after"
    assert _previewed(browser, schedule, 2) == [first, second]
    told = _json(browser, f"/api/scheduled-tasks/{schedule.schedule_id}")["schedule"]
    assert _utc(told["next_run_at"]) == first, "the API"


def _is_said_after_it_rang(browser: Browser, schedule: Schedule, first: datetime, second: datetime) -> None:
    page = browser.get(_page(schedule))
    assert _instants(_part(page, "schedule-history"))[0] == first, "the history"
    assert _instants(_part(page, "schedule-now"))[0] == second, "its page, afterwards"
    (run,) = _json(browser, f"/api/scheduled-tasks/{schedule.schedule_id}/runs")["runs"]
    assert _utc(run["scheduled_for"]) == first, "the API's runs"
    assert first in _instants(browser.get(f"/runs/{run['run_id']}")), "the page of the run"


def _previewed(browser: Browser, schedule: Schedule, count: int) -> list[datetime]:
    told = _json(browser, f"/api/scheduled-tasks/{schedule.schedule_id}")["schedule"]
    answer = browser.client.post(
        "/api/scheduled-tasks/preview",
        json={"schedule": told["schedule"], "timezone": told["timezone"], "count": count},
        headers={HEADER: CSRF},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json is not None
    return [_utc(each["at"]) for each in answer.json["occurrences"]]


def _json(browser: Browser, address: str) -> dict[str, Any]:
    answer = browser.client.get(address)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.get_json()
    return found


def _page(schedule: Schedule) -> str:
    return f"/schedules/{schedule.schedule_id}"


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=UTC)


def _instants(html: str) -> list[datetime]:
    """The instants of the `<time>` elements, in their order."""
    return [_utc(text) for text in re.findall(r'<time datetime="([^"]+)"', html)]


def _part(html: str, name: str) -> str:
    """From the element of that id on."""
    return html[html.index(f'id="{name}"') :]


def _row(html: str, words: str) -> str:
    """The rows of tables that say these words."""
    rows = [row for row in re.findall(r"<tr.*?</tr>", html, re.S) if words in row]
    assert rows, words
    return " ".join(rows)
