"""Many at once in one chat: no number twice, no answer twice, one end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests import factories
from tests.chat.scene import CHATS, Scene
from webapp.chat import operations

pytestmark = pytest.mark.usefixtures("doctor_clean")


def all_at_once(
    scene: Scene, calls: list[tuple[str, Any]], headers: dict[str, str] | None = None
) -> list[Any]:
    """Send these POSTs (path, body) as Alice at the same moment; (status, JSON) of each, in their order."""
    begin = threading.Barrier(len(calls))

    def send(call: tuple[str, Any]) -> tuple[int, Any]:
        path, body = call
        client = scene.house.app.test_client()
        sent = {**factories.bearer(scene.house.tokens["alice"]), **(headers or {})}
        begin.wait()
        answer = client.post(path, json=body, headers=sent)
        return answer.status_code, answer.get_json()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(send, calls))


def test_eight_threads_write_without_a_gap(scene: Scene) -> None:
    chat_id = scene.chat()
    path = f"{CHATS}/{chat_id}/messages"
    for turn in range(4):
        answers = all_at_once(scene, [(path, {"text": f"{turn}-{number}"}) for number in range(8)])
        assert [status for status, _ in answers] == [202] * 8
    assert scene.sequence(chat_id) == list(range(1, 33))
    written = {message["text"] for message in scene.messages(chat_id)}
    assert len(written) == 32
    places = sorted(scene.show(message["turn_id"])["place"] for message in scene.messages(chat_id))
    assert places == list(range(32))


def test_two_posts_with_one_key_are_one_message(scene: Scene) -> None:
    chat_id = scene.chat()
    path = f"{CHATS}/{chat_id}/messages"
    answers = all_at_once(scene, [(path, {"text": "Hello"})] * 4, {"Idempotency-Key": "once"})
    assert [status for status, _ in answers] == [202] * 4
    assert len({answer["turn"]["turn_id"] for _, answer in answers}) == 1
    assert scene.sequence(chat_id) == [1]


def test_of_many_answers_one_counts(scene: Scene) -> None:
    chat_id = scene.chat()
    for _ in range(3):
        turn_id, (approval_id,) = scene.waiting(chat_id)
        path = f"/api/approvals/{approval_id}"
        answers = all_at_once(scene, [(f"{path}/{what}", {}) for what in ("approve", "deny") * 3])
        assert sorted(status for status, _ in answers) == [200, *[409] * 5]
        said = {answer["error"] for status, answer in answers if status == 409}
        assert said == {"approval_already_decided"}
        assert len(scene.audited(approval_id)) == 1
        scene.end(turn_id)


def test_an_answer_and_an_abort_leave_an_aborted_turn(scene: Scene) -> None:
    chat_id = scene.chat()
    for _ in range(3):
        turn_id, (approval_id,) = scene.waiting(chat_id)
        (answer, _), (abort, _) = all_at_once(
            scene, [(f"/api/approvals/{approval_id}/approve", {}), (f"/api/turns/{turn_id}/abort", {})]
        )
        assert (abort, scene.show(turn_id)["status"]) == (200, "aborted")
        assert (answer, scene.approval(approval_id).status.value) in {(200, "approved"), (409, "withdrawn")}


def test_one_of_many_workers_begins(scene: Scene) -> None:
    chat_id = scene.chat()
    turns = [scene.post(chat_id)["turn_id"] for _ in range(4)]
    begin = threading.Barrier(8)

    def take(number: int) -> bool:
        begin.wait()
        return scene.begin(turns[number % 4], f"worker-{number}")

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(8))) == 1


def test_deadlines_are_closed_once_by_many_workers(scene: Scene) -> None:
    _, approvals = scene.waiting(scene.chat(), "one", "two", "three", seconds=60)
    scene.house.clock.advance(seconds=60)
    now = scene.house.clock.now()
    begin = threading.Barrier(4)

    def close(_number: int) -> int:
        with scene.house.app.app_context():
            begin.wait()
            return operations.expire_approvals(now=now)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(close, range(4))) == 3
    assert all(scene.audited(approval) == [("scheduler", "approval.expire")] for approval in approvals)


def test_writing_and_archiving_at_once_leave_nothing_open(scene: Scene) -> None:
    for _ in range(3):
        chat_id = scene.chat()
        write, archive = (f"{CHATS}/{chat_id}/messages", {"text": "Hi"}), (f"{CHATS}/{chat_id}/archive", {})
        answers = all_at_once(scene, [write, archive, write, archive])
        assert [answers[1][0], answers[3][0]] == [200, 200]
        for status, answer in (answers[0], answers[2]):
            if status == 202:
                assert scene.show(answer["turn"]["turn_id"])["status"] == "aborted"
            else:
                assert (status, answer["error"]) == (409, "chat_archived")
