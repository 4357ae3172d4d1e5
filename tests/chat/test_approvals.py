"""What a turn may only do with its owner's consent: asked once, answered once, by nobody else, in time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chat.scene import Scene
from webapp.chat import hooks, operations, queries, steps
from webapp.chat.lifecycle import TurnStatus
from webapp.chat.models import Approval, Turn
from webapp.store import reading
from webapp.store.transaction import Tx

pytestmark = pytest.mark.usefixtures("doctor_clean")


def expire(scene: Scene) -> int:
    with scene.house.app.app_context():
        return operations.expire_approvals(now=scene.house.clock.now())


def test_a_waiting_turn_shows_what_it_waits_for(scene: Scene) -> None:
    chat_id = scene.chat()
    seen = scene.last_event()
    turn_id, (approval_id,) = scene.waiting(chat_id)
    assert scene.show(turn_id)["status"] == "waiting_for_action"
    assert scene.show(turn_id)["approvals"] == [approval_id]
    (approval,) = scene.approvals("pending")
    assert (approval["approval_id"], approval["turn_id"], approval["chat_id"]) == (
        approval_id,
        turn_id,
        chat_id,
    )
    assert approval["operation"] == "nodes.send_task"
    assert approval["arguments"] == {"node": "atlas", "task": "call-1"}
    assert (approval["deadline"], approval["decided_by"]) == ("2026-11-30T08:22:00.000Z", None)
    assert ("approval", {"approvals": [approval_id]}) in scene.events_since(seen)
    assert scene.approvals("approved") == []
    assert scene.call("alice", "GET", "/api/approvals?status=maybe").error == (400, "invalid_status")


@pytest.mark.parametrize(("what", "status"), [("approve", "approved"), ("deny", "denied")])
def test_an_answer_lets_the_turn_go_on_and_is_final(scene: Scene, what: str, status: str) -> None:
    turn_id, (approval_id,) = scene.waiting(scene.chat())
    answered = scene.decide(approval_id, what).part("approval")
    assert (answered["status"], answered["decided_by"]) == (status, "Alice")
    assert answered["decided_at"] == "2026-11-30T08:12:00.000Z"
    assert scene.show(turn_id)["status"] == "running"
    assert scene.show(turn_id)["approvals"] == []
    for again in ("approve", "deny"):
        late = scene.decide(approval_id, again)
        assert late.error == (409, "approval_already_decided")
        assert late.json["status_now"] == status
    assert scene.audited(approval_id) == [("Alice", f"approval.{what}")]


def test_the_audit_does_not_tell_the_arguments(scene: Scene) -> None:
    _, (approval_id,) = scene.waiting(scene.chat(), "secret-call")
    scene.decide(approval_id, "approve").part("approval")
    entries = scene.call("vera", "GET", f"/api/audit?subject={approval_id}").part("entries")
    assert [entry["detail"]["operation"] for entry in entries] == ["nodes.send_task"]
    assert "secret-call" not in str(entries)


def test_a_turn_goes_on_when_all_is_answered(scene: Scene) -> None:
    turn_id, (first, second, third) = scene.waiting(scene.chat(), "one", "two", "three")
    scene.decide(second, "approve").part("approval")
    scene.decide(first, "deny").part("approval")
    assert scene.show(turn_id)["status"] == "waiting_for_action"
    scene.decide(third, "approve").part("approval")
    assert scene.show(turn_id)["status"] == "running"


def test_approvals_are_the_owners_alone(scene: Scene) -> None:
    turn_id = scene.post(scene.chat("bob"), who="bob")["turn_id"]
    scene.begin(turn_id)
    (approval_id,) = scene.ask(turn_id, "call-1")
    for who, error in (
        ("alice", (403, "permission_denied")),
        ("vera", (404, "approval_not_found")),
        ("charlie", (404, "approval_not_found")),
    ):
        assert scene.approvals(who=who) == []
        for what in ("approve", "deny"):
            assert scene.decide(approval_id, what, who).error == error
            path = f"/api/approvals/{approval_id}/{what}"
            assert scene.call(who, "POST", path, {"moon": 1}).error == error
    assert scene.approval(approval_id).status.value == "pending"
    assert [found["approval_id"] for found in scene.approvals("pending", "bob")] == [approval_id]
    assert scene.decide("appr_00000000", "approve").error == (404, "approval_not_found")


def test_an_approval_of_a_turn_that_has_ended_is_withdrawn(scene: Scene) -> None:
    turn_id, (approval_id,) = scene.waiting(scene.chat())
    scene.end(turn_id, TurnStatus.ABORTED, "mandate_revoked")
    late = scene.decide(approval_id, "approve")
    assert late.error == (409, "approval_already_decided")
    assert late.json["status_now"] == "withdrawn"
    assert scene.show(turn_id)["status"] == "aborted"


def test_what_nobody_answers_in_time_counts_as_denied(scene: Scene) -> None:
    turn_id, (approval_id,) = scene.waiting(scene.chat(), seconds=60)
    scene.house.clock.advance(seconds=59)
    assert expire(scene) == 0
    scene.house.clock.advance(seconds=1)
    # Before the worker comes by, too.
    assert scene.decide(approval_id, "approve").error == (409, "approval_expired")
    assert (expire(scene), expire(scene)) == (1, 0)
    assert scene.approval(approval_id).status.value == "expired"
    assert scene.show(turn_id)["status"] == "running"
    for what in ("approve", "deny"):
        assert scene.decide(approval_id, what).error == (409, "approval_expired")
    assert scene.audited(approval_id) == [("scheduler", "approval.expire")]


def test_an_unanswered_approval_is_told_to_those_who_care(scene: Scene) -> None:
    told: list[str] = []

    def unanswered(_tx: Tx, approval: Approval, _now: Any) -> None:
        told.append(approval.approval_id)

    _, (approval_id,) = scene.waiting(scene.chat(), seconds=60)
    scene.house.clock.advance(seconds=60)
    kept = hooks.registered()
    hooks.register(approval_unanswered=unanswered)
    try:
        expire(scene)
    finally:
        hooks.register(**kept)
    assert told == [approval_id]


def test_how_often_in_a_row_nobody_answered(scene: Scene) -> None:
    now = scene.house.clock.now()

    def in_a_row() -> int:
        with scene.house.app.app_context(), reading() as session:
            return len(queries.unanswered_in_a_row(session, "sched_x", most=5))

    def ask(ending: str) -> None:
        turn_id, (approval_id,) = scene.waiting(scene.chat(), ending)

        def name_the_schedule(tx: Tx, turn: Turn) -> None:
            (approval,) = steps.pending_approvals(tx.session, turn.id)
            approval.schedule_id = "sched_x"
            if ending == "expire":
                approval.deadline_at = now

        scene.step(turn_id, name_the_schedule)
        if ending == "withdraw":
            scene.end(turn_id, TurnStatus.ABORTED)
        elif ending == "expire":
            assert expire(scene) == 1
        else:
            scene.decide(approval_id, ending).part("approval")

    counted = []
    for ending in ("expire", "approve", "expire", "withdraw", "expire", "deny"):
        ask(ending)
        counted.append(in_a_row())
    assert counted == [1, 0, 1, 1, 2, 0]


def test_an_approval_is_spent_once(scene: Scene) -> None:
    turn_id, (approved, denied) = scene.waiting(scene.chat(), "one", "two")
    scene.decide(approved, "approve").part("approval")
    scene.decide(denied, "deny").part("approval")
    now = scene.house.clock.now()
    ids = {scene.approval(approved).id: approved, scene.approval(denied).id: denied}

    def spend(tx: Tx, _turn: Turn) -> list[tuple[str, bool]]:
        found = [tx.session.get_one(Approval, pk) for pk in ids]
        return [(ids[approval.id], steps.use(tx, approval, now=now)) for approval in [*found, *found]]

    assert scene.step(turn_id, spend) == [
        (approved, True),
        (denied, False),
        (approved, False),
        (denied, False),
    ]
    assert {view["approval_id"]: view["used_at"] for view in scene.approvals()} == {
        approved: "2026-11-30T08:12:00.000Z",
        denied: None,
    }


# Deny and answer me


def test_a_message_can_deny_what_waits(scene: Scene) -> None:
    chat_id = scene.chat()
    turn_id, approvals = scene.waiting(chat_id, "one", "two")
    patient = scene.post(chat_id, "Later.")
    assert patient["place"] == 1
    assert scene.show(turn_id)["status"] == "waiting_for_action"
    urgent = scene.post(chat_id, "Stop asking.", deny_waiting=True)
    assert (urgent["status"], urgent["place"]) == ("queued", 2)
    assert scene.show(turn_id)["status"] == "running"
    assert {scene.approval(approval).status.value for approval in approvals} == {"denied"}
    assert all(scene.audited(approval) == [("Alice", "approval.deny")] for approval in approvals)


def test_where_nothing_waits_there_is_nothing_to_deny(scene: Scene) -> None:
    chat_id = scene.chat()
    turn_id = scene.post(chat_id, deny_waiting=True)["turn_id"]
    scene.begin(turn_id)
    scene.post(chat_id, deny_waiting=True)
    assert scene.show(turn_id)["status"] == "running"
    # What waits in another chat is left alone.
    _, (elsewhere,) = scene.waiting(scene.chat())
    scene.post(chat_id, deny_waiting=True)
    assert scene.approval(elsewhere).status.value == "pending"
