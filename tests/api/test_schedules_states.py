"""Every state of a schedule × every call: what it answers, what becomes of the schedule and of its revision."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.house import NOTHING, TASKS, House
from webapp.clock import FrozenClock

STATES = ["active", "paused", "needs_attention", "completed", "cancelled", "proposed"]

DAILY = {"type": "daily", "time": "10:00"}
PAST = {"type": "once", "run_at": "2020-01-01T00:00:00Z"}

# Calls by name: what is sent to /{id}, beside the revision that a PATCH needs.
CALLS: dict[str, tuple[str, str, Any]] = {
    "rename": ("PATCH", "", {"name": "Other"}),
    "new text": ("PATCH", "", {"task": "Other words."}),
    "new timetable": ("PATCH", "", {"schedule": DAILY}),
    "status paused": ("PATCH", "", {"status": "paused"}),
    "status active": ("PATCH", "", {"status": "active"}),
    "nothing new": ("PATCH", "", {"name": "Morning papers"}),
    "pause": ("POST", "/pause", NOTHING),
    "pause with a reason": ("POST", "/pause", {"reason": "holidays"}),
    "resume": ("POST", "/resume", NOTHING),
    "run now": ("POST", "/run-now", NOTHING),
    "confirm": ("POST", "/confirm", NOTHING),
    "reject": ("POST", "/reject", NOTHING),
    "cancel": ("POST", "/cancel", NOTHING),
    "delete": ("DELETE", "", NOTHING),
}

NOT_PROPOSED = {"confirm": (409, "not_proposed", 0), "reject": (409, "not_proposed", 0)}

# state -> call -> (status of the answer, code or the state that follows, by how much the revision rises)
TABLE: dict[str, dict[str, tuple[int, str, int]]] = {
    "active": {
        **NOT_PROPOSED,
        "rename": (200, "active", 1),
        "new text": (200, "active", 1),
        "new timetable": (200, "active", 1),
        "status paused": (200, "paused", 1),
        "status active": (200, "active", 0),
        "nothing new": (200, "active", 0),
        "pause": (200, "paused", 1),
        "pause with a reason": (200, "paused", 1),
        "resume": (200, "active", 0),
        "run now": (202, "active", 0),
        "cancel": (200, "cancelled", 1),
        "delete": (200, "cancelled", 1),
    },
    "paused": {
        **NOT_PROPOSED,
        "rename": (200, "paused", 1),
        "new text": (200, "paused", 1),
        "new timetable": (200, "paused", 1),
        "status paused": (200, "paused", 0),
        "status active": (200, "active", 1),
        "nothing new": (200, "paused", 0),
        "pause": (200, "paused", 0),
        "pause with a reason": (200, "paused", 1),
        "resume": (200, "active", 1),
        "run now": (202, "paused", 0),
        "cancel": (200, "cancelled", 1),
        "delete": (200, "cancelled", 1),
    },
    "needs_attention": {
        **NOT_PROPOSED,
        "rename": (200, "needs_attention", 1),
        "new text": (200, "active", 2),
        "new timetable": (200, "active", 2),
        "status paused": (200, "paused", 1),
        "status active": (200, "active", 1),
        "nothing new": (200, "needs_attention", 0),
        "pause": (200, "paused", 1),
        "pause with a reason": (200, "paused", 1),
        "resume": (200, "active", 1),
        "run now": (202, "needs_attention", 0),
        "cancel": (200, "cancelled", 1),
        "delete": (200, "cancelled", 1),
    },
    "completed": {
        **dict.fromkeys(CALLS, (409, "schedule_completed", 0)),
        **NOT_PROPOSED,
    },
    "cancelled": {
        **dict.fromkeys(CALLS, (409, "schedule_cancelled", 0)),
        **NOT_PROPOSED,
        "cancel": (200, "cancelled", 0),
        "delete": (200, "cancelled", 0),
    },
    "proposed": {
        **dict.fromkeys(CALLS, (409, "schedule_proposed", 0)),
        "rename": (200, "proposed", 1),
        "new text": (200, "proposed", 1),
        "new timetable": (200, "proposed", 1),
        "nothing new": (200, "proposed", 0),
        "confirm": (200, "active", 1),
        "reject": (200, "cancelled", 1),
        "cancel": (200, "cancelled", 1),
        "delete": (200, "cancelled", 1),
    },
}


@pytest.mark.parametrize("state", STATES)
def test_what_each_call_does_to_a_schedule_in_this_state(house: House, state: str) -> None:
    for name, (method, path, body) in CALLS.items():
        status, expected, bumps = TABLE[state][name]
        schedule_id = house.in_state(state)
        before = house.show(schedule_id)
        sent = {**body, "revision": before["revision"]} if method == "PATCH" else body
        answer = house.call("alice", method, f"{TASKS}/{schedule_id}{path}", sent)
        after = house.show(schedule_id)
        assert after["revision"] == before["revision"] + bumps, (state, name)
        if status == 409:
            assert answer.error == (409, expected), (state, name)
            assert after == before, (state, name)
            continue
        assert (answer.status, after["status"]) == (status, expected), (state, name, answer.json)
        if "schedule" in answer.json:
            assert answer.json["schedule"] == after, (state, name)
        if expected != "active":
            assert after["next_run_at"] is None, (state, name)
        elif bumps:
            assert after["next_run_at"] is not None, (state, name)


@pytest.mark.parametrize("state", ["paused", "needs_attention"])
def test_what_has_no_slot_left_is_not_resumed(house: House, clock: FrozenClock, state: str) -> None:
    schedule_id = house.in_state(state)
    soon = {"type": "once", "run_at": "2026-11-30T08:13:00Z"}
    house.edit("alice", schedule_id, schedule=soon).part("schedule")
    if state == "needs_attention":
        house.do("alice", schedule_id, "pause").part("schedule")
    clock.advance(minutes=1)
    before = house.show(schedule_id)
    for answer in (
        house.do("alice", schedule_id, "resume"),
        house.edit("alice", schedule_id, status="active"),
    ):
        assert answer.error == (409, "schedule_has_no_future_occurrence")
    assert house.show(schedule_id) == before
    refused = house.edit("alice", schedule_id, schedule=PAST)
    assert refused.error == (400, "schedule_has_no_future_occurrence")
    assert house.show(schedule_id) == before


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_is_permanently_refused_is_not_resumed_and_not_run(house: House) -> None:
    schedule_id = house.in_state("paused")
    house.call("alice", "DELETE", f"/api/nodes/{house.node_ids['atlas']}").part("node")
    assert house.do("alice", schedule_id, "resume").error == (409, "target_node_not_found")
    assert house.do("alice", schedule_id, "run-now").error == (409, "target_node_not_found")
    assert house.show(schedule_id)["status"] == "paused"
    entries = house.call("alice", "GET", f"/api/audit?subject={schedule_id}").part("entries")
    assert (entries[0]["verb"], entries[0]["detail"]["code"]) == (
        "schedule.run_now_refused",
        "target_node_not_found",
    )
    house.add_node("hermes")
    healed = house.edit("alice", schedule_id, target_node_id=house.node_ids["hermes"])
    assert healed.part("schedule")["status"] == "paused"
    assert house.do("alice", schedule_id, "resume").part("schedule")["status"] == "active"


def test_a_second_run_by_hand_names_the_one_that_blocks_it(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    first = house.do("alice", schedule_id, "run-now").part("run", 202)
    refused = house.do("alice", schedule_id, "run-now")
    assert refused.error == (409, "previous_run_active")
    assert refused.json["blocking_run_id"] == first["run_id"]
    assert len(house.call("alice", "GET", f"{TASKS}/{schedule_id}/runs").part("runs")) == 1
    house.edit("alice", schedule_id, overlap_policy="queue_one").part("schedule")
    second = house.do("alice", schedule_id, "run-now").part("run", 202)
    assert (second["wait_reason"], second["blocked_by"], second["task_id"]) == (
        "previous_run_active",
        first["run_id"],
        None,
    )


def test_a_conflict_comes_before_a_wrong_field_and_a_state_before_a_conflict(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    path = f"{TASKS}/{schedule_id}"
    wrong = {"name": "", "revision": 7}
    assert house.call("charlie", "PATCH", path, wrong).error == (404, "schedule_not_found")
    assert house.call("vera", "PATCH", path, wrong).error == (403, "permission_denied")
    assert house.call("alice", "PATCH", path, wrong).error == (409, "revision_conflict")
    assert house.call("alice", "PATCH", path, {"name": "", "revision": 1}).error == (400, "invalid_name")
    house.do("alice", schedule_id, "cancel").part("schedule")
    assert house.call("alice", "PATCH", path, wrong).error == (409, "schedule_cancelled")
    assert house.call("alice", "PATCH", path, data="{", content_type="application/json").error == (
        400,
        "invalid_json",
    )


def test_every_change_is_in_the_audit_with_the_definition_in_force(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    house.edit("alice", schedule_id, schedule=DAILY).part("schedule")
    house.do("bob", schedule_id, "pause", {"reason": "holidays"}).part("schedule")
    house.do("alice", schedule_id, "resume").part("schedule")
    house.do("alice", schedule_id, "cancel").part("schedule")
    entries = house.call("vera", "GET", f"/api/audit?subject={schedule_id}").part("entries")
    assert [(row["actor"], row["verb"]) for row in reversed(entries)] == [
        ("Alice", "schedule.create"),
        ("Alice", "schedule.edit"),
        ("Bob", "schedule.paused"),
        ("Alice", "schedule.active"),
        ("Alice", "schedule.cancelled"),
    ]
    for entry in entries:
        assert {"timetable", "timezone", "zone_version", "starts_at", "ends_at", "status"} <= set(
            entry["detail"]
        )
    assert entries[2]["detail"]["reason"] == "holidays"
