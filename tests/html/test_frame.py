"""What stands around every page: the frame that follows, the keys, what a page says of its own freshness."""

from __future__ import annotations

import re

import pytest

from tests.html.browsing import HTMX, House
from webapp.html import assets

# What a first visit may cost over the wire, bytes.
MOST_BYTES = 150_000


def _region(house: House, name: str, section: str = "") -> str:
    answer = house.bob.client.get(f"/shell?section={section}", headers=HTMX | {"HX-Target": f"div#{name}"})
    assert answer.status_code == 200
    return answer.text.strip()


def test_the_frame_of_an_open_page_fetches_itself(house: House) -> None:
    page = house.bob.get("/nodes")
    masthead = _region(house, "masthead", "nodes")
    assert "<html" not in masthead
    assert '<a href="/nodes" aria-current="page">' in masthead
    assert re.sub(r"\s+", " ", masthead) in re.sub(r"\s+", " ", page)
    pulse = _region(house, "pulse")
    assert 'hx-get="/shell"' in pulse
    assert "No worker" in pulse
    with house.backstage() as stage:
        stage.tick()
    assert house.bob.client.get("/shell").headers["Location"] == "/"


def test_without_script_a_page_says_when_it_was_drawn_and_nothing_that_script_would_show(
    house: House,
) -> None:
    page = house.bob.get("/runs")
    foot = page.partition('id="foot"')[2]
    assert "drawn at" in foot.partition("data-live")[2].partition("</p>")[0]
    others = re.findall(r'<p data-live="(\w+)"( hidden)?>', page)
    assert {name for name, hidden in others if not hidden} == {"drawn"}
    assert {name for name, hidden in others if hidden} == {"on", "slow", "out", "cut"}


def test_single_keys_are_switched_off_for_the_person_and_not_for_the_browser(house: House) -> None:
    browser, elsewhere = house.bob, house.bob
    page = browser.get("/keys")
    assert "<body data-keys" in page
    assert "<dialog" not in page
    page = browser.press(page, "/keys")
    assert "Single keys are off: none does anything on your pages." in page
    assert "<body data-keys" not in elsewhere.get("/")
    assert "<body data-keys" in house.alice.get("/")
    page = browser.press(elsewhere.get("/"), "/keys")
    assert "<body data-keys" in page


def test_the_keys_lead_only_where_the_person_may_go(house: House) -> None:
    keys = house.bob.get("/").partition("<dialog")[2].partition("</dialog>")[0]
    assert 'href="/schedules/new" data-key="n"' in keys
    assert 'data-key="n"' not in house.vera.get("/").partition("<dialog")[2]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_first_load_of_each_page_is_light(house: House) -> None:
    with house.backstage() as stage:
        schedules = [stage.create(name=f"Sweep {number}") for number in range(30)]
        stage.tick(hours=1)
        run = stage.runs(schedules[0])[0]
        mandate = schedules[0].mandate_id
    shared = sum(len(asset.packed) for asset in assets.build().values())
    own = f"/schedules/{schedules[0].schedule_id}"
    heavy = {}
    for path in (
        *("/", "/schedules", "/schedules/new", own, f"{own}/edit", f"{own}/pause", f"/runs/{run.run_id}"),
        *("/runs", "/nodes", f"/nodes/{house.stage.node.node_id}", "/chats", "/approvals", "/mandates"),
        *(f"/mandates/{mandate}", "/audit", "/settings", "/keys"),
    ):
        browser = house.alice
        browser.get(path)
        assert browser.answer is not None
        size = shared + len(browser.answer.data)
        if size > MOST_BYTES:
            heavy[path] = size
    assert heavy == {}
