"""Chats, messages, turns and approvals as the public sees them. No internal key leaves here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webapp.chat.queries import ApprovalView, ChatView, MessageView, TurnView
from webapp.targets.node_queries import RunFacts
from webapp.web.present_people import instant


def chat_json(view: ChatView) -> dict[str, Any]:
    """A chat. Of somebody else's an admin sees that it exists: `title` and `updated_at` are null."""
    chat = view.chat
    return {
        "chat_id": chat.chat_id,
        "network_id": view.network_id,
        "owner": view.owner,
        "title": chat.title if view.is_own else None,
        "archived_at": instant(chat.archived_at),
        "created_at": instant(chat.created_at),
        "updated_at": instant(chat.updated_at) if view.is_own else None,
    }


def message_json(view: MessageView) -> dict[str, Any]:
    """A message; `seq` has no gaps in its chat."""
    message = view.message
    return {
        "message_id": message.message_id,
        "seq": message.seq,
        "role": message.role.value,
        "author": message.author,
        "text": message.text,
        "turn_id": view.turn_id,
        "meta": message.meta,
        "created_at": instant(message.created_at),
    }


def turn_json(view: TurnView, facts: Mapping[int, RunFacts]) -> dict[str, Any]:
    """A turn. `place` counts the turns before it while it is queued; `approvals` are what it waits for."""
    turn = view.turn
    run = facts.get(turn.run_pk) if turn.run_pk is not None else None
    return {
        "turn_id": turn.turn_id,
        "chat_id": view.chat_id,
        "run_id": run.run_id if run is not None else None,
        "schedule_id": run.schedule_id if run is not None else None,
        "status": turn.status.value,
        "place": view.place,
        "model": turn.model,
        "usage": {
            "requests": turn.requests,
            "input_tokens": turn.input_tokens,
            "output_tokens": turn.output_tokens,
        },
        "approvals": list(view.approval_ids),
        "error_code": turn.error_code,
        "error_message": turn.error_message,
        "created_at": instant(turn.created_at),
        "started_at": instant(turn.started_at),
        "completed_at": instant(turn.completed_at),
    }


def approval_json(view: ApprovalView) -> dict[str, Any]:
    """An approval: the operation with its exact arguments, until when it waits, and who answered how."""
    approval = view.approval
    return {
        "approval_id": approval.approval_id,
        "turn_id": view.turn_id,
        "chat_id": view.chat_id,
        "schedule_id": approval.schedule_id,
        "mandate_id": view.mandate_id,
        "mandate_revision": approval.mandate_revision,
        "operation": approval.operation,
        "arguments": approval.arguments,
        "deadline": instant(approval.deadline_at),
        "status": approval.status.value,
        "decided_by": view.decided_by,
        "decided_at": instant(approval.decided_at),
        "used_at": instant(approval.used_at),
        "created_at": instant(approval.created_at),
    }
