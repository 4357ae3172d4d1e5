"""The pages of chats: which there are, one with what was said and what is at work, and what people write into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from flask import Blueprint, Response, g, request
from sqlalchemy.orm import Session

from webapp.chat import operations, profiles, queries
from webapp.chat.bodies import ChatChanges, NewChatBody, NewMessageBody
from webapp.chat.lifecycle import OPEN_TURN, ApprovalStatus, TurnStatus
from webapp.chat.models import Chat, Message, Turn
from webapp.chat.queries import ChatView, MessageView, TurnView
from webapp.chat.steps import open_turns
from webapp.clock import parse_instant
from webapp.errors import AppError
from webapp.html.asks import asks_of
from webapp.html.authority import CallWords, call_words, exact_call, tokens
from webapp.html.filters import plural
from webapp.html.forms import blame
from webapp.html.forms.chat import MessageForm, NewChatForm, TitleForm, model_choices, model_words
from webapp.html.respond import flash, form_refused, page, redirect_to
from webapp.html.viewing import (
    address,
    asked,
    keyed_request,
    new_form_key,
    reached_networks,
    shown_networks,
)
from webapp.html.ways import way_out
from webapp.identity.access import Actor, Facts, Verb, may
from webapp.nodes.queries import aliases_by_id
from webapp.scheduling.lifecycle import ScheduleStatus, TargetKind
from webapp.scheduling.models import Schedule
from webapp.scheduling.queries import schedules_of_target
from webapp.store import db
from webapp.store.paging import PageRequest
from webapp.web.auth import current_actor, viewer_place, viewer_zone
from webapp.web.body import parse
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("chat_pages", __name__, url_prefix="/chats")

_LIST: Final = {"chat-list": "chats/_chat_list.html"}
_DETAIL: Final = {
    "chat-head": "chats/_chat_head.html",
    "chat-talk": "chats/_chat_talk.html",
    "chat-now": "chats/_chat_now.html",
    "chat-schedules": "chats/_chat_schedules.html",
}
_PER_PAGE: Final = 25
_MESSAGES: Final = 50
_TURNS: Final = 60
_MOST_ASKED: Final = 20
_MOST_SCHEDULES: Final = 100
# Refusals of a message that belong to no field.
_SHOWN_ABOVE: Final = frozenset({"chat_archived", "idempotency_conflict"})


# --- The list, and a new one ---


@dataclass(frozen=True)
class ChatRow:
    """A chat in a table; `turn` is the one that is at work or next, None in a quiet chat or a foreign one."""

    view: ChatView
    turn: Turn | None

    @property
    def chat(self) -> Chat:
        return self.view.chat


def _said_of_list(rows: Sequence[ChatRow]) -> str | None:
    """What the viewer's own chats on this page do, with their numbers; None where there is none."""
    own = [row for row in rows if row.view.is_own]
    if not own:
        return None
    asking = sum(row.turn is not None and row.turn.status is TurnStatus.WAITING_FOR_ACTION for row in own)
    working = sum(row.turn is not None for row in own) - asking
    parts = (
        (asking, "chat waits for your answer", "chats wait for your answer"),
        (working, "chat is at work", "chats are at work"),
        (len(own) - asking - working, "chat is quiet", "chats are quiet"),
    )
    return ", ".join(plural(count, one, many) for count, one, many in parts if count) + "."


@blueprint.get("")
@access(SignedIn, verb=Verb.READ)
def list_chats() -> Response:
    """The viewer's chats, the one that changed last first; `?kept=archived` and `?of=all` (others' too) widen it."""
    return page(
        "chats/list.html", _LIST, **_list_context(NewChatForm(data={"model": profiles.default_name()}))
    )


