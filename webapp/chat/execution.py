"""What a worker does to a turn: one transaction for each step, and nothing that waits inside of one.

A turn in a worker's hands has a lease, on the database's clock. Before each request to a model the turn records that
one is under way, and after it what came of it; so a worker that dies leaves behind whether the model was asked. An
action is authorised, done, told to the chat and kept in the history in one transaction, with the mandate locked.

The order of locks is schedule and run (by the hook), mandate, chat, task. Nothing here knows the model's library: a
history is text that is passed through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import cast

from sqlalchemy import Table, delete, exists, or_, select, update
from sqlalchemy.orm import Session, aliased

from webapp import audit
from webapp.chat import actions, hooks, operations, profiles, steps
from webapp.chat.actions import Action, NotDone, Scene, Tool
from webapp.chat.lifecycle import ACTIVE_TURN, ApprovalStatus, MessageRole, TurnStatus
from webapp.chat.models import Approval, Chat, ModelPause, Turn
from webapp.config import ModelProfile
from webapp.errors import sentence_of
from webapp.identity.access import may_sponsor
from webapp.identity.models import Membership, User
from webapp.logs import get_logger
from webapp.mandates import steps as mandate_steps
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.policy import Verdict
from webapp.store import app_config, dialect, reading
from webapp.store.transaction import Tx, each_alone, operation

LEASE = timedelta(seconds=20)
ATTEMPTS = 3
# No answer is worth asking for that could hold less than this.
LEAST_OUTPUT_TOKENS = 16
_FIRST_DELAY, _LONGEST_DELAY = timedelta(seconds=5), timedelta(seconds=60)
_LONGEST_PAUSE = timedelta(days=1)
_TOKENS_IN_OTHER_HANDS = timedelta(seconds=2)
# A worker ends a turn at its limit itself; one that has not done so by then is stuck.
_STUCK_AFTER = timedelta(seconds=60)
_A_PASS = 200
_MAX_RESULT = 20_000
_log = get_logger(__name__)


class Lost(Exception):
    """The turn is not in these hands any more; nothing was changed."""


@dataclass(frozen=True)
class Hold:
    """A turn in the hands of a worker, with what never changes about it."""

    turn_pk: int
    turn_id: str
    chat_pk: int
    run_pk: int | None
    mandate_pk: int | None
    model: str
    owner: str


@dataclass(frozen=True)
class Grant:
    """Leave to make one request."""

    max_output_tokens: int
    timeout_seconds: float


@dataclass(frozen=True)
class Used:
    """What a request has used: tokens read and written."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class WantedCall:
    """A tool that the model asks for; `key` names the call within its turn, `arguments` None: unreadable."""

    key: str
    name: str
    arguments: dict[str, object] | None


class Acted(Enum):
    """What became of a call: it has its result, a person is asked, or the turn has ended over it."""

    DONE = "done"
    ASKED = "asked"
    ENDED = "ended"


Remember = Callable[[str, str, str], str]


# Taking a turn up


def take_turn(owner: str, *, now: datetime) -> Hold | None:
    """Take up a turn that nobody is at: one that goes on, or the next of a chat that is idle; None: there is none.

    A profile that was asked to wait is left alone. Several workers may ask at once; each turn goes to one.
    """
    with reading() as session:
        wanted = _candidates(session, now)
    for turn_pk in wanted:
        hold = _take(turn_pk, owner, now=now)
        if hold is not None:
            return hold
    return None


def _candidates(session: Session, now: datetime) -> list[int]:
    paused = set(session.scalars(select(ModelPause.profile).where(ModelPause.until > now)))
    columns = select(Turn.id, Turn.chat_pk, Turn.model)
    released = (
        columns.where(
            steps.STILL_OPEN,
            Turn.status == TurnStatus.RUNNING,
            Turn.lease_owner.is_(None),
            or_(Turn.not_before.is_(None), Turn.not_before <= now),
        )
        .order_by(Turn.id)
        .limit(_A_PASS)
    )
    other = aliased(Turn)
    busy = exists().where(other.chat_pk == Turn.chat_pk, other.status.in_(ACTIVE_TURN))
    queued = (
        columns.where(steps.STILL_OPEN, Turn.status == TurnStatus.QUEUED, ~busy)
        .order_by(Turn.by_person.desc(), Turn.id)
        .limit(_A_PASS)
    )
    found = [pk for pk, _, model in session.execute(released) if model not in paused]
    seen: set[int] = set()
    for pk, chat_pk, model in session.execute(queued):
        # The first of a chat keeps its place even while its model is asked to wait.
        if chat_pk not in seen and model not in paused:
            found.append(pk)
        seen.add(chat_pk)
    return found


