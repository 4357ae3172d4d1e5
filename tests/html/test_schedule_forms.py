"""The form of a schedule, with script off, on both databases: the same rows as over JSON, and nothing typed is lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.factories import bearer, make_token
from tests.html.browsing import HTMX, Browser, House, forms_of
from webapp.nodes import operations as node_operations
from webapp.nodes.bodies import NodeChanges
from webapp.scheduling.models import Schedule

EVIL = "<script>alert(1)</script>"
# What two schedules made apart can not have in common.
OF_ITS_OWN = {"schedule_id", "mandate_id", "short_id", "created_at", "updated_at"}

# What is typed, and the JSON that says the same; both beside a name, a task and a node.
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "daily": (
        {"type": "daily", "time": "9:05", "timezone": "Europe/Berlin"},
        {"schedule": {"type": "daily", "time": "09:05"}, "timezone": "Europe/Berlin"},
    ),
    "weekly": (
        {"type": "weekly", "time": "02:30", "weekdays": ["4", "0", "2"], "timezone": "America/New_York"},
        {
            "schedule": {"type": "weekly", "time": "02:30", "weekdays": [0, 2, 4]},
            "timezone": "America/New_York",
        },
    ),
    "cron": (
        {"type": "cron", "cron": " 0 9 * * MON ", "timezone": "Europe/Amsterdam"},
        {"schedule": {"type": "cron", "cron": "0 9 * * MON"}, "timezone": "Europe/Amsterdam"},
    ),
    "interval": (
        {"type": "interval", "every": "90", "every_unit": "minutes"},
        {"schedule": {"type": "interval", "every_seconds": 5400}},
    ),
    "interval from a moment": (
        {
            "type": "interval",
            "every": "2",
            "every_unit": "days",
            "anchor_at": "2026-12-01T09:00",
            "timezone": "Europe/Berlin",
        },
        {
            "schedule": {"type": "interval", "every_seconds": 172_800, "anchor_at": "2026-12-01T08:00:00Z"},
            "timezone": "Europe/Berlin",
        },
    ),
    "once, local": (
        {"type": "once", "run_at": "2026-12-04T11:00", "timezone": "Europe/Berlin"},
        {"schedule": {"type": "once", "run_at": "2026-12-04T11:00"}, "timezone": "Europe/Berlin"},
    ),
    "once, the second of two": (
        {"type": "once", "run_at": "2027-10-31T02:30", "run_at_turn": "second", "timezone": "Europe/Berlin"},
        {"schedule": {"type": "once", "run_at": "2027-10-31T02:30:00+01:00"}, "timezone": "Europe/Berlin"},
    ),
    "bounds": (
        {
            "starts_at": "2026-12-24T00:00",
            "ends_at": "2027-03-28T02:30",
            "max_runs": "12",
            "timezone": "Europe/Berlin",
        },
        {
            "schedule": {"type": "daily", "time": "09:00"},
            "starts_at": "2026-12-23T23:00:00Z",
            "ends_at": "2027-03-28T01:00:00Z",
            "max_runs": 12,
            "timezone": "Europe/Berlin",
        },
    ),
    "policies": (
        {
            "priority": "low",
            "misfire_policy": "catch_up_all",
            "misfire_grace_seconds": "5 min",
            "catch_up_limit": "7",
            "overlap_policy": "queue_one",
            "failure_threshold": "",
            "ttl_seconds": "2 h",
            "max_run_seconds": "3 days",
        },
        {
            "schedule": {"type": "daily", "time": "09:00"},
            "priority": "low",
            "misfire_policy": "catch_up_all",
            "misfire_grace_seconds": 300,
            "catch_up_limit": 7,
            "overlap_policy": "queue_one",
            "failure_threshold": None,
            "ttl_seconds": 7200,
            "max_run_seconds": 259_200,
        },
    ),
}
WHAT = {"name": " Sweep ", "task": "Sweep it.\r\nThen reply."}


def api(house: House, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    with house.app.app_context():
        token = make_token(house.stage.cast.alice)
    answer = house.app.test_client().open(
        f"/api/scheduled-tasks{path}", method=method, json=body, headers=bearer(token)
    )
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] = answer.get_json()["schedule"]
    return found


def comparable(schedule: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schedule.items() if name not in OF_ITS_OWN}


def where(browser: Browser) -> str:
    found = re.fullmatch(r"/schedules/(sched_\w+)", browser.path)
    assert found is not None, browser.path
    return found[1]


def create(house: House, browser: Browser | None = None, **typed: Any) -> str:
    browser = browser or house.alice
    values = {**WHAT, "target_node_id": house.stage.node.node_id, **typed}
    browser.press(browser.get("/schedules/new"), "/schedules/new", **values)
    return where(browser)


def made(house: House, **fields: object) -> Schedule:
    with house.backstage() as stage:
        return stage.create(**fields)


def standing(house: House, schedule: Schedule) -> Schedule:
    with house.backstage() as stage:
        return stage.schedule(schedule)


def edit_address(schedule: Schedule) -> str:
    return f"/schedules/{schedule.schedule_id}/edit"


# --- The same rows as over JSON ---


@pytest.mark.parametrize("case", PAIRS)
def test_a_form_makes_the_same_schedule_as_the_json_that_says_the_same(house: House, case: str) -> None:
    typed, body = PAIRS[case]
    by_form = api(house, "GET", f"/{create(house, **typed)}")
    said = {"name": "Sweep", "task": "Sweep it.\nThen reply.", "target_node_id": house.stage.node.node_id}
    by_json = api(house, "POST", "", {**said, **body})
    assert comparable(by_form) == comparable(by_json)


@pytest.mark.parametrize("case", PAIRS)
def test_an_edit_by_form_makes_the_same_schedule_as_a_patch(house: House, case: str) -> None:
    typed, body = PAIRS[case]
    one, other = made(house), made(house)
    browser = house.alice
    house.stage.clock.advance(minutes=3)
    browser.press(
        browser.get(edit_address(one)), edit_address(one), **{"type": "daily", "time": "09:00", **typed}
    )
    by_json = api(house, "PATCH", f"/{other.schedule_id}", {"revision": 1, **body})
    by_form = api(house, "GET", f"/{where(browser)}")
    assert comparable(by_form) == comparable(by_json)
    assert by_form["revision"] == 2


@pytest.mark.parametrize("case", PAIRS)
def test_opening_a_schedule_and_saving_it_untouched_changes_nothing(house: House, case: str) -> None:
    before = api(house, "GET", f"/{create(house, **PAIRS[case][0])}")
    browser, at = house.alice, f"/schedules/{before['schedule_id']}/edit"
    house.stage.clock.advance(minutes=3)
    page = browser.press(browser.get(at), at)
    assert "Nothing was changed." in page
    assert api(house, "GET", f"/{before['schedule_id']}") == before


def test_what_the_api_may_set_finer_than_the_form_shows_survives_an_edit(house: House) -> None:
    schedule = made(
        house,
        schedule={"type": "once", "run_at": "2026-12-04T11:00:30.500Z"},
        timezone="Asia/Calcutta",
        misfire_grace_seconds=0,
        ttl_seconds=3601,
    )
    browser = house.alice
    browser.press(browser.get(edit_address(schedule)), edit_address(schedule), name="Renamed")
    after = standing(house, schedule)
    assert after.name == "Renamed"
    assert after.timetable == schedule.timetable
    assert (after.timezone, after.misfire_grace_seconds, after.ttl_seconds) == ("Asia/Calcutta", 0, 3601)
    assert after.due.next_run_at == schedule.due.next_run_at


def test_a_duplicate_starts_from_the_other_and_is_a_schedule_of_its_own(house: House) -> None:
    source = made(
        house, name="Weekly", schedule={"type": "weekly", "time": "07:00", "weekdays": [1]}, priority="high"
    )
    browser = house.bob
    page = browser.get(f"/schedules/new?from={source.schedule_id}")
    browser.press(page, "/schedules/new")
    copy = api(house, "GET", f"/{where(browser)}")
    assert copy["name"] == "Weekly (copy)"
    assert copy["sponsor"] == "Bob"
    assert (copy["schedule"], copy["priority"]) == (
        {"type": "weekly", "time": "07:00", "weekdays": [1]},
        "high",
    )
    assert copy["schedule_id"] != source.schedule_id


def test_a_new_form_begins_in_the_viewers_zone(house: House) -> None:
    browser = house.alice
    with browser.client.session_transaction() as session:
        session["zone"] = "America/New_York"
    page = browser.get("/schedules/new")
    (form,) = [form for form in forms_of(page) if form.action == "/schedules/new"]
    assert form.values["timezone"] == "America/New_York"
    assert "Daily at 09:00, America/New_York" in page


def test_a_form_sent_twice_makes_one_schedule(house: House) -> None:
    browser = house.alice
    page = browser.get("/schedules/new")
    typed = {**WHAT, "target_node_id": house.stage.node.node_id}
    browser.press(page, "/schedules/new", **typed)
    first = where(browser)
    browser.press(page, "/schedules/new", **typed)
    assert where(browser) == first
    again = browser.press(page, "/schedules/new", **typed | {"name": "Another"})
    assert browser.status == 409
    assert "idempotency_conflict" in again
    assert 'value="Another"' in again
    browser.press(again, "/schedules/new")
    assert where(browser) != first


# --- Refusals ---


def test_everything_that_is_wrong_is_said_at_once_and_everything_typed_is_kept(house: House) -> None:
    browser = house.alice
    page = browser.press(
        browser.get("/schedules/new"),
        "/schedules/new",
        name="",
        task=f"Keep this {EVIL}",
        target_node_id=house.stage.node.node_id,
        type="weekly",
        time="24:30",
        timezone="Europe/Berlin",
        max_runs="many",
        ttl_seconds="a while",
        starts_at="2026-12-01T09:00",
    )
    assert browser.status == 422
    assert "<title>Error: New schedule" in page
    assert "4 things to mend" in page
    for field in ("name", "time", "max_runs", "ttl_seconds"):
        assert f'<a href="#{field}">' in page
        assert re.search(rf'<input[^>]*id="{field}"[^>]*>', page)
        assert f'id="{field}-error"' in page
    assert page.count('aria-invalid="true"') == 4
    assert EVIL not in page
    (form,) = [form for form in forms_of(page) if form.action == "/schedules/new"]
    kept = {"task": f"Keep this {EVIL}", "time": "24:30", "max_runs": "many", "ttl_seconds": "a while"}
    assert {name: form.values[name].strip() for name in kept} == kept
    assert form.values["starts_at"] == "2026-12-01T09:00"
    assert (form.values["type"], form.values["timezone"]) == ("weekly", "Europe/Berlin")


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"type": "weekly"}, "weekdays", "Choose at least one weekday."),
        ({"type": "cron", "cron": "0 0 30 2 *"}, "cron", "never"),
        ({"type": "cron", "cron": ""}, "cron", "Write a cron expression"),
        ({"type": "interval", "every": "1", "every_unit": "seconds"}, "every", "interval"),
        ({"type": "interval", "every": "1.5"}, "every", "interval"),
        ({"type": "once", "run_at": ""}, "run_at", "Say when it runs"),
        ({"type": "once", "run_at": "2026-11-30T08:00", "timezone": "UTC"}, "run_at", "No slot is left"),
        (
            {"type": "once", "run_at": "2027-03-28T02:30", "timezone": "Europe/Berlin"},
            "run_at",
            "skips this time",
        ),
        ({"ends_at": "2026-11-30T08:30", "timezone": "UTC"}, "ends_at", "No slot is left"),
        ({"ends_at": "2026-12-01T08:30", "starts_at": "2026-12-02T08:30"}, "ends_at", "end"),
        ({"timezone": "Mars/Olympus"}, "timezone", "IANA"),
        ({"target_node_id": ""}, "target_node_id", "node"),
        ({"target_node_id": "node_elsewhere"}, "target_node_id", "gone or is not in this network"),
        ({"misfire_policy": "pray"}, "misfire_policy", "missed slots"),
        ({"catch_up_limit": "101"}, "catch_up_limit", "100"),
        ({"misfire_grace_seconds": "25 h"}, "misfire_grace_seconds", "86"),
        ({"failure_threshold": "0"}, "failure_threshold", "100"),
        ({"type": "sometimes"}, "type", "one of once"),
    ],
)
def test_a_refusal_stands_beside_its_field(
    house: House, typed: dict[str, Any], field: str, words: str
) -> None:
    browser = house.alice
    values = {**WHAT, "target_node_id": house.stage.node.node_id, **typed}
    page = browser.press(browser.get("/schedules/new"), "/schedules/new", **values)
    assert browser.status == 422
    said = re.search(rf'id="{field}-error">.*?</p>', page, re.DOTALL)
    assert said is not None
    assert words in said[0]
    assert f'<a href="#{field}">' in page
    assert re.search(rf'id="{field}"', page)


def test_a_moment_that_happens_twice_is_asked_about(house: House) -> None:
    browser = house.alice
    values = {
        **WHAT,
        "target_node_id": house.stage.node.node_id,
        "type": "once",
        "run_at": "2027-10-31T02:30",
        "timezone": "Europe/Berlin",
    }
    page = browser.press(browser.get("/schedules/new"), "/schedules/new", **values)
    assert browser.status == 422
    assert "The second time" in page
    browser.press(page, "/schedules/new", run_at_turn="first")
    found = api(house, "GET", f"/{where(browser)}")
    assert found["next_run_at"] == "2027-10-31T00:30:00.000Z"


def test_htmx_gets_the_form_alone_and_is_sent_on_when_it_is_saved(house: House) -> None:
    browser = house.alice
    (form,) = [form for form in forms_of(browser.get("/schedules/new")) if form.action == "/schedules/new"]
    headers = HTMX | {"HX-Target": "form#schedule-form"}
    refused = browser.client.post("/schedules/new", data=form.values, headers=headers)
    assert refused.status_code == 422
    assert refused.text.strip().startswith('<form id="schedule-form"')
    values = {**form.values, **WHAT, "target_node_id": house.stage.node.node_id}
    saved = browser.client.post("/schedules/new", data=values, headers=headers)
    assert saved.status_code == 204
    assert json.loads(saved.headers["HX-Location"])["path"].startswith("/schedules/sched_")


# --- Preview ---


def test_the_preview_is_the_engines_own_answer(house: House) -> None:
    browser = house.alice
    with browser.client.session_transaction() as session:
        session["zone"] = "America/New_York"
    (form,) = [form for form in forms_of(browser.get("/schedules/new")) if form.action == "/schedules/new"]
    typed = {"type": "weekly", "time": "02:30", "weekdays": ["2", "4", "0"], "timezone": "Europe/Berlin"}
    values = {**form.values, **typed, "target_node_id": house.stage.node.node_id}
    answer = browser.client.post(
        "/schedules/preview", data=values, headers=HTMX | {"HX-Target": "section#preview"}
    )
    assert answer.status_code == 200
    text = answer.text
    assert text.strip().startswith('<section id="preview"')
    assert "Tuesdays, Thursdays and Sundays at 02:30, Europe/Berlin" in text
    for words in (
        "Berlin",
        "New York, you",
        "UTC",
        "Tue 1 Dec 02:30",
        "Mon 30 Nov 20:30",
        "Thu 10 Dec 01:30",
    ):
        assert words in text
    assert "The clock changes twice in the next year" in text
    assert "<strong>Sun 28 Mar 2027</strong>: 02:30 does not exist, runs at 03:00." in text
    assert "The node takes work." in text
    pressed = browser.press(browser.get("/schedules/new"), "/schedules/new", preview="1", **typed)
    assert browser.status == 200
    assert "02:30 does not exist, runs at 03:00" in pressed
    assert "Error:" not in pressed


def test_the_preview_says_what_is_missing_and_what_would_stop_it(house: House) -> None:
    with house.backstage() as stage:
        idle = stage.add_node("idle")
        stopped = NodeChanges(lifecycle_state="stopped")
        node_operations.update_node(stage.alice, idle.node_id, stopped, now=stage.clock.now())
    browser = house.alice
    typed = {"type": "weekly", "target_node_id": idle.node_id}
    page = browser.press(browser.get("/schedules/new"), "/schedules/new", preview="1", **typed)
    assert "Nothing yet: choose at least one weekday." in page
    assert "<code>target_not_active</code>" in page
    page = browser.press(page, "/schedules/new", preview="1", type="daily", ends_at="2026-11-30T08:30")
    assert "No slot is left in the future." in page
    page = browser.press(
        page, "/schedules/new", preview="1", ends_at="", max_runs="2", timezone="Europe/Berlin"
    )
    assert "Next two" in page


def test_an_edit_previews_on_the_grid_that_stands(house: House) -> None:
    schedule = made(house, schedule={"type": "interval", "every_seconds": 7200})
    house.stage.clock.advance(minutes=45)
    page = house.alice.get(edit_address(schedule))
    assert "Every 2 hours, from Mon 30 Nov 2026 at 08:12, UTC" in page
    assert "Mon 30 Nov 10:12" in page
    assert f'hx-post="/schedules/preview?schedule={schedule.schedule_id}"' in page


# --- Edit, and two at once ---


def test_an_ended_schedule_is_not_edited_and_the_page_says_what_to_do(house: House) -> None:
    schedule = made(house)
    browser = house.alice
    page = browser.get(edit_address(schedule))
    with house.backstage() as stage:
        stage.cancel(schedule)
    late = browser.press(page, edit_address(schedule), name="Too late")
    assert browser.status == 409
    assert "Duplicate the schedule to start again. (schedule_cancelled)" in late
    assert 'value="Too late"' in late
    assert "schedule_cancelled" in browser.get(edit_address(schedule), status=409)


def test_an_admin_who_changes_the_text_is_told_that_it_is_theirs_now(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(stage.bob)
    browser = house.alice
    page = browser.get(edit_address(schedule))
    assert "This acts on the authority of Bob" in page
    renamed = browser.press(page, edit_address(schedule), name="Renamed")
    assert "It acts on your authority" not in renamed
    after = browser.press(browser.get(edit_address(schedule)), edit_address(schedule), task="Mine now")
    assert "It acts on your authority from now on" in after
    assert "atlas does it, for Alice." in after


def clash(
    house: House, *, mine: dict[str, Any], theirs: dict[str, Any], **fields: object
) -> tuple[Schedule, Browser, str]:
    """Alice opens the form, Bob's change is saved, Alice sends hers; what she gets."""
    with house.backstage() as stage:
        schedule = stage.create(stage.bob, **fields)
    browser = house.alice
    page = browser.get(edit_address(schedule))
    house.stage.clock.advance(minutes=2)
    with house.backstage() as stage:
        stage.edit(schedule, stage.bob, **theirs)
    house.stage.clock.advance(minutes=1)
    return schedule, browser, browser.press(page, edit_address(schedule), **mine)


