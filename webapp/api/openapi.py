"""`/api/openapi.json`: every call of the API in one document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, get_args

from flask import Blueprint, Response, current_app, jsonify

from webapp.chat.bodies import ChatChanges, NewChatBody, NewMessageBody
from webapp.identity.bodies import (
    MemberChanges,
    NewMemberBody,
    NewNetworkBody,
    NewTokenBody,
    NewUserBody,
    UserChanges,
)
from webapp.mandates.bodies import MandateChanges, PauseMandate, RevokeMandate
from webapp.nodes.bodies import (
    HeartbeatBody,
    NewNodeBody,
    NewTaskBody,
    NoBody,
    NodeChanges,
    ReplyBody,
    ReportBody,
)
from webapp.scheduling.fields import (
    BulkRequest,
    ChatTaskChanges,
    MoveRequest,
    NewChatSchedule,
    NewSchedule,
    PauseRequest,
    PreviewRequest,
    ScheduleChanges,
    SkipRequest,
)
from webapp.scheduling.policy import MANDATE_CODES
from webapp.scheduling.queries import Order
from webapp.web import shapes
from webapp.web.openapi import Body, Call, Maybe, Parameter, Schema, document
from webapp.web.policy import UserApi, access

blueprint = Blueprint("api_openapi", __name__, url_prefix="/api")

_ABOUT: Final = {
    "title": "Carillon",
    "version": "1",
    "summary": "Standing orders for AI agents.",
    "description": "Instants are UTC ISO 8601 with `Z` and milliseconds. Lists are keyset pages: `limit` (1 to 200), "
    "`cursor`, and `next_cursor` in the answer, null at the end. A refusal is a `Problem`.",
}
_INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
_ID: Final[Schema] = {"type": "string", "pattern": "^[a-z]{2,8}_[0-9a-z]{6,40}$"}

# ---------------------------------------------------------------- what models leave open

_TIMETABLES: Final[Mapping[str, Schema]] = {
    "once": {"run_at": {"type": "string", "description": "An instant with offset, or a local wall time."}},
    "interval": {
        "every_seconds": {"type": "integer", "minimum": 60, "maximum": 31_536_000},
        "anchor_at": _INSTANT,
    },
    "daily": {"time": {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}},
    "weekly": {
        "time": {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"},
        "weekdays": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "integer", "minimum": 0, "maximum": 6},
            "description": "0 is Sunday.",
        },
    },
    "cron": {"cron": {"type": "string", "minLength": 1, "maxLength": 120}},
}
_TIMETABLE: Final[Schema] = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"type": {"const": kind}, **fields},
            "required": ["type", *(name for name in fields if name != "anchor_at")],
            "additionalProperties": False,
        }
        for kind, fields in _TIMETABLES.items()
    ]
}
_NAMES: Final[Schema] = {"type": "array", "maxItems": 100, "uniqueItems": True, "items": {"type": "string"}}
_LIMIT: Final[Schema] = {"type": "integer", "minimum": 1}
_POLICY: Final[Schema] = {
    "type": "object",
    "properties": {
        "version": {"const": 1},
        "apps": {"oneOf": [_NAMES, {"const": "*"}]},
        "operations": {"oneOf": [_NAMES, {"const": "*"}]},
        "actions": {
            "enum": ["deny", "require_approval", "preapproved"],
            "description": "`*` goes with require_approval alone; preapproved needs lists that are not empty.",
        },
        "targets": {**_NAMES, "description": "Such as `node:<node_id>`; left out = everywhere."},
        "limits": {
            "type": "object",
            "properties": {"max_runs": _LIMIT, "max_tokens": _LIMIT},
            "additionalProperties": False,
        },
    },
    "required": ["version", "apps", "operations", "actions"],
    "additionalProperties": False,
}
_CHAT_TIMETABLE: Final[Schema] = {
    "anyOf": [
        *_TIMETABLE["oneOf"],
        *(
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, "type": {"const": kind}, **fields},
                "required": ["kind", *(name for name in fields if name != "anchor_at")],
                "additionalProperties": False,
            }
            for kind, fields in _TIMETABLES.items()
        ),
    ]
}
OVERRIDES: Final[Mapping[str, Schema]] = {
    "schedule": _TIMETABLE,
    "NewChatSchedule.schedule": _CHAT_TIMETABLE,
    "ChatTaskChanges.schedule": _CHAT_TIMETABLE,
    "NewChatSchedule.policy": {
        **_POLICY,
        "description": "What its turns may do by themselves; ask each time where it is left out.",
    },
    "timezone": {
        "type": "string",
        "minLength": 1,
        "maxLength": 64,
        "description": "An IANA name, such as Europe/Berlin.",
    },
    "alias": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{1,59}$"},
    "HeartbeatBody.task_id": _ID,
    "NewChatBody.title": {"type": "string", "minLength": 1, "maxLength": 120},
    "ChatChanges.title": {"type": "string", "minLength": 1, "maxLength": 120},
    "NewMessageBody.text": {"type": "string", "minLength": 1, "maxLength": 10_000},
    "NewTaskBody.task": {"type": "string", "minLength": 1, "maxLength": 10_000},
    "NewUserBody.name": {"type": "string", "minLength": 1, "maxLength": 80},
    "NewUserBody.password": {"type": "string", "minLength": 12, "maxLength": 200},
    "NewNetworkBody.name": {"type": "string", "minLength": 1, "maxLength": 120},
    "NewNetworkBody.slug": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{1,39}$"},
    "MandateChanges.policy": _POLICY,
    "NewTokenBody.label": {"type": "string", "maxLength": 120},
    "NewTokenBody.expires_days": {"type": ["integer", "null"], "minimum": 1, "maximum": 3650},
}
_REVISION: Final[Schema] = {
    "type": "integer",
    "minimum": 1,
    "description": "The revision that you have seen.",
}
_NETWORK: Final[Schema] = {"type": "string", "description": "Needed by those who belong to several networks."}

# ---------------------------------------------------------------- parameters

_PAGE: Final = (
    Parameter(
        "limit",
        {"type": "integer", "default": 50},
        "How many rows; clamped to 1 to 200.",
    ),
    Parameter("cursor", {"type": "string", "minLength": 1}, "`next_cursor` of the page before."),
)
_NETWORK_ID: Final = Parameter(
    "network_id", {"type": "string"}, "One of your networks.", codes=("network_not_found",)
)
_KEY: Final = Parameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[!-~]{1,200}$"},
    "The same key with the same input answers what was made first.",
    where="header",
    codes=("invalid_idempotency_key", "idempotency_conflict"),
)
_KEY_NEEDED: Final = replace(_KEY, codes=(*_KEY.refusals, "idempotency_key_required"))
_IF_MATCH: Final = Parameter(
    "If-Match",
    {"type": "string", "pattern": '^(W/)?"[1-9][0-9]{0,17}"$'},
    "The revision in quotes, instead of `revision` in the body.",
    where="header",
    codes=("invalid_revision", "revision_conflict"),
)
_LAST_EVENT: Final = Parameter(
    "Last-Event-ID",
    {"type": "string"},
    "Go on after this event.",
    where="header",
    codes=("invalid_last_event_id",),
)
_SEEN: Final = Parameter(
    "seen",
    {"type": "string"},
    "Go on after this event; where it is not kept any more, begin with the present.",
    codes=(),
)


def _one_of(name: str, choices: object, words: str) -> Parameter:
    return Parameter(name, {"type": "string", "enum": list(get_args(choices))}, words)


_RUN_STATUS: Final = _one_of("status", shapes.RunStatus, "Only runs in this state.")
_SPAN: Final = (
    Parameter("from", _INSTANT, "From this instant on."),
    Parameter("to", _INSTANT, "Up to this instant, without it."),
)

# ---------------------------------------------------------------- codes

_TIMETABLE_CODES: Final = (
    "schedule_required",
    "invalid_schedule_type",
    "run_at_required",
    "invalid_run_at",
    "nonexistent_local_time",
    "ambiguous_local_time",
    "invalid_interval",
    "invalid_anchor",
    "invalid_time",
    "weekdays_required",
    "invalid_weekdays",
    "cron_required",
    "invalid_cron",
    "invalid_timezone",
)
_ENDED: Final = ("schedule_cancelled", "schedule_completed", "schedule_proposed")
_ADMISSION: Final = (
    "target_node_not_found",
    "target_not_active",
    "chat_not_found",
    "chat_archived",
    "chat_not_owned",
    "model_unavailable",
    "sponsor_inactive",
    "sponsor_not_permitted",
    *MANDATE_CODES,
)
_CHANGE: Final = ("schedule_not_found", *_ENDED)
_NEXT_CHANGE: Final = (
    *_CHANGE,
    "next_change_exists",
    "slot_not_next",
    "schedule_has_no_future_occurrence",
    "unreadable_timetable",
)
_CHAT_TASK: Final = {"task": shapes.ChatTask}
_CHAT_CHANGE: Final = (
    "schedule_not_found",
    "schedule_completed",
    "schedule_proposed",
    "network_id_required",
)
_CHAT_ADMISSION: Final = (
    "sponsor_inactive",
    "sponsor_not_permitted",
    *MANDATE_CODES,
    "chat_archived",
    "chat_not_owned",
    "model_unavailable",
)

_SCHEDULE: Final = {"schedule": shapes.Schedule}
_WITH_WARNINGS: Final = {**_SCHEDULE, "warnings": list[shapes.Warning]}
_NEXT: Final = {"next_cursor": str | None}


def _list(name: str, shape: Any, *parameters: Parameter, codes: tuple[str, ...] = ()) -> Call:
    return Call({200: {name: list[shape], **_NEXT}}, parameters=(*parameters, *_PAGE), codes=codes)


_LISTED: Final = (
    _one_of("status", shapes.ScheduleStatus, "Only schedules in this state."),
    Parameter("target_kind", {"type": "string", "enum": ["node", "chat"]}, "Only schedules for these."),
    Parameter(
        "target_node_id",
        {"type": "string", "minLength": 2, "maxLength": 200},
        "Only those for this node.",
    ),
    Parameter("q", {"type": "string", "maxLength": 200}, "A part of the name or the alias, or the short id."),
    Parameter(
        "sort",
        {"type": "string", "enum": [order.value for order in Order], "default": "updated"},
        "The one changed last first; what is due first; from A to Z; what needs a person first.",
    ),
    _NETWORK_ID,
)
_ANSWER: Final = Call(
    {200: {"approval": shapes.Approval}},
    Body(NoBody, optional=True),
    codes=("approval_not_found", "approval_already_decided", "approval_expired"),
)

_MANDATE: Final = {"mandate": shapes.Mandate}
_IF_MANDATE_MATCHES: Final = Parameter(
    "If-Match",
    {"type": "string", "pattern": '^(W/)?"[1-9][0-9]{0,17}"$'},
    "The revision in quotes, instead of `revision` in the body.",
    where="header",
    codes=("invalid_revision", "mandate_revision_conflict"),
)
_MANDATE_CHANGE: Final = Call(
    {200: _MANDATE},
    Body(NoBody, also={"revision": _REVISION}, optional=True),
    (_IF_MANDATE_MATCHES,),
    ("mandate_not_found", "mandate_is_revoked", "schedule_completed"),
    etag=True,
)

# What each call answers, reads and refuses, by endpoint.
CALLS: Final[Mapping[str, Call]] = {
    "api_openapi.show_openapi": Call({200: "application/json"}),
    # --- schedules
    "api_schedules.list_schedules": _list("schedules", shapes.Schedule, *_LISTED),
    "api_schedules.export_schedules": Call({200: "application/json"}, parameters=_LISTED),
    "api_schedules.create_schedule": Call(
        {201: _WITH_WARNINGS},
        Body(NewSchedule, also={"network_id": _NETWORK}),
        (_KEY,),
        (
            *_TIMETABLE_CODES,
            "schedule_has_no_future_occurrence",
            "target_node_not_found",
            "network_id_required",
            "network_not_found",
        ),
        {"schedule_has_no_future_occurrence": (400,), "target_node_not_found": (404,)},
        etag=True,
    ),
    "api_schedules.preview": Call(
        {
            200: {
                "sentence": str,
                "timezone": str,
                "occurrences": list[shapes.Slot],
                "clock_changes": list[str],
            }
        },
        Body(PreviewRequest),
        codes=_TIMETABLE_CODES,
    ),
    "api_schedules.show_schedule": Call({200: _SCHEDULE}, codes=("schedule_not_found",), etag=True),
    "api_schedules.edit_schedule": Call(
        {200: _WITH_WARNINGS},
        Body(ScheduleChanges, also={"revision": _REVISION}, partial=True),
        (_IF_MATCH,),
        (
            *_CHANGE,
            *_TIMETABLE_CODES,
            *_ADMISSION,
            "schedule_has_no_future_occurrence",
            "unreadable_timetable",
        ),
        {"schedule_has_no_future_occurrence": (400, 409), "target_node_not_found": (404, 409)},
        etag=True,
    ),
    "api_schedules.pause_schedule": Call(
        {200: _SCHEDULE},
        Body(PauseRequest, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        _CHANGE,
        etag=True,
    ),
    "api_schedules.resume_schedule": Call(
        {200: _SCHEDULE},
        Body(NoBody, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        (*_CHANGE, *_ADMISSION, "schedule_has_no_future_occurrence", "unreadable_timetable"),
        etag=True,
    ),
    "api_schedules.confirm_schedule": Call(
        {200: _SCHEDULE},
        Body(NoBody, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        (
            "schedule_not_found",
            "not_proposed",
            *_ADMISSION,
            "schedule_has_no_future_occurrence",
            "unreadable_timetable",
        ),
        etag=True,
    ),
    "api_schedules.reject_schedule": Call(
        {200: _SCHEDULE},
        Body(NoBody, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        ("schedule_not_found", "not_proposed"),
        etag=True,
    ),
    "api_schedules.change_many": Call(
        {200: {"results": list[shapes.Outcome], "done": int, "refused": int}}, Body(BulkRequest)
    ),
    "api_schedules.preview_many": Call({200: {"effects": list[shapes.Effect]}}, Body(BulkRequest)),
    "api_schedules.skip_next": Call(
        {200: _SCHEDULE},
        Body(SkipRequest, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        _NEXT_CHANGE,
        etag=True,
    ),
    "api_schedules.move_next": Call(
        {200: _SCHEDULE},
        Body(MoveRequest, also={"revision": _REVISION}),
        (_IF_MATCH,),
        _NEXT_CHANGE,
        etag=True,
    ),
    "api_schedules.undo_next_change": Call(
        {200: _SCHEDULE},
        Body(NoBody, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        _CHANGE,
        etag=True,
    ),
    "api_schedules.run_now": Call(
        {202: {"run": shapes.Run}},
        Body(NoBody, optional=True),
        (_KEY,),
        (*_CHANGE, *_ADMISSION, "previous_run_active"),
    ),
    "api_schedules.cancel_schedule": Call(
        {200: _SCHEDULE},
        Body(NoBody, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        ("schedule_not_found", "schedule_completed"),
        etag=True,
    ),
    "api_schedules.delete_schedule": Call(
        {200: _SCHEDULE},
        Body(NoBody, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        ("schedule_not_found", "schedule_completed"),
        etag=True,
    ),
    "api_schedules.runs_of_schedule": _list("runs", shapes.Run, _RUN_STATUS, codes=("schedule_not_found",)),
    "api_schedules.show_admission": Call(
        {200: {"would_fire": bool, "checks": list[shapes.AdmissionCheck]}}, codes=("schedule_not_found",)
    ),
    # --- runs, audit
    "api_runs.list_runs": _list(
        "runs",
        shapes.Run,
        _RUN_STATUS,
        Parameter("schedule_id", _ID, "Only runs of this schedule."),
        *_SPAN,
        _NETWORK_ID,
    ),
    "api_runs.show_run": Call({200: {"run": shapes.RunWithReceipts}}, codes=("run_not_found",)),
    "api_audit.list_audit": _list(
        "entries",
        shapes.Entry,
        Parameter("actor", {"type": "string", "minLength": 1, "maxLength": 120}, "Who did it, by name."),
        Parameter(
            "subject", {"type": "string", "minLength": 1, "maxLength": 200}, "What it was done to, by id."
        ),
        *_SPAN,
        _NETWORK_ID,
        codes=("network_id_required",),
    ),
    # --- nodes
    "api_nodes.list_nodes": _list("nodes", shapes.Node, _NETWORK_ID),
    "api_nodes.create_node": Call(
        {201: {"node": shapes.Node, "token": Maybe(str)}},
        Body(NewNodeBody),
        (_KEY,),
        ("alias_taken", "network_id_required", "network_not_found"),
    ),
    "api_nodes.show_node": Call({200: {"node": shapes.Node}}, codes=("node_not_found",)),
    "api_nodes.update_node": Call(
        {200: {"node": shapes.Node}}, Body(NodeChanges, partial=True), codes=("node_not_found", "alias_taken")
    ),
    "api_nodes.delete_node": Call({200: {"node": shapes.Node}}, codes=("node_not_found",)),
    "api_nodes.rotate_token": Call(
        {201: {"node": shapes.Node, "token": Maybe(str)}},
        Body(NoBody, optional=True),
        (_KEY,),
        ("node_not_found",),
    ),
    # --- tasks
    "api_tasks.list_tasks": _list(
        "tasks",
        shapes.Task,
        _one_of("status", shapes.TaskStatus, "Only tasks in this state."),
        Parameter("node", _ID, "Only tasks of this node."),
        _NETWORK_ID,
    ),
    "api_tasks.create_task": Call(
        {201: {"task": shapes.TaskWithEvents}},
        Body(NewTaskBody),
        (_KEY,),
        ("node_not_found", "node_not_active"),
    ),
    "api_tasks.show_task": Call({200: {"task": shapes.TaskWithEvents}}, codes=("task_not_found",)),
    "api_tasks.cancel_task": Call(
        {200: {"task": shapes.TaskWithEvents}},
        Body(NoBody, optional=True),
        codes=("task_not_found", "task_already_final"),
    ),
    "api_tasks.retry_task": Call(
        {200: {"task": shapes.TaskWithEvents}},
        Body(NoBody, optional=True),
        codes=(
            "task_not_found",
            "task_not_retryable",
            "node_not_active",
            "previous_run_active",
            "schedule_cancelled",
            "schedule_completed",
            *_ADMISSION,
        ),
    ),
    # --- the node's own calls
    "api_node.heartbeat": Call({200: {"cancel": list[str]}}, Body(HeartbeatBody), codes=("task_not_found",)),
    "api_node.inbox": Call(
        {200: {"items": list[shapes.InboxItem]}},
        parameters=(
            _PAGE[0],
            Parameter(
                "wait", {"type": "number", "minimum": 0, "maximum": 60}, "Seconds to wait for the first."
            ),
        ),
    ),
    "api_node.acknowledge": Call(
        {200: {"task": shapes.Task}},
        Body(ReportBody, optional=True, partial=True),
        codes=("task_not_found", "task_attempt_superseded", "task_withdrawn", "task_already_final"),
    ),
    "api_node.start": Call(
        {200: {"task": shapes.Task}},
        Body(ReportBody, optional=True, partial=True),
        codes=(
            "task_not_found",
            "task_attempt_superseded",
            "task_withdrawn",
            "task_already_final",
            "task_not_delivered",
        ),
    ),
    "api_node.reply": Call(
        {200: {"task": shapes.Task}},
        Body(ReplyBody, partial=True),
        codes=("task_not_found", "task_attempt_superseded", "task_already_final", "task_not_delivered"),
    ),
    "api_node.events": Call({200: "text/event-stream", 204: ""}, parameters=(_LAST_EVENT,)),
    # --- chats, turns, approvals
    "api_chats.list_chats": _list("chats", shapes.Chat, _NETWORK_ID),
    "api_chats.create_chat": Call(
        {201: {"chat": shapes.Chat}},
        Body(NewChatBody, optional=True),
        (_KEY,),
        ("network_id_required", "network_not_found"),
    ),
    "api_chats.show_chat": Call({200: {"chat": shapes.Chat}}, codes=("chat_not_found",)),
    "api_chats.rename_chat": Call(
        {200: {"chat": shapes.Chat}}, Body(ChatChanges, partial=True), codes=("chat_not_found",)
    ),
    "api_chats.archive_chat": Call(
        {200: {"chat": shapes.Chat}}, Body(NoBody, optional=True), codes=("chat_not_found",)
    ),
    "api_chats.unarchive_chat": Call(
        {200: {"chat": shapes.Chat}}, Body(NoBody, optional=True), codes=("chat_not_found",)
    ),
    "api_chats.list_messages": _list("messages", shapes.Message, codes=("chat_not_found",)),
    "api_chats.post_message": Call(
        {202: {"turn": shapes.Turn}},
        Body(NewMessageBody),
        (_KEY,),
        ("chat_not_found", "chat_archived"),
    ),
    # --- prompts that schedules send into chats
    "api_chat_tasks.list_tasks": _list(
        "tasks",
        shapes.ChatTask,
        Parameter("chat", _ID, "Only those of this chat."),
        Parameter(
            "state",
            {
                "type": "string",
                "enum": [state for state in get_args(shapes.ScheduleStatus) if state != "cancelled"],
            },
            "Only those in this state.",
        ),
        _NETWORK_ID,
    ),
    "api_chat_tasks.create_task": Call(
        {201: {**_CHAT_TASK, "warnings": list[shapes.Warning]}},
        Body(NewChatSchedule),
        (_KEY_NEEDED,),
        (*_TIMETABLE_CODES, "schedule_has_no_future_occurrence", "chat_not_found"),
        {"schedule_has_no_future_occurrence": (400,)},
        etag=True,
    ),
    "api_chat_tasks.show_task": Call(
        {200: {**_CHAT_TASK, "occurrences": list[shapes.Occurrence]}},
        codes=("schedule_not_found", "network_id_required"),
        etag=True,
    ),
    "api_chat_tasks.edit_task": Call(
        {200: {**_CHAT_TASK, "warnings": list[shapes.Warning]}},
        Body(ChatTaskChanges, also={"revision": _REVISION}, partial=True),
        (_IF_MATCH,),
        (
            *_CHAT_CHANGE,
            *_TIMETABLE_CODES,
            *_CHAT_ADMISSION,
            "schedule_has_no_future_occurrence",
            "unreadable_timetable",
        ),
        {"schedule_has_no_future_occurrence": (400, 409)},
        etag=True,
    ),
    "api_chat_tasks.delete_task": Call(
        {200: _CHAT_TASK},
        Body(NoBody, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        ("schedule_not_found", "schedule_completed", "network_id_required"),
        etag=True,
    ),
    "api_chat_tasks.pause_task": Call(
        {200: _CHAT_TASK},
        Body(PauseRequest, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        _CHAT_CHANGE,
        etag=True,
    ),
    "api_chat_tasks.resume_task": Call(
        {200: _CHAT_TASK},
        Body(NoBody, also={"revision": _REVISION}, optional=True),
        (_IF_MATCH,),
        (*_CHAT_CHANGE, *_CHAT_ADMISSION, "schedule_has_no_future_occurrence", "unreadable_timetable"),
        etag=True,
    ),
    "api_chat_tasks.run_task": Call(
        {202: {"occurrence": shapes.Occurrence}},
        Body(NoBody, optional=True),
        (_KEY_NEEDED,),
        (*_CHAT_CHANGE, *_CHAT_ADMISSION, "previous_run_active"),
    ),
    "api_chat_tasks.list_occurrences": _list(
        "occurrences", shapes.Occurrence, codes=("schedule_not_found", "network_id_required")
    ),
    "api_turns.show_turn": Call({200: {"turn": shapes.Turn}}, codes=("turn_not_found",)),
    "api_turns.abort_turn": Call(
        {200: {"turn": shapes.Turn}},
        Body(NoBody, optional=True),
        codes=("turn_not_found", "turn_already_final"),
    ),
    "api_approvals.list_approvals": _list(
        "approvals",
        shapes.Approval,
        _one_of("status", shapes.ApprovalStatus, "Only approvals in this state."),
        _NETWORK_ID,
    ),
    "api_approvals.approve": _ANSWER,
    "api_approvals.deny": _ANSWER,
    # --- mandates
    "api_mandates.list_mandates": _list(
        "mandates",
        shapes.Mandate,
        Parameter(
            "state",
            {"type": "string", "enum": ["active", "paused", "revoked"]},
            "Only mandates in this state.",
        ),
        _NETWORK_ID,
    ),
    "api_mandates.show_mandate": Call(
        {
            200: {
                **_MANDATE,
                "blast_radius": shapes.BlastRadius | None,
                "entries": list[shapes.Entry],
            }
        },
        codes=("mandate_not_found",),
        etag=True,
    ),
    "api_mandates.change_mandate": replace(
        _MANDATE_CHANGE, body=Body(MandateChanges, also={"revision": _REVISION}, partial=True)
    ),
    "api_mandates.confirm_mandate": _MANDATE_CHANGE,
    "api_mandates.pause_mandate": replace(
        _MANDATE_CHANGE, body=Body(PauseMandate, also={"revision": _REVISION}, optional=True)
    ),
    "api_mandates.resume_mandate": _MANDATE_CHANGE,
    "api_mandates.revoke_mandate": replace(
        _MANDATE_CHANGE,
        body=Body(RevokeMandate, also={"revision": _REVISION}),
        codes=("mandate_not_found", "reason_required"),
    ),
    # --- live
    "api_events.stream_events": Call(
        {200: "text/event-stream", 204: ""},
        parameters=(_LAST_EVENT, _SEEN, _NETWORK_ID),
        codes=("network_id_required", "events_expired"),
    ),
    # --- people
    "people_api.me": Call({200: {"user": shapes.Caller}}),
    "people_api.networks": Call({200: {"networks": list[shapes.Network], **_NEXT}}),
    "people_api.create_network": Call(
        {201: {"network": shapes.Network}}, Body(NewNetworkBody), (_KEY,), ("slug_taken",)
    ),
    "people_api.members": _list("members", shapes.Member, codes=("network_not_found",)),
    "people_api.add_member": Call(
        {201: {"member": shapes.Member}},
        Body(NewMemberBody),
        codes=("network_not_found", "user_not_found", "already_member"),
    ),
    "people_api.change_member": Call(
        {200: {"member": shapes.Member}},
        Body(MemberChanges),
        codes=("network_not_found", "user_not_found", "last_owner"),
    ),
    "people_api.remove_member": Call({200: {}}, codes=("network_not_found", "user_not_found", "last_owner")),
    "people_api.users": _list("users", shapes.User),
    "people_api.create_user": Call(
        {201: {"user": shapes.User}},
        Body(NewUserBody),
        (_KEY,),
        ("user_name_taken", "network_not_found"),
    ),
    "people_api.change_user": Call(
        {200: {"user": shapes.User}}, Body(UserChanges), codes=("user_not_found", "last_admin")
    ),
    "people_api.tokens": _list("tokens", shapes.Token),
    "people_api.create_token": Call(
        {201: {"token": shapes.Token, "secret": Maybe(str)}},
        Body(NewTokenBody, optional=True),
        (_KEY,),
        ("network_not_found",),
    ),
    "people_api.revoke_token": Call({200: {"token": shapes.RevokedToken}}, codes=("token_not_found",)),
}


@blueprint.get("/openapi.json")
@access(UserApi)
def show_openapi() -> Response:
    """This document."""
    return jsonify(describe())


def describe() -> Schema:
    """The document of the current app; written once."""
    known: Schema | None = current_app.extensions.get("carillon_openapi")
    if known is None:
        known = document(current_app, CALLS, overrides=OVERRIDES, about=_ABOUT)
        current_app.extensions["carillon_openapi"] = known
    return known