@operation
def _take(tx: Tx, turn_pk: int, owner: str, *, now: datetime) -> Hold | None:
    seen = tx.session.get(Turn, turn_pk)
    if seen is None:
        return None
    hold = Hold(seen.id, seen.turn_id, seen.chat_pk, seen.run_pk, seen.mandate_pk, seen.model, owner)
    turn = _fresh(tx, hold)
    if turn.status is TurnStatus.QUEUED:
        first = steps.open_turns(tx.session, [turn.chat_pk])[turn.chat_pk][0]
        if first.id != turn.id or not steps.begin(tx, turn, lease_owner=owner, now=now):
            return None
        turn.lease_until = dialect.database_now(tx.session) + LEASE
        hooks.turn_changed(tx, turn, now)
        return hold
    ready = turn.not_before is None or turn.not_before <= now
    if turn.status is not TurnStatus.RUNNING or turn.lease_owner is not None or not ready:
        return None
    if _is_over(turn, now):
        _end(tx, turn, TurnStatus.FAILED, "turn_timed_out", now=now)
        return None
    turn.lease_owner, turn.not_before = owner, None
    turn.lease_until = dialect.database_now(tx.session) + LEASE
    return hold


# The lease


@operation
def extend_lease(tx: Tx, hold: Hold) -> bool:
    """Say that the worker lives; whether the turn is still in its hands."""
    extended = tx.session.execute(
        update(Turn)
        .where(Turn.id == hold.turn_pk, Turn.status == TurnStatus.RUNNING, Turn.lease_owner == hold.owner)
        .values(lease_until=dialect.database_now(tx.session) + LEASE)
    )
    return bool(extended.rowcount)  # type: ignore[attr-defined]


def is_wanted(hold: Hold) -> bool:
    """Whether the turn is in these hands and nobody has asked it to stop."""
    with reading() as session:
        row = session.execute(
            select(Turn.status, Turn.lease_owner, Turn.stop_code).where(Turn.id == hold.turn_pk)
        ).one_or_none()
    return row is not None and tuple(row) == (TurnStatus.RUNNING, hold.owner, None)


def history_of(session: Session, hold: Hold) -> str | None:
    """What the model was told and said so far; empty at the beginning, None when the turn has ended."""
    row = session.execute(select(Turn.status, Turn.history).where(Turn.id == hold.turn_pk)).one()
    return (row.history or "") if row.status is TurnStatus.RUNNING else None


@operation
def release(tx: Tx, hold: Hold, *, now: datetime) -> None:
    """Give a turn back between two steps, for another worker to take up at once. Raises Lost."""
    turn = _held(tx, hold)
    if not _stopped(tx, turn, now):
        _let_go(turn, None)


# A request to the model


@operation
def request_sent(tx: Tx, hold: Hold, history: str, *, most_input_tokens: int, now: datetime) -> Grant | None:
    """Record that the model is about to be asked, and set tokens of the mandate aside for it.

    `most_input_tokens` is what the request can read at most. None: the turn may not ask; it has ended, or it waits
    until tokens come back from other hands. Raises Lost.
    """
    turn = _held(tx, hold)
    if _stopped(tx, turn, now):
        return None
    profile = profiles.find(turn.model)
    if profile is None:
        message = f"The profile {turn.model} is not set up where the worker runs."
        _end(tx, turn, TurnStatus.FAILED, "model_unavailable", message=message, now=now)
        return None
    amount = _set_aside(tx, turn, profile, most_input_tokens, now)
    if amount is None:
        return None
    turn.history = history
    turn.request_sent_at = now
    turn.requests += 1
    turn.lease_until = dialect.database_now(tx.session) + LEASE
    left = LEASE.total_seconds() if turn.deadline_at is None else (turn.deadline_at - now).total_seconds()
    return Grant(
        max_output_tokens=amount - most_input_tokens,
        timeout_seconds=max(0.5, min(profile.request_timeout_seconds, left)),
    )