MINE = {"task": "Sweep the inbox twice.", "name": "Sweep by Alice", "time": "02:00"}
THEIRS: dict[str, Any] = {
    "task": "Sweep the outbox.",
    "priority": "low",
    "schedule": {"type": "daily", "time": "03:15"},
}
START = {"schedule": {"type": "daily", "time": "02:30"}, "task": "Sweep the inbox."}


def test_a_conflict_sets_both_versions_side_by_side_and_saves_nothing(house: House) -> None:
    schedule, browser, page = clash(house, mine=MINE, theirs=THEIRS, **START)
    assert browser.status == 409
    assert "Bob saved this while you were typing" in page
    assert "Nothing you typed is lost" in page
    assert "You opened revision 1; Bob made revision 2" in page
    assert "1 min ago" in page
    assert "2 parts clash, 2 parts were changed by one side alone" in page
    for label in ("When: saved now", "When: yours", "What to do: saved now", "What to do: yours"):
        assert f'aria-label="{label}"' in page
    assert "<del>02:30,</del> <ins>03:15,</ins>" in page
    assert "<ins>outbox.</ins>" in page
    assert "<ins>inbox twice.</ins>" in page or "<ins>twice.</ins>" in page
    assert standing(house, schedule).revision == 2
    (form,) = [form for form in forms_of(page) if form.action == edit_address(schedule)]
    assert {name: form.values[name] for name in MINE} == MINE


