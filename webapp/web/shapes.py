"""The shapes of what the API answers, field by field: what presenters build, and what OpenAPI describes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

# UTC ISO 8601 with `Z` and milliseconds.
Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Priority = Literal["high", "normal", "low"]
Role = Literal["owner", "admin", "member", "viewer"]
RunStatus = Literal[
    "queued", "delivered", "running", "completed", "failed", "cancelled", "expired", "skipped"
]
ScheduleStatus = Literal["proposed", "active", "paused", "needs_attention", "completed", "cancelled"]
ScheduleType = Literal["once", "interval", "daily", "weekly", "cron"]
TurnStatus = Literal["queued", "running", "waiting_for_action", "completed", "failed", "aborted"]
ApprovalStatus = Literal["pending", "approved", "denied", "expired", "withdrawn"]
TaskStatus = Literal["created", "delivered", "acked", "running", "replied", "failed", "cancelled", "expired"]


# ---------------------------------------------------------------- schedules


class Timetable(TypedDict):
    """One of the five kinds; the fields beside `type` are those of the kind."""

    type: ScheduleType
    run_at: NotRequired[str]
    every_seconds: NotRequired[int]
    anchor_at: NotRequired[Instant]
    time: NotRequired[str]
    weekdays: NotRequired[list[int]]
    cron: NotRequired[str]


class NextChange(TypedDict):
    """What a person wants of the next slot: to have it skipped, or to have it fall due at `to`."""

    kind: Literal["skip", "move"]
    slot: Instant
    to: Instant | None


class Schedule(TypedDict):
    """A schedule. `schedule` is null where the stored timetable cannot be read; `sentence` then says why.

    `schedule_error` stands there in that case alone.
    """

    schedule_id: str
    short_id: str
    network_id: str
    name: str
    target_kind: Literal["node", "chat"]
    target_node_id: str | None
    target_alias: str | None
    target_chat_id: str | None
    task: str | None
    priority: Priority
    schedule: Timetable | None
    schedule_error: NotRequired[str]
    schedule_type: ScheduleType | None
    sentence: str
    timezone: str
    misfire_policy: Literal["catch_up_once", "skip", "catch_up_all"]
    misfire_grace_seconds: int
    catch_up_limit: int
    overlap_policy: Literal["skip", "queue_one", "allow"]
    failure_threshold: int | None
    starts_at: Instant | None
    ends_at: Instant | None
    max_runs: int | None
    ttl_seconds: int | None
    max_run_seconds: int | None
    status: ScheduleStatus
    status_reason: str | None
    resume_at: Instant | None
    next_change: NextChange | None
    next_run_at: Instant | None
    last_run_at: Instant | None
    consecutive_failures: int
    revision: int
    sponsor: str
    mandate_id: str | None
    created_at: Instant
    updated_at: Instant


class Warning(TypedDict):
    """What would stop a schedule from firing right now."""

    code: str
    message: str


class Slot(TypedDict):
    """A slot: in UTC, on the schedule's clock with its offset, and what a clock change has to do with it."""

    at: Instant
    local: Instant
    note: str | None


class AdmissionCheck(TypedDict):
    """A question of admission; `permanent`: when the answer is no, no later slot heals it."""

    code: str
    ok: bool
    permanent: bool
    message: str


class OpenWork(TypedDict):
    """An open run that a call would take back, or leave to end."""

    run_id: str
    scheduled_for: Instant
    status: RunStatus


class Effect(TypedDict):
    """What a call would do to one schedule; with an `error` it would be refused, and the rest is empty.

    `changes` is false where it is there already. `withdrawn` is work that nobody has taken up, `at_work` what goes on
    or (`asked_to_stop`) is told to stop; `skipped` due slots that are recorded as skipped; `missed` slots since
    `missed_since` that are not caught up; `mandate` what is done to its mandate first.
    """

    schedule_id: str
    name: str
    status: ScheduleStatus | None
    status_after: ScheduleStatus | None
    error: str | None
    message: str | None
    changes: bool
    withdrawn: list[OpenWork]
    at_work: list[OpenWork]
    asked_to_stop: bool
    skipped: int
    drops_change: bool
    mandate: Literal["nothing", "restore", "renew", "take_over"]
    missed: int
    missed_since: Instant | None
    next_slots: list[Instant]


