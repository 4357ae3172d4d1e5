"""The bridge between runs and the turns of a chat, both directions.

A run becomes a prompt in a chat and the turn that answers it (`ConversationTarget`), one at a time and only while
the chat is idle; what becomes of the turn comes back as the life of the run (the hooks below). Locks are taken in
one order: schedule, run, mandate, chat, counters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.chat import profiles
from webapp.chat import queries as chats
from webapp.chat import steps as talk
from webapp.chat.lifecycle import FINAL_TURN, MessageRole, TurnStatus
from webapp.chat.models import Approval, Chat, Message, Turn
from webapp.errors import AppError
from webapp.identity.models import User
from webapp.ids import turn_id_of_run
from webapp.mandates import steps as mandates
from webapp.scheduling import alerts, claim, deliver, reactions, settle
from webapp.scheduling import steps as schedule_steps
from webapp.scheduling.lifecycle import RunStatus, TargetKind, Trigger
from webapp.scheduling.models import STILL_OPEN, Run, Schedule
from webapp.scheduling.settle import Outcome
from webapp.scheduling.target import Dispatch, TargetFacts, WorkFacts
from webapp.store.texts import WorkText
from webapp.store.transaction import Tx
from webapp.timetable import utc_text

_PREVIEW = 500
_UNANSWERED_BEFORE_ALERT = 2
# Calls of one answer of a model are asked for together, with one deadline: more than two rows may be one time.
_ASKED_AT_ONCE = 50


class ConversationTarget:
    """How the engine reaches chats."""

    missing_code = "chat_not_found"
    one_at_a_time = True
    in_bulk = None

    def find(self, session: Session, network_pk: int, public_id: str) -> int | None:
        """The key of the chat with this id in this network, archived or not, or None."""
        statement = select(Chat.id).where(Chat.chat_id == public_id, Chat.network_pk == network_pk)
        return session.scalars(statement).one_or_none()

    def load(self, session: Session, target_pks: Collection[int]) -> Mapping[int, TargetFacts]:
        """Where these chats are, what they are called, whose they are, and whether they are archived."""
        found = session.execute(
            select(Chat.id, Chat.network_pk, Chat.chat_id, Chat.title, Chat.owner_pk, Chat.archived_at).where(
                Chat.id.in_(target_pks)
            )
        )
        return {
            pk: TargetFacts(
                network_pk=network_pk,
                public_id=chat_id,
                alias=title,
                refusal=None if archived_at is None else "chat_archived",
                owner_pk=owner_pk,
            )
            for pk, network_pk, chat_id, title, owner_pk, archived_at in found
        }

    def refuses(self, facts: TargetFacts, definition: Any) -> str | None:
        """A chat takes prompts on its owner's authority alone, and only while the model can be used."""
        if facts.refusal is not None:
            return facts.refusal
        if facts.owner_pk != definition.sponsor_pk:
            return "chat_not_owned"
        return profiles.refusal(definition.model)

    def check_model(self, model: str | None) -> None:
        """The model must be one that the operator has set up."""
        profiles.demand(model)

    def reserve(self, tx: Tx, target_pks: Collection[int]) -> set[int]:
        """Lock these chats; returns those without an open turn."""
        statement = select(Chat.id).where(Chat.id.in_(target_pks)).order_by(Chat.id)
        locked = set(tx.session.scalars(statement.with_for_update(key_share=True)))
        return locked - talk.open_turns(tx.session, locked).keys()

    def dispatched(self, run_id: str, *, now: datetime) -> dict[str, Any]:
        """The run has its turn: that is delivery, as nobody need fetch it."""
        return {
            "turn_id": turn_id_of_run(run_id),
            "status": RunStatus.DELIVERED,
            "wait_reason": None,
            "delivered_at": now,
        }

    def write(self, tx: Tx, dispatches: Sequence[Dispatch], *, now: datetime) -> None:
        """Write the prompt of each run into its chat, with the turn that is to answer it."""
        orders = _load_orders(tx.session, [dispatch.run_pk for dispatch in dispatches])
        for dispatch in sorted(dispatches, key=lambda dispatch: dispatch.target_pk):
            order = orders[dispatch.run_pk]
            model = order.model or profiles.default_name()
            talk.create_turn(
                tx,
                talk.lock_chat(tx, dispatch.target_pk),
                turn_id=turn_id_of_run(dispatch.run_id),
                by_person=False,
                model=model,
                run_pk=dispatch.run_pk,
                mandate_pk=order.mandate_pk,
                mandate_revision=order.mandate_revision,
                author=f"schedule {order.name}, for {order.sponsor}",
                text=prompt(order),
                meta={
                    "scheduled_task": {
                        "task_id": order.short_id,
                        "occurrence_id": dispatch.run_id,
                        "scheduled_for": utc_text(order.scheduled_for),
                        "trigger": order.trigger.value,
                    }
                },
                time_limit_seconds=dispatch.max_run_seconds or profiles.time_limit_seconds(model),
                now=now,
            )

    def progress(self, session: Session, run_pks: Collection[int]) -> Mapping[int, WorkFacts]:
        """How far the turns of these runs are; one that was started ends within limits of its own."""
        rows = session.execute(select(Turn.run_pk, Turn.status).where(Turn.run_pk.in_(run_pks)))
        return {
            run_pk: WorkFacts(
                received=True,
                acknowledged=status is not TurnStatus.QUEUED,
                heard_at=None,
                limited=status is not TurnStatus.QUEUED,
            )
            for run_pk, status in rows
            if run_pk is not None
        }

    def withdraw(self, tx: Tx, runs: Sequence[Run], *, code: str, actor: str, now: datetime) -> None:  # noqa: ARG002 - a protocol's shape
        """Take back the turns of these runs, which no worker has begun."""
        for turn in _lock_turns(tx, runs):
            talk.end(tx, turn, TurnStatus.ABORTED, code=code, now=now)
            _offer(tx, turn.chat_pk, now=now)

    def expire(self, tx: Tx, runs: Sequence[Run], *, code: str, now: datetime) -> None:
        """End the turns of these runs, wherever they are; a worker that still has one finds it gone."""
        for turn in _lock_turns(tx, runs):
            if turn.mandate_pk is not None and turn.reserved_tokens:
                mandates.settle_tokens(tx, turn.mandate_pk, reserved=turn.reserved_tokens, used=0)
                turn.reserved_tokens = 0
            talk.end(tx, turn, TurnStatus.FAILED, code=code, now=now)
            _offer(tx, turn.chat_pk, now=now)

    def ask_to_stop(self, tx: Tx, runs: Sequence[Run], *, code: str, now: datetime) -> None:
        """Have the turns of these runs aborted: at once where none works on it, else at the next step."""
        by_pk = {run.id: run for run in runs}
        for turn in _lock_turns(tx, runs):
            if not talk.request_stop(tx, turn, code, now=now):
                continue
            run = by_pk[turn.run_pk] if turn.run_pk is not None else None
            if run is not None:
                schedule = schedule_steps.load_locked(tx, run.schedule_pk)
                settle.finish(tx, schedule, run, Outcome(RunStatus.CANCELLED, code), now=now)
            _offer(tx, turn.chat_pk, now=now)

    def reopen(self, tx: Tx, run: Run, *, actor: str, now: datetime) -> None:  # noqa: ARG002 - a protocol's shape
        """A prompt is not sent again under the same run; a run by hand sends it. Raises AppError."""
        raise AppError("run_without_task")

    def expire_overdue(self, *, now: datetime) -> int:  # noqa: ARG002 - a protocol's shape
        """The limits of turns are watched by whoever runs them."""
        return 0