@pytest.mark.parametrize(
    ("settle", "picks", "task", "time"),
    [
        ("chosen", {"pick-task": "saved"}, THEIRS["task"], "02:00"),
        ("chosen", {"pick-when": "saved"}, MINE["task"], "03:15"),
        ("yours", {}, MINE["task"], "02:00"),
        ("saved", {}, THEIRS["task"], "03:15"),
    ],
)
def test_a_conflict_is_settled_as_it_was_chosen(
    house: House, settle: str, picks: dict[str, str], task: str, time: str
) -> None:
    schedule, browser, page = clash(house, mine=MINE, theirs=THEIRS, **START)
    after = browser.press(page, edit_address(schedule), settle=settle, **picks)
    assert "Saved as revision 3." in after
    saved = standing(house, schedule)
    assert (saved.text.body, saved.timetable["time"]) == (task, time)
    assert (saved.name, saved.priority_rank) == ("Sweep by Alice", 2)


def test_from_a_conflict_back_to_the_form_and_then_save(house: House) -> None:
    schedule, browser, page = clash(house, mine=MINE, theirs=THEIRS, **START)
    form = browser.press(page, edit_address(schedule), settle="form")
    assert browser.status == 200
    assert 'value="Sweep by Alice"' in form
    assert "Sweep the inbox twice." in form
    browser.press(form, edit_address(schedule), name="Both of us")
    saved = standing(house, schedule)
    assert (saved.name, saved.text.body, saved.priority_rank) == ("Both of us", MINE["task"], 2)


