"""What happens to chats, messages, turns and approvals inside a transaction that somebody else owns.

The row of a chat is the one lock of its messages, turns and approvals: whoever calls has it by `lock_chat`, after
what stands before it in the lock order (schedule, run, mandate). Every move of a turn is one conditional update
that asks `TURN_MOVES`; it answers False when the turn was not where it may move from, and then nothing has
changed. Nothing here tells the run of a turn: callers say `hooks.turn_changed` after the move. Times are aware
UTC instants.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, literal_column, select, update
from sqlalchemy.orm import Session, aliased

from webapp.chat import rules
from webapp.chat.lifecycle import (
    ACTIVE_TURN,
    FINAL_TURN,
    TURN_MOVES,
    ApprovalStatus,
    MessageRole,
    TurnStatus,
)
from webapp.chat.models import Approval, Chat, Message, Turn
from webapp.events import outbox
from webapp.ids import new_id
from webapp.store.transaction import Tx

# Word for word the condition of the partial indexes; a bound value would keep them unused.
STILL_OPEN: ColumnElement[Any] = literal_column("turns.status IN ('queued', 'running', 'waiting_for_action')")
STILL_PENDING: ColumnElement[Any] = literal_column("approvals.status = 'pending'")

_MAX_MESSAGE = 500
_MAX_AUTHOR = 300


# Finding and locking


def lock_chat(tx: Tx, chat_pk: int) -> Chat:
    """The chat, locked until the transaction ends, as it is now."""
    return tx.session.scalars(
        select(Chat)
        .where(Chat.id == chat_pk)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    ).one()


def fresh_turn(tx: Tx, turn_pk: int) -> Turn:
    """The turn as it is now; its chat is locked by the caller, so that it stays so."""
    return tx.session.scalars(
        select(Turn).where(Turn.id == turn_pk).execution_options(populate_existing=True)
    ).one()


def open_turns(session: Session, chat_pks: Collection[int]) -> dict[int, list[Turn]]:
    """The open turns of these chats in the order in which they are worked on; idle chats are not in it.

    The one that runs or waits comes first, then what people wrote, then what schedules sent, oldest first.
    """
    found: dict[int, list[Turn]] = defaultdict(list)
    statement = (
        select(Turn)
        .where(Turn.chat_pk.in_(list(chat_pks)), STILL_OPEN)
        .execution_options(populate_existing=True)
    )
    for turn in session.scalars(statement):
        found[turn.chat_pk].append(turn)
    return {chat_pk: rules.in_order(turns) for chat_pk, turns in found.items()}


def pending_approvals(session: Session, turn_pk: int) -> list[Approval]:
    """What this turn waits for, oldest first."""
    statement = select(Approval).where(Approval.turn_pk == turn_pk, STILL_PENDING).order_by(Approval.id)
    return list(session.scalars(statement))


# Writing


def add_message(
    tx: Tx,
    chat: Chat,
    role: MessageRole,
    *,
    author: str,
    text: str,
    turn_pk: int | None = None,
    meta: Mapping[str, Any] | None = None,
    now: datetime,
) -> Message:
    """Write the next message of a chat (locked by the caller) and tell open pages of it.

    `author` says truthfully who wrote it: a person's name, `schedule <name>, for <sponsor>`, or the model. What
    a database cannot hold (NUL, lone surrogates) is shown as the replacement character.
    """
    chat.message_seq += 1
    chat.updated_at = now
    message = Message(
        message_id=new_id("msg"),
        chat_pk=chat.id,
        turn_pk=turn_pk,
        seq=chat.message_seq,
        role=role,
        author=storable(author)[:_MAX_AUTHOR],
        text=storable(text),
        meta=dict(meta or {}),
        created_at=now,
    )
    tx.session.add(message)
    tx.session.flush()
    ring_chat(tx, chat, now)
    return message


def create_turn(
    tx: Tx,
    chat: Chat,
    *,
    turn_id: str,
    by_person: bool,
    model: str,
    run_pk: int | None,
    mandate_pk: int | None,
    mandate_revision: int | None,
    author: str,
    text: str,
    meta: Mapping[str, Any] | None = None,
    time_limit_seconds: int,
    now: datetime,
) -> Turn:
    """Write a prompt into a chat (locked by the caller) and the queued turn that is to answer it.

    `turn_id` is derived where a run stands behind it. `time_limit_seconds` bounds each stretch of work, from its
    begin or from the answer to an approval on; waiting does not count.
    """
    turn = Turn(
        turn_id=turn_id,
        chat_pk=chat.id,
        network_pk=chat.network_pk,
        run_pk=run_pk,
        mandate_pk=mandate_pk,
        mandate_revision=mandate_revision,
        by_person=by_person,
        status=TurnStatus.QUEUED,
        model=model,
        time_limit_seconds=time_limit_seconds,
        created_at=now,
    )
    tx.session.add(turn)
    tx.session.flush()
    add_message(tx, chat, MessageRole.USER, author=author, text=text, turn_pk=turn.id, meta=meta, now=now)
    _ring_turn(tx, turn, now)
    return turn


# Moving a turn on


def begin(tx: Tx, turn: Turn, *, lease_owner: str, now: datetime) -> bool:
    """A worker takes a queued turn up. False when it is not queued any more, or another one is at work.

    `lease_until` is the caller's to set in the same transaction, on the database's clock.
    """
    other = aliased(Turn, name="other")
    busy = (
        select(other.id)
        .where(other.chat_pk == turn.chat_pk, other.id != turn.id, other.status.in_(ACTIVE_TURN))
        .exists()
    )
    return _move(
        tx,
        turn,
        TurnStatus.RUNNING,
        now,
        Turn.status == TurnStatus.QUEUED,
        ~busy,
        lease_owner=lease_owner,
        started_at=now,
        deadline_at=now + timedelta(seconds=turn.time_limit_seconds),
    )


def request_approval(
    tx: Tx,
    turn: Turn,
    *,
    call_id: str,
    operation: str,
    arguments: Mapping[str, Any],
    schedule_id: str | None,
    deadline_at: datetime,
    now: datetime,
) -> Approval:
    """Write down what a turn wants to do and a person is to decide, bound to its mandate's revision.

    The turn itself is moved by `wait_for_action`, once for all calls of one answer of the model.
    """
    approval = Approval(
        approval_id=new_id("appr"),
        network_pk=turn.network_pk,
        chat_pk=turn.chat_pk,
        turn_pk=turn.id,
        schedule_id=schedule_id,
        mandate_pk=turn.mandate_pk,
        mandate_revision=turn.mandate_revision,
        call_id=call_id,
        operation=operation,
        arguments=dict(arguments),
        status=ApprovalStatus.PENDING,
        deadline_at=deadline_at,
        created_at=now,
    )
    tx.session.add(approval)
    tx.session.flush()
    _ring_approval(tx, approval, now)
    return approval


def wait_for_action(tx: Tx, turn: Turn, *, now: datetime) -> bool:
    """A running turn waits for a person: it needs no lease, and its time stands still. False: it was not running."""
    return _move(
        tx,
        turn,
        TurnStatus.WAITING_FOR_ACTION,
        now,
        lease_owner=None,
        lease_until=None,
        deadline_at=None,
    )


def take_up_again(tx: Tx, turn: Turn, *, now: datetime) -> bool:
    """All answers are there: the turn runs again, without a lease, for any worker to take. False: it did not wait."""
    return _move(
        tx,
        turn,
        TurnStatus.RUNNING,
        now,
        Turn.status == TurnStatus.WAITING_FOR_ACTION,
        lease_owner=None,
        lease_until=None,
        not_before=None,
        deadline_at=now + timedelta(seconds=turn.time_limit_seconds),
    )


def end(
    tx: Tx,
    turn: Turn,
    status: TurnStatus,
    *,
    code: str | None = None,
    message: str | None = None,
    now: datetime,
) -> bool:
    """Close a turn: completed, failed or aborted. Withdraws what it waited for; False when it may not end so.

    `message` is cut to 500 characters. Tokens that a mandate has set aside are the caller's to settle first.
    """
    if status not in FINAL_TURN:
        raise ValueError(f"{status} is not an end")
    ended = _move(
        tx,
        turn,
        status,
        now,
        lease_owner=None,
        lease_until=None,
        request_sent_at=None,
        not_before=None,
        deadline_at=None,
        history=None,
        error_code=code,
        error_message=storable(message)[:_MAX_MESSAGE] if message else None,
        completed_at=now,
    )
    if ended:
        for approval in pending_approvals(tx.session, turn.id):
            _decide(tx, approval, ApprovalStatus.WITHDRAWN, None, now)
    return ended


def request_stop(tx: Tx, turn: Turn, code: str, *, now: datetime) -> bool:
    """Have a turn aborted with `code`; True when it has ended with that.

    A queued or waiting one, and a running one that no worker holds, ends at once; one in a worker's hands at
    its next step (the first code stays). A final one is left alone.
    """
    if turn.status is TurnStatus.RUNNING and turn.lease_owner is not None:
        marked = tx.session.execute(
            update(Turn)
            .where(Turn.id == turn.id, Turn.status == TurnStatus.RUNNING, Turn.stop_code.is_(None))
            .values(stop_code=code)
            .execution_options(synchronize_session=False)
        )
        if marked.rowcount:  # type: ignore[attr-defined]
            tx.session.refresh(turn)
            _ring_turn(tx, turn, now)
        return False
    return end(tx, turn, TurnStatus.ABORTED, code=code, now=now)


# Deciding


def decide(
    tx: Tx, approval: Approval, status: ApprovalStatus, *, decided_by_pk: int | None, now: datetime
) -> bool:
    """Answer a pending approval: approved, denied or expired. False when it was answered before.

    Whether its turn can go on is the caller's to see: `take_up_again` once none is pending any more.
    """
    return _decide(tx, approval, status, decided_by_pk, now)


def take_up_when_answered(tx: Tx, turn: Turn, *, now: datetime) -> bool:
    """Let the turn run again if nothing that it waits for is pending any more; whether it does."""
    if turn.status is not TurnStatus.WAITING_FOR_ACTION or pending_approvals(tx.session, turn.id):
        return False
    return take_up_again(tx, turn, now=now)


def use(tx: Tx, approval: Approval, *, now: datetime) -> bool:
    """Spend an approved approval, together with what it permits. False: it is not approved, or was spent before."""
    spent = tx.session.execute(
        update(Approval)
        .where(
            Approval.id == approval.id,
            Approval.status == ApprovalStatus.APPROVED,
            Approval.used_at.is_(None),
        )
        .values(used_at=now)
        .execution_options(synchronize_session=False)
    )
    if not spent.rowcount:  # type: ignore[attr-defined]
        return False
    tx.session.refresh(approval)
    _ring_approval(tx, approval, now)
    return True


# Parts


def storable(text: str) -> str:
    """`text` without what a database cannot hold: NUL and lone surrogates become the replacement character."""
    return text.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def ring_chat(tx: Tx, chat: Chat, now: datetime) -> None:
    """Tell open pages that a chat has changed."""
    outbox.emit(tx, chat.network_pk, "chat", {"chats": [chat.chat_id]}, now=now)


def _move(
    tx: Tx, turn: Turn, status: TurnStatus, now: datetime, *conditions: ColumnElement[bool], **values: Any
) -> bool:
    sources = [source for source, targets in TURN_MOVES.items() if status in targets]
    moved = tx.session.execute(
        update(Turn)
        .where(Turn.id == turn.id, Turn.status.in_(sources), *conditions)
        .values(status=status, **values)
        .execution_options(synchronize_session=False)
    )
    if not moved.rowcount:  # type: ignore[attr-defined]
        return False
    tx.session.refresh(turn)
    _ring_turn(tx, turn, now)
    return True


def _decide(
    tx: Tx, approval: Approval, status: ApprovalStatus, decided_by_pk: int | None, now: datetime
) -> bool:
    decided = tx.session.execute(
        update(Approval)
        .where(Approval.id == approval.id, Approval.status == ApprovalStatus.PENDING)
        .values(status=status, decided_by_pk=decided_by_pk, decided_at=now)
        .execution_options(synchronize_session=False)
    )
    if not decided.rowcount:  # type: ignore[attr-defined]
        return False
    tx.session.refresh(approval)
    _ring_approval(tx, approval, now)
    return True


def _ring_turn(tx: Tx, turn: Turn, now: datetime) -> None:
    chat = tx.session.get_one(Chat, turn.chat_pk)
    outbox.emit(tx, turn.network_pk, "turn", {"turns": [turn.turn_id], "chats": [chat.chat_id]}, now=now)


def _ring_approval(tx: Tx, approval: Approval, now: datetime) -> None:
    data = {"approvals": [approval.approval_id]}
    outbox.emit(tx, approval.network_pk, "approval", data, now=now)