@blueprint.post("")
@access(SignedIn, verb=Verb.CREATE_CHAT)
def create_chat() -> Response:
    """Begin a chat, with the first message if there is one."""
    form, place = NewChatForm(request.form), viewer_place()
    if place is None:
        raise AppError("permission_denied", message="You belong to no network.")
    try:
        body = parse(NewChatBody, form.title_body())
        first = parse(NewMessageBody, form.body()) if form.text.data else None
        keyed = keyed_request("create_chat", body.model_dump(mode="json"))
        chat = operations.create_chat(current_actor(), place.network_pk, body.title, request=keyed, now=g.now)
        if first is not None:
            keyed = keyed_request("post_message", {"chat": chat.chat_id, **first.model_dump(mode="json")})
            operations.post_message(current_actor(), chat.chat_id, first, request=keyed, now=g.now)
    except AppError as refusal:
        if refusal.code in _SHOWN_ABOVE:
            form.text.errors = [refusal.message]
        else:
            blame(form, refusal)
        db.session.remove()
        return form_refused("chats/list.html", _LIST, **_list_context(form))
    return redirect_to(f"/chats/{chat.chat_id}")


def _list_context(form: NewChatForm) -> dict[str, Any]:
    session, actor, networks, place = db.session(), current_actor(), shown_networks(), viewer_place()
    archived, everybody = asked("kept") == "archived", asked("of") == "all"
    cursor = asked("cursor")
    found = queries.list_chats(
        session, actor, networks, PageRequest(_PER_PAGE, cursor), archived=archived, only_own=not everybody
    )
    own = [view.chat.id for view in found.rows if view.is_own]
    turns = open_turns(session, own)
    kept, of = "archived" if archived else None, "all" if everybody else None
    form.model.choices = model_choices(profiles.all_profiles(), form.model.data)
    rows = [
        ChatRow(view, turns[view.chat.id][0] if view.is_own and turns.get(view.chat.id) else None)
        for view in found.rows
    ]
    return {
        "rows": rows,
        "said": None if archived else _said_of_list(rows),
        "archived": archived,
        "everybody": everybody,
        "kept_urls": {
            "living": address("/chats", of=of),
            "archived": address("/chats", kept="archived", of=of),
        },
        "of_urls": {"mine": address("/chats", kept=kept), "all": address("/chats", kept=kept, of="all")},
        "sees_others": any(may(actor, Verb.STOP_MANDATE, Facts(network_pk=pk)) for pk in networks),
        "form": form,
        "form_key": new_form_key(),
        "may_create": place is not None and may(actor, Verb.CREATE_CHAT, Facts(network_pk=place.network_pk)),
        "address": address("/chats", kept=kept, of=of, cursor=cursor),
        "next_url": address("/chats", kept=kept, of=of, cursor=found.next_cursor)
        if found.next_cursor
        else None,
        "first_url": address("/chats", kept=kept, of=of) if cursor else None,
        "zone": viewer_zone(),
        "now": g.now,
    }


# --- One chat ---


@dataclass(frozen=True)
class Said:
    """A message on the page. `run_id`, `slot`: of a schedule's prompt. `call`, `exact`: of an action that was taken.

    `turn` stands below the last message of it that is shown.
    """

    message: Message
    run_id: str | None
    slot: datetime | None
    call: CallWords | None
    exact: str | None
    turn: TurnView | None

    @property
    def kind(self) -> str:
        """`user`, `assistant` or `tool`."""
        return self.message.role.value


@blueprint.get("/<chat_id>")
@access(SignedIn, verb=Verb.READ)
def show_chat(chat_id: str) -> Response:
    """One chat; of somebody else's an admin sees that it exists, and its schedules."""
    return _show(chat_id)


def _show(
    chat_id: str, *, form: MessageForm | None = None, refusal: AppError | None = None, status: int = 200
) -> Response:
    view = queries.find_chat(db.session(), current_actor(), chat_id)
    if not view.is_own:
        return page("chats/foreign.html", view=view, **_schedules(view), zone=viewer_zone(), now=g.now)
    return page(
        "chats/detail.html",
        _DETAIL,
        status=status,
        refused=status == 422,
        refusal=refusal,
        refused_way=way_out(refusal.code) if refusal else None,
        form=_message_form(form),
        **_context(view),
    )


def _message_form(form: MessageForm | None) -> MessageForm:
    if form is None:
        form = MessageForm(data={"model": profiles.default_name()})
    form.model.choices = model_choices(profiles.all_profiles(), form.model.data)
    form.idempotency_key.data = new_form_key()
    return form