# --- The prompt ---


def _load_orders(session: Session, run_pks: Collection[int]) -> dict[int, Any]:
    """What the prompts of these runs are made of, by the key of the run."""
    statement = (
        select(
            Run.id,
            Run.scheduled_for,
            Run.trigger,
            Run.missed_count,
            Run.missed_since,
            WorkText.body,
            Schedule.short_id,
            Schedule.name,
            Schedule.timezone,
            Schedule.model,
            Schedule.mandate_pk,
            Schedule.mandate_revision,
            User.name.label("sponsor"),
        )
        .join(Schedule, Schedule.id == Run.schedule_pk)
        .join(WorkText, WorkText.id == Run.text_pk)
        .join(User, User.id == Schedule.sponsor_pk)
        .where(Run.id.in_(run_pks))
    )
    return {row.id: row for row in session.execute(statement)}


def prompt(order: Any) -> str:
    """What is sent to the model: a line that names the schedule and its slot in local time, then the text.

    `order` has `name`, `scheduled_for`, `timezone`, `trigger`, `missed_count`, `missed_since` and `body`.
    """
    at = _local(order.scheduled_for, order.timezone)
    header = f"Scheduled prompt “{order.name}”, "
    header += f"for {at}." if order.trigger is Trigger.SCHEDULED else f"run by hand on {at}."
    if order.missed_count:
        since = _local(order.missed_since, order.timezone)
        header += f" It also stands for {order.missed_count} earlier that were missed since {since}."
    return f"[{header}]\n\n{order.body}"


def _local(instant: datetime, timezone: str) -> str:
    return f"{instant.astimezone(ZoneInfo(timezone)):%A %Y-%m-%d %H:%M} {timezone}"


