"""Chats as their people know them over the API, and turns moved by a worker's hands, one step each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from sqlalchemy import func, select

from tests.api.house import NOTHING, House, Reply
from webapp.audit import AuditEntry
from webapp.chat import steps
from webapp.chat.lifecycle import MessageRole, TurnStatus
from webapp.chat.models import Approval, Chat, Message, Turn
from webapp.events.models import Event
from webapp.ids import new_id
from webapp.store import reading
from webapp.store.transaction import Tx, operation

R = TypeVar("R")
CHATS = "/api/chats"
TASKS = "/api/chat-tasks"
WORKER = "worker-1"


@dataclass
class Scene:
    """The house with its people; every chat that is made here belongs to Alice unless said otherwise."""

    house: House

    # What people do

    def call(self, who: str | None, method: str, path: str, body: Any = NOTHING, **options: Any) -> Reply:
        return self.house.call(who, method, path, body, **options)

    def chat(self, who: str = "alice", title: str = "Morning papers") -> str:
        """A new chat; its id."""
        view = self.call(who, "POST", CHATS, {"title": title}).part("chat", 201)
        return str(view["chat_id"])

    def post(
        self, chat_id: str, text: str = "What is new?", who: str = "alice", **more: Any
    ) -> dict[str, Any]:
        """A message; the view of its turn."""
        turn: dict[str, Any] = self.call(
            who, "POST", f"{CHATS}/{chat_id}/messages", {"text": text, **more}
        ).part("turn", 202)
        return turn

    def task(self, chat_id: str, who: str = "alice", **fields: Any) -> dict[str, Any]:
        """A schedule of prompts into a chat, daily where nothing else is said; its view as a chat task."""
        body = {
            "chat_id": chat_id,
            "prompt": "What is new?",
            "schedule": {"kind": "daily", "time": "09:00"},
            **fields,
        }
        key = {"Idempotency-Key": new_id("key")}
        task: dict[str, Any] = self.call(who, "POST", TASKS, body, headers=key).part("task", 201)
        return task

    def show(self, turn_id: str, who: str = "alice") -> dict[str, Any]:
        turn: dict[str, Any] = self.call(who, "GET", f"/api/turns/{turn_id}").part("turn")
        return turn

    def messages(self, chat_id: str, who: str = "alice") -> list[dict[str, Any]]:
        """The messages of a chat in their order."""
        found: list[dict[str, Any]] = self.call(who, "GET", f"{CHATS}/{chat_id}/messages?limit=200").part(
            "messages"
        )
        return found[::-1]

    def approvals(self, status: str | None = None, who: str = "alice") -> list[dict[str, Any]]:
        query = "" if status is None else f"?status={status}"
        found: list[dict[str, Any]] = self.call(who, "GET", f"/api/approvals{query}").part("approvals")
        return found

    def decide(self, approval_id: str, what: str, who: str = "alice") -> Reply:
        return self.call(who, "POST", f"/api/approvals/{approval_id}/{what}")

    # What a worker does

    def step(self, turn_id: str, work: Callable[[Tx, Turn], R]) -> R:
        """One step of a turn in a transaction of its own, the chat locked."""
        with self.house.app.app_context():
            return _step(turn_id, work)

    def begin(self, turn_id: str, owner: str = WORKER) -> bool:
        now = self.house.clock.now()
        return self.step(turn_id, lambda tx, turn: steps.begin(tx, turn, lease_owner=owner, now=now))

    def ask(self, turn_id: str, *calls: str, seconds: int = 600) -> list[str]:
        """The turn asks for these calls of `nodes.send_task` and waits; the ids of its approvals."""
        now = self.house.clock.now()

        def work(tx: Tx, turn: Turn) -> list[str]:
            asked = [
                steps.request_approval(
                    tx,
                    turn,
                    call_id=call,
                    operation="nodes.send_task",
                    arguments={"node": "atlas", "task": call},
                    schedule_id=None,
                    deadline_at=now + timedelta(seconds=seconds),
                    now=now,
                ).approval_id
                for call in calls
            ]
            assert steps.wait_for_action(tx, turn, now=now)
            return asked

        return self.step(turn_id, work)

    def waiting(self, chat_id: str, *calls: str, seconds: int = 600) -> tuple[str, list[str]]:
        """A turn of this chat that waits for these calls: its id, the ids of its approvals."""
        turn_id = self.post(chat_id)["turn_id"]
        assert self.begin(turn_id)
        return turn_id, self.ask(turn_id, *(calls or ("call-1",)), seconds=seconds)

    def end(self, turn_id: str, status: TurnStatus = TurnStatus.COMPLETED, code: str | None = None) -> bool:
        now = self.house.clock.now()

        def work(tx: Tx, turn: Turn) -> bool:
            if status is TurnStatus.COMPLETED:
                chat = steps.lock_chat(tx, turn.chat_pk)
                steps.add_message(
                    tx,
                    chat,
                    MessageRole.ASSISTANT,
                    author=turn.model,
                    text="Nothing.",
                    turn_pk=turn.id,
                    now=now,
                )
            return steps.end(tx, turn, status, code=code, now=now)

        return self.step(turn_id, work)

    # What is known underneath

    def turn(self, turn_id: str) -> Turn:
        with self.house.app.app_context(), reading() as session:
            return session.scalars(select(Turn).where(Turn.turn_id == turn_id)).one()

    def approval(self, approval_id: str) -> Approval:
        with self.house.app.app_context(), reading() as session:
            return session.scalars(select(Approval).where(Approval.approval_id == approval_id)).one()

    def sequence(self, chat_id: str) -> list[int]:
        with self.house.app.app_context(), reading() as session:
            return list(
                session.scalars(
                    select(Message.seq)
                    .join(Chat, Chat.id == Message.chat_pk)
                    .where(Chat.chat_id == chat_id)
                    .order_by(Message.id)
                )
            )

    def audited(self, subject_id: str) -> list[tuple[str, str]]:
        """Who did what to this subject, in order."""
        with self.house.app.app_context(), reading() as session:
            rows = session.execute(
                select(AuditEntry.actor, AuditEntry.verb)
                .where(AuditEntry.subject_id == subject_id)
                .order_by(AuditEntry.network_pk, AuditEntry.seq)
            )
            return [(actor, verb) for actor, verb in rows]

    def last_event(self) -> int:
        with self.house.app.app_context(), reading() as session:
            return session.scalar(select(func.max(Event.seq))) or 0

    def events_since(self, seq: int) -> list[tuple[str, dict[str, Any]]]:
        """Type and data of what was told after this number."""
        with self.house.app.app_context(), reading() as session:
            rows = session.execute(
                select(Event.type, Event.data).where(Event.seq > seq).order_by(Event.network_pk, Event.seq)
            )
            return [(kind, data) for kind, data in rows]


@operation
def _step(tx: Tx, turn_id: str, work: Callable[[Tx, Turn], R]) -> R:
    pk, chat_pk = tx.session.execute(select(Turn.id, Turn.chat_pk).where(Turn.turn_id == turn_id)).one()
    steps.lock_chat(tx, chat_pk)
    return work(tx, steps.fresh_turn(tx, pk))
