"""Turns: queued with their place, one at work at a time, people first; and what may follow what."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.chat.scene import CHATS, Scene
from webapp.chat import hooks, rules, steps
from webapp.chat.lifecycle import FINAL_TURN, TURN_MOVES, MessageRole, TurnStatus
from webapp.chat.models import Turn
from webapp.store.transaction import Tx

pytestmark = pytest.mark.usefixtures("doctor_clean")


def test_a_message_is_written_and_its_turn_queued(scene: Scene) -> None:
    chat_id = scene.chat()
    seen = scene.last_event()
    turn = scene.post(chat_id, "  What is new?\n")
    assert (turn["status"], turn["place"], turn["model"]) == ("queued", 0, "echo")
    assert (turn["chat_id"], turn["run_id"], turn["approvals"]) == (chat_id, None, [])
    assert turn["usage"] == {"requests": 0, "input_tokens": 0, "output_tokens": 0}
    (message,) = scene.messages(chat_id)
    assert (message["role"], message["author"], message["text"]) == ("user", "Alice", "What is new?")
    assert (message["seq"], message["turn_id"], message["meta"]) == (1, turn["turn_id"], {})
    told = scene.events_since(seen)
    assert ("chat", {"chats": [chat_id]}) in told
    assert ("turn", {"turns": [turn["turn_id"]], "chats": [chat_id]}) in told
    assert "What is new" not in str(told)


def test_places_count_what_goes_before(scene: Scene) -> None:
    chat_id = scene.chat()
    first, second, third = (scene.post(chat_id)["turn_id"] for _ in range(3))
    assert [scene.show(turn)["place"] for turn in (first, second, third)] == [0, 1, 2]
    scene.begin(first)
    assert [scene.show(turn)["place"] for turn in (first, second, third)] == [None, 1, 2]
    scene.end(first)
    assert [scene.show(turn)["place"] for turn in (first, second, third)] == [None, 0, 1]


def test_one_turn_is_at_work_at_a_time(scene: Scene) -> None:
    chat_id = scene.chat()
    first, second = (scene.post(chat_id)["turn_id"] for _ in range(2))
    assert scene.begin(first)
    assert not scene.begin(first)
    assert not scene.begin(second)
    scene.ask(first, "call-1")
    assert not scene.begin(second)
    assert scene.end(first, TurnStatus.FAILED, "model_failed")
    assert scene.begin(second)
    # Another chat knows nothing of it.
    assert scene.begin(scene.post(scene.chat())["turn_id"])


def test_a_turn_bears_its_time_limit_only_while_it_works(scene: Scene) -> None:
    turn_id = scene.post(scene.chat())["turn_id"]
    assert scene.turn(turn_id).deadline_at is None
    scene.begin(turn_id)
    turn = scene.turn(turn_id)
    limit = timedelta(seconds=turn.time_limit_seconds)
    assert (turn.lease_owner, turn.deadline_at) == ("worker-1", scene.house.clock.now() + limit)
    (approval_id,) = scene.ask(turn_id, "call-1")
    assert (scene.turn(turn_id).lease_owner, scene.turn(turn_id).deadline_at) == (None, None)
    scene.house.clock.advance(seconds=60)
    scene.decide(approval_id, "approve").part("approval")
    turn = scene.turn(turn_id)
    assert (turn.status.value, turn.lease_owner) == ("running", None)
    assert turn.deadline_at == scene.house.clock.now() + limit


@pytest.mark.parametrize("source", list(TurnStatus))
def test_a_turn_moves_as_the_table_says_and_not_otherwise(scene: Scene, source: TurnStatus) -> None:
    now = scene.house.clock.now()
    assert all(TurnStatus.QUEUED not in targets for targets in TURN_MOVES.values())
    for target in set(TurnStatus) - {TurnStatus.QUEUED}:
        turn_id = scene.post(scene.chat())["turn_id"]
        if source is not TurnStatus.QUEUED:
            scene.begin(turn_id)
        if source is TurnStatus.WAITING_FOR_ACTION:
            scene.ask(turn_id, "call-1")
        elif source in FINAL_TURN:
            assert scene.end(turn_id, source)

        def move(tx: Tx, turn: Turn, target: TurnStatus = target) -> bool:
            assert turn.status is source
            if target is TurnStatus.RUNNING:
                begun = steps.begin(tx, turn, lease_owner="w", now=now)
                return begun or steps.take_up_again(tx, turn, now=now)
            if target is TurnStatus.WAITING_FOR_ACTION:
                return steps.wait_for_action(tx, turn, now=now)
            return steps.end(tx, turn, target, now=now)

        may = target in TURN_MOVES[source]
        before = scene.turn(turn_id)
        assert scene.step(turn_id, move) is may
        after = scene.turn(turn_id)
        assert after.status is (target if may else source)
        assert may or (after.completed_at, after.lease_owner) == (before.completed_at, before.lease_owner)
        scene.end(turn_id, TurnStatus.FAILED)


def test_an_end_clears_what_only_the_work_needed(scene: Scene) -> None:
    turn_id, (approval_id,) = scene.waiting(scene.chat())

    def remember(_tx: Tx, turn: Turn) -> None:
        turn.history = '[{"told": "everything"}]'

    scene.step(turn_id, remember)
    assert scene.end(turn_id, TurnStatus.FAILED, "worker_lost")
    turn = scene.turn(turn_id)
    assert (turn.history, turn.lease_owner, turn.deadline_at) == (None, None, None)
    assert (turn.error_code, turn.completed_at) == ("worker_lost", scene.house.clock.now())
    assert scene.approval(approval_id).status.value == "withdrawn"
    assert not scene.end(turn_id, TurnStatus.FAILED, "turn_timed_out")
    assert scene.show(turn_id)["error_code"] == "worker_lost"


# Aborting


def test_a_queued_or_waiting_turn_is_aborted_at_once(scene: Scene) -> None:
    chat_id = scene.chat()
    waiting, (approval_id,) = scene.waiting(chat_id)
    queued = scene.post(chat_id)["turn_id"]
    for turn_id in (queued, waiting):
        for _ in range(2):
            ended = scene.call("alice", "POST", f"/api/turns/{turn_id}/abort").part("turn")
            assert (ended["status"], ended["error_code"]) == ("aborted", "turn_aborted")
        assert scene.audited(turn_id) == [("Alice", "turn.abort")]
    assert scene.approval(approval_id).status.value == "withdrawn"
    assert scene.begin(scene.post(chat_id)["turn_id"])


def test_a_running_turn_is_asked_to_stop_and_a_finished_one_cannot_be_aborted(scene: Scene) -> None:
    turn_id = scene.post(scene.chat())["turn_id"]
    scene.begin(turn_id)
    for _ in range(2):
        asked = scene.call("alice", "POST", f"/api/turns/{turn_id}/abort").part("turn")
        assert asked["status"] == "running"
    assert scene.turn(turn_id).stop_code == "turn_aborted"
    assert scene.audited(turn_id) == [("Alice", "turn.abort")]
    scene.end(turn_id)
    late = scene.call("alice", "POST", f"/api/turns/{turn_id}/abort")
    assert late.error == (409, "turn_already_final")
    assert late.json["status_now"] == "completed"


def test_a_running_turn_that_no_worker_holds_is_aborted_at_once(scene: Scene) -> None:
    turn_id, (approval_id,) = scene.waiting(scene.chat())
    scene.decide(approval_id, "approve").part("approval")
    assert scene.show(turn_id)["status"] == "running"
    assert scene.call("alice", "POST", f"/api/turns/{turn_id}/abort").part("turn")["status"] == "aborted"


def test_turns_are_the_owners_alone(scene: Scene) -> None:
    turn_id = scene.post(scene.chat("bob"), who="bob")["turn_id"]
    for who, error in (
        ("alice", (403, "permission_denied")),
        ("vera", (404, "turn_not_found")),
        ("charlie", (404, "turn_not_found")),
    ):
        assert scene.call(who, "GET", f"/api/turns/{turn_id}").error == error
        assert scene.call(who, "POST", f"/api/turns/{turn_id}/abort").error == error
        assert scene.call(who, "POST", f"/api/turns/{turn_id}/abort", {"moon": 1}).error == error
    assert scene.show(turn_id, "bob")["status"] == "queued"


def test_what_follows_a_turn_is_told_once_in_its_transaction(scene: Scene) -> None:
    told: list[Any] = []

    def before(_tx: Tx, run_pk: int | None) -> None:
        told.append(("before", run_pk))

    def changed(_tx: Tx, turn: Turn, _now: Any) -> None:
        told.append(("changed", turn.status.value))

    turn_id = scene.post(scene.chat())["turn_id"]
    kept = hooks.registered()
    hooks.register(before_turn_change=before, turn_changed=changed)
    try:
        scene.call("alice", "POST", f"/api/turns/{turn_id}/abort").part("turn")
        scene.call("alice", "POST", f"/api/turns/{turn_id}/abort").part("turn")
    finally:
        hooks.register(**kept)
    assert told == [("before", None), ("changed", "aborted"), ("before", None)]


# Messages


def test_the_same_key_writes_one_message(scene: Scene) -> None:
    chat_id = scene.chat()
    key = {"Idempotency-Key": "once"}
    path, body = f"{CHATS}/{chat_id}/messages", {"text": "Hello"}
    first = scene.call("alice", "POST", path, body, headers=key).part("turn", 202)
    assert scene.call("alice", "POST", path, {"text": " Hello "}, headers=key).part("turn", 202) == first
    other = scene.call("alice", "POST", path, {"text": "Goodbye"}, headers=key)
    assert other.error == (409, "idempotency_conflict")
    scene.call("alice", "POST", f"{CHATS}/{chat_id}/archive").part("chat")
    # A replay is answered before the state is looked at.
    again = scene.call("alice", "POST", path, body, headers=key).part("turn", 202)
    assert again["turn_id"] == first["turn_id"]
    assert len(scene.messages(chat_id)) == 1


def test_a_model_that_nobody_set_up_is_refused(scene: Scene) -> None:
    chat_id = scene.chat()
    refused = scene.call("alice", "POST", f"{CHATS}/{chat_id}/messages", {"text": "Hi", "model": "moon"})
    assert refused.error == (400, "invalid_model")
    assert refused.json["field"] == "model"
    assert scene.post(chat_id, model="echo")["model"] == "echo"


def test_messages_come_newest_first_page_by_page_without_a_gap(scene: Scene) -> None:
    chat_id = scene.chat()
    for number in range(5):
        scene.post(chat_id, f"Message {number}")
    pages, cursor = [], ""
    for _ in range(3):
        answer = scene.call("alice", "GET", f"{CHATS}/{chat_id}/messages?limit=2{cursor}")
        pages.append([message["seq"] for message in answer.part("messages")])
        cursor = f"&cursor={answer.json['next_cursor']}"
    assert pages == [[5, 4], [3, 2], [1]]
    assert answer.json["next_cursor"] is None
    for cursor in ("x", "-1", "5.0", "٣"):
        path = f"{CHATS}/{chat_id}/messages?cursor={cursor}"
        assert scene.call("alice", "GET", path).error == (400, "invalid_cursor")


def test_what_a_database_cannot_hold_is_shown_as_the_replacement_character(scene: Scene) -> None:
    chat_id = scene.chat()
    turn_id = scene.post(chat_id)["turn_id"]
    now = scene.house.clock.now()

    def answer(tx: Tx, turn: Turn) -> None:
        chat = steps.lock_chat(tx, turn.chat_pk)
        steps.add_message(
            tx, chat, MessageRole.ASSISTANT, author="echo", text="a\x00b\ud800c 🌙", turn_pk=turn.id, now=now
        )

    scene.step(turn_id, answer)
    assert scene.messages(chat_id)[-1]["text"] == "a\ufffdb\ufffdc 🌙"


def test_people_go_before_schedules(scene: Scene) -> None:
    """The order of the queue, asked of the pure rule with every mixture of four turns."""

    class Open:
        def __init__(self, key: int, status: TurnStatus, by_person: bool) -> None:
            self.id, self.status, self.by_person = key, status, by_person

    queued = TurnStatus.QUEUED
    for mask in range(16):
        turns = [Open(key, queued, bool(mask >> key & 1)) for key in range(4)]
        turns.append(Open(9, TurnStatus.WAITING_FOR_ACTION, False))
        order = rules.in_order(turns)
        assert order[0].id == 9
        assert all(
            (not before.by_person, before.id) < (not after.by_person, after.id)
            for before, after in pairwise(order[1:])
        )
        assert [rules.place_of(turn, turns) for turn in order] == [None, 1, 2, 3, 4]
