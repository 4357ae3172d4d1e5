"""A stage for turns: a network with a node, a chat of Alice, a model's endpoint, and a worker's hands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from tests.factories import Cast, actor_of, make_cast, make_node
from tests.support.model_server import ModelServer
from webapp.chat import execution, runner
from webapp.chat import operations as chats
from webapp.chat.bodies import NewMessageBody
from webapp.chat.execution import Hold
from webapp.chat.models import Approval, Chat, Message, Turn
from webapp.clock import FrozenClock
from webapp.identity.access import Actor
from webapp.mandates import operations as mandates
from webapp.mandates.bodies import RevokeMandate
from webapp.mandates.models import Mandate
from webapp.mandates.policy import Policy
from webapp.nodes.models import Node, Task
from webapp.scheduling import making, operations
from webapp.scheduling.lifecycle import TargetKind
from webapp.scheduling.models import Run, Schedule
from webapp.store import reading
from webapp.store.transaction import Tx, operation

KEY_VARIABLE = "TEST_ONLY_MODEL_KEY"
DAILY = {"type": "daily", "time": "09:00"}


@dataclass
class Stage:
    """Needs an app context around it."""

    clock: FrozenClock
    server: ModelServer
    cast: Cast
    node: Node
    chat: Chat

    @property
    def alice(self) -> Actor:
        return actor_of(self.cast.alice)

    # What a person does

    def say(self, text: str = "What is new?", *, model: str = "", chat: Chat | None = None) -> Turn:
        """A message of Alice; its turn."""
        new = NewMessageBody(text=text, model=model) if model else NewMessageBody(text=text)
        return chats.post_message(self.alice, (chat or self.chat).chat_id, new, now=self.clock.now())

    def new_chat(self, title: str = "Another") -> Chat:
        return chats.create_chat(self.alice, self.cast.network.id, title, now=self.clock.now())

    def approve(self, approval: Approval) -> None:
        chats.approve(self.alice, approval.approval_id, now=self.clock.now())

    def deny(self, approval: Approval) -> None:
        chats.deny(self.alice, approval.approval_id, now=self.clock.now())

    def abort(self, turn: Turn) -> None:
        chats.abort_turn(self.alice, turn.turn_id, now=self.clock.now())

    def order(
        self,
        policy: Policy,
        text: str = "Send the morning round.",
        *,
        schedule: dict[str, Any] | None = None,
        model: str | None = None,
        chat: Chat | None = None,
    ) -> Schedule:
        """An active schedule of prompts into the chat, under a confirmed mandate with this policy."""
        made = _propose(
            network_pk=self.cast.network.id,
            sponsor_pk=self.cast.alice.id,
            target_kind=TargetKind.CHAT,
            target_id=(chat or self.chat).chat_id,
            name="Morning round",
            text=text,
            schedule=schedule or DAILY,
            model=model,
            policy=policy,
            actor="Alice",
            now=self.clock.now(),
        )
        return operations.confirm(self.alice, made.schedule_id, now=self.clock.now())

    def run(self, schedule: Schedule) -> Turn:
        """Run it by hand; the turn that came of it."""
        run = operations.run_now(self.alice, schedule.schedule_id, now=self.clock.now())
        with reading() as session:
            return session.scalars(select(Turn).where(Turn.run_pk == run.id)).one()

    def revoke(self, schedule: Schedule) -> None:
        mandates.revoke(
            self.alice,
            self.mandate(schedule).mandate_id,
            lambda: RevokeMandate(reason="Enough."),
            now=self.clock.now(),
        )

    # What a worker does

    def take(self, owner: str = "worker-1") -> Hold | None:
        return execution.take_turn(owner, now=self.clock.now())

    def work(self, owner: str = "worker-1") -> int:
        """Carry every turn that can be taken up as far as it goes; returns how many were taken up."""
        taken = 0
        while (hold := self.take(owner)) is not None:
            runner.carry(hold, self.clock)
            taken += 1
        return taken

    def recover(self) -> int:
        return execution.recover(self.clock.now())

    def lose_worker(self, turn: Turn) -> None:
        """As if the worker that holds the turn had not been heard of for longer than its lease."""
        _expire_lease(turn.id)

    # What is known underneath

    def turn(self, turn: Turn) -> Turn:
        with reading() as session:
            return session.scalars(select(Turn).where(Turn.id == turn.id)).one()

    def state(self, turn: Turn) -> tuple[str, str | None]:
        now = self.turn(turn)
        return now.status.value, now.error_code

    def messages(self, chat: Chat | None = None) -> list[Message]:
        with reading() as session:
            return list(
                session.scalars(
                    select(Message).where(Message.chat_pk == (chat or self.chat).id).order_by(Message.seq)
                )
            )

    def said(self, chat: Chat | None = None) -> list[tuple[str, str]]:
        """Role and text of every message."""
        return [(message.role.value, message.text) for message in self.messages(chat)]

    def approvals(self) -> list[Approval]:
        with reading() as session:
            return list(session.scalars(select(Approval).order_by(Approval.id)))

    def tasks(self) -> list[Task]:
        with reading() as session:
            return list(session.scalars(select(Task).order_by(Task.id)))

    def mandate(self, schedule: Schedule) -> Mandate:
        with reading() as session:
            return session.scalars(select(Mandate).where(Mandate.id == schedule.mandate_pk)).one()

    def run_of(self, turn: Turn) -> Run:
        with reading() as session:
            return session.scalars(select(Run).where(Run.id == turn.run_pk)).one()

    def fresh(self, schedule: Schedule) -> Schedule:
        with reading() as session:
            return session.scalars(select(Schedule).where(Schedule.id == schedule.id)).one()

    def count(self, model: type[Any], *conditions: Any) -> int:
        with reading() as session:
            return session.scalar(select(func.count()).select_from(model).where(*conditions)) or 0


def make_stage(clock: FrozenClock, server: ModelServer) -> Stage:
    cast = make_cast()
    node, _token = make_node(cast.alice, "atlas")
    chat = chats.create_chat(actor_of(cast.alice), cast.network.id, "Morning papers", now=clock.now())
    return Stage(clock, server, cast, node, chat)


@operation
def change_turn(tx: Tx, turn_pk: int, work: Callable[[Turn], None]) -> None:
    """Set what only time or a crash would set."""
    work(tx.session.get_one(Turn, turn_pk))


def _expire_lease(turn_pk: int) -> None:
    def work(turn: Turn) -> None:
        assert turn.lease_until is not None, "nobody holds it"
        turn.lease_until = turn.created_at.replace(year=2020)

    change_turn(turn_pk, work)


_propose = operation(making.propose)
