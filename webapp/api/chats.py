"""`/api/chats`: conversations, which are their owner's alone, and what is written in them."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, g

from webapp.api.body import parse
from webapp.api.turns import turn_answer
from webapp.chat import operations, queries, rules
from webapp.chat.bodies import ChatChanges, NewChatBody, NewMessageBody
from webapp.chat.models import Chat
from webapp.identity.access import Facts, Verb, demand
from webapp.nodes.bodies import NoBody
from webapp.store import db
from webapp.web.auth import current_actor
from webapp.web.policy import UserApi, access
from webapp.web.present_chats import chat_json, message_json
from webapp.web.requests import (
    idempotency_request,
    json_body,
    network_of_write,
    networks_of_read,
    page_request,
)

blueprint = Blueprint("api_chats", __name__, url_prefix="/api/chats")
Answer = tuple[dict[str, Any], int]


@blueprint.get("")
@access(UserApi, verb=Verb.READ)
def list_chats() -> Answer:
    """The caller's chats, and for admins those that exist beside; the one that changed last first."""
    page = queries.list_chats(db.session(), current_actor(), networks_of_read(), page_request())
    return {
        "ok": True,
        "chats": [chat_json(view) for view in page.rows],
        "next_cursor": page.next_cursor,
    }, 200


@blueprint.post("")
@access(UserApi, verb=Verb.CREATE_CHAT)
def create_chat() -> Answer:
    """Begin a conversation."""
    data = json_body(optional=True)

    def may_create() -> None:
        place = network_of_write(data.get("network_id"))
        demand(current_actor(), Verb.CREATE_CHAT, Facts(network_pk=place.network_pk))

    body = parse(NewChatBody, data, before_refusal=may_create)
    place = network_of_write(data.get("network_id"))
    keyed = idempotency_request("create_chat", {"network_id": place.network_id, "title": body.title})
    chat = operations.create_chat(current_actor(), place.network_pk, body.title, request=keyed, now=g.now)
    return _answer(chat.chat_id), 201


@blueprint.get("/<chat_id>")
@access(UserApi, verb=Verb.READ)
def show_chat(chat_id: str) -> Answer:
    """One chat; its title is for its owner alone."""
    return _answer(chat_id), 200


@blueprint.patch("/<chat_id>")
@access(UserApi, verb=Verb.USE_CHAT)
def rename_chat(chat_id: str) -> Answer:
    """Give a chat another title."""
    body = parse(ChatChanges, json_body(), before_refusal=lambda: _may_use(chat_id))
    operations.rename_chat(current_actor(), chat_id, body.title, now=g.now)
    return _answer(chat_id), 200


@blueprint.post("/<chat_id>/archive")
@access(UserApi, verb=Verb.USE_CHAT)
def archive_chat(chat_id: str) -> Answer:
    """Put a chat away: what hangs on it stops. Repeatable."""
    parse(NoBody, json_body(optional=True), before_refusal=lambda: _may_use(chat_id))
    operations.archive_chat(current_actor(), chat_id, now=g.now)
    return _answer(chat_id), 200


@blueprint.post("/<chat_id>/unarchive")
@access(UserApi, verb=Verb.USE_CHAT)
def unarchive_chat(chat_id: str) -> Answer:
    """Take a chat up again; its schedules stay as they are. Repeatable."""
    parse(NoBody, json_body(optional=True), before_refusal=lambda: _may_use(chat_id))
    operations.unarchive_chat(current_actor(), chat_id, now=g.now)
    return _answer(chat_id), 200


@blueprint.get("/<chat_id>/messages")
@access(UserApi, verb=Verb.USE_CHAT)
def list_messages(chat_id: str) -> Answer:
    """The messages of a chat of one's own, the newest first; `seq` has no gaps."""
    view = queries.own_chat(db.session(), current_actor(), chat_id)
    page = queries.messages(db.session(), view.chat.id, page_request())
    rows = [message_json(row) for row in page.rows]
    return {"ok": True, "messages": rows, "next_cursor": page.next_cursor}, 200


@blueprint.post("/<chat_id>/messages")
@access(UserApi, verb=Verb.USE_CHAT)
def post_message(chat_id: str) -> Answer:
    """Write into a chat; the turn that answers is queued, with its place if one is at work."""

    def may_write() -> None:
        operations.check_writable(_may_use(chat_id))

    body = parse(NewMessageBody, json_body(), before_refusal=may_write)
    keyed = idempotency_request("post_message", {"chat_id": chat_id, **body.model_dump(mode="json")})
    turn = operations.post_message(current_actor(), chat_id, body, request=keyed, now=g.now)
    return turn_answer(turn.turn_id), 202


def _may_use(chat_id: str) -> Chat:
    chat = queries.own_chat(db.session(), current_actor(), chat_id).chat
    rules.demand_use(current_actor(), chat, "chat_not_found")
    return chat


def _answer(chat_id: str) -> dict[str, Any]:
    return {"ok": True, "chat": chat_json(queries.find_chat(db.session(), current_actor(), chat_id))}
