"""Chats with something of everything, all of its text hostile, written beside the running site.

Its worker runs the turns: the built-in echo model repeats what it is told, asks to send a task, proposes a schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select

from tests.e2e import scene
from tests.e2e.conftest import Site
from tests.support import hostile
from tests.support.processes import eventually
from webapp import demo
from webapp.chat import operations as chats
from webapp.chat import queries as chat_queries
from webapp.chat import steps
from webapp.chat.bodies import NewMessageBody
from webapp.chat.lifecycle import ApprovalStatus, MessageRole, TurnStatus
from webapp.chat.models import Chat
from webapp.identity import queries
from webapp.identity.access import Actor
from webapp.mandates import operations as mandates
from webapp.mandates.bodies import RevokeMandate
from webapp.scheduling import operations as schedules
from webapp.scheduling.fields import NewChatSchedule
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus
from webapp.scheduling.models import Run, Schedule
from webapp.store import reading
from webapp.store.paging import PageRequest
from webapp.store.transaction import Tx, operation

_PATIENCE_SECONDS = 30
TITLE = f'{hostile.MARK}<img src=x onerror="{hostile.ALARM}">'


@dataclass(frozen=True)
class Talk:
    """How to get in, and the addresses of what is worth a look."""

    owner: str
    password: str
    chat: str
    quiet_chat: str
    schedule: str
    stopped_schedule: str
    proposed: str
    run: str
    mandate: str
    revoked_mandate: str


def furnish(site: Site) -> Talk:
    """Write chats, let the worker answer, and stop when two approvals and a proposal wait."""
    with scene.product(site):
        sample = demo.furnish(now=site.clock.now())
        return write(site, sample.owner, sample.password)


def write(site: Site, owner: str, password: str) -> Talk:
    """The same where the demo stands already, inside of `scene.product`."""
    with reading() as session:
        user = queries.user_by_name(session, owner)
        person = queries.person_of(session, user_pk=user.id) if user else None
    assert person is not None
    return _Author(site, person.actor).write(owner, password)


class _Author:
    def __init__(self, site: Site, actor: Actor) -> None:
        self.site = site
        self.actor = actor
        self.network_pk = min(actor.networks)

    @property
    def now(self) -> datetime:
        return self.site.clock.now()

    def write(self, owner: str, password: str) -> Talk:
        self._answer_the_sample_chat()
        chat = chats.create_chat(self.actor, self.network_pk, TITLE[:120], now=self.now)
        quiet = chats.create_chat(self.actor, self.network_pk, "Investor updates", now=self.now)
        _corpus(chat.id, demo.OWNER, now=self.now)
        schedule = self._order(quiet, f"{hostile.MARK}<b onclick={hostile.ALARM}>", hostile.MARKDOWN[0])
        stopped = self._order(quiet, "Stopped on purpose", hostile.PLAIN[0])
        run = schedules.run_now(self.actor, schedule.schedule_id, now=self.now)
        self._until(lambda: _run_status(run.run_id) is RunStatus.COMPLETED, "the scheduled turn ends")
        assert stopped.mandate_id is not None
        wish = RevokeMandate(reason=hostile.PLAIN[3][:500])
        mandates.revoke(self.actor, stopped.mandate_id, lambda: wish, now=self.now)
        self._ask(chat, f"/send-task {demo.WORKING_NODE}: {hostile.PLAIN[1]}")
        third = chats.create_chat(self.actor, self.network_pk, "Proposals", now=self.now)
        self._ask(third, f"/propose-schedule {demo.WORKING_NODE} at 09:00: {hostile.PLAIN[2]}")
        asked = self._asked()
        proposal = next(view for view in asked if view.approval.operation == "schedules.propose")
        chats.approve(self.actor, proposal.approval.approval_id, now=self.now)
        self._until(lambda: _proposed() is not None, "the proposal is written")
        self._ask(third, f"/send-task {demo.WORKING_NODE}: {hostile.PLAIN[5]}", waiting=2)
        assert schedule.mandate_id is not None
        return Talk(
            owner=owner,
            password=password,
            chat=f"/chats/{chat.chat_id}",
            quiet_chat=f"/chats/{quiet.chat_id}",
            schedule=f"/schedules/{schedule.schedule_id}",
            stopped_schedule=f"/schedules/{stopped.schedule_id}",
            proposed=f"/schedules/{_proposed()}",
            run=f"/runs/{run.run_id}",
            mandate=f"/mandates/{schedule.mandate_id}",
            revoked_mandate=f"/mandates/{stopped.mandate_id}",
        )

    def _answer_the_sample_chat(self) -> None:
        self._until(lambda: len(self._asked()) == 1, "the turn of the sample chat asks")
        [asked] = self._asked()
        chats.deny(self.actor, asked.approval.approval_id, now=self.now)

    def _order(self, chat: Chat, name: str, prompt: str) -> Schedule:
        fields = NewChatSchedule(
            chat_id=chat.chat_id,
            prompt=prompt,
            name=name,
            schedule={"type": "daily", "time": "09:00"},
            timezone="Europe/Berlin",
            expires_at=self.now + timedelta(days=9),
        )
        return schedules.create_for_chat(self.actor, chat.chat_id, lambda: fields, now=self.now).schedule

    def _ask(self, chat: Chat, text: str, *, waiting: int | None = None) -> None:
        before = len(self._asked())
        chats.post_message(self.actor, chat.chat_id, NewMessageBody(text=text), now=self.now)
        enough = before + 1 if waiting is None else waiting
        self._until(lambda: len(self._asked()) >= enough, "the turn asks")

    def _asked(self) -> list[chat_queries.ApprovalView]:
        with reading() as session:
            page = PageRequest(50)
            return list(
                chat_queries.list_approvals(
                    session, self.actor, self.actor.networks, page, status=ApprovalStatus.PENDING
                ).rows
            )

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        eventually(holds, _PATIENCE_SECONDS, what)


@operation
def _corpus(tx: Tx, chat_pk: int, author: str, *, now: datetime) -> None:
    """Every hostile text, said by a person, by a model and by a tool, in one turn that has ended."""
    chat = steps.lock_chat(tx, chat_pk)
    turn = steps.create_turn(
        tx,
        chat,
        turn_id=f"turn_corpus{chat_pk:014d}",
        by_person=True,
        model="echo",
        run_pk=None,
        mandate_pk=None,
        mandate_revision=None,
        author=author,
        text=hostile.PLAIN[0],
        time_limit_seconds=60,
        now=now,
    )
    assert steps.end(tx, turn, TurnStatus.ABORTED, code="turn_aborted", message=hostile.PLAIN[4], now=now)
    for text in hostile.ALL:
        steps.add_message(
            tx, chat, MessageRole.ASSISTANT, author=hostile.PLAIN[1], text=text, turn_pk=turn.id, now=now
        )
    for text in hostile.PLAIN:
        meta = {
            "action": {
                "call_id": "1",
                "operation": "nodes.send_task",
                "arguments": {"task": text, text: text},
            }
        }
        steps.add_message(
            tx, chat, MessageRole.TOOL, author=text, text=text, turn_pk=turn.id, meta=meta, now=now
        )


def _run_status(run_id: str) -> RunStatus | None:
    with reading() as session:
        return session.scalar(select(Run.status).where(Run.run_id == run_id))


def _proposed() -> str | None:
    with reading() as session:
        return session.scalar(select(Schedule.schedule_id).where(Schedule.status == ScheduleStatus.PROPOSED))
