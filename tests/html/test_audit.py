"""The page of the audit, with script off."""

from __future__ import annotations

from tests.html.browsing import House, assert_fragments_occur
from tests.support import hostile


def test_it_says_who_did_what_to_what_newest_first(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name="Nightly sweep")
        stage.clock.advance(minutes=5)
        stage.pause(schedule, reason="Counting house closed")
    page = house.vera.get("/audit")
    assert page.index("schedule paused") < page.index("schedule created")
    assert f'href="/schedules/{schedule.schedule_id}"' in page
    assert "Counting house closed" in page
    assert_fragments_occur(house.vera, "/audit", ("audit-list",))


def test_it_is_narrowed_by_who_what_and_when(house: House) -> None:
    with house.backstage() as stage:
        mine = stage.create(name="One")
        theirs = stage.create(stage.bob, name="Two")
        before = stage.clock.now()
        stage.clock.advance(hours=2)
        stage.pause(mine)
    browser = house.alice
    assert theirs.schedule_id not in browser.get("/audit?actor=Alice")
    assert mine.schedule_id in browser.get("/audit?actor=Alice")
    page = browser.get(f"/audit?subject={theirs.schedule_id}")
    assert mine.schedule_id not in page
    assert 'value="' + theirs.schedule_id + '"' in page
    later = f"{before:%Y-%m-%dT}{before.hour + 1:02d}:00"
    page = browser.get(f"/audit?from={later}")
    assert "schedule paused" in page
    assert "schedule created" not in page
    page = browser.get(f"/audit?to={later}")
    assert "schedule paused" not in page
    assert "schedule created" in page
    assert "No entry is like this." in browser.get("/audit?actor=Nobody")


def test_a_wrong_moment_is_named_and_nothing_is_shown(house: House) -> None:
    page = house.alice.get("/audit?from=yesterday", 400)
    assert "“From” must be a date and a time." in page
    assert 'value="yesterday"' in page


def test_long_audits_have_pages(house: House) -> None:
    with house.backstage() as stage:
        for number in range(55):
            stage.create(name=f"Order {number}")
    page = house.vera.get("/audit")
    assert "Older entries" in page
    cursor = page.split("/audit?cursor=")[1].split('"')[0]
    older = house.vera.get(f"/audit?cursor={cursor}")
    assert "schedule created" in older
    assert "First" in older


def test_another_network_sees_nothing_of_it(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name="Nightly sweep")
    assert schedule.schedule_id not in house.charlie.get("/audit")


def test_what_stands_in_it_is_shown_as_text(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name="Plain")
        for text in hostile.PLAIN[:6]:
            stage.pause(schedule, reason=text)
    page = house.alice.get("/audit")
    assert page.count(hostile.MARK) >= 6
    assert f"{hostile.MARK}<" not in page
