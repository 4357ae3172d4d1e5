"""A node over HTTP: inbox, reports, presence."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.nodes.scene import Scene
from webapp.clock import FrozenClock
from webapp.ids import delivery_id
from webapp.nodes.lifecycle import MAX_RESULT_BYTES
from webapp.targets import node as node_target


def test_the_whole_life_of_a_task(scene: Scene, clock: FrozenClock) -> None:
    task_id = scene.send(priority="high", ttl_seconds=120, task="  Read the news\n")
    fetched_at = clock.advance(seconds=1)
    (item,) = scene.inbox()
    assert item == {
        "task_id": task_id,
        "delivery_id": delivery_id(task_id, 1),
        "type": "task",
        "priority": "high",
        "content": "Read the news",
        "from": "Alice",
        "requires_response": "reply",
        "created_at": "2026-11-30T08:12:00.000Z",
        "expires_at": "2026-11-30T08:14:00.000Z",
        "attempt": 1,
        "meta": {"auth_origin": "user"},
    }
    assert fetched_at
    for what, status in (("ack", "acked"), ("start", "running")):
        clock.advance(seconds=1)
        for _ in range(2):
            code, answer = scene.report(task_id, what, {"attempt": 1})
            assert (code, answer["task"]["status"]) == (200, status)
    clock.advance(seconds=1)
    for _ in range(2):
        code, answer = scene.report(task_id, "reply", {"status": "replied", "result": "Quiet", "attempt": 1})
        assert (code, answer["task"]["status"], answer["task"]["result"]) == (200, "replied", "Quiet")
    task = scene.task(task_id)
    assert [task[name][-7:-1] for name in ("delivered_at", "acked_at", "started_at", "completed_at")] == [
        "01.000",
        "02.000",
        "03.000",
        "04.000",
    ]
    assert [(event["kind"], event["actor"]) for event in task["events"]] == [
        ("created", "Alice"),
        ("delivered", "atlas"),
        ("acked", "atlas"),
        ("running", "atlas"),
        ("replied", "atlas"),
    ]
    assert scene.inbox() == []


def test_the_inbox_gives_again_what_was_not_acknowledged(scene: Scene) -> None:
    task_id = scene.send()
    assert [item["task_id"] for item in scene.inbox()] == [task_id]
    again = scene.inbox()
    assert [(item["task_id"], item["delivery_id"]) for item in again] == [(task_id, delivery_id(task_id, 1))]
    scene.report(task_id, "ack")
    assert scene.inbox() == []


def test_a_reply_is_legal_from_delivered_on_and_not_before(scene: Scene) -> None:
    task_id = scene.send()
    code, answer = scene.report(task_id, "reply", {"status": "replied"})
    assert (code, answer["error"]) == (409, "task_not_delivered")
    scene.inbox()
    code, answer = scene.report(task_id, "reply", {"status": "replied"})
    assert (code, answer["task"]["result"]) == (200, None)


@pytest.mark.parametrize(
    ("status", "error"), [("replied", None), ("failed", "task_failed"), ("cancelled", "task_cancelled")]
)
def test_the_three_ways_to_end(scene: Scene, status: str, error: str | None) -> None:
    task_id = scene.send()
    scene.inbox()
    code, answer = scene.report(task_id, "reply", {"status": status, "result": "so"})
    assert (code, answer["task"]["status"], answer["task"]["error_code"]) == (200, status, error)
    for other in {"replied", "failed", "cancelled"} - {status}:
        code, answer = scene.report(task_id, "reply", {"status": other, "result": "so"})
        assert (code, answer["error"]) == (409, "task_already_final")
    assert scene.report(task_id, "reply", {"status": status, "result": "so"})[0] == 200
    assert scene.report(task_id, "reply", {"status": status, "result": "else"})[0] == 409
    late = "task_withdrawn" if status == "cancelled" else "task_already_final"
    for what in ("ack", "start"):
        code, answer = scene.report(task_id, what)
        assert (code, answer["error"]) == (409, late)


def test_an_older_attempt_cannot_overwrite_its_replacement(scene: Scene) -> None:
    task_id = scene.send()
    scene.inbox()
    scene.report(task_id, "reply", {"status": "failed", "attempt": 1})
    assert scene.call("alice", "POST", f"/api/tasks/{task_id}/retry")[0] == 200
    (item,) = scene.inbox()
    assert (item["attempt"], item["delivery_id"]) == (2, delivery_id(task_id, 2))
    for what, body in (("ack", {}), ("start", {}), ("reply", {"status": "replied", "result": "old"})):
        code, answer = scene.report(task_id, what, {**body, "attempt": 1})
        assert (code, answer["error"], answer["current_attempt"]) == (409, "task_attempt_superseded", 2)
    code, answer = scene.report(task_id, "reply", {"status": "replied", "result": "new", "attempt": 2})
    assert (code, answer["task"]["result"]) == (200, "new")
    kinds = [event["kind"] for event in scene.task(task_id)["events"]]
    assert kinds.count("report_refused") == 3
    code, answer = scene.report(task_id, "ack", {"attempt": 9})
    assert (code, answer["error"]) == (400, "invalid_attempt")


def test_a_cancelled_task_is_out_of_the_inbox_and_refuses_the_node(scene: Scene) -> None:
    task_id = scene.send()
    scene.inbox()
    for _ in range(2):
        code, answer = scene.call("alice", "POST", f"/api/tasks/{task_id}/cancel")
        assert (code, answer["task"]["status"]) == (200, "cancelled")
    assert scene.inbox() == []
    code, answer = scene.report(task_id, "ack")
    assert (code, answer["error"]) == (409, "task_withdrawn")
    code, answer = scene.report(task_id, "reply", {"status": "replied", "result": "too late"})
    assert (code, answer["error"]) == (409, "task_already_final")
    assert scene.task(task_id)["result"] is None


def test_only_unacknowledged_tasks_expire_by_ttl(scene: Scene, clock: FrozenClock) -> None:
    waiting, acked = scene.send(ttl_seconds=60), scene.send(ttl_seconds=60)
    scene.inbox()
    scene.report(acked, "ack")
    clock.advance(seconds=60)
    code, answer = scene.report(waiting, "ack")
    assert (code, answer["error"]) == (409, "task_already_final")
    with scene.app.app_context():
        assert node_target.expire_overdue(now=clock.now()) == 1
    assert (scene.task(waiting)["status"], scene.task(waiting)["error_code"]) == ("expired", "task_expired")
    assert scene.task(acked)["status"] == "acked"
    code, answer = scene.report(waiting, "reply", {"status": "replied", "result": "late"})
    assert (code, answer["error"]) == (409, "task_already_final")
    assert [event["kind"] for event in scene.task(waiting)["events"]].count("report_refused") == 2
    clock.advance(days=1)
    with scene.app.app_context():
        assert node_target.expire_overdue(now=clock.now()) == 1
    assert (scene.task(acked)["status"], scene.task(acked)["error_code"]) == ("expired", "task_timed_out")


def test_a_result_is_kept_whole_up_to_64_kib_then_cut_and_marked(scene: Scene) -> None:
    whole, long = scene.send(), scene.send()
    scene.inbox()
    text = "é" * (MAX_RESULT_BYTES // 2)
    scene.report(whole, "reply", {"status": "replied", "result": text})
    assert (scene.task(whole)["result"], scene.task(whole)["result_truncated"]) == (text, False)
    for _ in range(2):
        assert scene.report(long, "reply", {"status": "replied", "result": text + "!"})[0] == 200
    assert (scene.task(long)["result"], scene.task(long)["result_truncated"]) == (text, True)


def test_a_stopping_node_runs_dry_and_a_stopped_one_is_given_nothing(scene: Scene) -> None:
    task_id = scene.send()
    path = f"/api/nodes/{scene.node_id('atlas')}"
    scene.call("alice", "PATCH", path, {"lifecycle_state": "stopped"})
    assert scene.inbox() == []
    code, answer = scene.call(
        "alice", "POST", "/api/tasks", {"node_id": scene.node_id("atlas"), "task": "more"}
    )
    assert (code, answer["error"]) == (409, "node_not_active")
    scene.call("alice", "PATCH", path, {"lifecycle_state": "stopping"})
    code, answer = scene.call(
        "alice", "POST", "/api/tasks", {"node_id": scene.node_id("atlas"), "task": "more"}
    )
    assert (code, answer["error"]) == (409, "node_not_active")
    assert [item["task_id"] for item in scene.inbox()] == [task_id]
    scene.call("alice", "PATCH", path, {"lifecycle_state": "stopped"})
    assert scene.report(task_id, "ack")[0] == 200
    assert scene.report(task_id, "reply", {"status": "replied"})[0] == 200


def test_a_heartbeat_is_presence_and_refines_the_task(scene: Scene, clock: FrozenClock) -> None:
    node = f"/api/nodes/{scene.node_id('atlas')}"

    def shown() -> tuple[Any, ...]:
        answer = scene.call("vera", "GET", node)[1]["node"]
        return answer["status"], answer["last_seen_at"], answer["working_on"], answer["held"]

    assert shown() == ("offline", None, None, 0)
    task_id = scene.send()
    scene.inbox()
    assert shown() == ("idle", "2026-11-30T08:12:00.000Z", None, 1)
    scene.report(task_id, "ack")
    code, answer = scene.call(
        "atlas", "POST", "/api/node/heartbeat", {"status": "working", "task_id": task_id}
    )
    assert (code, answer) == (200, {"ok": True, "cancel": []})
    assert shown() == ("working", "2026-11-30T08:12:00.000Z", task_id, 1)
    assert scene.task(task_id)["status"] == "running"
    clock.advance(seconds=599)
    assert shown()[0] == "working"
    clock.advance(seconds=1)
    assert shown() == ("offline", "2026-11-30T08:12:00.000Z", None, 1)
    scene.call("atlas", "POST", "/api/node/heartbeat", {"status": "waiting_input"})
    assert shown() == ("waiting_input", "2026-11-30T08:22:00.000Z", None, 1)


def test_a_heartbeat_tells_what_to_stop(scene: Scene) -> None:
    task_id = scene.send()
    scene.inbox()
    scene.report(task_id, "ack")
    scene.call("alice", "POST", f"/api/tasks/{task_id}/cancel")
    beat = {"status": "working", "task_id": task_id}
    assert scene.call("atlas", "POST", "/api/node/heartbeat", beat)[1]["cancel"] == [task_id]
    assert scene.call("atlas", "POST", "/api/node/heartbeat", {"status": "idle"})[1]["cancel"] == []


def test_a_node_reaches_only_its_own(scene: Scene) -> None:
    task_id = scene.send()
    assert scene.inbox("zephyr") == []
    for what, body in (
        ("ack", {}),
        ("start", {}),
        ("reply", {"status": "replied"}),
        ("reply", {"status": 7}),
    ):
        code, answer = scene.report(task_id, what, body, alias="zephyr")
        assert (code, answer["error"]) == (404, "task_not_found")
    beat = {"status": "working", "task_id": task_id}
    code, answer = scene.call("zephyr", "POST", "/api/node/heartbeat", beat)
    assert (code, answer["error"]) == (404, "task_not_found")
    for method, path in (
        ("GET", "/api/nodes"),
        ("GET", f"/api/nodes/{scene.node_id('zephyr')}"),
        ("GET", "/api/tasks"),
        ("POST", "/api/tasks"),
        ("GET", "/api/events"),
        ("GET", f"/api/tasks/{task_id}"),
    ):
        code, answer = scene.call("zephyr", method, path)
        assert (code, answer["error"]) == (403, "user_token_required"), path
    for path in ("/api/node/inbox", "/api/node/events"):
        assert scene.call("alice", "GET", path)[1]["error"] == "permission_denied"
        assert scene.call(None, "GET", path)[0] == 401


def test_a_long_poll_answers_when_work_comes(scene: Scene) -> None:
    answers: list[Any] = []
    began = time.monotonic()
    waiting = threading.Thread(target=lambda: answers.append(scene.inbox(query="?wait=30")))
    waiting.start()
    time.sleep(0.4)
    assert not answers
    task_id = scene.send()
    waiting.join(10)
    assert [[item["task_id"] for item in items] for items in answers] == [[task_id]]
    assert time.monotonic() - began < 8


def test_a_long_poll_hears_that_its_node_is_active_again(scene: Scene) -> None:
    task_id = scene.send()
    path = f"/api/nodes/{scene.node_id('atlas')}"
    scene.call("alice", "PATCH", path, {"lifecycle_state": "stopped"})
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(scene.inbox(query="?wait=30")))
    waiting.start()
    time.sleep(0.4)
    scene.call("alice", "PATCH", path, {"lifecycle_state": "active"})
    waiting.join(10)
    assert [[item["task_id"] for item in items] for items in answers] == [[task_id]]


def test_a_long_poll_ends_empty_when_its_time_is_up(scene: Scene) -> None:
    began = time.monotonic()
    assert scene.inbox(query="?wait=0.3") == []
    assert 0.25 < time.monotonic() - began < 5


def test_long_polls_end_at_once_when_the_process_leaves(scene: Scene) -> None:
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(scene.inbox(query="?wait=60")))
    waiting.start()
    time.sleep(0.4)
    scene.close()
    waiting.join(5)
    assert answers == [[]]
    began = time.monotonic()
    assert scene.inbox(query="?wait=60") == []
    assert time.monotonic() - began < 5


def test_waiting_holds_no_database_connection(scene: Scene) -> None:
    with scene.app.app_context():
        from webapp.store import engine

        pool: Any = engine().pool
    waiting = threading.Thread(target=lambda: scene.inbox(query="?wait=2"))
    waiting.start()
    time.sleep(0.8)
    in_use = pool.checkedout()
    waiting.join(10)
    # One at most: the ear of the feed itself.
    assert in_use <= 1


GOOD_REPLY = {"status": "replied", "result": "x", "attempt": 1}
WRONG: list[Any] = [None, True, 1.5, [], {}, "", "nonsense"]
BAD_IN_ALL_REPORTS = {
    "attempt": ("invalid_attempt", [None, True, 1.0, "1", 0, -1, [], {}, 2**31, 10**30]),
    "extra": ("unknown_field", [None, 1]),
    "task_id": ("unknown_field", ["task_abc234"]),
}
BAD_IN_REPLIES = {
    "status": ("invalid_status", [*WRONG, "expired", "acked", "REPLIED", 1]),
    "result": ("invalid_result", [None, True, 1, 1.5, [], {}]),
}
BAD_IN_HEARTBEATS = {
    "status": ("invalid_status", [*WRONG, "Idle", 1]),
    "task_id": ("invalid_task_id", [*WRONG, 1, "task_", "TASK_abc234"]),
    "extra": ("unknown_field", [1]),
}


def each(table: dict[str, tuple[str, list[Any]]]) -> list[tuple[str, Any, str]]:
    return [(field, value, code) for field, (code, values) in table.items() for value in values]


def test_bad_fields_of_reports_are_named_and_change_nothing(scene: Scene) -> None:
    task_id = scene.send()
    scene.inbox()
    for what in ("ack", "start", "reply"):
        good: dict[str, Any] = GOOD_REPLY if what == "reply" else {}
        for field, value, code in each(BAD_IN_ALL_REPORTS):
            status, answer = scene.report(task_id, what, {**good, field: value})
            assert (status, answer["error"], answer["field"]) == (400, code, field), (what, field, value)
    for field, value, code in each(BAD_IN_REPLIES):
        status, answer = scene.report(task_id, "reply", {**GOOD_REPLY, field: value})
        assert (status, answer["error"], answer["field"]) == (400, code, field), (field, value)
    status, answer = scene.report(task_id, "reply", {"result": "no status"})
    assert (status, answer["error"]) == (400, "invalid_status")
    assert scene.task(task_id)["status"] == "delivered"


def test_what_is_wrong_with_the_state_is_said_before_what_is_wrong_with_a_field(scene: Scene) -> None:
    task_id = scene.send()
    scene.inbox()
    scene.report(task_id, "reply", GOOD_REPLY)
    for what in ("ack", "start", "reply"):
        status, answer = scene.report(task_id, what, {**GOOD_REPLY, "attempt": "x"})
        assert (status, answer["error"]) == (409, "task_already_final")


def test_bad_fields_of_heartbeats_are_named(scene: Scene) -> None:
    for field, value, code in each(BAD_IN_HEARTBEATS):
        status, answer = scene.call("atlas", "POST", "/api/node/heartbeat", {"status": "idle", field: value})
        assert (status, answer["error"], answer["field"]) == (400, code, field), (field, value)
    status, answer = scene.call("atlas", "POST", "/api/node/heartbeat", {})
    assert (status, answer["error"]) == (400, "invalid_status")


def test_bodies_that_are_no_objects_are_refused(scene: Scene) -> None:
    for path in ("/api/node/heartbeat", "/api/node/tasks/task_abc234/reply"):
        for raw in (b"", b"[]", b"null", b"3", b"{", b'"x"', b"\xff", b'{"status":NaN}', b'{"a":1,"a":2}'):
            status, answer = scene.call("atlas", "POST", path, data=raw, content_type="application/json")
            if raw == b"" and path.endswith("reply"):
                assert (status, answer["error"]) == (404, "task_not_found")
            else:
                assert (status, answer["error"]) == (400, "invalid_json"), (path, raw)
        status, answer = scene.call("atlas", "POST", path, data=b"status=idle", content_type="text/plain")
        assert (status, answer["error"]) == (415, "unsupported_media_type")


def test_bad_queries_of_the_inbox_are_refused(scene: Scene) -> None:
    for name, values in {
        "wait": ["", "x", "-1", "61", "1e1", "nan", "٣", "60.5", "1."],
        "limit": ["", "x", "1.5", "--1", "9" * 30],
    }.items():
        for value in values:
            status, answer = scene.call("atlas", "GET", "/api/node/inbox", query_string={name: value})
            assert (status, answer["error"], answer["field"]) == (400, f"invalid_{name}", name), value


def test_ids_that_name_nothing_are_not_found(scene: Scene) -> None:
    for task_id in ("task_abc234", "x", "%00", "task_" + "x" * 300, "ünï", "%F0%9F%94%94"):
        for what in ("ack", "start", "reply"):
            status, answer = scene.report(task_id, what, {"status": "replied"} if what == "reply" else {})
            assert status == 404, (task_id, what)
            assert answer["error"] in ("task_not_found", "not_found")
