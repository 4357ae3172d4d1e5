"""`skip-next`, `move-next` and `next-change`: what stands in the answers, and what is refused."""

from __future__ import annotations

import pytest

from tests.api.house import TASKS, House


def test_a_slot_is_skipped_moved_and_put_back(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    skipped = house.do("alice", schedule_id, "skip-next", {"slot": "2026-11-30T10:00:00+01:00"})
    assert skipped.part("schedule")["next_change"] == {
        "kind": "skip",
        "slot": "2026-11-30T09:00:00.000Z",
        "to": None,
    }
    assert skipped.headers["ETag"] == '"2"'
    back = house.call("alice", "DELETE", f"{TASKS}/{schedule_id}/next-change").part("schedule")
    assert (back["next_change"], back["revision"]) == (None, 3)
    moved = house.do("alice", schedule_id, "move-next", {"to": "2026-11-30T10:30:00+01:00"}).part("schedule")
    assert moved["next_change"]["to"] == "2026-11-30T09:30:00.000Z"
    assert moved["next_run_at"] == "2026-11-30T09:00:00.000Z"
    house.tick(minutes=78)
    (run,) = house.call("alice", "GET", f"{TASKS}/{schedule_id}/runs").part("runs")
    assert run["scheduled_for"] == "2026-11-30T09:00:00.000Z"


def test_a_skipped_run_says_who_wanted_it_so(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    house.do("alice", schedule_id, "skip-next").part("schedule")
    house.tick(hours=1)
    (run,) = house.call("alice", "GET", f"{TASKS}/{schedule_id}/runs").part("runs")
    assert (run["status"], run["error_code"]) == ("skipped", "skipped_by_person")
    assert run["error_message"] == "A person had this slot skipped."


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"to": "2026-11-30T10:00:00Z"}, (400, "invalid_to")),
        ({"to": "2026-11-30T08:12:00Z"}, (400, "invalid_to")),
        ({"to": "2026-11-30T09:30:00"}, (400, "invalid_to")),
        ({"to": None}, (400, "invalid_to")),
        ({}, (400, "invalid_to")),
        ({"to": "2026-11-30T09:30:00Z", "slot": "2026-11-30T10:00:00Z"}, (409, "slot_not_next")),
        ({"to": "2026-11-30T09:30:00Z", "slot": 9}, (400, "invalid_slot")),
        ({"to": "2026-11-30T09:30:00Z", "why": "x"}, (400, "unknown_field")),
        ({"to": "2026-11-30T09:30:00Z", "revision": 7}, (409, "revision_conflict")),
    ],
)
def test_a_move_is_refused_by_code(house: House, body: dict[str, object], error: tuple[int, str]) -> None:
    schedule_id = house.create()["schedule_id"]
    house.clock.set(house.clock.now().replace(hour=8, minute=12, second=0, microsecond=0))
    assert house.do("alice", schedule_id, "move-next", body).error == error
    assert house.show(schedule_id)["next_change"] is None


@pytest.mark.parametrize("what", ["skip-next", "move-next"])
@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("paused", "schedule_has_no_future_occurrence"),
        ("needs_attention", "schedule_has_no_future_occurrence"),
        ("completed", "schedule_completed"),
        ("cancelled", "schedule_cancelled"),
        ("proposed", "schedule_proposed"),
    ],
)
def test_only_an_active_schedule_has_a_slot_to_change(house: House, what: str, state: str, code: str) -> None:
    schedule_id = house.in_state(state)
    body = {"to": "2026-11-30T09:30:00Z"} if what == "move-next" else {}
    assert house.do("alice", schedule_id, what, body).error == (409, code)


def test_it_is_refused_to_others_before_the_body_is_read(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    for who, error in (("bob", (403, "permission_denied")), ("charlie", (404, "schedule_not_found"))):
        assert house.do(who, schedule_id, "move-next", {"to": 1}).error == error
        assert house.do(who, schedule_id, "skip-next", {"slot": 1}).error == error
        assert house.call(who, "DELETE", f"{TASKS}/{schedule_id}/next-change").error == error
    house.do("alice", schedule_id, "skip-next").part("schedule")
    assert house.do("alice", schedule_id, "skip-next").error == (409, "next_change_exists")