def _set_aside(
    tx: Tx, turn: Turn, profile: ModelProfile, most_input_tokens: int, now: datetime
) -> int | None:
    """How many tokens the request may use, read and written; None when the turn may not ask."""
    least = most_input_tokens + LEAST_OUTPUT_TOKENS
    left = profile.max_tokens - turn.input_tokens - turn.output_tokens
    if turn.requests >= profile.max_requests or left < least:
        what = "requests" if turn.requests >= profile.max_requests else "tokens"
        message = f"The limit of {what} of a turn with {profile.name} would be passed."
        _end(tx, turn, TurnStatus.FAILED, "turn_limit_reached", message=message, now=now)
        return None
    most = min(left, most_input_tokens + profile.max_output_tokens)
    if turn.mandate_pk is None:
        return most
    mandate = mandate_steps.lock(tx, turn.mandate_pk)
    if mandate.max_tokens is None:
        return most
    amount = min(most, mandate.max_tokens - mandate.used_tokens - mandate.reserved_tokens)
    if amount < least:
        if mandate.max_tokens - mandate.used_tokens >= least:
            # Others have set tokens aside and will give most of them back.
            _let_go(turn, now + _TOKENS_IN_OTHER_HANDS)
        else:
            _end(tx, turn, TurnStatus.FAILED, "mandate_exhausted", now=now)
        return None
    if not mandate_steps.reserve_tokens(tx, turn.mandate_pk, amount):
        raise Lost
    turn.reserved_tokens = amount
    return amount


@operation
def answer_kept(
    tx: Tx, hold: Hold, history: str, text: str, used: Used, *, has_calls: bool, now: datetime
) -> bool:
    """Keep what the model said and what it used; without calls, that ends the turn.

    Returns whether the turn goes on in these hands. Raises Lost.
    """
    turn = _held(tx, hold)
    turn.history = history
    turn.request_sent_at = None
    turn.attempt = 1
    turn.input_tokens += used.input_tokens
    turn.output_tokens += used.output_tokens
    _settle(tx, turn, used.input_tokens + used.output_tokens)
    if text or not has_calls:
        chat = tx.session.get_one(Chat, turn.chat_pk)
        steps.add_message(
            tx,
            chat,
            MessageRole.ASSISTANT,
            author=f"model {turn.model}",
            text=text or "(The model said nothing.)",
            turn_pk=turn.id,
            now=now,
        )
    if turn.stop_code is not None:
        _end(tx, turn, TurnStatus.ABORTED, turn.stop_code, now=now)
        return False
    if has_calls:
        turn.lease_until = dialect.database_now(tx.session) + LEASE
        return not _stopped(tx, turn, now)
    _end(tx, turn, TurnStatus.COMPLETED, None, now=now)
    return False


@operation
def request_failed(
    tx: Tx,
    hold: Hold,
    *,
    code: str,
    message: str,
    transient: bool,
    retry_after_seconds: float | None,
    now: datetime,
) -> None:
    """Keep that the model did not answer: tried again later, by whichever worker, or the end of the turn.

    What the endpoint asked for is obeyed by all turns that share the profile. Raises Lost.
    """
    turn = _held(tx, hold)
    turn.request_sent_at = None
    _settle(tx, turn, 0)
    until = None
    if retry_after_seconds is not None:
        until = now + min(timedelta(seconds=retry_after_seconds), _LONGEST_PAUSE)
        _pause_profile(tx, turn.model, until)
    if _stopped(tx, turn, now):
        return
    again_at = now + min(_FIRST_DELAY * 3 ** (turn.attempt - 1), _LONGEST_DELAY)
    if until is not None and until > again_at:
        again_at = until
    if not transient or turn.attempt >= ATTEMPTS:
        _end(tx, turn, TurnStatus.FAILED, code, message=message, now=now)
    elif turn.deadline_at is not None and again_at >= turn.deadline_at:
        message = f"{message} The next try would come after the time limit of the turn."
        _end(tx, turn, TurnStatus.FAILED, code, message=message, now=now)
    else:
        turn.attempt += 1
        _let_go(turn, again_at)


@operation
def request_given_up(tx: Tx, hold: Hold, *, now: datetime) -> None:
    """Keep that a request was broken off because the turn is to stop. Raises Lost."""
    turn = _held(tx, hold)
    turn.request_sent_at = None
    _settle(tx, turn, 0)
    if not _stopped(tx, turn, now):
        _let_go(turn, None)


@operation
def fail(tx: Tx, hold: Hold, code: str, message: str | None, *, now: datetime) -> None:
    """End a turn that cannot go on. Raises Lost."""
    turn = _held(tx, hold)
    _settle(tx, turn, 0)
    _end(tx, turn, TurnStatus.FAILED, code, message=message, now=now)


