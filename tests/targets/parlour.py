"""A room for schedules of prompts: Bob's chat, short words for what people and the worker do, and what came of it.

The worker's part is played through the operations that the real one uses, without a model: a turn is taken up,
answered, or fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flask import Flask
from sqlalchemy import select

from tests.scheduling.stage import Stage, set_stage
from webapp.audit import AuditEntry
from webapp.chat import execution
from webapp.chat import operations as chats
from webapp.chat.bodies import NewMessageBody
from webapp.chat.execution import Hold, Used
from webapp.chat.models import Chat, Message, Turn
from webapp.clock import FrozenClock
from webapp.identity.access import Actor
from webapp.mandates import operations as mandates
from webapp.mandates.bodies import MandateChanges, PauseMandate, RevokeMandate
from webapp.mandates.models import Mandate
from webapp.scheduling import operations
from webapp.scheduling.fields import ChatScheduleChanges, NewChatSchedule
from webapp.scheduling.models import Run, Schedule
from webapp.store import reading


@dataclass
class Parlour(Stage):
    """The stage, with a chat of Bob's; everything of chats is Bob's where nobody else is named."""

    chat: Chat

    # --- A person's words ---

    def prompt(
        self, actor: Actor | None = None, *, chat: Chat | None = None, key: str | None = None, **fields: Any
    ) -> Schedule:
        """A schedule of prompts, hourly where nothing else is said."""
        values = {
            "chat_id": (chat or self.chat).chat_id,
            "prompt": "What is new?",
            "schedule": {"type": "cron", "cron": "0 * * * *"},
        } | fields
        return operations.create_for_chat(
            actor or self.bob,
            values["chat_id"],
            lambda: NewChatSchedule(**values),
            request_key=key,
            now=self.clock.now(),
        ).schedule

    def change(self, schedule: Schedule, actor: Actor | None = None, /, **fields: Any) -> Schedule:
        revision = self.schedule(schedule).revision
        return operations.edit(
            actor or self.bob,
            schedule.schedule_id,
            lambda: ChatScheduleChanges(**fields),
            revision=lambda: revision,
            wants_status_alone=set(fields) == {"status"},
            now=self.clock.now(),
        ).schedule

    def say(self, text: str = "Hello.", chat: Chat | None = None) -> Turn:
        """Bob writes himself."""
        return chats.post_message(
            self.bob, (chat or self.chat).chat_id, NewMessageBody(text=text), now=self.clock.now()
        )

    def open_chat(self, title: str = "Other", actor: Actor | None = None) -> Chat:
        return chats.create_chat(actor or self.bob, self.cast.network.id, title, now=self.clock.now())

    def archive(self, chat: Chat | None = None) -> Chat:
        return chats.archive_chat(self.bob, (chat or self.chat).chat_id, now=self.clock.now())

    def unarchive(self, chat: Chat | None = None) -> Chat:
        return chats.unarchive_chat(self.bob, (chat or self.chat).chat_id, now=self.clock.now())

    def abort(self, turn: Turn) -> Turn:
        return chats.abort_turn(self.bob, turn.turn_id, now=self.clock.now())

    def revoke(self, schedule: Schedule, reason: str = "Enough.") -> None:
        mandate_id = self.schedule(schedule).mandate_id
        assert mandate_id is not None
        mandates.revoke(self.bob, mandate_id, lambda: RevokeMandate(reason=reason), now=self.clock.now())

    def pause_mandate(self, schedule: Schedule) -> None:
        mandates.pause(self.bob, self.mandate(schedule).mandate_id, PauseMandate, now=self.clock.now())

    def expire_mandate(self, schedule: Schedule, at: datetime) -> None:
        """Bob gives the mandate an end."""
        mandate = self.mandate(schedule)
        mandates.change(
            self.bob,
            mandate.mandate_id,
            lambda: MandateChanges(expires_at=at),
            revision=lambda: mandate.revision,
            now=self.clock.now(),
        )

    # --- The worker's part ---

    def take(self) -> Hold | None:
        """Take the next turn up."""
        return execution.take_turn("worker-of-the-test", now=self.clock.now())

    def answer(self, hold: Hold, text: str = "Nothing is new.") -> None:
        """The model answers, and the turn ends."""
        now = self.clock.now()
        if execution.request_sent(hold, "[]", most_input_tokens=10, now=now) is not None:
            execution.answer_kept(hold, "[]", text, Used(7, 5), has_calls=False, now=now)

    def fail(self, hold: Hold, code: str = "model_failed") -> None:
        execution.fail(hold, code, "It did not work.", now=self.clock.now())

    def end_badly(self, hold: Hold) -> None:
        """The model fails for good, at a request of the turn; a turn that was asked to stop does that instead."""
        now = self.clock.now()
        if execution.request_sent(hold, "[]", most_input_tokens=10, now=now) is not None:
            execution.request_failed(
                hold,
                code="model_failed",
                message="It did not work.",
                transient=False,
                retry_after_seconds=None,
                now=now,
            )

    def talk(self, most: int = 20) -> int:
        """Take up and answer every turn that there is; returns how many."""
        for done in range(most):
            hold = self.take()
            if hold is None:
                return done
            self.answer(hold)
        return most

    # --- What the database says ---

    def turns(self, chat: Chat | None = None) -> list[Turn]:
        with reading() as session:
            statement = select(Turn).where(Turn.chat_pk == (chat or self.chat).id).order_by(Turn.id)
            return list(session.scalars(statement))

    def turn_of(self, run: Run) -> Turn:
        with reading() as session:
            return session.scalars(select(Turn).where(Turn.turn_id == run.turn_id)).one()

    def messages(self, chat: Chat | None = None) -> list[Message]:
        with reading() as session:
            statement = select(Message).where(Message.chat_pk == (chat or self.chat).id).order_by(Message.seq)
            return list(session.scalars(statement))

    def mandate(self, schedule: Schedule) -> Mandate:
        """The mandate that the schedule names."""
        with reading() as session:
            mandate_id = self.schedule(schedule).mandate_id
            return session.scalars(select(Mandate).where(Mandate.mandate_id == mandate_id)).one()

    def audited(self, subject_id: str) -> list[str]:
        """The verbs of the audit about a thing, oldest first."""
        with reading() as session:
            statement = select(AuditEntry.verb).where(AuditEntry.subject_id == subject_id)
            return list(session.scalars(statement.order_by(AuditEntry.seq)))


def open_parlour(app: Flask, clock: FrozenClock) -> Iterator[Parlour]:
    """The parlour within an app context."""
    for stage in set_stage(app, clock):
        chat = chats.create_chat(stage.bob, stage.cast.network.id, "Bob's chat", now=clock.now())
        yield Parlour(app, clock, stage.cast, stage.node, stage.worker, chat)
