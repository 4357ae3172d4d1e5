"""What people do in their chats: one transaction each. And the deadlines of what nobody answered."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import joinedload

from webapp import audit
from webapp.chat import hooks, profiles, queries, rules, steps
from webapp.chat.bodies import NewMessageBody
from webapp.chat.lifecycle import FINAL_TURN, ApprovalStatus, TurnStatus
from webapp.chat.models import Approval, Chat, Turn
from webapp.errors import AppError
from webapp.identity import idempotency
from webapp.identity.access import Actor, Facts, Verb, demand
from webapp.ids import is_public_id, new_id
from webapp.store import reading
from webapp.store.transaction import Tx, each_alone, operation

SCHEDULER = "scheduler"
_OVERDUE_A_PASS = 200


# Chats


@operation
def create_chat(
    tx: Tx,
    actor: Actor,
    network_pk: int,
    title: str,
    *,
    request: idempotency.Request | None = None,
    now: datetime,
) -> Chat:
    """Begin a conversation of the actor's own; `title` has passed `bodies.Title`.

    Raises AppError `network_not_found`, `permission_denied`, `idempotency_conflict`.
    """
    if network_pk not in actor.networks:
        raise AppError("network_not_found")
    demand(actor, Verb.CREATE_CHAT, Facts(network_pk=network_pk))
    chat_id = new_id("chat")
    earlier = idempotency.claim(tx, request, chat_id, now=now)
    if earlier is not None:
        return tx.session.scalars(select(Chat).where(Chat.chat_id == earlier)).one()
    chat = Chat(
        chat_id=chat_id,
        network_pk=network_pk,
        owner_pk=actor.user_pk,
        title=title,
        created_at=now,
        updated_at=now,
    )
    tx.session.add(chat)
    tx.session.flush()
    _record_chat(tx, actor, "chat.create", chat, now)
    return chat


@operation
def rename_chat(tx: Tx, actor: Actor, chat_id: str, title: str, *, now: datetime) -> Chat:
    """Give a chat another title. Raises AppError `chat_not_found`, `permission_denied`."""
    chat = steps.lock_chat(tx, _own_chat(tx, actor, chat_id).id)
    if chat.title != title:
        chat.title = title
        _record_chat(tx, actor, "chat.rename", chat, now)
    return chat


@operation
def archive_chat(tx: Tx, actor: Actor, chat_id: str, *, now: datetime) -> Chat:
    """Put a chat away: nothing can be written into it, and what hangs on it stops.

    What its owner asked for is aborted as `chat_archived`; schedules stop by the hook, which withdraws what they
    have not begun. Archiving an archived one changes nothing. Raises AppError `chat_not_found`,
    `permission_denied`.
    """
    chat = _chat_to_change(tx, actor, chat_id)
    if chat.archived_at is not None:
        return chat
    chat.archived_at = chat.updated_at = now
    tx.session.flush()
    hooks.chat_changed(tx, chat.id, now)
    for turn in steps.open_turns(tx.session, [chat.id]).get(chat.id, []):
        if turn.run_pk is None and steps.request_stop(tx, turn, "chat_archived", now=now):
            hooks.turn_changed(tx, turn, now)
    _record_chat(tx, actor, "chat.archive", chat, now)
    return chat


@operation
def unarchive_chat(tx: Tx, actor: Actor, chat_id: str, *, now: datetime) -> Chat:
    """Take an archived chat up again; its schedules are resumed one by one, by a person.

    Raises AppError `chat_not_found`, `permission_denied`.
    """
    chat = _chat_to_change(tx, actor, chat_id)
    if chat.archived_at is None:
        return chat
    chat.archived_at, chat.updated_at = None, now
    tx.session.flush()
    hooks.chat_changed(tx, chat.id, now)
    _record_chat(tx, actor, "chat.unarchive", chat, now)
    return chat


# Messages and turns


@operation
def post_message(
    tx: Tx,
    actor: Actor,
    chat_id: str,
    new: NewMessageBody,
    *,
    request: idempotency.Request | None = None,
    now: datetime,
) -> Turn:
    """Write into a chat and have the model answer: a queued turn, before those of schedules.

    With `deny_waiting`, what the chat's turn waits for is denied first, so that the turn can come to its end and
    make room. Raises AppError `chat_not_found`, `permission_denied`, `chat_archived`, `invalid_model`,
    `idempotency_conflict`.
    """
    chat = _own_chat(tx, actor, chat_id)
    waiting = _waiting_turn(tx, chat.id) if new.deny_waiting else None
    hooks.before_turn_change(tx, waiting.run_pk if waiting is not None else None)
    chat = steps.lock_chat(tx, chat.id)
    turn_id = new_id("turn")
    earlier = idempotency.claim(tx, request, turn_id, now=now)
    if earlier is not None:
        return tx.session.scalars(select(Turn).where(Turn.turn_id == earlier)).one()
    check_writable(chat)
    profile = profiles.demand(new.model or None)
    if waiting is not None:
        _deny_all(tx, actor, steps.fresh_turn(tx, waiting.id), now)
    return steps.create_turn(
        tx,
        chat,
        turn_id=turn_id,
        by_person=True,
        model=profile.name,
        run_pk=None,
        mandate_pk=None,
        mandate_revision=None,
        author=actor.name,
        text=new.text,
        time_limit_seconds=profile.timeout_seconds,
        now=now,
    )


def check_writable(chat: Chat) -> None:
    """Raise AppError `chat_archived` where nothing can be written any more."""
    if chat.archived_at is not None:
        raise AppError("chat_archived")


@operation
def abort_turn(tx: Tx, actor: Actor, turn_id: str, *, now: datetime) -> Turn:
    """End a turn: at once if it is queued or waits, at its next step if a worker is at it.

    Aborting it again changes nothing. Raises AppError `turn_not_found`, `permission_denied`,
    `turn_already_final` for one that has ended otherwise.
    """
    found = None
    if is_public_id(turn_id):
        found = tx.session.scalars(
            select(Turn).where(Turn.turn_id == turn_id).options(joinedload(Turn.chat, innerjoin=True))
        ).one_or_none()
    rules.demand_use(actor, found.chat if found is not None else None, "turn_not_found")
    assert found is not None
    turn = _turn_to_change(tx, found)
    if turn.status is TurnStatus.ABORTED:
        return turn
    if turn.status in FINAL_TURN:
        raise AppError("turn_already_final", status_now=turn.status.value)
    asked_before = turn.stop_code is not None
    if steps.request_stop(tx, turn, "turn_aborted", now=now):
        hooks.turn_changed(tx, turn, now)
    if not asked_before:
        _record(tx, actor.name, turn.network_pk, "turn.abort", "turn", turn.turn_id, {}, now)
    return turn


# Approvals


@operation
def approve(tx: Tx, actor: Actor, approval_id: str, *, now: datetime) -> Approval:
    """Permit what a turn asks for, this once; the turn goes on when all that it waits for is answered.

    Whether the mandate still permits it is looked at again when it is done. Raises AppError
    `approval_not_found`, `permission_denied`, `approval_already_decided`, `approval_expired`.
    """
    return _answer(tx, actor, approval_id, ApprovalStatus.APPROVED, now)


@operation
def deny(tx: Tx, actor: Actor, approval_id: str, *, now: datetime) -> Approval:
    """Refuse what a turn asks for; it is told so and goes on. Raises what `approve` raises."""
    return _answer(tx, actor, approval_id, ApprovalStatus.DENIED, now)


def expire_approvals(*, now: datetime) -> int:
    """Close what nobody answered in time; each counts as denied, and its turn goes on. Returns how many.

    Needs an app context. Each is a transaction of its own; one that fails costs only itself.
    """
    with reading() as session:
        overdue = queries.overdue_approvals(session, now, _OVERDUE_A_PASS)
    return each_alone(overdue, partial(_expire, now=now), "deadline of an approval")


@operation
def _expire(tx: Tx, approval_pk: int, *, now: datetime) -> int:
    approval = tx.session.scalars(_loaded().where(Approval.id == approval_pk)).one_or_none()
    if approval is None:
        return 0
    turn = _turn_to_change(tx, approval.turn)
    tx.session.refresh(approval)
    if approval.deadline_at > now or not steps.decide(
        tx, approval, ApprovalStatus.EXPIRED, decided_by_pk=None, now=now
    ):
        return 0
    _record_answer(tx, SCHEDULER, "approval.expire", approval, turn, now)
    _go_on(tx, turn, now)
    hooks.approval_unanswered(tx, approval, now)
    return 1


def _answer(tx: Tx, actor: Actor, approval_id: str, status: ApprovalStatus, now: datetime) -> Approval:
    approval = None
    if is_public_id(approval_id):
        approval = tx.session.scalars(_loaded().where(Approval.approval_id == approval_id)).one_or_none()
    chat = approval.chat if approval is not None else None
    rules.demand_use(actor, chat, "approval_not_found", Verb.DECIDE_APPROVAL)
    assert approval is not None
    turn = _turn_to_change(tx, approval.turn)
    tx.session.refresh(approval)
    _check_answerable(approval, now)
    if not steps.decide(tx, approval, status, decided_by_pk=actor.user_pk, now=now):
        raise AppError("approval_already_decided")
    verb = "approval.approve" if status is ApprovalStatus.APPROVED else "approval.deny"
    _record_answer(tx, actor.name, verb, approval, turn, now)
    _go_on(tx, turn, now)
    return approval


def _check_answerable(approval: Approval, now: datetime) -> None:
    if approval.status is ApprovalStatus.EXPIRED:
        raise AppError("approval_expired")
    if approval.status is ApprovalStatus.WITHDRAWN:
        raise AppError(
            "approval_already_decided",
            message="Its turn has ended: nothing waits for this answer any more.",
            status_now=approval.status.value,
        )
    if approval.status is not ApprovalStatus.PENDING:
        raise AppError("approval_already_decided", status_now=approval.status.value)
    if approval.deadline_at <= now:
        raise AppError("approval_expired")


def _deny_all(tx: Tx, actor: Actor, turn: Turn, now: datetime) -> None:
    """Deny what this turn waits for, if it still waits: another one's questions were not what the person saw."""
    if turn.status is not TurnStatus.WAITING_FOR_ACTION:
        return
    for approval in steps.pending_approvals(tx.session, turn.id):
        steps.decide(tx, approval, ApprovalStatus.DENIED, decided_by_pk=actor.user_pk, now=now)
        _record_answer(tx, actor.name, "approval.deny", approval, turn, now)
    _go_on(tx, turn, now)