def _pause_profile(tx: Tx, profile: str, until: datetime) -> None:
    known = tx.session.get(ModelPause, profile)
    if known is None or known.until < until:
        row = {"profile": profile, "until": until}
        dialect.upsert(tx.session, cast(Table, ModelPause.__table__), row, ["profile"], {"until": until})


# Actions


@operation
def act(tx: Tx, hold: Hold, call: WantedCall, remember: Remember, *, now: datetime) -> Acted:
    """Do what the model asks for, if it may; or ask a person; or tell the model in words why not.

    Authority, side effect, message and history are one transaction. `remember(history, key, text)` is the history
    with the result of the call. Raises Lost.
    """
    turn = _held(tx, hold)
    if _stopped(tx, turn, now):
        return Acted.ENDED
    chat = tx.session.get_one(Chat, turn.chat_pk)
    scene = _scene(tx, turn, chat, call, now)
    action: Action | None = None
    try:
        tool, action = _prepare(tx, scene, call)
        verdict = _verdict(tx, turn, scene, tool, action)
        if verdict is Acted.ENDED or verdict is Acted.ASKED:
            return verdict
        text = action.act()
    except NotDone as refusal:
        text = str(refusal)
    text = steps.storable(text)[:_MAX_RESULT]
    told: dict[str, object] = {"call_id": call.key, "operation": steps.storable(call.name[:80])}
    if action is not None:
        told |= {"operation": action.operation, "arguments": dict(action.arguments)}
    steps.add_message(
        tx,
        chat,
        MessageRole.TOOL,
        author=f"tool {call.name[:80]}",
        text=text,
        turn_pk=turn.id,
        meta={"action": told},
        now=now,
    )
    turn.history = remember(turn.history or "", call.key, text)
    turn.lease_until = dialect.database_now(tx.session) + LEASE
    return Acted.DONE


def _prepare(tx: Tx, scene: Scene, call: WantedCall) -> tuple[Tool, Action]:
    tool = actions.all_tools().get(call.name)
    if tool is None:
        raise NotDone(f"There is no tool called {call.name[:80]}. Nothing was done.")
    if call.arguments is None:
        raise NotDone("The arguments are not a JSON object. Nothing was done.")
    return tool, tool.prepare(tx, scene, call.arguments)


def _verdict(tx: Tx, turn: Turn, scene: Scene, tool: Tool, action: Action) -> Acted:
    """DONE: it may be done now, and what permitted it is spent. Raises NotDone with the refusal in words."""
    approval = tx.session.scalars(
        select(Approval)
        .where(Approval.turn_pk == turn.id, Approval.call_id == scene.call_key)
        .execution_options(populate_existing=True)
    ).one_or_none()
    if approval is not None and approval.status is ApprovalStatus.PENDING:
        return Acted.ASKED
    approved = approval is not None and _permits(approval, turn, action)
    answer = _authority(tx, turn, scene, tool, action, approved=approved)
    if answer == "mandate_revoked":
        _end(tx, turn, TurnStatus.ABORTED, "mandate_revoked", now=scene.now)
        return Acted.ENDED
    if answer is Verdict.NEEDS_APPROVAL:
        if approval is not None:
            raise NotDone(_no(approval))
        _ask(tx, turn, scene, action)
        return Acted.ASKED
    if answer is not Verdict.PREAPPROVED:
        code = "mandate_denies" if answer is Verdict.DENIED else str(answer)
        raise NotDone(f"Not permitted ({code}): {sentence_of(code)} Nothing was done.")
    if approved and approval is not None and not steps.use(tx, approval, now=scene.now):
        raise NotDone("This approval was used before. Nothing was done.")
    return Acted.DONE


def _permits(approval: Approval, turn: Turn, action: Action) -> bool:
    """Whether a person has approved exactly this, under this authority, and it was not done yet."""
    return (
        approval.status is ApprovalStatus.APPROVED
        and approval.used_at is None
        and approval.operation == action.operation
        and approval.arguments == dict(action.arguments)
        and (approval.mandate_pk, approval.mandate_revision) == (turn.mandate_pk, turn.mandate_revision)
    )


def _no(approval: Approval) -> str:
    if approval.status is ApprovalStatus.DENIED:
        return "A person denied this. Nothing was done; do not ask for the same again."
    if approval.status is ApprovalStatus.EXPIRED:
        return "Nobody answered in time, which counts as denied. Nothing was done."
    return "What was approved is not what would be done now. Nothing was done."


