"""The page of approvals: what agents ask for, letter by letter, and the two answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from flask import Blueprint, Response, g, request

from webapp.chat import operations, queries
from webapp.chat.lifecycle import ApprovalStatus
from webapp.chat.models import Approval
from webapp.errors import AppError
from webapp.html.asks import asks_of
from webapp.html.respond import flash, page, redirect_to
from webapp.html.viewing import address, asked, reached_networks
from webapp.html.ways import way_out
from webapp.identity.access import Actor, Verb
from webapp.store import db
from webapp.store.paging import PageRequest
from webapp.web.auth import current_actor, viewer_zone
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("approval_pages", __name__, url_prefix="/approvals")

_LIST: Final = {
    "approvals-waiting": "approvals/_approvals_waiting.html",
    "approvals-past": "approvals/_approvals_past.html",
}
_MOST_WAITING: Final = 20
_PER_PAGE: Final = 25


@blueprint.get("")
@access(SignedIn, verb=Verb.READ)
def list_approvals() -> Response:
    """What waits for the viewer's answer, the nearest deadline first; below it what was answered."""
    return _show()


def _show(refusal: AppError | None = None) -> Response:
    session, networks, actor = db.session(), reached_networks(), current_actor()
    waiting = queries.waiting_approvals(session, actor, networks, limit=_MOST_WAITING)
    cursor = asked("cursor")
    past = queries.list_approvals(session, actor, networks, PageRequest(_PER_PAGE, cursor))
    decided = [view for view in past.rows if view.approval.status is not ApprovalStatus.PENDING]
    return page(
        "approvals/list.html",
        _LIST,
        status=refusal.status if refusal else 200,
        refusal=refusal,
        refused_way=way_out(refusal.code) if refusal else None,
        asks=asks_of(session, networks, waiting, g.now),
        waiting=queries.count_pending(session, actor) if len(waiting) == _MOST_WAITING else len(waiting),
        past=asks_of(session, networks, decided, g.now),
        address=address("/approvals", cursor=cursor),
        next_url=address("/approvals", cursor=past.next_cursor) if past.next_cursor else None,
        first_url="/approvals" if cursor else None,
        zone=viewer_zone(),
        now=g.now,
    )


@blueprint.get("/<approval_id>/approve", endpoint="leave_approve")
@blueprint.get("/<approval_id>/deny", endpoint="leave_deny")
@access(SignedIn)
def leave_action(approval_id: str) -> Response:
    """Whoever loads the address of an answer by itself comes back to the list."""
    queries.find_approval(db.session(), current_actor(), approval_id)
    return redirect_to("/approvals")


@blueprint.post("/<approval_id>/approve")
@access(SignedIn, verb=Verb.DECIDE_APPROVAL)
def approve(approval_id: str) -> Response:
    """Permit exactly this call, this once."""
    return _answer(approval_id, operations.approve, "Approved, this once. The turn goes on.")


@blueprint.post("/<approval_id>/deny")
@access(SignedIn, verb=Verb.DECIDE_APPROVAL)
def deny(approval_id: str) -> Response:
    """Refuse the call; the agent is told so and goes on without it."""
    return _answer(approval_id, operations.deny, "Denied. The agent is told no and goes on without it.")


def _answer(approval_id: str, act: Callable[..., Approval], done: str) -> Response:
    view = queries.find_approval(db.session(), current_actor(), approval_id)
    back = _back(view.chat_id)
    try:
        _act(act, current_actor(), approval_id, g.now)
    except AppError as refusal:
        if refusal.status != 409:
            raise
        # What was read before the attempt may be what made it too late.
        db.session.remove()
        return _show(refusal)
    flash(done)
    return redirect_to(back)


def _act(act: Callable[..., Approval], actor: Actor, approval_id: str, now: datetime) -> Any:
    return act(actor, approval_id, now=now)


def _back(chat_id: str) -> str:
    """Where somebody goes on after the answer: to the list, to the chat, or to write into the chat."""
    return {"chat": f"/chats/{chat_id}", "talk": f"/chats/{chat_id}#composer"}.get(
        request.form.get("then", ""), "/approvals"
    )
