"""`/api/turns`: how far a model has come with what it was asked, and the end of it."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, g

from webapp.api.body import parse
from webapp.chat import operations, queries
from webapp.identity.access import Verb
from webapp.nodes.bodies import NoBody
from webapp.store import db
from webapp.targets.node_queries import facts_of_runs
from webapp.web.auth import current_actor
from webapp.web.policy import UserApi, access
from webapp.web.present_chats import turn_json
from webapp.web.requests import json_body

blueprint = Blueprint("api_turns", __name__, url_prefix="/api/turns")
Answer = tuple[dict[str, Any], int]


@blueprint.get("/<turn_id>")
@access(UserApi, verb=Verb.USE_CHAT)
def show_turn(turn_id: str) -> Answer:
    """One turn in a chat of one's own."""
    return turn_answer(turn_id), 200


@blueprint.post("/<turn_id>/abort")
@access(UserApi, verb=Verb.USE_CHAT)
def abort_turn(turn_id: str) -> Answer:
    """End a turn: at once if it is queued or waits, else at its next step. Repeatable."""
    parse(
        NoBody,
        json_body(optional=True),
        before_refusal=lambda: queries.find_turn(db.session(), current_actor(), turn_id),
    )
    operations.abort_turn(current_actor(), turn_id, now=g.now)
    return turn_answer(turn_id), 200


def turn_answer(turn_id: str) -> dict[str, Any]:
    """The answer that holds this turn of the caller's."""
    session = db.session()
    view = queries.find_turn(session, current_actor(), turn_id)
    return {"ok": True, "turn": turn_json(view, facts_of_runs(session, [view.turn]))}
