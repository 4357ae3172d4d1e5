"""The overview, with script off, on both databases; and the day's stave by itself."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.html.browsing import House, assert_fragments_occur
from webapp.errors import sentence_of
from webapp.html import stave
from webapp.identity.operations import remove_member
from webapp.nodes.lifecycle import NodeStatus, TaskStatus
from webapp.scheduling import maintenance
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.next_change import ChangeKind, NextChange
from webapp.targets import node as bridge
from webapp.timetable import Plan, parse_timetable

NOW = datetime(2026, 11, 30, 8, 12, tzinfo=UTC)


def headline(page: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", page)
    assert found is not None
    return found.group(1)


def worker_seen(house: House) -> None:
    """A worker makes a pass and says so."""
    with house.backstage() as stage:
        stage.tick()
        maintenance.worker_seen(
            stage.worker.worker_id,
            started_at=stage.worker.started_at,
            lag_ms=stage.worker.lag_ms,
            stopped=False,
            now=stage.clock.now(),
        )


def node_heard(house: House) -> None:
    with house.backstage() as stage:
        bridge.heartbeat(stage.node.id, NodeStatus.IDLE, None, now=stage.clock.now())


def test_an_empty_network_shows_the_three_steps_and_marks_the_next_one(house: House) -> None:
    page = house.bob.get("/")
    assert headline(page) == "Nothing stands yet"
    assert page.count('class="step') >= 3
    assert "1 node registered." in page
    assert page.partition("step--next")[2].partition("</li>")[0].count("Run it") == 1
    node_heard(house)
    page = house.bob.get("/")
    following = page.partition("step--next")[2].partition("</li>")[0]
    assert 'href="/schedules/new"' in following
    assert 'href="/schedules/new"' not in house.vera.get("/")


def test_somebody_without_a_network_is_told_so(house: House) -> None:
    with house.backstage() as stage:
        remove_member(
            stage.alice, stage.cast.network.network_id, stage.cast.bob.user_id, now=stage.clock.now()
        )
    assert headline(house.bob.get("/")) == "You belong to no network yet"


def test_without_a_worker_the_page_says_what_to_start(house: House) -> None:
    with house.backstage() as stage:
        stage.create()
        stage.clock.advance(hours=1)
    page = house.vera.get("/")
    assert "No worker is running" in page
    assert "<code>python scheduler_worker.py</code>" in page
    assert "1 schedule is due and waits" in page
    worker_seen(house)
    page = house.vera.get("/")
    assert "No worker is running" not in page
    assert "1 at work" in page


def test_the_headline_counts_what_needs_a_person_and_what_rings(house: House) -> None:
    with house.backstage() as stage:
        stage.create()
    node_heard(house)
    assert headline(house.alice.get("/")) == "Nothing needs you. 24 runs ring by this time tomorrow."
    with house.backstage() as stage:
        stage.create(schedule={"type": "daily", "time": "07:00"})
        stage.create(schedule={"type": "daily", "time": "09:00"}, max_runs=1)
        stage.pause(stage.create())
    assert headline(house.alice.get("/")) == "Nothing needs you. 26 runs ring by this time tomorrow."


def test_a_stopped_schedule_is_a_card_with_its_reason_its_code_and_the_way_out(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name="Frail", failure_threshold=2)
        for _ in range(3):
            stage.tick(hours=1)
            stage.serve(TaskStatus.FAILED)
    browser = house.alice
    page = browser.get("/")
    assert headline(page) == "One thing needs you. Nothing rings by this time tomorrow."
    card = page.partition('class="card ')[2].partition("</article>")[0]
    assert "Frail" in card
    assert sentence_of("failure_threshold_reached") in card
    assert "<code>failure_threshold_reached</code>" in card
    assert "mend the cause, then resume" in card
    assert 'class="masthead__count">1' in page
    dialog = f"/schedules/{schedule.schedule_id}/resume"
    assert f'href="{dialog}"' in card
    assert f'href="{dialog}"' not in house.vera.get("/")
    browser.press(browser.get(dialog), dialog)
    with house.backstage() as stage:
        assert stage.schedule(schedule).status is ScheduleStatus.ACTIVE
    assert headline(browser.get("/")).startswith("Nothing needs you.")


def test_schedules_that_stop_for_one_reason_at_one_node_share_a_card_and_are_resumed_together(
    house: House,
) -> None:
    with house.backstage() as stage:
        frail = [stage.create(name=f"Frail {number}", failure_threshold=2) for number in range(3)]
        for _ in range(3):
            stage.tick(hours=1)
            stage.serve(TaskStatus.FAILED)
    browser = house.alice
    page = browser.get("/")
    assert headline(page).startswith("One thing needs you.")
    assert "3 schedules of atlas" in page
    assert 'class="masthead__count">1' in page
    link = f'href="/needs/resume?code=failure_threshold_reached&amp;target={house.stage.node.node_id}"'
    assert link in page
    assert link not in house.bob.get("/")
    answer = browser.client.get(html.unescape(link[6:-1]), follow_redirects=True)
    assert "3 schedules will be resumed." in answer.text
    with house.backstage() as stage:
        assert {stage.schedule(schedule).status for schedule in frail} == {ScheduleStatus.NEEDS_ATTENTION}
    page = browser.press(answer.text, "/schedules/bulk")
    assert "3 schedules resumed." in page
    with house.backstage() as stage:
        assert {stage.schedule(schedule).status for schedule in frail} == {ScheduleStatus.ACTIVE}


def test_a_card_of_those_that_were_resumed_meanwhile_leads_back(house: House) -> None:
    browser = house.alice
    page = browser.client.get("/needs/resume?code=nothing_like_this&target=x", follow_redirects=True).text
    assert "None of them stands still any more." in page


def test_a_blocked_schedule_is_a_card_that_leads_to_the_run_that_holds_it_up(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name="Blocked")
        for _ in range(4):
            stage.tick(hours=1)
        first = stage.runs(schedule)[0]
    page = house.vera.get("/")
    assert headline(page).startswith("Two things need you.")
    assert "waits for itself" in page
    assert f'href="/runs/{first.run_id}"' in page
    assert "<code>previous_run_active</code>" in page


def test_a_silent_node_that_holds_work_is_a_card(house: House) -> None:
    node_heard(house)
    with house.backstage() as stage:
        stage.create()
        stage.tick(minutes=48)
    page = house.vera.get("/")
    assert "Node offline" in page
    assert "holds 1 task" in page
    assert 'class="masthead__count">1' in page
    with house.backstage() as stage:
        stage.fetch()
    assert "Node offline" not in house.vera.get("/")


def test_the_day_has_a_lane_for_each_node_and_says_the_same_as_a_table(house: House) -> None:
    node_heard(house)
    with house.backstage() as stage:
        hermes = stage.add_node("hermes")
        for number in range(3):
            stage.create(name=f"Midnight {number}", schedule={"type": "daily", "time": "00:00"})
        stage.create(
            name="Often", target_node_id=hermes.node_id, schedule={"type": "cron", "cron": "*/15 * * * *"}
        )
    page = house.vera.get("/")
    day = page.partition('id="day"')[2].partition("</section>")[0]
    assert "3 ring together at 00:00." in day
    assert day.count("lane__stave") == 2
    assert '<text class="lane__bellnum" x="65.83%" y="18">3</text>' in day
    assert day.count('class="lane__tick" x1') == 96
    assert '<span class="sr-only">3 runs, the first at 00:00, 3 at once at 00:00</span>' in day
    assert '<span class="sr-only">96 runs, ' in day
    assert "they will wait" in day
    runs, lanes = day.partition("The same as tables")[2].split("</table>")[:2]
    assert (runs.count('role="rowheader"'), lanes.count('role="rowheader"')) == (2, 2)
    assert "96 times from then on" in runs
    assert all(f"Midnight {number}</a>" in runs for number in range(3))
    # The bell leads to its line of the table.
    assert 'href="#ring-01-0000"' in day
    assert 'id="ring-01-0000"' in runs


def test_a_pin_leads_to_its_schedule(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name="Alone", schedule={"type": "daily", "time": "00:00"})
    day = house.vera.get("/").partition('id="day"')[2].partition("</section>")[0]
    pin = day.partition('class="lane__link"')[2].partition("</a>")[0]
    assert f'href="/schedules/{schedule.schedule_id}"' in pin
    assert "<title>00:00 Alone</title>" in pin


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_beyond_fifty_schedules_the_page_says_that_there_are_more(house: House) -> None:
    with house.backstage() as stage:
        for number in range(51):
            stage.create(name=f"S{number}", schedule={"type": "daily", "time": "09:00"})
    page = house.vera.get("/")
    assert "More than 50 runs ring" in headline(page)
    assert "The 50 schedules that ring first are drawn, 1 more is not." in page


def test_the_last_hour_lists_its_runs_and_counts_them(house: House) -> None:
    with house.backstage() as stage:
        stage.create(name="Older", schedule={"type": "cron", "cron": "30 8 * * *"})
        stage.create(name="Newer", schedule={"type": "cron", "cron": "0 10 * * *"})
        stage.tick(minutes=20)
        stage.serve()
        stage.clock.advance(minutes=100)
        stage.tick()
    page = house.vera.get("/")
    hour = page.partition('id="last-hour"')[2].partition("</section>")[0]
    assert "1 run: 1 queued." in hour
    assert "Newer" in hour
    assert "Older" not in hour


def test_the_worker_panel_says_what_waits_and_for_whom(house: House) -> None:
    with house.backstage() as stage:
        stage.create(name="Waits")
        stage.create(name="Runs")
        stage.tick(minutes=48)
        first, *_ = stage.fetch()
        stage.acknowledge(first)
        stage.clock.advance(minutes=3)
    worker_seen(house)
    panel = house.vera.get("/").partition('id="worker"')[2].partition("</section>")[0]
    assert "Longest: " in panel
    assert "3 min." in panel
    assert "1 for atlas." in panel


def test_a_stranger_sees_nothing_of_it(house: House) -> None:
    with house.backstage() as stage:
        stage.create(name="Secret sweep")
        stage.tick(minutes=48)
    page = house.charlie.get("/")
    assert "Secret sweep" not in page
    assert "atlas" not in page
    assert headline(page) == "Nothing stands yet"


def test_every_fragment_occurs_in_its_page(house: House) -> None:
    with house.backstage() as stage:
        stage.create()
        stage.tick(minutes=48)
    assert_fragments_occur(house.alice, "/", ("needs", "day", "last-hour", "worker"))


# --- The stave by itself ---


def ringing(timetable: dict[str, object], *, after: datetime = NOW, **fields: object) -> stave.Ringing:
    plan = Plan(parse_timetable(timetable, "UTC", now=NOW))
    first = plan.next_after(after)
    assert first is not None
    values = {"name": "S", "schedule_id": "sched_1", "lane": "node_1", "plan": plan, "next_run_at": first}
    return stave.Ringing(**(values | fields))


DAILY = {"type": "daily", "time": "20:12"}


def test_a_slot_stands_at_its_share_of_the_day() -> None:
    day = stave.draw([ringing(DAILY)], now=NOW, zone="UTC")
    (lane,) = day.lanes
    at = datetime(2026, 11, 30, 20, 12, tzinfo=UTC)
    (mark,) = lane.marks
    assert (day.count, mark.x, mark.count, mark.at) == (1, 50.0, 1, at)
    assert mark.rings is not None
    assert mark.rings.schedule_id == "sched_1"
    assert [(ring.at, ring.count, ring.rhythm) for ring in day.rings] == [(at, 1, False)]
    assert lane.quarters[48] == 1


def test_what_is_due_already_rings_once_and_now() -> None:
    overdue = ringing({"type": "cron", "cron": "0 * * * *"}, after=NOW - timedelta(hours=3))
    day = stave.draw([overdue], now=NOW, zone="UTC")
    assert day.count == 25
    assert (day.lanes[0].marks[0].x, day.lanes[0].marks[0].count) == (0.0, 1)


def test_a_moved_slot_is_drawn_where_it_falls_due_and_a_skipped_one_not_at_all() -> None:
    daily: dict[str, object] = {"type": "daily", "time": "09:00"}
    slot, to = NOW.replace(hour=9, minute=0), NOW.replace(hour=21, minute=30)
    moved = ringing(daily, change=NextChange(ChangeKind.MOVE, slot, to))
    (lane,) = stave.draw([moved], now=NOW, zone="UTC").lanes
    assert [mark.at for mark in lane.marks] == [to]
    assert lane.first_at == to
    assert moved.is_moved_to(to)
    skipped = ringing(daily, change=NextChange(ChangeKind.SKIP, slot))
    assert stave.draw([skipped], now=NOW + timedelta(minutes=5), zone="UTC").count == 0
    hourly: dict[str, object] = {"type": "interval", "every_seconds": 600}
    first = ringing(hourly).next_run_at
    later = ringing(hourly, change=NextChange(ChangeKind.MOVE, first, first + timedelta(minutes=5)))
    plain = stave.draw([ringing(hourly)], now=NOW, zone="UTC")
    assert stave.draw([later], now=NOW, zone="UTC").count == plain.count


def test_the_last_runs_of_a_schedule_are_all_that_is_drawn() -> None:
    hourly = {"type": "cron", "cron": "0 * * * *"}
    assert stave.draw([ringing(hourly, left=3)], now=NOW, zone="UTC").count == 3
    often = {"type": "cron", "cron": "* * * * *"}
    day = stave.draw([ringing(often, left=100)], now=NOW, zone="UTC")
    assert (day.count, sum(day.lanes[0].quarters)) == (100, 100)
    assert stave.draw([ringing(hourly, left=0)], now=NOW, zone="UTC").count == 0


def test_a_rhythm_is_counted_whole_and_drawn_as_ticks() -> None:
    day = stave.draw([ringing({"type": "cron", "cron": "* * * * *"})], now=NOW, zone="UTC")
    (lane,) = day.lanes
    assert day.count == sum(lane.quarters) == 1440
    assert {mark.count for mark in lane.marks} == {0}
    assert len(lane.marks) == stave.QUARTERS
    assert [(ring.count, ring.rhythm) for ring in day.rings] == [(1440, True)]
    several = [ringing({"type": "cron", "cron": "* * * * *"}) for _ in range(50)]
    (lane,) = stave.draw(several, now=NOW, zone="UTC").lanes
    assert (lane.count, len(lane.marks)) == (50 * 1440, stave.QUARTERS)


def test_a_rhythm_that_is_due_rings_once_now_and_goes_on() -> None:
    late = ringing({"type": "cron", "cron": "*/5 * * * *"}, after=NOW - timedelta(hours=3))
    day = stave.draw([late], now=NOW, zone="UTC")
    (lane,) = day.lanes
    assert day.count == sum(lane.quarters) == 289
    assert lane.quarters[0] == 4


@pytest.mark.parametrize(
    ("zone", "hours"),
    [
        ("UTC", ["now", "09:00", "12:00", "15:00", "18:00", "21:00", "Tue 1 Dec", "03:00", "06:00"]),
        ("Asia/Kolkata", ["now", "15:00", "18:00", "21:00", "Tue 1 Dec", "03:00", "06:00", "09:00", "12:00"]),
    ],
)
def test_the_axis_shows_full_hours_of_the_viewers_clock(zone: str, hours: list[str]) -> None:
    day = stave.draw([ringing(DAILY)], now=NOW, zone=zone)
    shown = [hour.text for hour in day.hours]
    assert [hour for hour in hours if hour in shown] == shown
    assert len(shown) >= len(hours) - 1
