"""Creating once although the request came twice, at once, or a day late."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.house import TASKS, House
from tests.support.races import at_once

KEY = {"Idempotency-Key": "nightly-2026-11-30"}


def _count(house: House) -> int:
    return len(house.call("alice", "GET", TASKS).part("schedules"))


def test_the_same_key_with_the_same_input_answers_what_was_made_first(house: House) -> None:
    first = house.call("alice", "POST", TASKS, house.body(), headers=KEY)
    house.clock.advance(minutes=5)
    again = house.call("alice", "POST", TASKS, house.body(), headers=KEY)
    assert (first.status, again.status) == (201, 201)
    assert again.json == first.json
    assert again.headers["ETag"] == first.headers["ETag"]
    assert _count(house) == 1


def test_equal_wishes_are_equal_in_any_spelling(house: House) -> None:
    spelt = {
        "schedule": {"type": "cron", "cron": "0 9 * * MON-FRI"},
        "timezone": "europe/berlin",
        "starts_at": "2026-12-01T00:00:00Z",
    }
    other = {
        "schedule": {"cron": "00  9 * * 1,2,3,4,5", "type": "cron"},
        "timezone": " Europe/Berlin ",
        "starts_at": "2026-12-01T01:00:00+01:00",
        "name": " Morning papers ",
        "priority": "normal",
        "max_runs": None,
    }
    one = house.call("alice", "POST", TASKS, house.body(**spelt), headers=KEY).part("schedule", 201)
    two = house.call("alice", "POST", TASKS, house.body(**other), headers=KEY).part("schedule", 201)
    assert one == two
    interval = {"schedule": {"type": "interval", "every_seconds": 600}}
    key = {"Idempotency-Key": "k2"}
    one = house.call("alice", "POST", TASKS, house.body(**interval), headers=key).part("schedule", 201)
    house.clock.advance(hours=1)
    two = house.call("alice", "POST", TASKS, house.body(**interval), headers=key).part("schedule", 201)
    assert one == two


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_other_input_under_the_same_key_is_a_conflict(house: House) -> None:
    house.add_node("hermes")
    house.call("alice", "POST", TASKS, house.body(), headers=KEY).part("schedule", 201)
    others: list[dict[str, Any]] = [
        {"name": "Other"},
        {"task": "Other."},
        {"target_node_id": house.node_ids["hermes"]},
        {"schedule": {"type": "cron", "cron": "1 * * * *"}},
        {"timezone": "Europe/Berlin"},
        {"priority": "low"},
        {"max_runs": 1},
        {"overlap_policy": "allow"},
        {"failure_threshold": None},
    ]
    for fields in others:
        answer = house.call("alice", "POST", TASKS, house.body(**fields), headers=KEY)
        assert answer.error == (409, "idempotency_conflict"), fields
    assert _count(house) == 1


def test_a_replay_after_the_once_has_passed_still_answers_it(house: House) -> None:
    once = house.body(schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"})
    made = house.call("alice", "POST", TASKS, once, headers=KEY).part("schedule", 201)
    house.tick(hours=1)
    house.serve()
    again = house.call("alice", "POST", TASKS, once, headers=KEY).part("schedule", 201)
    assert (again["schedule_id"], again["status"]) == (made["schedule_id"], "completed")
    assert house.call("alice", "POST", TASKS, once).error == (400, "schedule_has_no_future_occurrence")


def test_a_key_belongs_to_one_person_and_one_operation(house: House) -> None:
    mine = house.call("alice", "POST", TASKS, house.body(), headers=KEY).part("schedule", 201)
    theirs = house.call("bob", "POST", TASKS, house.body(), headers=KEY).part("schedule", 201)
    assert mine["schedule_id"] != theirs["schedule_id"]
    run = house.do("alice", mine["schedule_id"], "run-now", headers=KEY).part("run", 202)
    assert house.do("alice", mine["schedule_id"], "run-now", headers=KEY).part("run", 202) == run
    refused = house.do("alice", theirs["schedule_id"], "run-now", headers=KEY)
    assert refused.error == (409, "idempotency_conflict")


def test_a_replayed_run_by_hand_is_answered_in_any_state(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    run = house.do("alice", schedule_id, "run-now", headers=KEY).part("run", 202)
    house.serve()
    house.do("alice", schedule_id, "cancel").part("schedule")
    again = house.do("alice", schedule_id, "run-now", headers=KEY).part("run", 202)
    assert (again["run_id"], again["status"]) == (run["run_id"], "completed")
    assert house.do("alice", schedule_id, "run-now").error == (409, "schedule_cancelled")


def test_a_refusal_keeps_no_key(house: House) -> None:
    wrong = house.body(name="")
    assert house.call("alice", "POST", TASKS, wrong, headers=KEY).error == (400, "invalid_name")
    assert house.call("alice", "POST", TASKS, house.body(), headers=KEY).status == 201


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_key_is_visible_ascii_of_at_most_200_characters(house: House) -> None:
    for wrong in ("", " ", "a b", "k" * 201, "schlüssel", "a\tb"):
        headers = {"Idempotency-Key": wrong}
        answer = house.call("alice", "POST", TASKS, house.body(), headers=headers)
        assert answer.error == (400, "invalid_idempotency_key"), repr(wrong)
    schedule_id = house.create()["schedule_id"]
    answer = house.do("alice", schedule_id, "run-now", headers={"Idempotency-Key": "a b"})
    assert answer.error == (400, "invalid_idempotency_key")
    for right in ("!", "~" * 200):
        headers = {"Idempotency-Key": right}
        assert house.call("alice", "POST", TASKS, house.body(), headers=headers).status == 201


def test_eight_requests_at_once_with_one_key_make_one_schedule(house: House) -> None:
    answers = at_once(
        house.app, [lambda: house.call("alice", "POST", TASKS, house.body(), headers=KEY) for _ in range(8)]
    )
    made = {answer.part("schedule", 201)["schedule_id"] for answer in answers}  # type: ignore[union-attr]
    assert len(made) == 1
    assert _count(house) == 1


def test_eight_runs_at_once_with_one_key_are_one_run(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    answers = at_once(
        house.app, [lambda: house.do("alice", schedule_id, "run-now", headers=KEY) for _ in range(8)]
    )
    runs = {answer.part("run", 202)["run_id"] for answer in answers}  # type: ignore[union-attr]
    assert len(runs) == 1
    assert len(house.call("alice", "GET", f"{TASKS}/{schedule_id}/runs").part("runs")) == 1


def test_of_many_edits_at_once_one_wins_and_the_others_are_told(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    path = f"{TASKS}/{schedule_id}"
    answers = at_once(
        house.app,
        [
            lambda name=name: house.call("alice", "PATCH", path, {"name": name, "revision": 1})
            for name in "abcdef"
        ],
    )
    won = [answer for answer in answers if answer.status == 200]  # type: ignore[union-attr]
    lost = [answer.error for answer in answers if answer.status != 200]  # type: ignore[union-attr]
    assert len(won) == 1
    assert set(lost) == {(409, "revision_conflict")}
    view = house.show(schedule_id)
    assert (view["name"], view["revision"]) == (won[0].json["schedule"]["name"], 2)  # type: ignore[union-attr]
