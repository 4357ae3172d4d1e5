"""`/api/scheduled-tasks/bulk` and its preview."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.house import TASKS, House


def test_many_are_paused_each_for_itself_and_the_preview_says_so_before(house: House) -> None:
    mine, done = house.create("bob")["schedule_id"], house.in_state("completed")
    house.tick(minutes=60)
    body = {"action": "pause", "schedule_ids": [mine, done, "sched_nothere234", mine], "reason": "Ice"}
    effects = house.call("vera", "POST", f"{TASKS}/bulk/preview", body).part("effects")
    assert {effect["error"] for effect in effects[:1]} == {"permission_denied"}
    effects = house.call("bob", "POST", f"{TASKS}/bulk/preview", body).part("effects")
    codes = [None, "schedule_completed", "schedule_not_found"]
    assert [effect["error"] for effect in effects] == codes
    assert (effects[0]["status"], effects[0]["status_after"]) == ("active", "paused")
    assert [work["status"] for work in effects[0]["withdrawn"]] == ["queued"]
    assert house.show(mine)["status"] == "active"
    answer = house.call("bob", "POST", f"{TASKS}/bulk", body)
    assert [result["error"] for result in answer.part("results")] == codes
    assert (answer.json["done"], answer.json["refused"]) == (1, 2)
    saved = house.show(mine)
    assert (saved["status"], saved["status_reason"]) == ("paused", "Ice")
    assert answer.json["results"][0]["revision"] == saved["revision"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"action": "delete"}, "invalid_action"),
        ({"schedule_ids": []}, "invalid_schedule_ids"),
        ({"schedule_ids": ["sched_abcdefgh"] * 201}, "invalid_schedule_ids"),
        ({"schedule_ids": "sched_abcdefgh"}, "invalid_schedule_ids"),
        ({"action": "cancel", "reason": "Ice"}, "invalid_reason"),
        ({"action": "resume", "resume_at": "2027-01-01T00:00:00Z"}, "invalid_resume_at"),
        ({"why": "x"}, "unknown_field"),
    ],
)
@pytest.mark.parametrize("path", ["bulk", "bulk/preview"])
def test_a_wrong_wish_does_nothing(house: House, path: str, fields: dict[str, Any], code: str) -> None:
    body = {"action": "pause", "schedule_ids": [house.create()["schedule_id"]], **fields}
    assert house.call("alice", "POST", f"{TASKS}/{path}", body).error == (400, code)
