"""Steering schedules with script off: skip and move, the calendar, many at once, resume, and a session that ended."""

from __future__ import annotations

from tests.html.browsing import House, assert_fragments_occur
from tests.html.test_schedules import address, made, standing
from webapp.nodes.lifecycle import TaskStatus

DAILY = {"schedule": {"type": "daily", "time": "23:00"}, "timezone": "Europe/Berlin"}


# --- The next one ---


def test_the_next_one_is_skipped_and_that_is_taken_back(house: House) -> None:
    schedule = made(house, name="Sweep", **DAILY)
    browser = house.alice
    page = browser.press(browser.get(address(schedule)), address(schedule, "/skip-next"))
    assert "Mon 30 Nov, 23:00 Berlin will be skipped. Until then this can be undone." in page
    assert "is skipped by a person" in page
    assert not browser.offers(page, address(schedule, "/skip-next"))
    assert standing(house, schedule).next_change is not None
    assert "1 skipped" in page
    page = browser.press(page, address(schedule, "/undo-next"))
    assert "Undone. Mon 30 Nov, 23:00 Berlin rings as the timetable says." in page
    assert standing(house, schedule).next_change is None


def test_the_slot_that_the_page_showed_is_skipped_or_none(house: House) -> None:
    schedule = made(house, name="Sweep", schedule={"type": "interval", "every_seconds": 600})
    browser = house.alice
    page = browser.get(address(schedule))
    with house.backstage() as stage:
        stage.tick(seconds=600)
    page = browser.press(page, address(schedule, "/skip-next"))
    assert browser.status == 409
    assert "slot_not_next" in page
    assert "See which slot comes next" in page
    assert standing(house, schedule).next_change is None
    assert browser.client.get(address(schedule, "/skip-next")).status_code == 303


def test_the_next_one_is_moved_by_the_schedules_clock_and_that_is_taken_back(house: House) -> None:
    schedule = made(house, name="Sweep", **DAILY)
    browser = house.alice
    ask = browser.get(address(schedule, "/move-next"))
    assert 'value="2026-11-30T23:00"' in ask
    assert "before Tue 1 Dec, 23:00 Berlin" in ask
    page = browser.press(ask, address(schedule, "/move-next"), to="2026-12-01T06:00")
    assert "Moved. It rings Tue 1 Dec, 06:00 Berlin instead of Mon 30 Nov, 23:00 Berlin." in page
    assert "Moved by a person: this one alone" in page
    assert "falls due" in page
    change = standing(house, schedule).next_change
    assert change is not None
    assert change["to"] == "2026-12-01T05:00:00.000Z"
    assert "next_change_exists" in browser.get(address(schedule, "/move-next"), status=409)
    browser.press(page, address(schedule, "/undo-next"))
    assert standing(house, schedule).next_change is None


def test_a_move_that_is_refused_brings_the_form_back_as_it_was_typed(house: House) -> None:
    schedule = made(house, name="Sweep", **DAILY)
    browser = house.alice
    ask = browser.get(address(schedule, "/move-next"))
    for typed, words in (
        ("2026-12-02T00:00", "before the slot after it"),
        ("", "to must"),
        ("soon", "to must"),
    ):
        page = browser.press(ask, address(schedule, "/move-next"), to=typed)
        assert browser.status == 422
        assert words in page
        assert f'value="{typed}"' in page
    assert standing(house, schedule).next_change is None


def test_who_may_not_edit_gets_no_way_to_the_next_one(house: House) -> None:
    schedule = made(house, name="Sweep", **DAILY)
    for browser in (house.vera, house.bob):
        page = browser.get(address(schedule))
        assert "skip-next" not in page
        assert "move-next" not in page
        browser.get(address(schedule, "/move-next"), status=403)
    house.charlie.get(address(schedule, "/move-next"), status=404)
    with house.backstage() as stage:
        stage.pause(schedule)
    assert "skip-next" not in house.alice.get(address(schedule))
    assert "not active" not in house.alice.get(address(schedule))
    house.alice.get(address(schedule, "/move-next"), status=409)


# --- The calendar ---


def test_the_calendar_draws_what_ran_and_what_will_with_a_table_for_each(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(
            name="Often", schedule={"type": "interval", "every_seconds": 3600}, failure_threshold=None
        )
        for result in (TaskStatus.REPLIED, TaskStatus.FAILED, TaskStatus.REPLIED):
            stage.tick(seconds=3600)
            stage.serve(result)
    page = house.alice.get(address(schedule))
    assert "3 runs: 2 completed, 1 failed or expired, 0 skipped." in page
    assert page.count('class="heat__failbox"') == 2, "the day, and the legend"
    assert "November 2026" in page
    assert "Runs by month" in page
    assert "Slots of the next 31 days" in page
    assert "×24" in page
    assert_fragments_occur(house.alice, address(schedule), ("schedule-now", "schedule-calendar"))
