"""Steering schedules with script off: skip and move, the calendar, many at once, resume, and a session that ended."""

from __future__ import annotations

import re
from typing import Any

from tests.factories import PASSWORD
from tests.html.browsing import HTMX, Browser, House, assert_fragments_occur, forms_of
from tests.html.test_schedules import address, made, standing
from webapp.nodes.lifecycle import TaskStatus
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule

DAILY: dict[str, Any] = {"schedule": {"type": "daily", "time": "23:00"}, "timezone": "Europe/Berlin"}


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
    assert "is moved to <time" in page, "the day that it leaves"
    assert "moved here from <time" in page, "and the day on which it falls due"
    assert "1 moved" in page
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


# --- Many at once ---


def picked(act: str, *schedules: Schedule) -> str:
    return f"/schedules/bulk?act={act}" + "".join(f"&pick={each.schedule_id}" for each in schedules)


def test_several_are_paused_with_a_reason_after_it_was_said_what_will_happen_to_each(house: House) -> None:
    with house.backstage() as stage:
        busy = stage.create(name="Busy", schedule={"type": "interval", "every_seconds": 600})
        quiet = stage.create(name="Quiet", **DAILY)
        over = stage.create(name="Over")
        stage.cancel(over)
        stage.tick(seconds=600)
    browser = house.alice
    listed = browser.get("/schedules")
    assert listed.count('name="pick"') == 3
    assert 'aria-label="Pick Busy"' in listed
    ask = browser.get(picked("pause", busy, quiet, over))
    assert "2 schedules will be paused, 1 will not. 1 run withdrawn." in ask
    assert "schedule_cancelled" in ask
    assert "1 run that nobody took up" in ask
    assert standing(house, busy).status is ScheduleStatus.ACTIVE, "asking does nothing"
    page = browser.press(ask, "/schedules/bulk", reason="The mill is cleaned.", resume_at="")
    assert browser.path == "/schedules"
    assert "2 schedules paused." in page
    assert page.count("The mill is cleaned.") == 2
    assert standing(house, quiet).status is ScheduleStatus.PAUSED
    assert standing(house, over).status is ScheduleStatus.CANCELLED
    ask = browser.get(picked("resume", busy, quiet))
    assert "Rings next" in ask
    page = browser.press(ask, "/schedules/bulk")
    assert "2 schedules resumed." in page
    ask = browser.get(picked("cancel", busy, quiet))
    assert "This cannot be taken back." in ask
    assert "2 schedules cancelled." in browser.press(ask, "/schedules/bulk")


def test_what_is_refused_meanwhile_is_said_by_name_and_keeps_no_other_back(house: House) -> None:
    with house.backstage() as stage:
        first, second = stage.create(name="First"), stage.create(name="Second")
    browser = house.alice
    ask = browser.get(picked("pause", first, second))
    with house.backstage() as stage:
        stage.cancel(first)
    page = browser.press(ask, "/schedules/bulk")
    assert "1 schedule paused." in page
    assert "First: not paused." in page
    assert "(schedule_cancelled)" in page
    assert standing(house, second).status is ScheduleStatus.PAUSED


def test_a_bulk_that_makes_no_sense_changes_nothing(house: House) -> None:
    schedule = made(house, name="Only")
    browser = house.alice
    page = browser.client.get("/schedules/bulk?act=pause", follow_redirects=True).text
    assert "Tick the schedules first" in page
    browser.get("/schedules/bulk?act=revoke_mandate&pick=" + schedule.schedule_id, status=400)
    browser.get("/schedules/bulk?act=dance&pick=" + schedule.schedule_id, status=400)
    browser.get(
        "/schedules/bulk?act=pause" + "".join(f"&pick=s{n}" for n in range(300)),
        status=400,
    )
    ask = browser.get(picked("pause", schedule))
    page = browser.press(ask, "/schedules/bulk", reason="Kept.", resume_at="2020-01-01T00:00")
    assert browser.status == 422
    assert 'value="Kept."' in page
    assert 'aria-invalid="true"' in page
    assert standing(house, schedule).status is ScheduleStatus.ACTIVE


def test_who_may_not_is_refused_each_and_strangers_see_no_name(house: House) -> None:
    schedule = made(house, name="Hers alone")
    page = house.bob.get(picked("cancel", schedule))
    assert "permission_denied" in page
    assert "Nothing to do" in page
    assert 'name="pick"' not in house.vera.get("/schedules")
    page = house.charlie.get(picked("cancel", schedule))
    assert "Hers alone" not in page
    assert "schedule_not_found" in page