class Outcome(TypedDict):
    """What became of one of many; `error` says why it was refused."""

    schedule_id: str
    ok: bool
    error: str | None
    message: str | None
    status: ScheduleStatus | None
    revision: int | None


# ---------------------------------------------------------------- runs


class Run(TypedDict):
    """What became of one slot, or of one run by hand."""

    run_id: str
    schedule_id: str
    scheduled_for: Instant
    trigger: Literal["scheduled", "manual"]
    actor: str
    missed_count: int
    missed_since: Instant | None
    status: RunStatus
    error_code: str | None
    error_message: str | None
    blocked_by: str | None
    blocker_received: bool | None
    wait_reason: Literal["not_fetched", "previous_run_active", "catch_up", "chat_busy"] | None
    task_id: str | None
    turn_id: str | None
    attempt: int
    target_alias: str | None
    text: str | None
    schedule_revision: int
    schedule_changed_since: bool
    created_at: Instant
    delivered_at: Instant | None
    started_at: Instant | None
    completed_at: Instant | None
    result: str | None


class Receipt(TypedDict):
    """One step of a run: when it was, and how long after the step before it that was known."""

    step: Literal["planned", "claimed", "delivered", "acknowledged", "started", "ended"]
    at: Instant | None
    gap_seconds: float | None


class RunWithReceipts(Run):
    """A run with its receipts, all six in their order; `at` is null for what has not happened."""

    receipts: list[Receipt]


# ---------------------------------------------------------------- audit


class Entry(TypedDict):
    """One change, refusal or use. `seq` has no gaps within its network."""

    seq: int
    network_id: str
    at: Instant
    actor: str
    verb: str
    subject_kind: str
    subject_id: str
    detail: dict[str, Any]


# ---------------------------------------------------------------- nodes and tasks


class Node(TypedDict):
    """A node. `held` counts its open tasks: `unacknowledged` ones and those `at_work`."""

    node_id: str
    network_id: str
    alias: str
    lifecycle_state: Literal["active", "stopping", "stopped", "deleting"]
    status: Literal["working", "idle", "blocked", "error", "waiting_input", "offline"]
    last_seen_at: Instant | None
    working_on: str | None
    held: int
    unacknowledged: int
    at_work: int
    created_at: Instant


# The sender: `scheduler`, or a person's name. Its key is a word that a class body cannot hold.
_Sent = TypedDict("_Sent", {"from": str})


class Task(_Sent):
    """A unit of work in the inbox of a node. `expires_at` is when its time runs out."""

    task_id: str
    node_id: str
    node_alias: str
    run_id: str | None
    schedule_id: str | None
    task: str
    priority: Priority
    status: TaskStatus
    attempt: int
    error_code: str | None
    error_message: str | None
    result: str | None
    result_truncated: bool
    ttl_seconds: int
    max_run_seconds: int
    created_at: Instant
    delivered_at: Instant | None
    acked_at: Instant | None
    started_at: Instant | None
    completed_at: Instant | None
    expires_at: Instant


class TaskEvent(TypedDict):
    """One step in the life of a task."""

    seq: int
    at: Instant
    kind: str
    actor: str
    attempt: int
    detail: dict[str, Any]


class TaskWithEvents(Task):
    """A task with its history, oldest first."""

    events: list[TaskEvent]


class InboxItem(_Sent):
    """A task as its node receives it. `meta` says where it comes from; `attempt` belongs into every report."""

    task_id: str
    delivery_id: str
    type: Literal["task"]
    priority: Priority
    content: str
    requires_response: Literal["reply"]
    created_at: Instant
    expires_at: Instant
    attempt: int
    meta: dict[str, Any]


# ---------------------------------------------------------------- mandates


class MandateUses(TypedDict):
    """What was used under a mandate, and how much may be; null is no limit."""

    runs: int
    max_runs: int | None
    tokens: int
    reserved_tokens: int
    max_tokens: int | None


class Mandate(TypedDict):
    """Authority that a person, the `subject`, has given to one workload (`schedule:<id>`)."""

    mandate_id: str
    network_id: str
    subject: str
    workload: str
    schedule_id: str | None
    policy: dict[str, Any]
    state: Literal["active", "paused", "revoked"]
    state_reason: str | None
    revision: int
    expires_at: Instant | None
    confirmed_at: Instant | None
    uses: MandateUses
    created_at: Instant
    updated_at: Instant
    ended_at: Instant | None


