"""`/api/scheduled-tasks`: making, reading, changing, and what stands in the answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from tests.api.house import TASKS, House
from webapp.ids import new_id
from webapp.scheduling.models import Schedule
from webapp.store.transaction import Tx, operation

# Word by word from the contract: what a schedule shows, and nothing else.
FIELDS = [
    "schedule_id",
    "short_id",
    "network_id",
    "name",
    "target_kind",
    "target_node_id",
    "target_alias",
    "target_chat_id",
    "task",
    "priority",
    "schedule",
    "schedule_type",
    "sentence",
    "timezone",
    "misfire_policy",
    "misfire_grace_seconds",
    "catch_up_limit",
    "overlap_policy",
    "failure_threshold",
    "starts_at",
    "ends_at",
    "max_runs",
    "ttl_seconds",
    "max_run_seconds",
    "status",
    "status_reason",
    "resume_at",
    "next_change",
    "next_run_at",
    "last_run_at",
    "consecutive_failures",
    "revision",
    "sponsor",
    "mandate_id",
    "created_at",
    "updated_at",
]


def test_a_schedule_shows_the_fields_of_the_contract_and_no_others(house: House) -> None:
    view = house.create(schedule={"type": "daily", "time": "09:00"}, timezone="europe/berlin")
    assert sorted(view) == sorted(FIELDS)
    assert view.pop("schedule_id").startswith("sched_")
    assert len(view.pop("short_id")) == 6
    assert view.pop("mandate_id").startswith("mand_")
    assert view == {
        "network_id": house.cast.network.network_id,
        "name": "Morning papers",
        "target_kind": "node",
        "target_node_id": house.node_ids["atlas"],
        "target_alias": "atlas",
        "target_chat_id": None,
        "task": "Read the papers.",
        "priority": "normal",
        "schedule": {"type": "daily", "time": "09:00"},
        "schedule_type": "daily",
        "sentence": "Daily at 09:00, Europe/Berlin",
        "timezone": "Europe/Berlin",
        "misfire_policy": "catch_up_once",
        "misfire_grace_seconds": 60,
        "catch_up_limit": 100,
        "overlap_policy": "skip",
        "failure_threshold": 5,
        "starts_at": None,
        "ends_at": None,
        "max_runs": None,
        "ttl_seconds": None,
        "max_run_seconds": None,
        "status": "active",
        "status_reason": None,
        "resume_at": None,
        "next_change": None,
        "next_run_at": "2026-12-01T08:00:00.000Z",
        "last_run_at": None,
        "consecutive_failures": 0,
        "revision": 1,
        "sponsor": "Alice",
        "created_at": "2026-11-30T08:12:00.000Z",
        "updated_at": "2026-11-30T08:12:00.000Z",
    }


# As sent; as shown (None: the same); the first slot.
KINDS: list[tuple[dict[str, Any], dict[str, Any] | None, str]] = [
    (
        {"type": "once", "run_at": "2026-12-01T09:00"},
        {"type": "once", "run_at": "2026-12-01T09:00:00"},
        "2026-12-01T08:00:00.000Z",
    ),
    (
        {"type": "once", "run_at": "2026-12-01T09:00+05:30"},
        {"type": "once", "run_at": "2026-12-01T03:30:00.000Z"},
        "2026-12-01T03:30:00.000Z",
    ),
    (
        {"type": "interval", "every_seconds": 90},
        {"type": "interval", "every_seconds": 90, "anchor_at": "2026-11-30T08:12:00.000Z"},
        "2026-11-30T08:13:30.000Z",
    ),
    (
        {"type": "weekly", "time": "07:30", "weekdays": [5, 1, 5]},
        {"type": "weekly", "time": "07:30", "weekdays": [1, 5]},
        "2026-12-04T06:30:00.000Z",
    ),
    ({"type": "cron", "cron": "  */5 9-17 * * MON-FRI"}, None, "2026-11-30T08:15:00.000Z"),
]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_each_kind_of_timetable_comes_back_as_it_was_meant(house: House) -> None:
    for spec, shown, first in KINDS:
        view = house.create(schedule=spec, timezone="Europe/Berlin")
        assert view["schedule"] == (shown or spec)
        assert (view["next_run_at"], view["schedule_type"]) == (first, spec["type"])


def test_the_answer_carries_the_revision_as_etag_and_if_match_takes_it(house: House) -> None:
    made = house.call("alice", "POST", TASKS, house.body())
    schedule_id = made.part("schedule", 201)["schedule_id"]
    assert made.headers["ETag"] == '"1"'
    path = f"{TASKS}/{schedule_id}"
    changed = house.call("alice", "PATCH", path, {"name": "Evening papers"}, headers={"If-Match": '"1"'})
    assert changed.part("schedule")["name"] == "Evening papers"
    assert changed.headers["ETag"] == '"2"'
    assert house.call("alice", "GET", path).headers["ETag"] == '"2"'
    stale = house.call("alice", "PATCH", path, {"name": "x"}, headers={"If-Match": '"1"'})
    assert stale.error == (409, "revision_conflict")
    assert stale.json["current_revision"] == 2
    both = house.call("alice", "PATCH", path, {"name": "x", "revision": 2}, headers={"If-Match": '"1"'})
    assert both.error == (400, "invalid_revision")
    for what in ("pause", "resume", "cancel"):
        assert house.do("alice", schedule_id, what, {"revision": 1}).error == (409, "revision_conflict")
    assert house.call("alice", "DELETE", path, headers={"If-Match": '"1"'}).error == (
        409,
        "revision_conflict",
    )
    assert house.show(schedule_id)["status"] == "active"


def test_a_change_without_a_revision_is_a_conflict(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    answer = house.call("alice", "PATCH", f"{TASKS}/{schedule_id}", {"name": "Other"})
    assert answer.error == (409, "revision_conflict")
    assert answer.json["current_revision"] == 1
    assert house.show(schedule_id)["name"] == "Morning papers"


CHANGES: list[tuple[str, Any, Any]] = [
    ("name", "  Evening  ", "Evening"),
    ("task", "Other words\n", "Other words"),
    ("priority", "high", "high"),
    ("schedule", {"type": "daily", "time": "10:00"}, {"type": "daily", "time": "10:00"}),
    ("timezone", "Asia/Tokyo", "Asia/Tokyo"),
    ("starts_at", "2026-12-24T00:00:00+01:00", "2026-12-23T23:00:00.000Z"),
    ("ends_at", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00.000Z"),
    ("max_runs", 3, 3),
    ("misfire_policy", "catch_up_all", "catch_up_all"),
    ("misfire_grace_seconds", 0, 0),
    ("catch_up_limit", 7, 7),
    ("overlap_policy", "queue_one", "queue_one"),
    ("failure_threshold", None, None),
    ("ttl_seconds", 600, 600),
    ("max_run_seconds", 3600, 3600),
    ("status", "paused", "paused"),
]


def test_every_field_can_be_changed_alone_and_nothing_else_moves(house: House) -> None:
    house.add_node("hermes")
    changes = [*CHANGES, ("target_node_id", house.node_ids["hermes"], house.node_ids["hermes"])]
    follows = {
        "schedule": {"schedule_type", "sentence", "next_run_at"},
        "timezone": {"sentence"},
        "starts_at": {"next_run_at"},
        "target_node_id": {"target_alias"},
        "status": {"next_run_at"},
    }
    for name, value, shown in changes:
        before = house.create()
        house.clock.advance(seconds=1)
        after = house.edit("alice", before["schedule_id"], **{name: value}).part("schedule")
        moved = {key for key in FIELDS if after[key] != before[key]}
        assert after[name] == shown, name
        assert moved == {name, "revision", "updated_at", *follows.get(name, set())}, name
        assert after["revision"] == 2


def test_a_change_that_changes_nothing_bumps_nothing(house: House) -> None:
    before = house.create(schedule={"type": "cron", "cron": "0 9 * * 1-5"})
    house.clock.advance(minutes=1)
    same = {
        "name": "Morning papers ",
        "schedule": {"type": "cron", "cron": "0 9 * * 1-5"},
        "timezone": "utc",
        "priority": "normal",
        "status": "active",
    }
    assert house.edit("alice", before["schedule_id"], **same).part("schedule") == before


def test_warnings_say_what_would_keep_it_from_firing(house: House) -> None:
    node = house.node_ids["atlas"]
    stopped = {"lifecycle_state": "stopped"}
    house.call("alice", "PATCH", f"/api/nodes/{node}", stopped).part("node")
    made = house.call("alice", "POST", TASKS, house.body())
    assert [row["code"] for row in made.part("warnings", 201)] == ["target_not_active"]
    assert made.json["warnings"][0]["message"].endswith(".")
    schedule_id = made.json["schedule"]["schedule_id"]
    verdict = house.call("alice", "GET", f"{TASKS}/{schedule_id}/admission")
    assert verdict.part("would_fire") is False
    assert [(row["code"], row["permanent"]) for row in verdict.json["checks"] if not row["ok"]] == [
        ("target_not_active", False)
    ]
    house.call("alice", "PATCH", f"/api/nodes/{node}", {"lifecycle_state": "active"}).part("node")
    verdict = house.call("alice", "GET", f"{TASKS}/{schedule_id}/admission")
    assert verdict.part("would_fire") is True
    assert all(row["ok"] for row in verdict.json["checks"])
    assert house.edit("alice", schedule_id, name="Again").part("warnings") == []


def test_what_cannot_ever_fire_is_not_made(house: House) -> None:
    gone = {"type": "once", "run_at": "2026-11-30T08:12:00Z"}
    refused = {
        (400, "schedule_has_no_future_occurrence", "schedule"): house.body(schedule=gone),
        (404, "target_node_not_found", "target_node_id"): house.body(target_node_id=new_id("node")),
        (400, "invalid_ends_at", "ends_at"): house.body(
            starts_at="2026-12-02T00:00:00Z", ends_at="2026-12-01T00:00:00Z"
        ),
        (400, "unknown_field", "prompt"): house.body(prompt="x"),
        (400, "schedule_required", "schedule"): {**house.body(), "schedule": None},
    }
    for (status, code, field), body in refused.items():
        answer = house.call("alice", "POST", TASKS, body)
        assert (*answer.error, answer.json["field"]) == (status, code, field)
    foreign = house.call("alice", "POST", TASKS, house.body(target_node_id=house.node_ids["zephyr"]))
    assert foreign.error == (404, "target_node_not_found")
    assert house.call("alice", "GET", TASKS).part("schedules") == []


def test_the_list_is_narrowed_by_each_filter(house: House) -> None:
    hermes = house.add_node("hermes")
    house.clock.advance(seconds=1)
    one = house.create(name="Alpha 100%")["schedule_id"]
    house.clock.advance(seconds=1)
    two = house.create(name="Beta", target_node_id=hermes)["schedule_id"]
    house.clock.advance(seconds=1)
    house.do("alice", one, "pause")
    short_id = house.show(two)["short_id"]
    for query, found in {
        "": [one, two],
        "?status=paused": [one],
        "?status=active": [two],
        "?status=proposed": [],
        "?target_kind=node": [one, two],
        "?target_kind=chat": [],
        f"?target_node_id={hermes}": [two],
        "?target_node_id=node_nobody": [],
        "?q=alph": [one],
        "?q=100%25": [one],
        "?q=%25": [one],
        "?q=_": [],
        "?q=HERMES": [two],
        f"?q={short_id}": [two],
        "?q=": [one, two],
        "?status=active&q=alpha": [],
        f"?network_id={house.cast.network.network_id}": [one, two],
    }.items():
        rows = house.call("bob", "GET", f"{TASKS}{query}").part("schedules")
        assert [row["schedule_id"] for row in rows] == found, query
    assert house.call("charlie", "GET", TASKS).part("schedules") == []
    foreign = house.call("charlie", "GET", f"{TASKS}?network_id={house.cast.network.network_id}")
    assert foreign.error == (404, "network_not_found")


WRONG_FILTERS = [
    ("status=", "invalid_status"),
    ("status=Active", "invalid_status"),
    ("status=active,paused", "invalid_status"),
    ("target_kind=turtle", "invalid_target_kind"),
    ("target_node_id=x", "invalid_target_node_id"),
    ("target_node_id=", "invalid_target_node_id"),
    ("target_node_id=" + "n" * 201, "invalid_target_node_id"),
    ("q=" + "q" * 201, "invalid_q"),
    ("q=a%0Ab", "invalid_q"),
    ("limit=ten", "invalid_limit"),
    ("limit=1.5", "invalid_limit"),
    ("limit=", "invalid_limit"),
    ("cursor=", "invalid_cursor"),
    ("cursor=!!!", "invalid_cursor"),
    ("cursor=W10", "invalid_cursor"),
    ("cursor=" + "A" * 300, "invalid_cursor"),
    ("q=a%00b", "bad_request"),
]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_wrong_filter_is_refused_by_its_name(house: House) -> None:
    for query, code in WRONG_FILTERS:
        assert house.call("alice", "GET", f"{TASKS}?{query}").error == (400, code), query


def test_pages_follow_each_other_without_loss_or_repetition(house: House) -> None:
    made = []
    for number in range(7):
        if number % 3 == 0:
            house.clock.advance(seconds=1)
        made.append(house.create(name=f"Order {number}")["schedule_id"])
    seen: list[str] = []
    cursor = ""
    for _ in range(4):
        answer = house.call("vera", "GET", f"{TASKS}?limit=2{cursor}")
        seen += [row["schedule_id"] for row in answer.part("schedules")]
        if answer.json["next_cursor"] is None:
            break
        cursor = f"&cursor={answer.json['next_cursor']}"
    assert seen == made[::-1]
    for clamped, count in (("0", 1), ("-5", 1), ("1000", 7)):
        assert len(house.call("vera", "GET", f"{TASKS}?limit={clamped}").part("schedules")) == count


def test_an_unreadable_timetable_is_shown_with_its_reason_and_can_be_replaced(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    with house.app.app_context():
        _spoil(schedule_id, {"v": 99, "type": "lunar"})
    listed = house.call("alice", "GET", TASKS).part("schedules")[0]
    assert listed == house.show(schedule_id)
    assert listed["schedule"] is None
    assert listed["schedule_type"] is None
    assert listed["schedule_error"] == listed["status_reason"] == "unreadable_timetable"
    assert listed["sentence"] == "The stored timetable cannot be read. It was written by another version."
    verdict = house.call("alice", "GET", f"{TASKS}/{schedule_id}/admission")
    assert verdict.part("would_fire") is False
    assert verdict.json["checks"][-1]["code"] == "unreadable_timetable"
    assert house.edit("alice", schedule_id, timezone="Asia/Tokyo").error == (409, "unreadable_timetable")
    mended = house.edit("alice", schedule_id, schedule={"type": "daily", "time": "09:00"}).part("schedule")
    assert (mended["schedule_type"], "schedule_error" in mended) == ("daily", False)
    assert mended["next_run_at"] == "2026-11-30T09:00:00.000Z"


@operation
def _spoil(tx: Tx, schedule_id: str, timetable: dict[str, Any]) -> None:
    tx.session.execute(
        update(Schedule).where(Schedule.schedule_id == schedule_id).values(timetable=timetable)
    )


def test_a_pause_keeps_its_reason_and_ends_by_itself(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    wish = {"reason": " holidays ", "resume_at": "2026-12-01T00:00:00+01:00"}
    view = house.do("alice", schedule_id, "pause", wish).part("schedule")
    assert (view["status"], view["status_reason"], view["resume_at"], view["next_run_at"]) == (
        "paused",
        "holidays",
        "2026-11-30T23:00:00.000Z",
        None,
    )
    again = house.do("alice", schedule_id, "pause").part("schedule")
    assert again == view
    assert house.do("alice", schedule_id, "pause", {"resume_at": "2026-11-30T08:12:00Z"}).error == (
        400,
        "invalid_resume_at",
    )
    house.tick(hours=15)
    view = house.show(schedule_id)
    assert (view["status"], view["resume_at"], view["status_reason"]) == ("active", None, None)
    assert view["next_run_at"] == "2026-12-01T00:00:00.000Z"


def test_calls_without_a_body_take_none_or_an_empty_object(house: House) -> None:
    schedule_id = house.create(overlap_policy="allow")["schedule_id"]
    for what, status in (("run-now", 202), ("pause", 200), ("resume", 200), ("cancel", 200)):
        assert house.do("alice", schedule_id, what).status == status
        if what != "cancel":
            assert house.do("alice", schedule_id, what, {}).status == status
        assert house.do("alice", schedule_id, what, {"why": 1}).error in (
            (400, "unknown_field"),
            (409, "schedule_cancelled"),
        )
        assert house.do("alice", schedule_id, what, []).error == (400, "invalid_json")
        assert house.do("alice", schedule_id, what, data="{}").error == (415, "unsupported_media_type")
    other = house.create()["schedule_id"]
    assert house.call("alice", "DELETE", f"{TASKS}/{other}", {"why": 1}).error == (400, "unknown_field")
    assert house.call("alice", "DELETE", f"{TASKS}/{other}").part("schedule")["status"] == "cancelled"
    assert house.call("alice", "DELETE", f"{TASKS}/{other}").part("schedule")["status"] == "cancelled"


# ---------------------------------------------------------------- preview


def test_a_preview_tells_slots_words_and_clock_changes(house: House) -> None:
    wish = {
        "schedule": {"type": "daily", "time": "02:30"},
        "timezone": "europe/berlin",
        "after": "2027-03-27T00:00:00Z",
        "count": 3,
    }
    assert house.call("vera", "POST", f"{TASKS}/preview", wish).json == {
        "ok": True,
        "sentence": "Daily at 02:30, Europe/Berlin",
        "timezone": "Europe/Berlin",
        "occurrences": [
            {
                "at": "2027-03-27T01:30:00.000Z",
                "local": "2027-03-27T02:30:00.000+01:00",
                "note": None,
            },
            {
                "at": "2027-03-28T01:00:00.000Z",
                "local": "2027-03-28T03:00:00.000+02:00",
                "note": "02:30 does not exist, runs at 03:00",
            },
            {
                "at": "2027-03-29T00:30:00.000Z",
                "local": "2027-03-29T02:30:00.000+02:00",
                "note": None,
            },
        ],
        "clock_changes": [
            "28 Mar: 02:30 does not exist, runs at 03:00",
            "31 Oct: 02:30 happens twice, runs once, at the first",
        ],
    }


def test_a_preview_has_five_slots_from_now_in_utc_unless_told_otherwise(house: House) -> None:
    wish: dict[str, Any] = {"schedule": {"type": "cron", "cron": "*/10 * * * *"}}
    slots = house.call("alice", "POST", f"{TASKS}/preview", wish).part("occurrences")
    assert [slot["local"][11:16] for slot in slots] == ["08:20", "08:30", "08:40", "08:50", "09:00"]
    assert (
        len(house.call("alice", "POST", f"{TASKS}/preview", {**wish, "count": 100}).json["occurrences"])
        == 100
    )
    bounded = {**wish, "starts_at": "2026-11-30T12:00:00Z", "ends_at": "2026-11-30T12:10:00Z"}
    slots = house.call("alice", "POST", f"{TASKS}/preview", bounded).part("occurrences")
    assert [slot["at"][11:16] for slot in slots] == ["12:00", "12:10"]


def test_a_timetable_that_has_ended_previews_as_nothing(house: House) -> None:
    wish = {"schedule": {"type": "once", "run_at": "2020-02-29T12:00:00Z"}}
    answer = house.call("alice", "POST", f"{TASKS}/preview", wish)
    assert (answer.status, answer.json["occurrences"], answer.json["clock_changes"]) == (200, [], [])
    assert answer.json["sentence"] == "Once, Sat 29 Feb 2020 at 12:00, UTC"


WRONG_WISHES: list[tuple[dict[str, Any], str, str]] = [
    ({}, "schedule_required", "schedule"),
    ({"schedule": {"type": "daily", "time": "9:00"}}, "invalid_time", "time"),
    (
        {"schedule": {"type": "daily", "time": "09:00"}, "timezone": "CEST"},
        "invalid_timezone",
        "timezone",
    ),
    ({"schedule": {"type": "daily", "time": "09:00", "x": 1}}, "unknown_field", "x"),
    (
        {"schedule": {"type": "once", "run_at": "2027-03-28T02:30"}, "timezone": "Europe/Berlin"},
        "nonexistent_local_time",
        "run_at",
    ),
    (
        {"schedule": {"type": "once", "run_at": "2027-10-31T02:30"}, "timezone": "Europe/Berlin"},
        "ambiguous_local_time",
        "run_at",
    ),
    ({"schedule": {"type": "daily", "time": "09:00"}, "count": 101}, "invalid_count", "count"),
    ({"schedule": {"type": "daily", "time": "09:00"}, "count": 0}, "invalid_count", "count"),
    ({"schedule": {"type": "daily", "time": "09:00"}, "after": "2026-12-01"}, "invalid_after", "after"),
    ({"schedule": {"type": "daily", "time": "09:00"}, "name": "x"}, "unknown_field", "name"),
]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_preview_refuses_what_a_create_would_refuse(house: House) -> None:
    for wish, code, field in WRONG_WISHES:
        answer = house.call("alice", "POST", f"{TASKS}/preview", wish)
        assert (*answer.error, answer.json["field"]) == (400, code, field)


# ---------------------------------------------------------------- the network of a write


def test_somebody_of_two_networks_names_the_one_that_is_meant(house: House) -> None:
    other = house.cast.elsewhere.network_id
    member = {"name": "Alice", "role": "member"}
    house.call("charlie", "POST", f"/api/networks/{other}/members", member).part("member", 201)
    assert house.call("alice", "POST", TASKS, house.body()).error == (400, "network_id_required")
    for wrong in (None, 7, True, [], ""):
        refused = house.call("alice", "POST", TASKS, house.body(network_id=wrong))
        assert refused.error in ((400, "invalid_network_id"), (404, "network_not_found"))
    home = house.cast.network.network_id
    assert house.create(network_id=home)["network_id"] == home
    there = house.body(network_id=other, target_node_id=house.node_ids["zephyr"])
    assert house.call("alice", "POST", TASKS, there).part("schedule", 201)["network_id"] == other
    listed = house.call("alice", "GET", TASKS).part("schedules")
    assert {row["network_id"] for row in listed} == {home, other}
    assert house.call("alice", "GET", "/api/audit").error == (400, "network_id_required")
    entries = house.call("alice", "GET", f"/api/audit?network_id={other}").part("entries")
    assert {row["network_id"] for row in entries} == {other}


def test_a_zone_alone_moves_what_stands_on_a_clock_and_bounds_end_it(house: House) -> None:
    """A once keeps its wall time when it is moved to another zone; an instant stays."""
    local = house.create(schedule={"type": "once", "run_at": "2026-12-02T09:00"}, timezone="Europe/Berlin")
    moved = house.edit("alice", local["schedule_id"], timezone="Asia/Tokyo").part("schedule")
    assert (moved["schedule"], moved["next_run_at"]) == (local["schedule"], "2026-12-02T00:00:00.000Z")
    instant = house.create(schedule={"type": "once", "run_at": "2026-12-02T09:00Z"})
    moved = house.edit("alice", instant["schedule_id"], timezone="Asia/Tokyo").part("schedule")
    assert moved["next_run_at"] == instant["next_run_at"]
    soon = (house.clock.now() + timedelta(minutes=1)).isoformat()
    assert house.edit("alice", instant["schedule_id"], ends_at=soon).part("schedule")["status"] == "completed"
