"""The pages of schedules, with script off, on both databases: what stands, one of them, what is done to it."""

from __future__ import annotations

import re

import pytest

from tests.factories import CSRF
from tests.html.browsing import House, assert_fragments_occur
from webapp.nodes.lifecycle import TaskStatus
from webapp.scheduling.models import Schedule

EVIL = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"


def made(house: House, **fields: object) -> Schedule:
    with house.backstage() as stage:
        return stage.create(**fields)


def standing(house: House, schedule: Schedule) -> Schedule:
    with house.backstage() as stage:
        return stage.schedule(schedule)


def address(schedule: Schedule, rest: str = "") -> str:
    return f"/schedules/{schedule.schedule_id}{rest}"


# --- The list ---


def test_an_empty_network_is_shown_three_steps_and_who_may_only_read_gets_no_button(house: House) -> None:
    page = house.alice.get("/schedules")
    assert "Three steps to the first standing order." in page
    assert "1 node can be given work." in page
    assert 'href="/schedules/new"' in page
    assert 'href="/schedules/new"' not in house.vera.get("/schedules")


def test_the_list_says_when_each_rings_next_soonest_first(house: House) -> None:
    with house.backstage() as stage:
        stage.create(name="Later", schedule={"type": "daily", "time": "23:00"}, timezone="Europe/Berlin")
        stage.create(name="Sooner")
        gone = stage.create(name="Gone")
        stage.cancel(gone)
    page = house.alice.get("/schedules")
    assert page.index(">Sooner<") < page.index(">Later<") < page.index(">Gone<")
    assert "2 stand." in page
    assert "Daily at 23:00, Europe/Berlin" in page
    assert "Mon 30 Nov, 23:00 Berlin" in page
    assert "in 48 min" in page
    assert "for Alice" in page


