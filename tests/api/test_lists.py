"""Lists of schedules in every order, page by page, and the export of what is listed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import event

from tests import factories
from tests.api.house import TASKS, House
from tests.chat.scene import Scene
from webapp.scheduling.queries import Order, ScheduleFilter, list_ordered
from webapp.store import reading
from webapp.store.paging import PageRequest
from webapp.web import export

NAMES = ["echo", "Delta", "delta", "alpha", "Échelon", "Zulu", "zulu", "Bravo", "bravo"]


@pytest.fixture
def full_house(house: House) -> House:
    """Nine schedules, two in each of some states, and one of a stranger."""
    house.create("charlie", name="Not yours", target_node_id=house.node_ids["zephyr"])
    for number, name in enumerate(NAMES):
        every = {"type": "interval", "every_seconds": 3600 * (1 + number % 3)}
        schedule_id = house.create(name=name, schedule=every)["schedule_id"]
        house.clock.advance(seconds=number % 2)
        if number in (1, 4):
            house.do("alice", schedule_id, "pause").part("schedule")
        elif number in (2, 5):
            house.do("alice", schedule_id, "cancel").part("schedule")
    house.in_state("needs_attention")
    return house


def walk(house: House, query: str, limit: int, who: str = "alice") -> list[dict[str, Any]]:
    """Every page of a list."""
    rows: list[dict[str, Any]] = []
    cursor = ""
    while True:
        answer = house.call(who, "GET", f"{TASKS}?{query}&limit={limit}{cursor}")
        rows += answer.part("schedules")
        if answer.json["next_cursor"] is None:
            return rows
        cursor = f"&cursor={answer.json['next_cursor']}"


KEYS = {
    "name": lambda row: "",
    "state": lambda row: ["needs_attention", "proposed", "active", "paused", "completed", "cancelled"].index(
        row["status"]
    ),
    "next": lambda row: row["next_run_at"] or "9",
    "updated": lambda row: [-ord(letter) for letter in row["updated_at"]],
}


@pytest.mark.parametrize("order", [order.value for order in Order])
def test_every_order_shows_each_schedule_once_whatever_the_page(full_house: House, order: str) -> None:
    whole = walk(full_house, f"sort={order}", 200)
    assert len(whole) == len(NAMES) + 1
    assert [KEYS[order](row) for row in whole] == sorted(KEYS[order](row) for row in whole)
    for limit in (1, 3):
        paged = walk(full_house, f"sort={order}", limit)
        assert [row["schedule_id"] for row in paged] == [row["schedule_id"] for row in whole]
    active = walk(full_house, f"sort={order}&status=active", 2)
    expected = [row["schedule_id"] for row in whole if row["status"] == "active"]
    assert [row["schedule_id"] for row in active] == expected


def test_names_go_from_a_to_z_in_small_letters(full_house: House) -> None:
    names = [row["name"] for row in walk(full_house, "sort=name&q=a", 2)]
    plain = [name.lower() for name in names]
    assert plain == sorted(plain)
    assert plain.count("delta") == 2


def test_a_name_that_is_not_for_the_viewer_gives_no_place_away(full_house: House) -> None:
    chat_tasks = [Scene(full_house).task(Scene(full_house).chat()) for _ in range(2)]
    for limit in (1, 3, 11, 200):
        mine = [row["name"].lower() for row in walk(full_house, "sort=name", limit)]
        theirs = walk(full_house, "sort=name", limit, "bob")
        assert mine == sorted(mine)
        assert [row["short_id"] for row in theirs[-2:]] == [task["id"] for task in chat_tasks]
        assert len(mine) == len(theirs) == len({row["schedule_id"] for row in theirs})
        assert all(row["name"].startswith("Prompt ") for row in theirs[-2:])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("order", "index"), [(Order.NAME, "ix_schedules_name"), (Order.STATE, "ix_schedules_state")]
)
def test_an_order_is_read_from_its_index(full_house: House, order: Order, index: str) -> None:
    seen: list[tuple[str, Any]] = []
    with full_house.app.app_context(), reading() as session:
        networks, alice = [full_house.cast.network.id], full_house.cast.alice.id
        wanted = ScheduleFilter(viewer_pk=alice)
        first = list_ordered(session, networks, wanted, order, PageRequest(2))
        engine = session.get_bind()
        listener = lambda *args: seen.append((args[2], args[3]))  # noqa: E731
        event.listen(engine, "before_cursor_execute", listener)
        try:
            list_ordered(session, networks, wanted, order, PageRequest(2, first.next_cursor))
        finally:
            event.remove(engine, "before_cursor_execute", listener)
        statement, values = next(one for one in reversed(seen) if "ORDER BY" in one[0])
        plan = session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
    steps = [str(row[3]) for row in plan]
    assert any(index in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps


def test_a_cursor_of_another_order_is_refused(full_house: House) -> None:
    cursors = {}
    for order in Order:
        path = f"{TASKS}?sort={order.value}&limit=2"
        cursors[order] = full_house.call("alice", "GET", path).json["next_cursor"]
    for order in Order:
        for other, cursor in cursors.items():
            answer = full_house.call("alice", "GET", f"{TASKS}?sort={order.value}&cursor={cursor}")
            assert answer.status == (200 if other is order else 400)
    assert full_house.call("alice", "GET", f"{TASKS}?sort=size").error == (400, "invalid_sort")
    nobody = "name-999999999"
    assert full_house.call("alice", "GET", f"{TASKS}?sort=name&cursor={nobody}").error == (
        400,
        "invalid_cursor",
    )


def _export(house: House, who: str, query: str) -> Any:
    path = f"{TASKS}/export?{query}"
    return house.app.test_client().get(path, headers=factories.bearer(house.tokens[who]))


def test_the_export_is_what_is_listed(full_house: House) -> None:
    for query in ("", "sort=name", "status=active&sort=state", "q=delta"):
        answer = _export(full_house, "alice", query)
        assert (answer.status_code, answer.mimetype) == (200, "application/json")
        assert answer.headers["Content-Disposition"] == 'attachment; filename="schedules.json"'
        document = json.loads(answer.text)
        assert document["schedules"] == walk(full_house, query, 200)
        assert (document["count"], document["truncated"]) == (len(document["schedules"]), False)
    assert json.loads(_export(full_house, "charlie", "").text)["count"] == 1
    assert json.loads(_export(full_house, "alice", "q=nothing-like-it").text)["schedules"] == []
    assert full_house.call("alice", "GET", f"{TASKS}/export?sort=size").error == (400, "invalid_sort")
    assert full_house.call("alice", "GET", f"{TASKS}/export?q={'x' * 201}").error == (400, "invalid_q")


@pytest.mark.parametrize(("most", "truncated"), [(3, True), (10, False), (11, False)])
def test_the_export_is_bounded_and_says_so(full_house: House, most: int, truncated: bool) -> None:
    with full_house.app.app_context():
        pieces = export.schedules_document(
            [full_house.cast.network.id],
            ScheduleFilter(),
            Order.NAME,
            full_house.cast.alice.id,
            most=most,
        )
        document = json.loads("".join(pieces))
    assert (len(document["schedules"]), document["truncated"]) == (min(most, 10), truncated)