def _authority(
    tx: Tx, turn: Turn, scene: Scene, tool: Tool, action: Action, *, approved: bool
) -> Verdict | str:
    """What permits the action: the mandate behind the turn, or the rights of the person who talks.

    A person's own turn acts under the rights that they have at this moment, and asks before it changes anything.
    """
    about = {"turn_id": turn.turn_id, "call_id": scene.call_key}
    if turn.mandate_pk is not None:
        return mandate_steps.authorize(
            tx,
            turn.mandate_pk,
            turn.mandate_revision,
            action.operation,
            action.target,
            actor=scene.actor,
            approved=approved,
            now=scene.now,
            about=about,
        )
    if turn.run_pk is not None or not turn.by_person:
        return "mandate_missing"
    refused = _owner_refusal(tx, turn)
    if refused is not None:
        return refused
    if tool.changes and not approved:
        return Verdict.NEEDS_APPROVAL
    if tool.changes:
        audit.record(
            tx,
            turn.network_pk,
            actor=scene.actor,
            verb="turn.act",
            subject_kind="turn",
            subject_id=turn.turn_id,
            detail={**about, "operation": action.operation, "target": action.target},
            now=scene.now,
        )
    return Verdict.PREAPPROVED


def _ask(tx: Tx, turn: Turn, scene: Scene, action: Action) -> None:
    origin = actions.origin_of(tx.session, turn.run_pk, scene.now)
    wait = actions.approval_wait(origin, app_config().approval_seconds)
    steps.request_approval(
        tx,
        turn,
        call_id=scene.call_key,
        operation=action.operation,
        arguments=action.arguments,
        schedule_id=scene.schedule_id,
        deadline_at=scene.now + wait,
        now=scene.now,
    )


def _scene(tx: Tx, turn: Turn, chat: Chat, call: WantedCall, now: datetime) -> Scene:
    owner = tx.session.get_one(User, chat.owner_pk)
    origin = actions.origin_of(tx.session, turn.run_pk, now)
    return Scene(
        turn_id=turn.turn_id,
        call_key=call.key,
        network_pk=turn.network_pk,
        chat_id=chat.chat_id,
        chat_pk=chat.id,
        owner_pk=owner.id,
        owner_name=owner.name,
        actor=owner.name if origin is None else f"schedule {origin.schedule_id}"[:120],
        schedule_id=None if origin is None else origin.schedule_id,
        now=now,
    )


@operation
def wait_for_answers(tx: Tx, hold: Hold, *, now: datetime) -> bool:
    """Let the turn wait for a person; False when every answer has come meanwhile, or it has ended. Raises Lost."""
    turn = _held(tx, hold)
    if _stopped(tx, turn, now):
        return True
    if not steps.pending_approvals(tx.session, turn.id):
        return False
    steps.wait_for_action(tx, turn, now=now)
    hooks.turn_changed(tx, turn, now)
    return True


# Recovery


def recover(now: datetime) -> int:
    """Mend what a worker left behind, and end what is overdue; each in a transaction of its own. Returns how many.

    A turn whose worker has died while the model was asked has failed (`worker_lost`): whether the model answered is
    not known, and it is not asked again. Any other one is given to the next worker. Needs an app context.
    """
    with reading() as session:
        lost, overdue = _to_recover(session, now)
    mended = each_alone(lost, partial(_recover_lost, now=now), "turn of a lost worker")
    mended += each_alone(overdue, partial(_time_out, now=now), "time limit of a turn")
    mended += operations.expire_approvals(now=now)
    _forget_pauses(now=now)
    return mended


def _to_recover(session: Session, now: datetime) -> tuple[list[int], list[int]]:
    running = (
        select(Turn.id)
        .where(steps.STILL_OPEN, Turn.status == TurnStatus.RUNNING)
        .order_by(Turn.id)
        .limit(_A_PASS)
    )
    lost = running.where(Turn.lease_owner.is_not(None), Turn.lease_until < dialect.database_now(session))
    unheld = (Turn.lease_owner.is_(None)) & (Turn.deadline_at <= now)
    overdue = running.where(or_(unheld, Turn.deadline_at <= now - _STUCK_AFTER))
    return list(session.scalars(lost)), list(session.scalars(overdue))