def _context(view: ChatView) -> dict[str, Any]:
    session, networks, actor, now = db.session(), reached_networks(), current_actor(), g.now
    chat, base, cursor = view.chat, f"/chats/{view.chat.chat_id}", asked("cursor")
    found = queries.messages(session, chat.id, PageRequest(_MESSAGES, cursor))
    turns = queries.turns_of_chat(session, chat.id, limit=_TURNS)
    waiting = queries.list_approvals(
        session, actor, networks, PageRequest(_MOST_ASKED), status=ApprovalStatus.PENDING, chat_pk=chat.id
    )
    usable = may(actor, Verb.USE_CHAT, Facts(chat.network_pk, chat.owner_pk, private=True))
    return {
        "view": view,
        "chat": chat,
        "base": base,
        "said": _said(session, chat, list(reversed(found.rows)), turns),
        "open": _in_order([turn for turn in turns if turn.turn.status in OPEN_TURN]),
        "asks": asks_of(session, networks, reversed(waiting.rows), now),
        "model_words": model_words,
        "usage": tokens(
            sum(turn.turn.input_tokens for turn in turns), sum(turn.turn.output_tokens for turn in turns)
        ),
        "may_use": usable,
        "may_write": usable and chat.archived_at is None,
        "address": address(base, cursor=cursor),
        "older_url": address(base, cursor=found.next_cursor) if found.next_cursor else None,
        "newest_url": base if cursor else None,
        "title_form": TitleForm(data={"title": chat.title}),
        "zone": viewer_zone(),
        "now": now,
        **_schedules(view),
    }


def _in_order(turns: list[TurnView]) -> list[TurnView]:
    """The one at work first, then those that wait, in the order of their places."""
    return sorted(turns, key=lambda view: -1 if view.place is None else view.place)


def _said(
    session: Session, chat: Chat, shown: Sequence[MessageView], turns: Sequence[TurnView]
) -> list[Said]:
    by_pk = {view.turn.id: view for view in turns}
    last = {view.message.turn_pk: view.message.id for view in shown}
    acted = any(view.message.meta.get("action") for view in shown)
    aliases = aliases_by_id(session, [chat.network_pk]) if acted else {}
    return [
        _one_said(
            view.message,
            by_pk.get(view.message.turn_pk or 0) if last[view.message.turn_pk] == view.message.id else None,
            aliases,
        )
        for view in shown
    ]


def _one_said(message: Message, turn: TurnView | None, aliases: Mapping[str, str]) -> Said:
    scheduled, action = message.meta.get("scheduled_task") or {}, message.meta.get("action") or {}
    operation, arguments = action.get("operation"), action.get("arguments") or {}
    return Said(
        message=message,
        run_id=scheduled.get("occurrence_id"),
        slot=parse_instant(scheduled["scheduled_for"]) if scheduled.get("scheduled_for") else None,
        call=call_words(operation, arguments, aliases) if operation else None,
        exact=exact_call(operation, arguments) if operation else None,
        turn=turn,
    )


def _schedules(view: ChatView) -> dict[str, Any]:
    """The schedules that speak in a chat, and which buttons the viewer may press on each."""
    schedules = schedules_of_target(db.session(), TargetKind.CHAT, view.chat.id, limit=_MOST_SCHEDULES)
    actor = current_actor()
    return {
        "schedules": schedules,
        "may_pause": {schedule.id for schedule in schedules if _may(actor, Verb.PAUSE_SCHEDULE, schedule)},
        "may_cancel": {schedule.id for schedule in schedules if _may(actor, Verb.CANCEL_SCHEDULE, schedule)},
    }


def _may(actor: Actor, verb: Verb, schedule: Schedule) -> bool:
    standing = schedule.status in (
        ScheduleStatus.ACTIVE,
        ScheduleStatus.PAUSED,
        ScheduleStatus.NEEDS_ATTENTION,
    )
    facts = Facts(schedule.network_pk, schedule.sponsor_pk, schedule.paused_by_pk, private=True)
    return standing and may(actor, verb, facts)


