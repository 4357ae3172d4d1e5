"""`/api/runs` and `/api/audit`: what became of each slot, and who changed what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.house import TASKS, House
from webapp.ids import new_id

FIELDS = [
    "run_id",
    "schedule_id",
    "scheduled_for",
    "trigger",
    "actor",
    "missed_count",
    "missed_since",
    "status",
    "error_code",
    "error_message",
    "blocked_by",
    "blocker_received",
    "wait_reason",
    "task_id",
    "turn_id",
    "attempt",
    "target_alias",
    "text",
    "schedule_revision",
    "schedule_changed_since",
    "created_at",
    "delivered_at",
    "started_at",
    "completed_at",
    "result",
]


def _runs(house: House, query: str = "", who: str = "alice") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = house.call(who, "GET", f"/api/runs{query}").part("runs")
    return rows


def test_a_run_shows_the_fields_of_the_contract_and_its_receipts(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    house.tick(minutes=48, seconds=2)
    (listed,) = _runs(house)
    assert sorted(listed) == sorted(FIELDS)
    run_id = listed["run_id"]
    house.clock.advance(seconds=3)
    (item,) = house.call("atlas", "GET", "/api/node/inbox").part("items")
    path = f"/api/node/tasks/{item['task_id']}"
    house.clock.advance(seconds=0.5)
    house.call("atlas", "POST", f"{path}/ack").part("task")
    house.clock.advance(seconds=1)
    house.call("atlas", "POST", f"{path}/start").part("task")
    house.clock.advance(seconds=60)
    answer = {"status": "replied", "result": "Nothing new."}
    house.call("atlas", "POST", f"{path}/reply", answer).part("task")
    run = house.call("vera", "GET", f"/api/runs/{run_id}").part("run")
    receipts = run.pop("receipts")
    assert run == {
        "run_id": run_id,
        "schedule_id": schedule_id,
        "scheduled_for": "2026-11-30T09:00:00.000Z",
        "trigger": "scheduled",
        "actor": "worker",
        "missed_count": 0,
        "missed_since": None,
        "status": "completed",
        "error_code": None,
        "error_message": None,
        "blocked_by": None,
        "blocker_received": None,
        "wait_reason": None,
        "task_id": item["task_id"],
        "turn_id": None,
        "attempt": 1,
        "target_alias": "atlas",
        "text": "Read the papers.",
        "schedule_revision": 1,
        "schedule_changed_since": False,
        "created_at": "2026-11-30T09:00:02.000Z",
        "delivered_at": "2026-11-30T09:00:05.000Z",
        "started_at": "2026-11-30T09:00:05.500Z",
        "completed_at": "2026-11-30T09:01:06.500Z",
        "result": "Nothing new.",
    }
    assert [(row["step"], row["at"][-9:-1], row["gap_seconds"]) for row in receipts] == [
        ("planned", "0:00.000", None),
        ("claimed", "0:02.000", 2.0),
        ("delivered", "0:05.000", 3.0),
        ("acknowledged", "0:05.500", 0.5),
        ("started", "0:06.500", 1.0),
        ("ended", "1:06.500", 60.0),
    ]


def test_receipts_leave_open_what_has_not_happened(house: House) -> None:
    house.create(misfire_policy="skip")
    house.tick(hours=2)
    (run,) = _runs(house)
    assert (run["status"], run["error_code"], run["missed_count"]) == ("skipped", "misfire_skipped", 1)
    assert run["missed_since"] == "2026-11-30T09:00:00.000Z"
    assert run["error_message"] == "Missed while the worker was away, and skipped as the policy says."
    receipts = house.call("alice", "GET", f"/api/runs/{run['run_id']}").part("run")["receipts"]
    assert [(row["step"], row["at"] is None, row["gap_seconds"]) for row in receipts] == [
        ("planned", False, None),
        ("claimed", False, 720.0),
        ("delivered", True, None),
        ("acknowledged", True, None),
        ("started", True, None),
        ("ended", False, 0.0),
    ]


def test_runs_come_newest_slot_first_and_are_narrowed_by_each_filter(house: House) -> None:
    one = house.create(name="One", overlap_policy="allow")["schedule_id"]
    two = house.create(name="Two", schedule={"type": "cron", "cron": "30 * * * *"})["schedule_id"]
    house.tick(minutes=48)
    house.serve("failed")
    house.tick(minutes=30)
    house.serve()
    house.tick(minutes=30)
    slots = [(run["scheduled_for"][11:16], run["status"]) for run in _runs(house)]
    assert slots == [("10:00", "queued"), ("09:30", "completed"), ("09:00", "failed"), ("08:30", "failed")]
    for query, found in {
        "?status=failed": ["09:00", "08:30"],
        "?status=expired": [],
        f"?schedule_id={two}": ["09:30", "08:30"],
        f"?schedule_id={new_id('sched')}": [],
        "?from=2026-11-30T09:30:00Z": ["10:00", "09:30"],
        "?to=2026-11-30T09:30:00Z": ["09:00", "08:30"],
        "?from=2026-11-30T10:00:00%2B01:00&to=2026-11-30T09:00:00.001Z": ["09:00"],
        "?from=2027-01-01T00:00:00Z": [],
        f"?schedule_id={one}&status=queued": ["10:00"],
    }.items():
        assert [run["scheduled_for"][11:16] for run in _runs(house, query)] == found, query
    of_one = house.call("vera", "GET", f"{TASKS}/{one}/runs?status=failed").part("runs")
    assert [(run["scheduled_for"][11:16], run["error_code"]) for run in of_one] == [("09:00", "task_failed")]
    assert _runs(house, who="charlie") == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_wrong_filters_and_ids_are_refused(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    for path, code in {
        "/api/runs?status=done": "invalid_status",
        "/api/runs?status=": "invalid_status",
        "/api/runs?schedule_id=nope": "invalid_schedule_id",
        "/api/runs?schedule_id=": "invalid_schedule_id",
        "/api/runs?from=yesterday": "invalid_from",
        "/api/runs?from=2026-11-30": "invalid_from",
        "/api/runs?from=2026-11-30T09:00": "invalid_from",
        "/api/runs?to=0001-01-01T00:00:00%2B14:00": "invalid_to",
        "/api/runs?to=": "invalid_to",
        "/api/runs?cursor=W10": "invalid_cursor",
        "/api/runs?limit=1e3": "invalid_limit",
        f"{TASKS}/{schedule_id}/runs?status=done": "invalid_status",
        "/api/audit?actor=": "invalid_actor",
        "/api/audit?actor=" + "a" * 121: "invalid_actor",
        "/api/audit?subject=" + "s" * 201: "invalid_subject",
        "/api/audit?subject=a%0Ab": "invalid_subject",
        "/api/audit?from=1": "invalid_from",
        "/api/audit?to=1": "invalid_to",
        "/api/audit?cursor=0": "invalid_cursor",
        "/api/audit?cursor=-1": "invalid_cursor",
        "/api/audit?cursor=" + "9" * 19: "invalid_cursor",
        "/api/audit?cursor=%D9%A3": "invalid_cursor",
        "/api/audit?limit=x": "invalid_limit",
    }.items():
        assert house.call("alice", "GET", path).error == (400, code), path
    for wrong in ("x", "srun_", new_id("srun"), schedule_id):
        assert house.call("alice", "GET", f"/api/runs/{wrong}").error == (404, "run_not_found")
    missing = house.call("alice", "GET", f"{TASKS}/{new_id('sched')}/runs")
    assert missing.error == (404, "schedule_not_found")
    edges = "/api/runs?from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59.999Z"
    assert house.call("alice", "GET", edges).part("runs") == []


def test_a_foreign_run_is_not_there(house: House) -> None:
    house.create()
    house.tick(hours=1)
    (run,) = _runs(house)
    assert house.call("charlie", "GET", f"/api/runs/{run['run_id']}").error == (404, "run_not_found")
    home = house.cast.network.network_id
    foreign = house.call("charlie", "GET", f"/api/runs?network_id={home}")
    assert foreign.error == (404, "network_not_found")
    assert len(_runs(house, f"?network_id={home}")) == 1


def test_a_run_tells_when_its_schedule_has_changed_since(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    house.do("alice", schedule_id, "run-now").part("run", 202)
    house.serve()
    house.edit("alice", schedule_id, name="Renamed").part("schedule")
    assert _runs(house)[0]["schedule_changed_since"] is False
    house.edit("alice", schedule_id, task="New words.").part("schedule")
    (run,) = _runs(house)
    assert (run["schedule_changed_since"], run["text"], run["schedule_revision"]) == (
        True,
        "Read the papers.",
        1,
    )


def test_pages_of_runs_follow_each_other(house: House) -> None:
    house.create(misfire_policy="catch_up_all", overlap_policy="allow")
    house.tick(hours=9)
    seen: list[str] = []
    query = "?limit=4"
    while True:
        answer = house.call("alice", "GET", f"/api/runs{query}")
        seen += [run["scheduled_for"][11:13] for run in answer.part("runs")]
        if answer.json["next_cursor"] is None:
            break
        query = f"?limit=4&cursor={answer.json['next_cursor']}"
    assert seen == [f"{hour:02}" for hour in range(17, 8, -1)]


# ---------------------------------------------------------------- audit


def test_the_audit_is_gapless_and_narrowed_by_each_filter(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    house.clock.advance(minutes=1)
    house.do("bob", schedule_id, "pause").part("schedule")
    entries = house.call("vera", "GET", "/api/audit").part("entries")
    assert [row["seq"] for row in entries] == list(range(len(entries), 0, -1))
    assert entries[0] == {
        "seq": len(entries),
        "network_id": house.cast.network.network_id,
        "at": "2026-11-30T08:13:00.000Z",
        "actor": "Bob",
        "verb": "schedule.paused",
        "subject_kind": "schedule",
        "subject_id": schedule_id,
        "detail": entries[0]["detail"],
    }
    for query, verbs in {
        f"?subject={schedule_id}": ["schedule.paused", "schedule.create"],
        "?actor=Bob&from=2026-11-30T08:13:00Z": ["schedule.paused"],
        f"?subject={schedule_id}&to=2026-11-30T08:13:00Z": ["schedule.create"],
        "?actor=Nobody": [],
        f"?subject={house.node_ids['atlas']}": ["node.create"],
        f"?subject={house.node_ids['zephyr']}": [],
    }.items():
        found = house.call("vera", "GET", f"/api/audit{query}").part("entries")
        assert [row["verb"] for row in found] == verbs, query
    seen: list[int] = []
    query = "?limit=2"
    while True:
        answer = house.call("alice", "GET", f"/api/audit{query}")
        seen += [row["seq"] for row in answer.part("entries")]
        if answer.json["next_cursor"] is None:
            break
        query = f"?limit=2&cursor={answer.json['next_cursor']}"
    assert seen == [row["seq"] for row in entries]
    foreign = house.call("charlie", "GET", f"/api/audit?network_id={house.cast.network.network_id}")
    assert foreign.error == (404, "network_not_found")
