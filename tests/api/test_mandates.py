"""`/api/mandates` as its callers know it: what it shows, who may do what, the codes and their order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.house import TASKS, House

MANDATES = "/api/mandates"
FIELDS = {
    "mandate_id",
    "network_id",
    "subject",
    "workload",
    "schedule_id",
    "policy",
    "state",
    "state_reason",
    "revision",
    "expires_at",
    "confirmed_at",
    "uses",
    "created_at",
    "updated_at",
    "ended_at",
}


def made(house: House, who: str = "alice", **fields: Any) -> tuple[str, str]:
    """The ids of a new schedule and of its mandate."""
    schedule = house.create(who, **fields)
    return schedule["schedule_id"], schedule["mandate_id"]


def path_of(mandate_id: str, what: str = "") -> str:
    return f"{MANDATES}/{mandate_id}{'/' if what else ''}{what}"


def test_a_mandate_shows_what_it_permits_what_hangs_on_it_and_its_trail(house: House) -> None:
    schedule_id, mandate_id = made(house)
    house.tick(hours=1)
    answer = house.call("vera", "GET", path_of(mandate_id))
    mandate = answer.part("mandate")
    assert set(mandate) == FIELDS
    assert mandate["policy"] == {
        "version": 1,
        "apps": ["nodes"],
        "operations": ["nodes.send_task"],
        "actions": "preapproved",
        "targets": [f"node:{house.node_ids['atlas']}"],
    }
    assert (mandate["subject"], mandate["workload"]) == ("Alice", f"schedule:{schedule_id}")
    assert mandate["uses"] == {
        "runs": 1,
        "max_runs": None,
        "tokens": 0,
        "reserved_tokens": 0,
        "max_tokens": None,
    }
    assert answer.headers["ETag"] == '"1"'
    radius = answer.part("blast_radius")
    assert (radius["schedule_id"], radius["schedule_status"]) == (schedule_id, "active")
    assert radius["next_slots"][:2] == ["2026-11-30T10:00:00.000Z", "2026-11-30T11:00:00.000Z"]
    assert (radius["runs_withdrawn"], radius["runs_at_work"], radius["turns_at_work"]) == (1, 0, 0)
    assert [entry["verb"] for entry in answer.part("entries")] == ["mandate.use", "mandate.create"]


def test_the_list_is_narrowed_by_state_and_network(house: House) -> None:
    ids = [made(house)[1] for _ in range(3)]
    house.call("alice", "POST", path_of(ids[0], "revoke"), {"reason": "Enough."}).part("mandate")
    shown = house.call("vera", "GET", f"{MANDATES}?state=active").part("mandates")
    assert {row["mandate_id"] for row in shown} == set(ids[1:])
    first = house.call("alice", "GET", f"{MANDATES}?limit=2")
    rest = house.call("alice", "GET", f"{MANDATES}?limit=2&cursor={first.json['next_cursor']}")
    found = [row["mandate_id"] for row in first.json["mandates"] + rest.json["mandates"]]
    assert found == list(reversed(ids))
    assert house.call("charlie", "GET", MANDATES).part("mandates") == []
    assert house.call("alice", "GET", f"{MANDATES}?state=tired").error == (400, "invalid_state")


def test_a_change_goes_by_revision_or_if_match(house: House) -> None:
    schedule_id, mandate_id = made(house)
    end = "2027-01-01T00:00:00.000Z"
    path = path_of(mandate_id)
    assert house.call("alice", "PATCH", path, {"expires_at": end}).error == (
        409,
        "mandate_revision_conflict",
    )
    changed = house.call("alice", "PATCH", path, {"expires_at": end, "revision": 1})
    assert (changed.part("mandate")["expires_at"], changed.headers["ETag"]) == (end, '"2"')
    stale = house.call("alice", "PATCH", path, {"expires_at": None}, headers={"If-Match": '"1"'})
    assert (stale.error, stale.json["current_revision"]) == ((409, "mandate_revision_conflict"), 2)
    again = house.call("alice", "PATCH", path, {"expires_at": None}, headers={"If-Match": '"2"'})
    assert again.part("mandate")["expires_at"] is None
    past = {"expires_at": "2026-11-30T08:12:00Z", "revision": 3}
    assert house.call("alice", "PATCH", path, past).error == (400, "invalid_expires_at")
    wrong = house.call("alice", "PATCH", path, {"policy": {"version": 1}, "revision": 3})
    assert (wrong.error, wrong.json["field"]) == ((400, "invalid_policy"), "policy")
    assert house.show(schedule_id)["revision"] == 1


@pytest.mark.parametrize("what", ["", "confirm", "pause", "resume", "revoke"])
def test_403_comes_before_revision_and_policy_and_404_before_403(house: House, what: str) -> None:
    _, mandate_id = made(house)
    method = "POST" if what else "PATCH"
    body = {"revision": 99, "reason": 5} if what in ("pause", "revoke") else {"revision": 99}
    path = path_of(mandate_id, what)
    assert house.call("charlie", method, path, body).error == (404, "mandate_not_found")
    for who in ("bob", "vera"):
        assert house.call(who, method, path, body).error == (403, "permission_denied")
    assert house.call("alice", method, path, body).error == (409, "mandate_revision_conflict")
    assert house.call("atlas", method, path, body).error == (403, "user_token_required")


def test_stopping_is_repeatable_and_a_revocation_final(house: House) -> None:
    schedule_id, mandate_id = made(house, "bob")
    for _ in range(2):
        paused = house.call("alice", "POST", path_of(mandate_id, "pause"))
        assert (paused.part("mandate")["state"], paused.part("mandate")["revision"]) == ("paused", 2)
    assert house.show(schedule_id)["status_reason"] == "mandate_paused"
    assert house.call("alice", "POST", path_of(mandate_id, "resume")).error == (403, "permission_denied")
    assert house.call("bob", "POST", path_of(mandate_id, "resume")).part("mandate")["state"] == "active"
    assert house.call("alice", "POST", path_of(mandate_id, "revoke"), {}).error == (400, "reason_required")
    for revision in (3, 1):
        body = {"reason": "Enough.", "revision": revision}
        revoked = house.call("alice", "POST", path_of(mandate_id, "revoke"), body).part("mandate")
        assert (revoked["state"], revoked["revision"], revoked["state_reason"]) == ("revoked", 4, "Enough.")
    for what in ("confirm", "pause", "resume"):
        assert house.call("bob", "POST", path_of(mandate_id, what)).error == (409, "mandate_is_revoked")
    patch = house.call("bob", "PATCH", path_of(mandate_id), {"revision": 4, "expires_at": None})
    assert patch.error == (409, "mandate_is_revoked")
    # The sponsor's resume gives the schedule a new one.
    view = house.do("bob", schedule_id, "resume").part("schedule")
    assert (view["status"], view["mandate_id"] != mandate_id) == ("active", True)


def test_admission_says_why_the_mandate_does_not_carry_it(house: House) -> None:
    schedule_id, mandate_id = made(house)
    body = {"policy": {"version": 1, "apps": [], "operations": [], "actions": "deny"}, "revision": 1}
    house.call("alice", "PATCH", path_of(mandate_id), body).part("mandate")
    answer = house.call("alice", "GET", f"{TASKS}/{schedule_id}/admission")
    assert answer.part("would_fire") is False
    wrong = [check["code"] for check in answer.part("checks") if not check["ok"]]
    assert wrong == ["schedule_stopped", "mandate_denies"]
    assert house.do("alice", schedule_id, "run-now").error == (409, "mandate_denies")
    assert house.do("alice", schedule_id, "resume").error == (409, "mandate_denies")
