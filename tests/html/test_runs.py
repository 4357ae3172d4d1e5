"""The pages of runs, with script off, on both databases."""

from __future__ import annotations

import pytest

from tests.factories import CSRF
from tests.html.browsing import House, assert_fragments_occur
from webapp.errors import ERRORS, sentence_of
from webapp.html.ways import known_ways
from webapp.nodes.lifecycle import TaskStatus
from webapp.scheduling.models import Run, Schedule

EVIL = "<script>alert(1)</script>"


def hourly_run(house: House, **fields: object) -> tuple[Schedule, Run]:
    """A schedule of Alice with one run in the inbox of atlas."""
    with house.backstage() as stage:
        schedule = stage.create(**fields)
        stage.tick(minutes=48)
        return schedule, stage.runs(schedule)[-1]


def test_a_run_is_followed_from_its_slot_to_the_reply(house: House) -> None:
    schedule, run = hourly_run(house)
    browser, address = house.alice, f"/runs/{run.run_id}"
    page = browser.get(address)
    assert "It waits in the inbox of atlas, which has not fetched it yet." in page
    assert "Planned" in page
    assert "Put in the inbox" in page
    assert page.count("not yet") == 3
    with house.backstage() as stage:
        stage.clock.advance(seconds=20)
        (task,) = stage.fetch()
    assert "atlas fetched it 0 ms ago and has not acknowledged it yet." in browser.get(address)
    with house.backstage() as stage:
        stage.acknowledge(task)
        stage.clock.advance(minutes=11)
    assert "atlas has been at work for 11 min." in browser.get(address)
    with house.backstage() as stage:
        stage.reply(task, result="801 files moved")
    page = browser.get(address)
    assert "Claimed on time. atlas took 11 min." in page
    assert "801 files moved" in page
    assert "stored whole, 15 bytes" in page
    assert "+20 s" in page
    assert "not yet" not in page
    assert schedule.name in page