def test_the_list_is_ordered_by_its_headings_and_taken_away_as_json(house: House) -> None:
    with house.backstage() as stage:
        stage.create(name="Beta", schedule={"type": "daily", "time": "23:00"})
        stage.create(name="Alpha", schedule={"type": "daily", "time": "23:30"})
        ill = stage.create(name="Zeta")
        stage.pause(ill)
    browser = house.alice
    page = browser.get("/schedules?sort=name")
    assert page.index(">Alpha<") < page.index(">Beta<") < page.index(">Zeta<")
    assert 'aria-sort="ascending"><a href="/schedules?sort=name">Name ↑</a>' in page
    assert '<input type="hidden" name="sort" value="name">' in page
    assert 'href="/schedules?status=paused&amp;sort=name"' in page
    page = browser.get("/schedules?sort=updated")
    assert page.index(">Zeta<") < page.index(">Alpha<") < page.index(">Beta<")
    browser.get("/schedules?sort=colour", status=400)
    link = re.search(
        r'href="(/api/scheduled-tasks/export[^"]+)"', browser.get("/schedules?sort=name&q=a&status=active")
    )
    assert link
    answer = browser.client.get(link[1].replace("&amp;", "&"))
    assert [each["name"] for each in (answer.json or {})["schedules"]] == ["Alpha", "Beta"]
    assert_fragments_occur(browser, "/schedules?sort=name", ("schedule-list",))


# --- Resume ---


def test_resuming_says_first_what_was_missed_and_what_rings_next(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name="Sweep", schedule={"type": "interval", "every_seconds": 600})
        stage.pause(schedule)
        stage.tick(seconds=1860)
    browser = house.alice
    assert not browser.offers(browser.get(address(schedule)), address(schedule, "/resume"))
    ask = browser.get(address(schedule, "/resume"))
    assert "What resuming will do" in ask
    assert "3 slots since" in ask
    assert "none caught up" in ask
    assert "Rings next" in ask
    page = browser.press(ask, address(schedule, "/resume"))
    assert "Resumed. Next:" in page
    assert browser.client.get(address(schedule, "/resume")).status_code == 303
    house.vera.get(address(schedule, "/resume"), status=403)


def test_resuming_says_that_a_new_mandate_is_issued(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name="Sweep")
    browser = house.alice
    found = re.search(r'href="(/mandates/[a-z0-9_]+)"', browser.get(address(schedule)), re.IGNORECASE)
    assert found
    browser.press(browser.get(f"{found[1]}/revoke"), f"{found[1]}/revoke", reason="Enough.")
    ask = browser.get(address(schedule, "/resume"))
    assert "a new one is issued, on the authority of its sponsor" in ask
    browser.press(ask, address(schedule, "/resume"))
    assert standing(house, schedule).status is ScheduleStatus.ACTIVE


# --- Editing says what saving does ---


def test_the_form_says_what_saving_will_withdraw(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name="Sweep", schedule={"type": "interval", "every_seconds": 600})
        stage.tick(seconds=600)
    browser = house.alice
    form = browser.get(address(schedule, "/edit"))
    assert "Nothing is changed yet." in form
    page = browser.press(form, address(schedule, "/edit"), every="20", every_unit="minutes", preview="1")
    assert "What saving will do" in page
    assert "1 run that nobody took up" in page
    assert standing(house, schedule).revision == 1


# --- A session that ended while somebody typed ---


def signed_out(browser: Browser) -> None:
    browser.client.delete_cookie("carillon")


def come_in(browser: Browser, page: str, **typed: str) -> str:
    wanted: dict[str, Any] = {"name": "Alice", "password": PASSWORD, **typed}
    return browser.press(page, "/sign-in", **wanted)


def test_a_form_sent_after_the_session_ended_is_back_after_signing_in(house: House) -> None:
    schedule = made(house, name="Sweep", **DAILY)
    browser = house.alice
    form = browser.get(address(schedule, "/edit"))
    signed_out(browser)
    page = browser.press(form, address(schedule, "/edit"), name="Swept twice", task="Sweep it,\ntwice.")
    assert browser.status == 401
    assert "Nothing you typed is lost" in page
    assert "Swept twice" not in browser.path
    page = come_in(browser, page, password="wrong wrong wrong")
    assert "Nothing you typed is lost" in page, "a slip at the door loses nothing either"
    page = come_in(browser, page)
    assert browser.status == 200
    assert 'value="Swept twice"' in page
    assert "Sweep it,\ntwice." in page
    assert standing(house, schedule).revision == 1, "nothing was saved yet"
    browser.press(page, address(schedule, "/edit"))
    assert standing(house, schedule).name == "Swept twice"