class BlastRadius(TypedDict):
    """What would stop with a mandate: slots given up, runs withdrawn, work told to stop."""

    schedule_id: str
    schedule_status: ScheduleStatus
    next_slots: list[Instant]
    runs_withdrawn: int
    runs_at_work: int
    turns_at_work: int


# ---------------------------------------------------------------- chats


class Chat(TypedDict):
    """A chat. Its words are its owner's alone: `title` and `updated_at` of somebody else's are null."""

    chat_id: str
    network_id: str
    owner: str
    title: str | None
    archived_at: Instant | None
    created_at: Instant
    updated_at: Instant | None


class Message(TypedDict):
    """A message; `seq` has no gaps in its chat. A prompt of a schedule has `meta.scheduled_task`."""

    message_id: str
    seq: int
    role: Literal["user", "assistant", "tool"]
    author: str
    text: str
    turn_id: str | None
    meta: dict[str, Any]
    created_at: Instant


class ChatTimetable(Timetable):
    """A timetable that names its kind as `kind` too."""

    kind: ScheduleType


class ChatTask(TypedDict):
    """A schedule of prompts into a chat of one's own; `id` is short, to be read aloud.

    `last_error` is the code with which it stopped, or else with which its newest run failed.
    """

    id: str
    schedule_id: str
    chat_id: str
    chat_title: str
    name: str
    prompt: str
    schedule: ChatTimetable | None
    sentence: str
    timezone: str
    state: ScheduleStatus
    last_error: str | None
    revision: int
    mandate_id: str | None
    model: str | None
    next_run_at: Instant | None
    created_at: Instant
    updated_at: Instant


class Occurrence(TypedDict):
    """What became of one slot of a chat task, or of one run by hand; `queued` until its turn has begun."""

    id: str
    task_id: str
    scheduled_for: Instant
    trigger: Literal["scheduled", "manual"]
    state: Literal["queued", "running", "completed", "failed", "skipped", "cancelled", "expired"]
    turn_id: str | None
    error: str | None
    created_at: Instant
    started_at: Instant | None
    completed_at: Instant | None


class Usage(TypedDict):
    """What a turn has used of its model so far."""

    requests: int
    input_tokens: int
    output_tokens: int


class Turn(TypedDict):
    """A turn. `place` counts the turns before it while it is queued, else it is null.

    `approvals` are the ids of what it waits for. `run_id` and `schedule_id` are null where a person wrote.
    """

    turn_id: str
    chat_id: str
    run_id: str | None
    schedule_id: str | None
    status: TurnStatus
    place: int | None
    model: str
    usage: Usage
    approvals: list[str]
    error_code: str | None
    error_message: str | None
    created_at: Instant
    started_at: Instant | None
    completed_at: Instant | None


class Approval(TypedDict):
    """What a turn wants to do, with its exact arguments; `used_at` is when it was done, once."""

    approval_id: str
    turn_id: str
    chat_id: str
    schedule_id: str | None
    mandate_id: str | None
    mandate_revision: int | None
    operation: str
    arguments: dict[str, Any]
    deadline: Instant
    status: ApprovalStatus
    decided_by: str | None
    decided_at: Instant | None
    used_at: Instant | None
    created_at: Instant


# ---------------------------------------------------------------- people


class Network(TypedDict):
    """A network, and the caller's role in it."""

    network_id: str
    slug: str
    name: str
    role: Role


class Caller(TypedDict):
    """The caller, and the networks that this call may reach."""

    user_id: str
    name: str
    admin: bool
    timezone: str
    networks: list[Network]


class User(TypedDict):
    """A person."""

    user_id: str
    name: str
    active: bool
    admin: bool
    created_at: Instant


class Member(TypedDict):
    """A person's place in one network."""

    user_id: str
    name: str
    role: Role
    active: bool
    since: Instant


class Token(TypedDict):
    """A person's token, without its secret."""

    token_id: str
    label: str
    hint: str
    network_id: str | None
    created_at: Instant
    expires_at: Instant | None
    last_used_at: Instant | None
    revoked_at: Instant | None


class RevokedToken(TypedDict):
    """A token that has ended."""

    token_id: str
    revoked_at: Instant