def _go_on(tx: Tx, turn: Turn, now: datetime) -> None:
    if steps.take_up_when_answered(tx, turn, now=now):
        hooks.turn_changed(tx, turn, now)


# Parts


def _own_chat(tx: Tx, actor: Actor, chat_id: str) -> Chat:
    chat = None
    if is_public_id(chat_id):
        chat = tx.session.scalars(select(Chat).where(Chat.chat_id == chat_id)).one_or_none()
    rules.demand_use(actor, chat, "chat_not_found")
    assert chat is not None
    return chat


def _chat_to_change(tx: Tx, actor: Actor, chat_id: str) -> Chat:
    chat = _own_chat(tx, actor, chat_id)
    hooks.before_chat_change(tx, chat.id)
    return steps.lock_chat(tx, chat.id)


def _turn_to_change(tx: Tx, turn: Turn) -> Turn:
    """The turn as it is now, after schedule, run and chat were locked in their order."""
    hooks.before_turn_change(tx, turn.run_pk)
    steps.lock_chat(tx, turn.chat_pk)
    return steps.fresh_turn(tx, turn.id)


def _waiting_turn(tx: Tx, chat_pk: int) -> Turn | None:
    return tx.session.scalars(
        select(Turn).where(Turn.chat_pk == chat_pk, Turn.status == TurnStatus.WAITING_FOR_ACTION)
    ).one_or_none()


def _loaded() -> Select[Approval]:
    return select(Approval).options(
        joinedload(Approval.chat, innerjoin=True), joinedload(Approval.turn, innerjoin=True)
    )


def _record_chat(tx: Tx, actor: Actor, verb: str, chat: Chat, now: datetime) -> None:
    # Titles are words of the owner, and the audit is read by all.
    _record(tx, actor.name, chat.network_pk, verb, "chat", chat.chat_id, {}, now)
    steps.ring_chat(tx, chat, now)


def _record_answer(tx: Tx, actor: str, verb: str, approval: Approval, turn: Turn, now: datetime) -> None:
    detail = {"operation": approval.operation, "turn_id": turn.turn_id, "schedule_id": approval.schedule_id}
    _record(tx, actor, approval.network_pk, verb, "approval", approval.approval_id, detail, now)


def _record(
    tx: Tx,
    actor: str,
    network_pk: int,
    verb: str,
    kind: str,
    subject_id: str,
    detail: dict[str, Any],
    now: datetime,
) -> None:
    audit.record(
        tx,
        network_pk,
        actor=actor,
        verb=verb,
        subject_kind=kind,
        subject_id=subject_id,
        detail=detail,
        now=now,
    )