def test_what_somebody_typed_is_for_nobody_else_who_signs_in(house: House) -> None:
    schedule = made(house, name="Sweep", **DAILY)
    browser = house.alice
    form = browser.get(address(schedule, "/edit"))
    signed_out(browser)
    door = browser.press(form, address(schedule, "/edit"), name="Alice alone reads this")
    page = come_in(browser, door, name="Bob")
    assert browser.status == 200
    assert "Another person’s form was thrown away" in page
    assert "Alice alone" not in page
    assert 'name="kept"' not in page
    assert browser.answer is not None
    assert browser.answer.headers["Cache-Control"] == "no-store"
    signed_out(browser)
    without = re.sub(r"\.[0-9a-f]{32}", "", form)
    page = come_in(browser, browser.press(without, address(schedule, "/edit"), name="Whose is this?"))
    assert "Whose is this?" not in page, (
        "a form that says for whom it was drawn in no way that this server signed"
    )


def test_a_new_schedule_survives_the_end_of_a_session_too(house: House) -> None:
    browser = house.alice
    form = browser.get("/schedules/new")
    signed_out(browser)
    page = browser.press(form, "/schedules/new", name="Fresh", task="Do it.", type="daily", time="07:15")
    page = come_in(browser, page)
    assert 'value="Fresh"' in page
    browser.press(page, "/schedules/new")
    assert "Fresh" in browser.get("/schedules")


def test_another_form_is_shown_and_sent_when_that_is_wanted(house: House) -> None:
    schedule = made(house, name="Sweep", **DAILY)
    browser = house.alice
    form = browser.get(address(schedule, "/pause"))
    signed_out(browser)
    page = come_in(browser, browser.press(form, address(schedule, "/pause"), reason="Stocktaking"))
    assert "Stocktaking" in page
    assert standing(house, schedule).status is ScheduleStatus.ACTIVE
    browser.press(page, address(schedule, "/pause"))
    assert standing(house, schedule).status is ScheduleStatus.PAUSED


def test_nothing_is_kept_of_secrets_of_other_sites_and_of_forged_or_old_texts(house: House) -> None:
    stranger = house.alice
    signed_out(stranger)
    client = stranger.client
    for path, data, headers in (
        ("/settings/password", {"password": "old words here", "new_password": "new words here"}, {}),
        ("/schedules/new", {"name": "Planted"}, {"Origin": "https://elsewhere.example"}),
        ("/schedules/new", {"csrf_token": "x"}, {}),
    ):
        answer = client.post(path, data=data, headers=headers)
        assert 'name="kept"' not in answer.text, path
    answer = client.post("/schedules/new", data={"name": "Mine"})
    text = next(form.values["kept"] for form in forms_of(answer.text) if "kept" in form.values)
    for lie in (text[:-2] + "xx", "nonsense"):
        door = stranger.get("/sign-in")
        page = come_in(stranger, door, kept=lie)
        assert "Mine" not in page
        signed_out(stranger)
    with house.backstage() as stage:
        stage.clock.advance(hours=25)
    page = come_in(stranger, stranger.get("/sign-in"), kept=text)
    assert "Mine" not in page


def test_a_preview_does_not_take_the_form_away_but_sending_it_brings_the_door(house: House) -> None:
    browser = house.alice
    signed_out(browser)
    typed = {"name": "Fresh"}
    answer = browser.client.post("/schedules/preview", data=typed, headers=HTMX)
    assert answer.status_code == 401
    assert answer.headers["HX-Retarget"] == "#flash"
    assert "Set-Cookie" not in answer.headers, "it would undo the secret of the door that is on its way"
    answer = browser.client.post(
        "/schedules/new", data=typed, headers=HTMX | {"HX-Target": "form#schedule-form"}
    )
    assert answer.status_code == 401
    # Where it goes says the form, by hx-status.
    assert "HX-Retarget" not in answer.headers
    assert '<main class="page" id="main"' in answer.text
    assert 'name="kept"' in answer.text