def _lock_turns(tx: Tx, runs: Iterable[Run]) -> list[Turn]:
    """Lock the chats of these runs, in the order of their keys, and read the runs' turns as they now are."""
    run_pks = [run.id for run in runs]
    if not run_pks:
        return []
    theirs = select(Turn.chat_pk).where(Turn.run_pk.in_(run_pks)).distinct()
    for chat_pk in sorted(tx.session.scalars(theirs)):
        talk.lock_chat(tx, chat_pk)
    statement = select(Turn).where(Turn.run_pk.in_(run_pks)).order_by(Turn.id)
    return list(tx.session.scalars(statement.execution_options(populate_existing=True)))


# --- What a chat tells: filled into the hooks of the chat package ---


def before_turn_change(tx: Tx, run_pk: int | None) -> None:
    """Lock the schedule of a turn's run, before anything of its chat is locked."""
    if run_pk is not None:
        settle.lock_run(tx, run_pk)


def turn_changed(tx: Tx, turn: Turn, now: datetime) -> None:
    """A turn was started or has ended: its run follows; an idle chat is offered what waits for it."""
    if turn.run_pk is not None:
        schedule, run = settle.lock_run(tx, turn.run_pk)
        if turn.status in FINAL_TURN:
            settle.finish(tx, schedule, run, _outcome(tx, turn), now=now)
        elif turn.status is not TurnStatus.QUEUED:
            settle.started(tx, schedule, run, now=now)
    if turn.status in FINAL_TURN:
        _offer(tx, turn.chat_pk, now=now)


def _outcome(tx: Tx, turn: Turn) -> Outcome:
    if turn.status is TurnStatus.COMPLETED:
        return Outcome(RunStatus.COMPLETED, result=_last_words(tx, turn))
    if turn.status is TurnStatus.ABORTED:
        return Outcome(RunStatus.CANCELLED, turn.error_code or "turn_aborted", turn.error_message)
    return Outcome(RunStatus.FAILED, turn.error_code or "turn_failed", turn.error_message)


def _last_words(tx: Tx, turn: Turn) -> str | None:
    words = (
        select(Message.text)
        .where(Message.turn_pk == turn.id, Message.role == MessageRole.ASSISTANT)
        .order_by(Message.seq.desc())
        .limit(1)
    )
    return (tx.session.scalars(words).first() or "")[:_PREVIEW] or None


def _offer(tx: Tx, chat_pk: int, *, now: datetime) -> None:
    """Have the run that waits longest for a chat delivered after the commit, if any waits."""
    tx.session.flush()
    waiting = claim.waiting_for(TargetKind.CHAT, [chat_pk]).limit(1)
    if tx.session.execute(waiting).first() is not None:
        deliver.offer(tx, TargetKind.CHAT, chat_pk, now=now)


def before_chat_change(tx: Tx, chat_pk: int) -> None:
    """Lock every schedule that speaks into a chat, before the chat itself is locked."""
    aims = select(Schedule.id).where(Schedule.target_kind == TargetKind.CHAT, Schedule.target_pk == chat_pk)
    schedule_steps.lock_due(tx, tx.session.scalars(aims).all())


def chat_changed(tx: Tx, chat_pk: int, now: datetime) -> None:
    """A chat was archived: what speaks into it stops, and what nobody has begun is taken back, runs by hand too."""
    tx.session.flush()
    reactions.target_changed(tx, TargetKind.CHAT, chat_pk, now)
    if tx.session.get_one(Chat, chat_pk).archived_at is None:
        return
    aims = select(Run.schedule_pk).join(Schedule, Schedule.id == Run.schedule_pk)
    aims = aims.where(Schedule.target_kind == TargetKind.CHAT, Schedule.target_pk == chat_pk, STILL_OPEN)
    for schedule_pk in sorted(set(tx.session.scalars(aims))):
        schedule = schedule_steps.load_locked(tx, schedule_pk)
        schedule_steps.withdraw(tx, schedule, "chat_archived", actor=schedule_steps.WORKER, now=now)


def approval_unanswered(tx: Tx, approval: Approval, now: datetime) -> None:
    """Nobody answered in time: where it was so the time before, one card proposes what could be allowed for good."""
    if approval.schedule_id is None:
        return
    expired = chats.unanswered_in_a_row(tx.session, approval.schedule_id, most=_ASKED_AT_ONCE)
    if len({one.deadline_at for one in expired}) < _UNANSWERED_BEFORE_ALERT:
        return
    schedule_pk = tx.session.scalar(select(Schedule.id).where(Schedule.schedule_id == approval.schedule_id))
    alerts.raise_alert(
        tx,
        approval.network_pk,
        "unanswered",
        approval.schedule_id,
        "approval_expired",
        schedule_pk=schedule_pk,
        detail={"operations": sorted({one.operation for one in expired})},
        now=now,
    )