@operation
def _recover_lost(tx: Tx, turn_pk: int, *, now: datetime) -> int:
    turn = _fresh_by_key(tx, turn_pk)
    gone = (
        turn.status is TurnStatus.RUNNING
        and turn.lease_owner is not None
        and turn.lease_until is not None
        and turn.lease_until < dialect.database_now(tx.session)
    )
    if not gone:
        return 0
    _log.warning(
        "a worker was lost", turn_id=turn.turn_id, request_under_way=turn.request_sent_at is not None
    )
    asked = turn.request_sent_at is not None
    _settle(tx, turn, 0)
    if turn.stop_code is not None:
        _end(tx, turn, TurnStatus.ABORTED, turn.stop_code, now=now)
    elif asked:
        _end(tx, turn, TurnStatus.FAILED, "worker_lost", message=sentence_of("worker_lost"), now=now)
    else:
        _let_go(turn, None)
    return 1


@operation
def _time_out(tx: Tx, turn_pk: int, *, now: datetime) -> int:
    turn = _fresh_by_key(tx, turn_pk)
    if turn.status is not TurnStatus.RUNNING or not _is_over(turn, now):
        return 0
    _settle(tx, turn, 0)
    _end(tx, turn, TurnStatus.FAILED, "turn_timed_out", now=now)
    return 1


@operation
def _forget_pauses(tx: Tx, *, now: datetime) -> None:
    tx.session.execute(delete(ModelPause).where(ModelPause.until <= now))


# Parts


def _fresh_by_key(tx: Tx, turn_pk: int) -> Turn:
    seen = tx.session.get_one(Turn, turn_pk)
    return _fresh(
        tx, Hold(seen.id, seen.turn_id, seen.chat_pk, seen.run_pk, seen.mandate_pk, seen.model, owner="")
    )


def _fresh(tx: Tx, hold: Hold) -> Turn:
    """The turn as it is now, after schedule, run, mandate and chat were locked in their order."""
    hooks.before_turn_change(tx, hold.run_pk)
    if hold.mandate_pk is not None:
        mandate_steps.lock(tx, hold.mandate_pk)
    steps.lock_chat(tx, hold.chat_pk)
    return steps.fresh_turn(tx, hold.turn_pk)


def _held(tx: Tx, hold: Hold) -> Turn:
    turn = _fresh(tx, hold)
    if turn.status is not TurnStatus.RUNNING or turn.lease_owner != hold.owner:
        raise Lost
    return turn


def _stopped(tx: Tx, turn: Turn, now: datetime) -> bool:
    """End a turn that may not take another step: asked to stop, its authority revoked, its time over."""
    code = turn.stop_code
    if code is None and turn.mandate_pk is not None:
        mandate = mandate_steps.lock(tx, turn.mandate_pk)
        code = "mandate_revoked" if mandate.state is MandateState.REVOKED else None
    if code is None and turn.by_person and turn.run_pk is None:
        code = _owner_refusal(tx, turn)
    if code is not None:
        _settle(tx, turn, 0)
        _end(tx, turn, TurnStatus.ABORTED, code, now=now)
        return True
    if _is_over(turn, now):
        _settle(tx, turn, 0)
        _end(tx, turn, TurnStatus.FAILED, "turn_timed_out", now=now)
        return True
    return False


def _owner_refusal(tx: Tx, turn: Turn) -> str | None:
    """Why the owner of the chat may not act in its network any more, or None."""
    active, role = tx.session.execute(
        select(User.active, Membership.role)
        .join(Chat, Chat.owner_pk == User.id)
        .outerjoin(Membership, (Membership.user_pk == User.id) & (Membership.network_pk == Chat.network_pk))
        .where(Chat.id == turn.chat_pk)
    ).one()
    if not active:
        return "sponsor_inactive"
    return None if may_sponsor(role) else "sponsor_not_permitted"


def _is_over(turn: Turn, now: datetime) -> bool:
    return turn.deadline_at is not None and turn.deadline_at <= now


def _let_go(turn: Turn, not_before: datetime | None) -> None:
    turn.lease_owner = turn.lease_until = None
    turn.not_before = not_before


def _settle(tx: Tx, turn: Turn, used: int) -> None:
    """Give back what the mandate has set aside for this turn, and count what was used."""
    if turn.mandate_pk is not None and (turn.reserved_tokens or used):
        mandate_steps.settle_tokens(tx, turn.mandate_pk, reserved=turn.reserved_tokens, used=used)
    turn.reserved_tokens = 0


def _end(
    tx: Tx, turn: Turn, status: TurnStatus, code: str | None, *, message: str | None = None, now: datetime
) -> None:
    if steps.end(tx, turn, status, code=code, message=message, now=now):
        hooks.turn_changed(tx, turn, now)