# --- What people do in one ---


@blueprint.get("/<chat_id>/messages", endpoint="leave_messages")
@blueprint.get("/<chat_id>/archive", endpoint="leave_archive")
@blueprint.get("/<chat_id>/unarchive", endpoint="leave_unarchive")
@blueprint.get("/<chat_id>/rename", endpoint="leave_rename")
@blueprint.get("/<chat_id>/abort", endpoint="leave_abort")
@access(SignedIn)
def leave_action(chat_id: str) -> Response:
    """Whoever loads the address of a form again comes back to the chat."""
    return redirect_to(f"/chats/{queries.find_chat(db.session(), current_actor(), chat_id).chat.chat_id}")


@blueprint.post("/<chat_id>/messages")
@access(SignedIn, verb=Verb.USE_CHAT)
def post_message(chat_id: str) -> Response:
    """Write into the chat and have the model answer; `deny_waiting` denies what its turn waits for first."""
    form, deny = MessageForm(request.form), "deny_waiting" in request.form
    queries.own_chat(db.session(), current_actor(), chat_id)
    try:
        body = parse(NewMessageBody, form.body(deny_waiting=deny))
        keyed = keyed_request("post_message", {"chat": chat_id, **body.model_dump(mode="json")})
        operations.post_message(current_actor(), chat_id, body, request=keyed, now=g.now)
    except AppError as refusal:
        # What was read before the attempt may be what made it too late.
        db.session.remove()
        if refusal.code in _SHOWN_ABOVE:
            return _show(chat_id, form=form, refusal=refusal, status=refusal.status)
        blame(form, refusal)
        return _show(chat_id, form=form, status=422)
    return redirect_to(f"/chats/{chat_id}#chat-now")


@blueprint.post("/<chat_id>/abort")
@access(SignedIn, verb=Verb.USE_CHAT)
def abort_turn(chat_id: str) -> Response:
    """End a turn: at once if it waits, at its next step if it is at work."""
    turn_id = request.form.get("turn_id", "")

    def act() -> str:
        turn = operations.abort_turn(current_actor(), turn_id, now=g.now)
        ended = turn.status is TurnStatus.ABORTED
        return "The turn is aborted." if ended else "The turn is asked to stop; it ends at its next step."

    return _do(chat_id, act)


@blueprint.post("/<chat_id>/archive")
@access(SignedIn, verb=Verb.USE_CHAT)
def archive_chat(chat_id: str) -> Response:
    """Put the chat away: its turns end, its schedules stop."""

    def act() -> str:
        operations.archive_chat(current_actor(), chat_id, now=g.now)
        return "Archived. Nothing speaks here any more; all that was said stays."

    return _do(chat_id, act)


@blueprint.post("/<chat_id>/unarchive")
@access(SignedIn, verb=Verb.USE_CHAT)
def unarchive_chat(chat_id: str) -> Response:
    """Take the chat up again."""

    def act() -> str:
        operations.unarchive_chat(current_actor(), chat_id, now=g.now)
        return "Taken up again. Its schedules stay as they are until each is resumed."

    return _do(chat_id, act)


@blueprint.post("/<chat_id>/rename")
@access(SignedIn, verb=Verb.USE_CHAT)
def rename_chat(chat_id: str) -> Response:
    """Call the chat something else."""
    form = TitleForm(request.form)

    def act() -> str:
        changes = parse(ChatChanges, {"title": form.title.data or ""})
        operations.rename_chat(current_actor(), chat_id, changes.title, now=g.now)
        return f"It is called {changes.title} now."

    return _do(chat_id, act)


def _do(chat_id: str, act: Callable[[], str]) -> Response:
    """Do it and go back to the chat; a refusal that the chat explains is shown on its own page."""
    queries.own_chat(db.session(), current_actor(), chat_id)
    try:
        flash(act())
    except AppError as refusal:
        if refusal.status not in (400, 409):
            raise
        # What was read before the attempt may be what made it too late.
        db.session.remove()
        return _show(chat_id, refusal=refusal, status=refusal.status)
    return redirect_to(f"/chats/{chat_id}")
