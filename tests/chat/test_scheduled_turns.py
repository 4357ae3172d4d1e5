"""Turns of schedules in the hands of the chat's owner: what is answered, aborted and put away, and what follows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chat.scene import CHATS, Scene
from tests.chat.test_chat_races import all_at_once
from webapp.chat import hooks, steps
from webapp.chat.lifecycle import TurnStatus
from webapp.chat.models import Turn
from webapp.store.transaction import Tx

pytestmark = pytest.mark.usefixtures("doctor_clean")
CHAT_TASKS = "/api/chat-tasks"


def order(scene: Scene, chat_id: str, key: str = "order") -> dict[str, Any]:
    """A standing order of Alice's into this chat: every hour."""
    body = {
        "chat_id": chat_id,
        "prompt": "Read the papers.",
        "schedule": {"kind": "cron", "cron": "0 * * * *"},
    }
    task: dict[str, Any] = scene.call(
        "alice", "POST", CHAT_TASKS, {**body, "timezone": "UTC"}, headers={"Idempotency-Key": key}
    ).part("task", 201)
    return task


def run(scene: Scene, task: dict[str, Any], key: str) -> dict[str, Any]:
    """The order run by hand; its occurrence, which has a turn if the chat is idle."""
    path = f"{CHAT_TASKS}/{task['id']}/run"
    found: dict[str, Any] = scene.call("alice", "POST", path, headers={"Idempotency-Key": key}).part(
        "occurrence", 202
    )
    return found


def occurrence(scene: Scene, task: dict[str, Any], occurrence_id: str) -> dict[str, Any]:
    listed = scene.call("alice", "GET", f"{CHAT_TASKS}/{task['id']}/occurrences").part("occurrences")
    return next(found for found in listed if found["id"] == occurrence_id)


def begin(scene: Scene, turn_id: str) -> None:
    """A worker takes the turn up and tells its run."""
    now = scene.house.clock.now()

    def work(tx: Tx, turn: Turn) -> None:
        assert steps.begin(tx, turn, lease_owner="worker-1", now=now)
        hooks.turn_changed(tx, turn, now)

    scene.step(turn_id, work)


def test_a_schedule_speaks_in_its_own_name_and_its_owner_may_end_it(scene: Scene) -> None:
    chat_id = scene.chat()
    task = order(scene, chat_id)
    born = run(scene, task, "first")
    (message,) = scene.messages(chat_id)
    assert message["author"] == f"schedule {task['name']}, for Alice"
    assert message["meta"]["scheduled_task"]["occurrence_id"] == born["id"]
    turn = scene.show(message["turn_id"])
    assert (turn["run_id"], turn["status"]) == (born["id"], "queued")
    # What a person writes goes before it, although it came later.
    assert scene.post(chat_id)["place"] == 0
    assert scene.show(turn["turn_id"])["place"] == 1
    scene.call("alice", "POST", f"/api/turns/{turn['turn_id']}/abort").part("turn")
    ended = occurrence(scene, task, born["id"])
    assert (ended["state"], ended["error"]) == ("cancelled", "turn_aborted")


def test_an_aborted_turn_makes_room_for_what_waits(scene: Scene) -> None:
    chat_id = scene.chat()
    mine = scene.post(chat_id)["turn_id"]
    task = order(scene, chat_id)
    waiting = run(scene, task, "first")
    assert waiting["turn_id"] is None
    scene.call("alice", "POST", f"/api/turns/{mine}/abort").part("turn")
    scene.house.tick()
    delivered = occurrence(scene, task, waiting["id"])
    assert scene.show(delivered["turn_id"])["status"] == "queued"


def test_archiving_stops_the_schedule_and_what_it_has_not_begun(scene: Scene) -> None:
    chat_id = scene.chat()
    task = order(scene, chat_id)
    born = run(scene, task, "first")
    scene.call("alice", "POST", f"{CHATS}/{chat_id}/archive").part("chat")
    assert scene.call("alice", "GET", f"{CHAT_TASKS}/{task['id']}").part("task")["state"] == "needs_attention"
    assert occurrence(scene, task, born["id"])["state"] == "cancelled"
    assert scene.show(born["turn_id"])["status"] == "aborted"
    scene.call("alice", "POST", f"{CHATS}/{chat_id}/unarchive").part("chat")
    assert scene.call("alice", "GET", f"{CHAT_TASKS}/{task['id']}").part("task")["state"] == "needs_attention"


def test_everything_at_once_ends_in_one_story(scene: Scene) -> None:
    """Answers, an abort, a cancel, a message and the end of the chat meet over one waiting turn of a schedule."""
    for number in range(3):
        chat_id = scene.chat()
        task = order(scene, chat_id, f"order-{number}")
        born = run(scene, task, f"run-{number}")
        begin(scene, born["turn_id"])
        (approval_id,) = scene.ask(born["turn_id"], "call-1")
        answers = all_at_once(
            scene,
            [
                (f"/api/approvals/{approval_id}/approve", {}),
                (f"/api/approvals/{approval_id}/deny", {}),
                (f"/api/turns/{born['turn_id']}/abort", {}),
                (f"{CHATS}/{chat_id}/messages", {"text": "Enough.", "deny_waiting": True}),
                (f"{CHATS}/{chat_id}/archive", {}),
                (f"/api/scheduled-tasks/{_schedule_id(scene, born)}/cancel", {}),
            ],
        )
        assert all(status in (200, 202, 409) for status, _ in answers), answers
        assert answers[2][0] == answers[4][0] == answers[5][0] == 200
        ended = scene.turn(born["turn_id"])
        assert ended.status is TurnStatus.ABORTED
        assert scene.approval(approval_id).status.value in {"approved", "denied", "withdrawn"}


def _schedule_id(scene: Scene, born: dict[str, Any]) -> str:
    return str(scene.call("alice", "GET", f"/api/runs/{born['id']}").part("run")["schedule_id"])
