"""Invariants of chats: one turn at work in each, no message missing, nothing that waits without an end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import ColumnElement, Integer, and_, cast, exists, func, or_, select
from sqlalchemy.orm import Session

from webapp.chat.lifecycle import ACTIVE_TURN, FINAL_TURN, ApprovalStatus, TurnStatus
from webapp.chat.models import Approval, Chat, Message, Turn
from webapp.doctor.violation import MOST_LISTED, Violation, violation
from webapp.scheduling.lifecycle import RunStatus
from webapp.scheduling.models import Run

# In which states a run and its turn go together.
_AGREE: dict[RunStatus, tuple[TurnStatus, ...]] = {
    RunStatus.DELIVERED: (TurnStatus.QUEUED,),
    RunStatus.RUNNING: (TurnStatus.RUNNING, TurnStatus.WAITING_FOR_ACTION),
    RunStatus.COMPLETED: (TurnStatus.COMPLETED,),
    RunStatus.FAILED: (TurnStatus.FAILED,),
    RunStatus.CANCELLED: (TurnStatus.ABORTED,),
    RunStatus.EXPIRED: (TurnStatus.FAILED, TurnStatus.ABORTED),
}


def chats_with_two_active_turns(session: Session, _now: datetime) -> list[Violation]:
    """Chats in which more than one turn runs or waits."""
    statement = (
        select(Chat.chat_id, func.count())
        .join(Turn, Turn.chat_pk == Chat.id)
        .where(Turn.status.in_(ACTIVE_TURN))
        .group_by(Chat.chat_id)
        .having(func.count() > 1)
        .limit(MOST_LISTED)
    )
    return [
        violation(3, "two_active_turns", f"{count} turns are at work in the chat.", chat_id=chat_id)
        for chat_id, count in session.execute(statement)
    ]


def runs_that_disagree_with_their_turn(session: Session, _now: datetime) -> list[Violation]:
    """Runs whose turn is not there, is another one's, or says another thing than they do."""
    agree = or_(*(and_(Run.status == run, Turn.status.in_(turns)) for run, turns in _AGREE.items()))
    wrong = or_(
        and_(Run.turn_id.is_not(None), Turn.id.is_(None)),
        and_(Turn.id.is_not(None), Run.turn_id.is_distinct_from(Turn.turn_id)),
        and_(Turn.id.is_not(None), ~agree),
    )
    statement = (
        select(Run.run_id, Run.status, Run.turn_id, Turn.status)
        .outerjoin(Turn, Turn.run_pk == Run.id)
        .where(wrong)
        .order_by(Run.id)
        .limit(MOST_LISTED)
    )
    return [
        violation(
            4,
            "run_and_turn_disagree",
            f"The run is {run.value}, its turn is {turn.value if turn else 'missing'}.",
            run_id=run_id,
            turn_id=turn_id,
        )
        for run_id, run, turn_id, turn in session.execute(statement)
    ]


def _about_turns(
    session: Session, condition: ColumnElement[bool], code: str, sentence: str
) -> list[Violation]:
    statement = select(Turn.turn_id, Turn.status).where(condition).order_by(Turn.id).limit(MOST_LISTED)
    return [
        violation(4, code, sentence.format(status=status.value), turn_id=turn_id)
        for turn_id, status in session.execute(statement)
    ]


def _has_pending() -> ColumnElement[bool]:
    return exists().where(Approval.turn_pk == Turn.id, Approval.status == ApprovalStatus.PENDING)


def turns_that_wait_for_nothing(session: Session, _now: datetime) -> list[Violation]:
    """Turns that wait for a person who was asked nothing: they would wait for ever."""
    return _about_turns(
        session,
        and_(Turn.status == TurnStatus.WAITING_FOR_ACTION, ~_has_pending()),
        "turn_waits_for_nothing",
        "The turn is {status}, and there is nothing to answer.",
    )


def turns_that_do_not_wait(session: Session, _now: datetime) -> list[Violation]:
    """Approvals that are asked for on behalf of a turn that does not wait for them, or has ended."""
    return _about_turns(
        session,
        and_(Turn.status != TurnStatus.WAITING_FOR_ACTION, _has_pending()),
        "approval_without_waiting_turn",
        "The turn is {status}, and an approval of it is still to be answered.",
    )


def final_turns_that_hold_something(session: Session, _now: datetime) -> list[Violation]:
    """Ended turns with a lease, a request under way, or tokens set aside that were never given back."""
    holds = or_(Turn.lease_owner.is_not(None), Turn.request_sent_at.is_not(None), Turn.reserved_tokens != 0)
    return _about_turns(
        session,
        and_(Turn.status.in_(FINAL_TURN), holds),
        "final_turn_holds_something",
        "The turn is {status}, and still holds a lease, a request or tokens.",
    )


def approvals_used_without_consent(session: Session, _now: datetime) -> list[Violation]:
    """What was done although nobody approved it."""
    statement = (
        select(Approval.approval_id, Approval.status)
        .where(Approval.used_at.is_not(None), Approval.status != ApprovalStatus.APPROVED)
        .order_by(Approval.id)
        .limit(MOST_LISTED)
    )
    return [
        violation(4, "used_without_consent", f"It is {status.value}, and was used.", approval_id=approval_id)
        for approval_id, status in session.execute(statement)
    ]


def gaps_in_messages(session: Session, _now: datetime) -> list[Violation]:
    """Chats whose messages have a gap, or end elsewhere than at their last number."""
    held = (
        select(
            Message.chat_pk,
            func.count().label("count"),
            func.min(Message.seq).label("first"),
            func.max(Message.seq).label("last"),
        )
        .group_by(Message.chat_pk)
        .subquery()
    )
    count = func.coalesce(held.c.count, 0)
    wrong = or_(count != Chat.message_seq, held.c.first != 1, held.c.last != Chat.message_seq)
    statement = (
        select(Chat.chat_id, cast(count, Integer), Chat.message_seq)
        .outerjoin(held, held.c.chat_pk == Chat.id)
        .where(wrong)
        .order_by(Chat.id)
        .limit(MOST_LISTED)
    )
    return [
        violation(6, "message_gap", f"{kept} messages are kept, the last number is {last}.", chat_id=chat_id)
        for chat_id, kept, last in session.execute(statement)
    ]


CHECKS: tuple[Callable[[Session, datetime], list[Violation]], ...] = (
    chats_with_two_active_turns,
    runs_that_disagree_with_their_turn,
    turns_that_wait_for_nothing,
    turns_that_do_not_wait,
    final_turns_that_hold_something,
    approvals_used_without_consent,
    gaps_in_messages,
)
