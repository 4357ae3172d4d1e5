"""`/api/approvals`: what turns want to do, and their owner's answer."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, g

from webapp.api.body import parse
from webapp.api.filters import choice_of
from webapp.chat import operations, queries
from webapp.chat.lifecycle import ApprovalStatus
from webapp.identity.access import Verb
from webapp.nodes.bodies import NoBody
from webapp.store import db
from webapp.web.auth import current_actor
from webapp.web.policy import UserApi, access
from webapp.web.present_chats import approval_json
from webapp.web.requests import json_body, networks_of_read, page_request

blueprint = Blueprint("api_approvals", __name__, url_prefix="/api/approvals")
Answer = tuple[dict[str, Any], int]


@blueprint.get("")
@access(UserApi, verb=Verb.READ)
def list_approvals() -> Answer:
    """What turns in the caller's chats asked for, newest first, by `?status=`."""
    page = queries.list_approvals(
        db.session(),
        current_actor(),
        networks_of_read(),
        page_request(),
        status=choice_of("status", ApprovalStatus),
    )
    rows = [approval_json(view) for view in page.rows]
    return {"ok": True, "approvals": rows, "next_cursor": page.next_cursor}, 200


@blueprint.post("/<approval_id>/approve")
@access(UserApi, verb=Verb.DECIDE_APPROVAL)
def approve(approval_id: str) -> Answer:
    """Permit it, this once, with exactly these arguments."""
    _read_nothing(approval_id)
    operations.approve(current_actor(), approval_id, now=g.now)
    return _answer(approval_id), 200


@blueprint.post("/<approval_id>/deny")
@access(UserApi, verb=Verb.DECIDE_APPROVAL)
def deny(approval_id: str) -> Answer:
    """Refuse it; the turn is told so and goes on."""
    _read_nothing(approval_id)
    operations.deny(current_actor(), approval_id, now=g.now)
    return _answer(approval_id), 200


def _read_nothing(approval_id: str) -> None:
    parse(
        NoBody,
        json_body(optional=True),
        before_refusal=lambda: queries.find_approval(db.session(), current_actor(), approval_id),
    )


def _answer(approval_id: str) -> dict[str, Any]:
    view = queries.find_approval(db.session(), current_actor(), approval_id)
    return {"ok": True, "approval": approval_json(view)}
