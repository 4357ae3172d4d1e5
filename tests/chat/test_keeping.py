"""What is kept of chats and what is forgotten; and what the doctor would say of chats that went wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from tests.chat.scene import Scene
from webapp import retention
from webapp.chat import operations
from webapp.chat.lifecycle import ApprovalStatus, TurnStatus
from webapp.chat.models import Approval, Chat, Message, Turn
from webapp.doctor import examine
from webapp.scheduling.models import Run
from webapp.store import reading
from webapp.store.transaction import Tx, operation


def prune(scene: Scene) -> dict[str, int]:
    """What went, without the zeros."""
    with scene.house.app.app_context():
        gone = retention.prune(now=scene.house.clock.now())
    return {kind: count for kind, count in gone.items() if count}


def found(scene: Scene) -> set[str]:
    """The codes that the doctor finds."""
    with scene.house.app.app_context():
        return {violation["code"] for violation in examine()}


@operation
def _join(tx: Tx, run_id: str, turn_id: str) -> None:
    run = tx.session.scalars(select(Run).where(Run.run_id == run_id)).one()
    run.turn_id = turn_id
    tx.session.execute(update(Turn).where(Turn.turn_id == turn_id).values(run_pk=run.id))


def test_a_pruned_run_leaves_its_turn_and_its_words(scene: Scene) -> None:
    schedule_id = scene.house.create()["schedule_id"]
    run = scene.house.do("alice", schedule_id, "run-now").part("run", 202)
    scene.house.serve()
    chat_id = scene.chat()
    turn_id = scene.post(chat_id)["turn_id"]
    scene.begin(turn_id)
    scene.end(turn_id)
    with scene.house.app.app_context():
        _join(run["run_id"], turn_id)
    assert scene.show(turn_id)["run_id"] == run["run_id"]
    assert found(scene) == set()
    scene.call("alice", "POST", f"/api/scheduled-tasks/{schedule_id}/cancel").part("schedule")
    scene.house.clock.advance(days=91)
    assert prune(scene)["runs"] == 1
    shown = scene.show(turn_id)
    assert (shown["run_id"], shown["status"]) == (None, "completed")
    assert [message["seq"] for message in scene.messages(chat_id)] == [1, 2]
    assert found(scene) == set()


def test_answered_approvals_go_with_the_retention_and_pending_ones_stay(scene: Scene) -> None:
    answered_turn, (answered,) = scene.waiting(scene.chat())
    scene.decide(answered, "deny").part("approval")
    scene.end(answered_turn)
    _, (pending,) = scene.waiting(scene.chat(), seconds=365 * 86_400)
    running, (just_answered,) = scene.waiting(scene.chat())
    scene.decide(just_answered, "approve").part("approval")
    scene.house.clock.advance(days=91)
    assert prune(scene)["approvals"] == 1
    assert {view["approval_id"] for view in scene.approvals()} == {pending, just_answered}
    scene.end(running)
    assert prune(scene)["approvals"] == 1
    assert "approvals" not in prune(scene)
    assert found(scene) == set()


def _with_turn(values: dict[str, Any]) -> Callable[[Session, str], None]:
    return lambda session, turn_id: session.execute(
        update(Turn).where(Turn.turn_id == turn_id).values(**values)
    )


def _without_its_first_message(session: Session, turn_id: str) -> None:
    turn = session.scalars(select(Turn).where(Turn.turn_id == turn_id)).one()
    session.execute(update(Message).where(Message.chat_pk == turn.chat_pk).values(seq=Message.seq + 1))


def _with_a_number_too_many(session: Session, _turn_id: str) -> None:
    session.execute(update(Chat).values(message_seq=Chat.message_seq + 1))


def _used(session: Session, _turn_id: str) -> None:
    session.execute(update(Approval).values(used_at=Approval.created_at))


def _answered(session: Session, _turn_id: str) -> None:
    session.execute(update(Approval).values(status=ApprovalStatus.DENIED))


def _of_a_run_that_says_otherwise(session: Session, turn_id: str) -> None:
    run = session.scalars(select(Run)).one()
    run.turn_id = turn_id
    session.execute(update(Turn).where(Turn.turn_id == turn_id).values(run_pk=run.id))


def _of_a_run_that_names_nothing(session: Session, _turn_id: str) -> None:
    session.scalars(select(Run)).one().turn_id = "turn_abcdefgh"


FAULTS: dict[str, tuple[Callable[[Session, str], None], str]] = {
    "a message missing": (_without_its_first_message, "message_gap"),
    "a number too many": (_with_a_number_too_many, "message_gap"),
    "used without consent": (_used, "used_without_consent"),
    "waits for nothing": (_answered, "turn_waits_for_nothing"),
    "asked by one that runs": (
        _with_turn({"status": TurnStatus.RUNNING}),
        "approval_without_waiting_turn",
    ),
    "asked by one that ended": (
        _with_turn({"status": TurnStatus.FAILED}),
        "approval_without_waiting_turn",
    ),
    "ended with tokens in hand": (
        _with_turn({"status": TurnStatus.FAILED, "reserved_tokens": 5}),
        "final_turn_holds_something",
    ),
    "ended with a lease": (
        _with_turn({"status": TurnStatus.ABORTED, "lease_owner": "w"}),
        "final_turn_holds_something",
    ),
    "another story than the run": (_of_a_run_that_says_otherwise, "run_and_turn_disagree"),
    "a run of no turn": (_of_a_run_that_names_nothing, "run_and_turn_disagree"),
}


@operation
def _break(tx: Tx, fault: Callable[[Session, str], None], turn_id: str) -> None:
    fault(tx.session, turn_id)


def test_the_doctor_finds_each_fault_of_a_chat(scene: Scene) -> None:
    schedule_id = scene.house.create()["schedule_id"]
    scene.house.do("alice", schedule_id, "run-now").part("run", 202)
    scene.house.serve()
    turn_id, _ = scene.waiting(scene.chat())
    assert found(scene) == set()
    kept = _rows(scene)
    for what, (fault, code) in FAULTS.items():
        with scene.house.app.app_context():
            _break(fault, turn_id)
        assert code in found(scene), what
        with scene.house.app.app_context():
            _restore(kept)
        assert found(scene) == set(), what


KEPT = (Chat, Turn, Message, Approval, Run)


def _rows(scene: Scene) -> dict[Any, list[dict[str, Any]]]:
    with scene.house.app.app_context(), reading() as session:
        return {
            model: [dict(row) for row in session.execute(select(*model.__table__.columns)).mappings()]
            for model in KEPT
        }


@operation
def _restore(tx: Tx, kept: dict[Any, list[dict[str, Any]]]) -> None:
    for model, rows in kept.items():
        for row in rows:
            tx.session.execute(update(model).where(model.id == row["id"]).values(**row))


def test_a_deadline_passes_though_the_worker_was_away(scene: Scene) -> None:
    turn_id, (approval_id,) = scene.waiting(scene.chat())
    scene.house.clock.advance(days=2)
    now = scene.house.clock.now()
    with scene.house.app.app_context():
        assert operations.expire_approvals(now=now) == 1
    assert scene.approval(approval_id).decided_at == now
    turn = scene.turn(turn_id)
    assert turn.deadline_at == now + timedelta(seconds=turn.time_limit_seconds)
    assert found(scene) == set()