def test_a_stop_while_the_form_was_open_is_not_undone_unseen(house: House) -> None:
    schedule = made(house)
    browser = house.alice
    page = browser.get(edit_address(schedule))
    with house.backstage() as stage:
        stage.pause(schedule, stage.bob, reason="Not today")
    conflict = browser.press(page, edit_address(schedule), name="Renamed")
    assert browser.status == 409
    assert "Bob saved this while you were typing" in conflict
    assert "Nothing clashes" in conflict
    browser.press(conflict, edit_address(schedule), settle="chosen")
    saved = standing(house, schedule)
    assert (saved.name, saved.status.value) == ("Renamed", "paused")


def test_a_second_conflict_while_the_first_is_settled_is_shown_too(house: House) -> None:
    schedule, browser, page = clash(house, mine=MINE, theirs=THEIRS, **START)
    with house.backstage() as stage:
        stage.edit(schedule, stage.bob, task="A third version.")
    again = browser.press(page, edit_address(schedule), settle="yours")
    assert browser.status == 409
    assert "A third version." in again.replace("</ins>", "").replace("<ins>", "") or "third" in again
    after = browser.press(again, edit_address(schedule), settle="yours")
    assert "Saved as revision 4." in after
    assert standing(house, schedule).text.body == MINE["task"]


@pytest.mark.parametrize("seen", ["", "{}", "[1]", '{"name": 3}', "[" * 50_000])
def test_a_form_that_lost_what_was_opened_asks_about_everything_that_differs(house: House, seen: str) -> None:
    schedule = made(house, **START)
    browser = house.alice
    page = browser.get(edit_address(schedule))
    with house.backstage() as stage:
        stage.edit(schedule, priority="low")
    conflict = browser.press(page, edit_address(schedule), name="Mine", seen=seen)
    assert browser.status == 409
    assert "2 parts clash" in conflict
    assert standing(house, schedule).name == "Nightly sweep"


def test_htmx_gets_the_conflict_in_the_place_of_the_form(house: House) -> None:
    schedule = made(house, **START)
    browser = house.alice
    (form,) = [f for f in forms_of(browser.get(edit_address(schedule))) if f.action == edit_address(schedule)]
    with house.backstage() as stage:
        stage.edit(schedule, priority="low")
    answer = browser.client.post(
        edit_address(schedule), data=form.values, headers=HTMX | {"HX-Target": "form#schedule-form"}
    )
    assert answer.status_code == 409
    assert answer.text.strip().startswith('<form id="conflict"')
