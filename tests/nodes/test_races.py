"""Many at once: one end wins, nothing is handed out twice as new, history stays gapless."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests import factories
from tests.nodes.scene import Scene
from webapp.web.live import event_feed


def all_at_once(scene: Scene, calls: list[tuple[str, str, Any]]) -> list[int]:
    """Send these calls (who, path, body) at the same moment; the statuses, in their order."""
    begin = threading.Barrier(len(calls))

    def send(call: tuple[str, str, Any]) -> int:
        who, path, body = call
        token = scene.nodes[who][1] if who in scene.nodes else scene.tokens[who]
        client = scene.app.test_client()
        begin.wait()
        return client.post(path, json=body, headers=factories.bearer(token)).status_code

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(send, calls))


def kinds(scene: Scene, task_id: str) -> Counter[str]:
    events = scene.task(task_id)["events"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    return Counter(event["kind"] for event in events)


def test_of_a_reply_and_a_cancel_one_is_the_end(scene: Scene) -> None:
    for _ in range(3):
        task_id = scene.send()
        scene.inbox()
        scene.report(task_id, "ack")
        reply = ("atlas", f"/api/node/tasks/{task_id}/reply", {"status": "replied", "result": "x"})
        cancel = ("alice", f"/api/tasks/{task_id}/cancel", {})
        statuses = all_at_once(scene, [reply, cancel, reply, cancel])
        task = scene.task(task_id)
        if task["status"] == "replied":
            assert statuses == [200, 409, 200, 409]
        else:
            assert (task["status"], statuses) == ("cancelled", [409, 200, 409, 200])
        seen = kinds(scene, task_id)
        assert seen["replied"] + seen["cancelled"] == 1


def test_different_answers_at_once_leave_one(scene: Scene) -> None:
    task_id = scene.send()
    scene.inbox()
    path = f"/api/node/tasks/{task_id}/reply"
    statuses = all_at_once(
        scene, [("atlas", path, {"status": "replied", "result": str(number)}) for number in range(5)]
    )
    assert sorted(statuses) == [200, 409, 409, 409, 409]
    assert scene.task(task_id)["result"] == str(statuses.index(200))


def test_acknowledging_at_once_is_one_step(scene: Scene) -> None:
    task_id = scene.send()
    path = f"/api/node/tasks/{task_id}"
    statuses = all_at_once(
        scene, [("atlas", f"{path}/{what}", {}) for what in ("ack", "start", "ack", "start")]
    )
    assert statuses == [200] * 4
    assert kinds(scene, task_id) == {"created": 1, "acked": 1, "running": 1}


def test_retrying_at_once_is_one_attempt(scene: Scene) -> None:
    task_id = scene.send()
    scene.inbox()
    scene.report(task_id, "reply", {"status": "failed"})
    statuses = all_at_once(scene, [("alice", f"/api/tasks/{task_id}/retry", {})] * 4)
    assert sorted(statuses) == [200, 409, 409, 409]
    assert scene.task(task_id)["attempt"] == 2


def test_fetching_at_once_delivers_each_task_once(scene: Scene) -> None:
    tasks = [scene.send() for _ in range(5)]
    headers = factories.bearer(scene.nodes["atlas"][1])

    def fetch(_turn: int) -> list[str]:
        answer = scene.app.test_client().get("/api/node/inbox", headers=headers)
        return [item["task_id"] for item in answer.get_json()["items"]]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fetch, range(4))) == [tasks] * 4
    assert all(kinds(scene, task_id)["delivered"] == 1 for task_id in tasks)


def test_deleting_a_node_while_tasks_are_sent_leaves_none_open(scene: Scene) -> None:
    path = f"/api/nodes/{scene.node_id('atlas')}"
    body = {"node_id": scene.node_id("atlas"), "task": "x"}
    delete: Callable[[], Any] = lambda: scene.app.test_client().delete(  # noqa: E731
        path, headers=factories.bearer(scene.tokens["alice"])
    )
    with ThreadPoolExecutor(1) as pool:
        gone = pool.submit(delete)
        statuses = all_at_once(scene, [("alice", "/api/tasks", body)] * 4)
        assert gone.result().status_code == 200
    assert set(statuses) <= {201, 404, 409}
    tasks = scene.call("alice", "GET", "/api/tasks")[1]["tasks"]
    assert [task["status"] for task in tasks] == ["cancelled"] * statuses.count(201)


def test_too_many_long_polls_are_answered_at_once(scene: Scene) -> None:
    with scene.app.app_context():
        feed = event_feed()
    while feed.waiters.take():
        pass
    began = time.monotonic()
    assert scene.inbox(query="?wait=30") == []
    assert time.monotonic() - began < 10
    task_id = scene.send()
    assert [item["task_id"] for item in scene.inbox(query="?wait=30")] == [task_id]