def test_a_late_run_says_what_it_stands_for(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create()
        stage.tick(hours=3)
        (run,) = stage.runs(schedule)
    page = house.alice.get(f"/runs/{run.run_id}")
    assert run.missed_count == 2
    assert "Stands for 2 older slots" in page
    assert "Mon 30 Nov, 09:00 UTC" in page
    assert "+12 min late" in page
    assert "receipt__gap--long" in page


def test_a_skipped_run_names_its_code_its_reason_and_the_run_that_held_it_up(house: House) -> None:
    schedule, first = hourly_run(house)
    with house.backstage() as stage:
        stage.tick(hours=1)
        skipped = stage.runs(schedule)[-1]
    page = house.alice.get(f"/runs/{skipped.run_id}")
    assert f"Nothing was sent. {sentence_of('previous_run_active')}" in page
    assert "<code>previous_run_active</code>" in page
    assert f'href="/runs/{first.run_id}"' in page
    assert "atlas had not fetched" in page
    assert "Wait for the earlier run to end, or cancel it." in page
    blocker = house.alice.get(f"/runs/{first.run_id}")
    assert "This run holds up later ones" in blocker
    assert f'href="/runs/{skipped.run_id}"' in blocker
    with house.backstage() as stage:
        stage.serve()
    assert "Wait for the earlier run" not in house.alice.get(f"/runs/{skipped.run_id}")


def test_a_run_is_cancelled_and_tried_again_without_script(house: House) -> None:
    _, run = hourly_run(house)
    browser, address = house.alice, f"/runs/{run.run_id}"
    page = browser.press(browser.get(address), f"{address}/cancel")
    assert (browser.status, browser.path) == (200, address)
    assert "The run is cancelled." in page
    assert "<code>task_cancelled</code>" in page
    page = browser.press(page, f"{address}/retry")
    assert "as the next attempt" in page
    assert "Put in again, attempt 2" in page
    with house.backstage() as stage:
        assert stage.tasks()[0].attempt == 2


def test_a_run_that_waits_is_taken_back_before_anything_was_sent(house: House) -> None:
    schedule, open_run = hourly_run(house, overlap_policy="queue_one")
    with house.backstage() as stage:
        stage.tick(hours=1)
        waiting = stage.runs(schedule)[-1]
    browser, address = house.alice, f"/runs/{waiting.run_id}"
    page = browser.get(address)
    assert "It waits for an earlier run to end." in page
    assert not house.vera.offers(house.vera.get(address), f"{address}/cancel")
    assert house.bob.client.post(f"{address}/cancel", data={"csrf_token": CSRF}).status_code == 403
    assert house.charlie.client.post(f"{address}/cancel", data={"csrf_token": CSRF}).status_code == 404
    again = browser.press(page, f"{address}/cancel")
    assert "The run is cancelled. Nothing of it was sent." in again
    assert "A person cancelled it while it waited: nothing was sent." in again
    browser.press(page, f"{address}/cancel")
    assert browser.status == 200, "once more is harmless"
    with house.backstage() as stage:
        stage.tick(hours=1)
        third = stage.runs(schedule)[-1]
        page_before = f"/runs/{third.run_id}"
    page = browser.get(page_before)
    with house.backstage() as stage:
        stage.serve()
    assert "is cancelled. A node that works on it" in browser.press(page, f"{page_before}/cancel"), (
        "sent meanwhile"
    )
    late = browser.client.post(f"/runs/{open_run.run_id}/cancel", data={"csrf_token": CSRF})
    assert late.status_code == 409


def test_a_refused_attempt_says_why_and_what_to_do_on_the_page_itself(house: House) -> None:
    _schedule, run = hourly_run(house)
    browser, address = house.alice, f"/runs/{run.run_id}"
    stale = browser.get(address)
    with house.backstage() as stage:
        stage.serve()
    page = browser.press(stale, f"{address}/cancel")
    assert browser.status == 409
    assert "Not done" in page
    assert "<code>task_already_final</code>" in page
    assert "completed" in page
    assert browser.client.get(f"{address}/cancel").headers["Location"] == address


def test_retrying_behind_an_open_run_links_to_that_run(house: House) -> None:
    schedule, run = hourly_run(house)
    with house.backstage() as stage:
        stage.serve(TaskStatus.FAILED)
        stage.tick(hours=1)
        newer = stage.runs(schedule)[-1]
    browser, address = house.alice, f"/runs/{run.run_id}"
    page = browser.press(browser.get(address), f"{address}/retry")
    assert browser.status == 409
    assert "<code>previous_run_active</code>" in page
    assert f'<a href="/runs/{newer.run_id}">See the earlier run</a>' in page


def test_only_who_may_steer_a_run_sees_the_buttons_and_may_press_them(house: House) -> None:
    _, run = hourly_run(house)
    address = f"/runs/{run.run_id}"
    shown = house.alice.get(address)
    for browser, status in ((house.bob, 403), (house.vera, 403), (house.charlie, 404)):
        page = browser.get(address, 404 if status == 404 else 200)
        assert not browser.offers(page, f"{address}/cancel")
        with browser.client.session_transaction() as session:
            token = session["csrf"]
        answer = browser.client.post(f"{address}/cancel", data={"csrf_token": token})
        assert answer.status_code == status
    assert house.alice.offers(shown, f"{address}/cancel")


def test_a_run_that_never_became_work_cannot_be_steered(house: House) -> None:
    schedule, _ = hourly_run(house)
    with house.backstage() as stage:
        stage.tick(hours=1)
        skipped = stage.runs(schedule)[-1]
    browser, address = house.alice, f"/runs/{skipped.run_id}"
    page = browser.get(address)
    assert not browser.offers(page, f"{address}/retry")
    with browser.client.session_transaction() as session:
        token = session["csrf"]
    answer = browser.client.post(f"{address}/retry", data={"csrf_token": token})
    assert answer.status_code == 409
    assert "<code>run_without_task</code>" in answer.text


def test_what_an_agent_and_a_person_wrote_is_shown_escaped(house: House) -> None:
    _, run = hourly_run(house, name=f"Sweep {EVIL}", task=f"Do {EVIL}")
    with house.backstage() as stage:
        (task,) = stage.fetch()
        stage.acknowledge(task)
        stage.reply(task, TaskStatus.FAILED, f'{EVIL}"><img src=x onerror=alert(2)>')
    for address in (f"/runs/{run.run_id}", "/runs", f"/tasks/{task.task_id}", "/", f"/nodes/{run.target_id}"):
        page = house.alice.get(address)
        assert EVIL not in page
        assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(2)&gt;" in house.alice.get(f"/runs/{run.run_id}")


def test_the_page_shows_the_text_a_run_ran_with_and_that_the_schedule_changed(house: House) -> None:
    schedule, run = hourly_run(house, task="Sweep the inbox.")
    address = f"/runs/{run.run_id}"
    assert "revision 1, unchanged since" in house.alice.get(address)
    with house.backstage() as stage:
        stage.edit(schedule, task="Sweep the attic.")
    page = house.alice.get(address)
    assert "revision 1, changed since" in page
    assert "Sweep the inbox." in page
    assert "Sweep the attic." not in page


def test_a_run_by_hand_names_who_asked_for_it(house: House) -> None:
    with house.backstage() as stage:
        run = stage.run_now(stage.create())
    page = house.alice.get(f"/runs/{run.run_id}")
    assert "Asked for by Alice" in page
    assert "by hand, Alice" in page


def test_the_list_is_narrowed_and_paged_by_links(house: House) -> None:
    with house.backstage() as stage:
        every_minute = {"type": "cron", "cron": "* * * * *"}
        first = stage.create(name="First", schedule=every_minute, misfire_policy="catch_up_all")
        stage.create(name="Second", schedule={"type": "cron", "cron": "30 8 * * *"})
        stage.tick(hours=1)
    browser = house.alice
    page = browser.get("/runs")
    assert page.count('class="table__name"') == 50
    rest = browser.get(next_page(page))
    assert rest.count('class="table__name"') == 11
    assert 'href="/runs"' in rest
    narrowed = browser.get(f"/runs?schedule_id={first.schedule_id}&status=queued")
    assert narrowed.count('class="table__name"') == 50
    assert ">Second</a>" not in narrowed
    assert next_page(narrowed).startswith(f"/runs?status=queued&schedule_id={first.schedule_id}&cursor=")
    assert "No run is like this" in browser.get("/runs?status=failed")


def next_page(page: str) -> str:
    """The address behind the link to older runs."""
    return page.split('rel="next"')[0].rpartition('href="')[2].split('"')[0].replace("&amp;", "&")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("status=odd", 400, "invalid_status"),
        ("cursor=odd", 400, "invalid_cursor"),
        ("schedule_id=sched_notthere", 404, "schedule_not_found"),
        ("status=&schedule_id=&cursor=", 200, None),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_filter_that_cannot_be_is_refused_in_words(
    house: House, query: str, status: int, code: str | None
) -> None:
    page = house.alice.get(f"/runs?{query}", status)
    assert code is None or f"<code>{code}</code>" in page


def test_a_stranger_finds_neither_the_run_nor_its_schedule_in_any_list(house: House) -> None:
    schedule, run = hourly_run(house, name="Secret sweep")
    assert "Secret sweep" not in house.charlie.get("/runs")
    house.charlie.get(f"/runs/{run.run_id}", 404)
    house.charlie.get(f"/runs?schedule_id={schedule.schedule_id}", 404)
    anonymous = house.app.test_client().get(f"/runs/{run.run_id}")
    assert anonymous.status_code == 303
    assert anonymous.headers["Location"].startswith("/sign-in?next=")


def test_every_fragment_occurs_in_its_page(house: House) -> None:
    _, run = hourly_run(house)
    browser = house.alice
    assert_fragments_occur(browser, "/runs", ("run-list",))
    assert_fragments_occur(browser, f"/runs/{run.run_id}", ("run-story",))


def test_the_live_regions_listen_and_poll(house: House) -> None:
    _, run = hourly_run(house)
    page = house.alice.get(f"/runs/{run.run_id}")
    bells = "lost from:body delay:250ms, run from:body delay:250ms, task from:body delay:250ms"
    assert f'hx-trigger="{bells}, every 60s"' in page
    assert f'hx-get="/runs/{run.run_id}"' in page


def test_every_way_out_belongs_to_a_code_that_exists() -> None:
    assert known_ways() <= set(ERRORS)


def test_the_longest_wait_is_marked_and_work_is_not_a_wait(house: House) -> None:
    _, run = hourly_run(house)
    with house.backstage() as stage:
        stage.clock.advance(minutes=5)
        (task,) = stage.fetch()
        stage.clock.advance(seconds=30)
        stage.acknowledge(task)
        stage.clock.advance(hours=2)
        stage.reply(task)
    page = house.alice.get(f"/runs/{run.run_id}")
    assert page.count("receipt__gap--long") == 1
    marked = page.partition("receipt__gap--long")[2]
    assert marked.startswith('">+5 min</span>')
    assert "Waited for atlas" in page
    assert "5 min 30 s" in page