def test_the_list_shows_the_last_results_and_why_something_stopped(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(
            name="Ill", failure_threshold=1, schedule={"type": "interval", "every_seconds": 170}
        )
        # More than an hour, within which failures alone stop nothing.
        for _ in range(24):
            stage.tick(seconds=170)
            stage.serve(TaskStatus.FAILED)
        assert stage.schedule(schedule).status.value == "needs_attention"
    page = house.alice.get("/schedules")
    assert "Last 20 runs, newest last: 20 failed" in page
    assert "needs attention" in page
    assert "It failed too often in a row. <code>failure_threshold_reached</code>" in page
    assert "One has stopped and wants a person" in page


def test_the_list_is_narrowed_by_state_and_words_and_says_so_in_its_address(house: House) -> None:
    with house.backstage() as stage:
        stage.create(name="Invoices")
        paused = stage.create(name="Archive 100%")
        stage.pause(paused)
    browser = house.alice
    only_paused = browser.get("/schedules?status=paused")
    assert ">Archive 100%<" in only_paused
    assert ">Invoices<" not in only_paused
    assert 'href="/schedules?status=paused" aria-current="true"' in only_paused
    assert ">Invoices<" in browser.get("/schedules?q=invoic")
    assert ">Archive 100%<" in browser.get("/schedules?q=100%25")
    nothing = browser.get("/schedules?q=nowhere&status=active")
    assert "No schedule is like this." in nothing
    assert 'value="nowhere"' in nothing
    browser.get("/schedules?status=asleep", status=400)


def test_paging_shows_each_schedule_once(house: House) -> None:
    names = {f"Order {number:02d}" for number in range(60)}
    with house.backstage() as stage:
        for number, name in enumerate(sorted(names)):
            schedule = stage.create(
                name=name, schedule={"type": "interval", "every_seconds": 3600 + number % 3}
            )
            if number % 4 == 0:
                stage.pause(schedule)
    browser, at, seen = house.alice, "/schedules", []
    for _ in range(3):
        page = browser.get(at)
        seen += re.findall(r'class="table__name"[^>]*>(Order \d\d)<', page)
        following = re.search(r'<a href="([^"]+)" rel="next"', page)
        at = following[1].replace("&amp;", "&") if following else ""
    assert not at
    assert len(seen) == 60
    assert set(seen) == names
    browser.get("/schedules?cursor=due-1-x", status=400)


def test_other_networks_stay_out_of_sight(house: House) -> None:
    schedule = made(house, name="Ours")
    assert "Ours" not in house.charlie.get("/schedules")
    for rest in ("", "/edit", "/pause", "/cancel", "/resume", "/run-now"):
        house.charlie.get(address(schedule, rest), status=404)
    house.charlie.get(f"/schedules/new?from={schedule.schedule_id}", status=404)
    house.charlie.get("/schedules/sched_nothing", status=404)


def test_a_stranger_is_sent_to_sign_in_and_comes_back(house: House) -> None:
    answer = house.app.test_client().get("/schedules?status=paused")
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/sign-in?next=/schedules%3Fstatus%3Dpaused"


# --- One schedule ---


def test_a_schedule_says_when_next_on_three_clocks_and_on_whose_authority(house: House) -> None:
    schedule = made(
        house,
        name="Archive sweep",
        task="Sweep it.",
        schedule={"type": "weekly", "time": "02:30", "weekdays": [2, 4]},
        timezone="Europe/Berlin",
        misfire_policy="catch_up_all",
        catch_up_limit=7,
    )
    browser = house.alice
    with browser.client.session_transaction() as session:
        session["zone"] = "America/New_York"
    page = browser.get(address(schedule))
    assert "Tuesdays and Thursdays at 02:30, Europe/Berlin. atlas does it, for Alice." in page
    for clock in ("Tue 1 Dec, 02:30 Berlin", "Mon 30 Nov, 20:30 New York", "Tue 1 Dec, 01:30 UTC"):
        assert clock in page
    assert "would fire" in page
    assert "The node takes work." in page
    assert "Catch up on all, at most 7, on time up to 1 min" in page
    assert "Sweep it." in page
    assert "Nothing has run yet." in page


def test_the_history_says_what_became_of_each_slot(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create()
        stage.tick(minutes=48)
        stage.clock.advance(seconds=30)
        (task,) = stage.fetch()
        stage.acknowledge(task)
        stage.tick(hours=1)
        stage.clock.advance(seconds=90)
        stage.reply(task, result="412 moved")
        done, skipped = stage.runs(schedule)
        stage.run_now(schedule)
    page = house.alice.get(address(schedule))
    assert "412 moved" in page
    assert "Mon 30 Nov 09:00" in page
    assert "09:00:30" in page
    assert "1 h 1 min" in page
    assert f'href="/runs/{done.run_id}"' in page
    assert "An earlier run is still open. <code>previous_run_active</code>" in page
    assert f'href="/runs/{skipped.run_id}"' in page
    assert "by hand" in page
    assert "all 3" in page
    assert "skipped 1" in page
    only = house.alice.get(address(schedule, "?status=skipped"))
    assert "412 moved" not in only
    assert 'aria-current="true"' in only
    assert "No run is like this." in house.alice.get(address(schedule, "?status=expired"))
    house.alice.get(address(schedule, "?status=well"), status=400)
    assert page.count('class="took"') == 1, "of those that worked"
    with house.backstage() as stage:
        stage.edit(schedule, task="Sweep it, gently.")
        stage.edit(schedule, schedule={"type": "daily", "time": "07:00"}, name="Morning sweep")
    page = house.alice.get(address(schedule))
    assert f'<a href="/runs/{done.run_id}#h-changed">1</a>' in page
    assert "changed since" in page
    story = house.alice.get(f"/runs/{done.run_id}")
    assert "It ran with revision 1; now it is revision 3." in story
    rows = story.split('id="h-changed"')[1].split("</tr>")[1:3]
    edits = [re.sub(r"<[^>]*>", " ", row.partition("<tr")[2]).split() for row in rows]
    assert [(edit[1], edit[-1]) for edit in edits] == [("3", "timetable"), ("2", "text")], edits


def test_a_catch_up_says_what_it_stands_for(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create()
        stage.tick(hours=4)
    page = house.alice.get(address(schedule))
    assert "Stands for 3 older slots since" in page
    assert "Mon 30 Nov 09:00" in page


def test_older_runs_are_a_page_away(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(schedule={"type": "interval", "every_seconds": 60})
        for _ in range(27):
            stage.tick(minutes=1)
            stage.serve()
    browser = house.alice
    page = browser.get(address(schedule))
    older = re.search(r'<a href="([^"]+)" rel="next"', page)
    assert older is not None
    rest = browser.get(older[1].replace("&amp;", "&"))
    assert rest.count('data-label="Result"') == 2
    assert 'rel="next"' not in rest


@pytest.mark.parametrize(
    ("start", "regions"),
    [("/schedules", ("schedule-list",)), ("", ("schedule-now", "schedule-history", "schedule-order"))],
)
def test_each_fragment_is_a_part_of_its_page(house: House, start: str, regions: tuple[str, ...]) -> None:
    with house.backstage() as stage:
        schedule = stage.create()
        stage.tick(minutes=50)
        stage.serve()
        stage.create(name="Another")
    assert_fragments_occur(house.alice, start or address(schedule), regions)


def test_names_texts_reasons_and_answers_are_shown_and_never_obeyed(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name=f"A {EVIL}", task=f"B {EVIL}")
        stage.tick(minutes=48)
        (task,) = stage.fetch()
        stage.acknowledge(task)
        stage.reply(task, result=f"C {EVIL}")
        stage.pause(schedule, reason=f"D {EVIL}")
    browser = house.alice
    page = browser.get(address(schedule))
    for letter in "ABCD":
        assert f"{letter} {ESCAPED}" in page
    for each in (page, *(browser.get(at) for at in ("/schedules", *pages_of(schedule)))):
        assert EVIL not in each
    assert "hx-ignore" in page


def pages_of(schedule: Schedule) -> list[str]:
    edits = [address(schedule, rest) for rest in ("/edit", "/pause", "/cancel")]
    return [*edits, f"/schedules/new?from={schedule.schedule_id}"]


# --- Who may do what ---


def test_only_the_buttons_that_the_viewer_may_press_are_shown(house: House) -> None:
    schedule = made(house)
    buttons = {"Run now": "/run-now", "Pause…": "/pause", "Edit": "/edit", "Cancel…": "/cancel"}
    for browser, shown in (
        (house.alice, {"Run now", "Pause…", "Edit", "Cancel…"}),
        (house.bob, {"Pause…"}),
        (house.vera, set()),
    ):
        page = browser.get(address(schedule))
        offered = {word for word, rest in buttons.items() if f'"{address(schedule, rest)}"' in page}
        assert offered == shown
        assert ("Duplicate" in page) == (browser.status == 200 and shown != set())


@pytest.mark.parametrize("rest", ["/edit", "/pause", "/cancel", "/run-now", "/resume"])
def test_a_viewer_is_refused_whatever_they_send(house: House, rest: str) -> None:
    schedule = made(house)
    browser = house.vera
    answer = browser.client.post(address(schedule, rest), data={"csrf_token": CSRF, "revision": "1"})
    assert answer.status_code == 403
    assert "permission_denied" in answer.text
    assert standing(house, schedule).revision == 1
    if rest in ("/edit", "/pause", "/cancel"):
        browser.get(address(schedule, rest), status=403)


def test_without_the_forms_token_nothing_is_done(house: House) -> None:
    schedule = made(house)
    answer = house.alice.client.post(address(schedule, "/cancel"))
    assert answer.status_code == 400
    assert standing(house, schedule).status.value == "active"


# --- What is done to one ---


def test_run_now_starts_one_run_however_often_it_is_pressed(house: House) -> None:
    schedule = made(house)
    browser = house.alice
    page = browser.get(address(schedule))
    for _ in range(2):
        after = browser.press(page, address(schedule, "/run-now"))
        assert "A run is on its way. It waits until atlas fetches it." in after
    with house.backstage() as stage:
        (run,) = stage.runs(schedule)
    assert (run.trigger.value, run.actor) == ("manual", "Alice")
    assert "by hand" in after


def test_a_refused_run_now_says_why_with_its_code_and_what_to_do(house: House) -> None:
    schedule = made(house)
    browser = house.alice
    browser.press(browser.get(address(schedule)), address(schedule, "/run-now"))
    page = browser.press(browser.get(address(schedule)), address(schedule, "/run-now"))
    assert browser.status == 409
    assert "Not done" in page
    assert "An earlier run is still open. <code>previous_run_active</code>" in page
    assert "Wait for the earlier run to end, or cancel it." in page
    with house.backstage() as stage:
        (run,) = stage.runs(schedule)
    assert f'<a href="/runs/{run.run_id}">See the earlier run</a>' in page
    assert browser.get(address(schedule, "/run-now"), status=303) is not None


def test_pause_takes_a_reason_and_a_local_time_to_resume_at(house: House) -> None:
    schedule = made(house, timezone="Europe/Berlin")
    browser = house.bob
    page = browser.get(address(schedule, "/pause"))
    assert "What pausing will do" in page
    assert ">Mon 30 Nov 10:00</time> Berlin" in page
    after = browser.press(
        page, address(schedule, "/pause"), reason=" New disk ", resume_at="2026-12-01T08:00"
    )
    assert "Paused. What falls due meanwhile is not caught up." in after
    assert "Paused by Bob" in after
    assert "New disk" in after
    assert "Tue 1 Dec, 08:00 Berlin" in after
    paused = standing(house, schedule)
    assert (paused.status.value, paused.status_reason) == ("paused", "New disk")
    assert paused.resume_at is not None
    assert paused.resume_at.isoformat() == "2026-12-01T07:00:00+00:00"
    again = browser.get(address(schedule, "/pause"))
    assert 'value="2026-12-01T08:00"' in again
    assert 'value="New disk"' in again
    after = browser.press(again, address(schedule, "/pause"), resume_at="")
    assert "Until somebody resumes it." in after
    assert standing(house, schedule).resume_at is None


def test_a_pause_that_ends_in_the_past_keeps_what_was_typed(house: House) -> None:
    schedule = made(house)
    browser = house.alice
    page = browser.press(
        browser.get(address(schedule, "/pause")),
        address(schedule, "/pause"),
        reason="Stocktaking",
        resume_at="2026-11-30T08:00",
    )
    assert browser.status == 422
    assert "<title>Error: Pause" in page
    assert 'href="#resume_at"' in page
    assert 'aria-invalid="true"' in page
    assert 'value="Stocktaking"' in page
    assert 'value="2026-11-30T08:00"' in page
    assert standing(house, schedule).status.value == "active"


def test_a_pause_says_what_it_withdraws_and_what_it_leaves(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(overlap_policy="allow")
        stage.tick(minutes=48)
        stage.acknowledge(stage.fetch()[0])
        stage.tick(hours=1)
    page = house.alice.get(address(schedule, "/pause"))
    assert "1 run that nobody took up" in page
    assert "1 run at work" in page
    cancel = house.alice.get(address(schedule, "/cancel"))
    assert "1 run that nobody took up" in cancel
    assert "Asked to stop" in cancel


def test_resume_says_when_next_and_who_may_not_gets_no_button(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create()
        stage.pause(schedule)
        stage.clock.advance(hours=5)
    assert address(schedule, "/resume") not in house.bob.get(address(schedule))
    browser = house.alice
    after = browser.press(browser.get(address(schedule, "/resume")), address(schedule, "/resume"))
    assert "Resumed. Next: Mon 30 Nov, 14:00 UTC. What fell due meanwhile is not caught up." in after
    assert standing(house, schedule).status.value == "active"


def test_a_once_gone_by_is_not_resumed_and_the_page_says_what_to_do(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(schedule={"type": "once", "run_at": "2026-11-30T09:00"})
        stage.pause(schedule)
        stage.clock.advance(hours=5)
    browser = house.alice
    ask = browser.get(address(schedule, "/resume"))
    assert "It cannot be resumed now" in ask
    assert not browser.offers(ask, address(schedule, "/resume"))
    answer = browser.client.post(address(schedule, "/resume"), data={"csrf_token": CSRF})
    assert answer.status_code == 409
    for page in (ask, answer.text):
        assert "schedule_has_no_future_occurrence" in page
        assert "Give the schedule a timetable with a slot ahead." in page
    assert standing(house, schedule).status.value == "paused"


def test_cancel_asks_first_then_ends_it_for_good(house: House) -> None:
    schedule = made(house)
    browser = house.alice
    page = browser.get(address(schedule, "/cancel"))
    assert "This cannot be taken back." in page
    after = browser.press(page, address(schedule, "/cancel"))
    assert "Cancelled. Its history stays." in after
    assert standing(house, schedule).status.value == "cancelled"
    assert not browser.offers(after, address(schedule, "/run-now"))
    assert "Duplicate" in after
    again = browser.press(page, address(schedule, "/cancel"))
    assert "Cancelled. Its history stays." in again
    late = browser.press(browser.get(address(schedule, "/pause")), address(schedule, "/pause"))
    assert browser.status == 409
    assert "schedule_cancelled" in late
    assert "Duplicate the schedule to start again." in late
