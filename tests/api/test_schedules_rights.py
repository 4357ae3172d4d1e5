"""Who may do what to a schedule: the owner, a member, a viewer, a stranger, a node, nobody."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.house import NOTHING, TASKS, House

OK, DENIED, UNKNOWN = "ok", "permission_denied", "schedule_not_found"

# call -> (method, path, body), and who gets which answer: alice, bob, vera, charlie.
# The schedule is Alice's; what Bob may is what any member may.
READS = (OK, OK, OK, UNKNOWN)
ADMINS = (OK, DENIED, DENIED, UNKNOWN)
RIGHTS: dict[tuple[str, str, Any], tuple[str, str, str, str]] = {
    ("GET", "", NOTHING): READS,
    ("GET", "/runs", NOTHING): READS,
    ("GET", "/admission", NOTHING): READS,
    ("PATCH", "", '{"name": "x", "revision": 1}'): ADMINS,
    ("PATCH", "", '{"status": "paused", "revision": 1}'): (OK, OK, DENIED, UNKNOWN),
    ("PATCH", "", '{"status": "active", "revision": 1}'): ADMINS,
    ("PATCH", "", '{"status": "paused", "name": "x", "revision": 1}'): ADMINS,
    ("POST", "/pause", NOTHING): (OK, OK, DENIED, UNKNOWN),
    ("POST", "/pause", '{"resume_at": "2026-12-01T00:00:00Z"}'): (OK, OK, DENIED, UNKNOWN),
    ("POST", "/resume", NOTHING): ADMINS,
    ("POST", "/run-now", NOTHING): ADMINS,
    ("POST", "/cancel", NOTHING): ADMINS,
    ("DELETE", "", NOTHING): ADMINS,
}


def _ask(house: House, who: str | None, method: str, path: str, body: Any) -> Any:
    sent = {} if body is NOTHING else {"data": body, "content_type": "application/json"}
    return house.call(who, method, path, **sent)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_table_of_rights(house: House) -> None:
    for (method, path, body), answers in RIGHTS.items():
        for who, expected in zip(("alice", "bob", "vera", "charlie"), answers, strict=True):
            schedule_id = house.create()["schedule_id"]
            answer = _ask(house, who, method, f"{TASKS}/{schedule_id}{path}", body)
            got = OK if answer.status < 400 else answer.json["error"]
            assert got == expected, (who, method, path, body)
            if got != OK:
                assert house.show(schedule_id)["revision"] == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_node_gets_403_everywhere_and_nobody_401(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    calls = [(method, f"{TASKS}/{schedule_id}{path}", body) for method, path, body in RIGHTS]
    calls += [
        ("GET", TASKS, NOTHING),
        ("POST", TASKS, '{"name": 1}'),
        ("POST", TASKS, "{"),
        ("POST", f"{TASKS}/preview", "{}"),
        ("GET", "/api/runs", NOTHING),
        ("GET", "/api/runs/srun_nothing", NOTHING),
        ("GET", "/api/audit", NOTHING),
        ("GET", "/api/openapi.json", NOTHING),
        ("GET", f"{TASKS}/{schedule_id}/nothing/here", NOTHING),
    ]
    for method, path, body in calls:
        assert _ask(house, "atlas", method, path, body).error == (403, "user_token_required"), path
        assert _ask(house, None, method, path, body).error == (401, "unauthenticated"), path
    assert house.show(schedule_id)["revision"] == 1


def test_a_member_lifts_the_pause_that_is_their_own_and_no_other(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    house.do("bob", schedule_id, "pause").part("schedule")
    assert house.do("bob", schedule_id, "resume").part("schedule")["status"] == "active"
    revision = house.show(schedule_id)["revision"]
    by_patch = {"status": "paused", "revision": revision}
    house.call("bob", "PATCH", f"{TASKS}/{schedule_id}", by_patch).part("schedule")
    back = {"status": "active", "revision": revision + 1}
    house.call("bob", "PATCH", f"{TASKS}/{schedule_id}", back).part("schedule")
    house.do("alice", schedule_id, "pause").part("schedule")
    assert house.do("bob", schedule_id, "resume").error == (403, "permission_denied")
    wish = {"resume_at": "2026-12-01T00:00:00Z"}
    assert house.do("bob", schedule_id, "pause", wish).error == (403, "permission_denied")
    assert house.do("bob", schedule_id, "pause", {"reason": "also mine"}).status == 200
    # What may not be done is said before the revision is looked at.
    assert house.call("bob", "PATCH", f"{TASKS}/{schedule_id}", {"status": "active"}).error == (
        403,
        "permission_denied",
    )


def test_an_admin_who_changes_somebodys_words_stands_for_them(house: House) -> None:
    made = house.create("bob")
    schedule_id = made["schedule_id"]
    assert made["sponsor"] == "Bob"
    assert house.edit("alice", schedule_id, name="Renamed").part("schedule")["sponsor"] == "Bob"
    assert house.edit("alice", schedule_id, timezone="Asia/Tokyo").part("schedule")["sponsor"] == "Bob"
    assert house.edit("alice", schedule_id, task="My words.").part("schedule")["sponsor"] == "Alice"
    assert house.edit("bob", schedule_id, name="Mine again").error == (403, "permission_denied")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_creating_needs_a_place_and_more_than_looking(house: House) -> None:
    assert house.call("vera", "POST", TASKS, {}).error == (403, "permission_denied")
    foreign = house.body(network_id=house.cast.network.network_id)
    assert house.call("charlie", "POST", TASKS, foreign).error == (404, "network_not_found")
    assert house.create("bob")["sponsor"] == "Bob"
    malformed = [
        "x",
        "SCHED_ABCDEF",
        "sched_",
        "sched_" + "a" * 60,
        "%F0%9F%8C%99",
        "..%2f",
        "sched_abcdef'--",
    ]
    for wrong in malformed:
        answer = house.call("alice", "GET", f"{TASKS}/{wrong}")
        assert answer.error in ((404, "schedule_not_found"), (404, "not_found")), wrong
        assert house.call("alice", "PATCH", f"{TASKS}/{wrong}", {}).status == 404
