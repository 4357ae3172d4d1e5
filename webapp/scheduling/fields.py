"""What a person may write into a schedule: strict shapes, checked once for every door."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from webapp.clock import parse_instant
from webapp.scheduling.lifecycle import MisfirePolicy, OverlapPolicy

MAX_TEXT = 10_000
MAX_REASON = 500
MAX_IN_BULK = 200
# How long undelivered work may wait: a minute to a week.
MIN_TTL_SECONDS, MAX_TTL_SECONDS = 60, 7 * 86_400


def _printable_line(text: str) -> str:
    if any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in text):
        raise ValueError("control characters")
    return text


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("a NUL character cannot be stored")
    return text


def _instant(value: Any) -> datetime:
    # Python callers hand over datetimes; JSON and forms hand over text.
    return value if isinstance(value, datetime) else parse_instant(value)


def _member(enum: type[MisfirePolicy] | type[OverlapPolicy]) -> BeforeValidator:
    def read(value: Any) -> Any:
        # A text is looked up by value; anything else is refused by the strict model.
        return enum(value) if isinstance(value, str) else value

    return BeforeValidator(read)


Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=120),
    AfterValidator(_printable_line),
]
Text = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TEXT),
    AfterValidator(_storable),
]
Reason = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=MAX_REASON), AfterValidator(_storable)
]
Instant = Annotated[datetime, BeforeValidator(_instant)]
TargetId = Annotated[str, StringConstraints(min_length=2, max_length=200), AfterValidator(_printable_line)]
Priority = Literal["high", "normal", "low"]
Misfire = Annotated[MisfirePolicy, _member(MisfirePolicy)]
Overlap = Annotated[OverlapPolicy, _member(OverlapPolicy)]


def _no_overlap(policy: OverlapPolicy) -> OverlapPolicy:
    if policy is OverlapPolicy.ALLOW:
        raise ValueError("a chat does one thing at a time")
    return policy


ChatOverlap = Annotated[Overlap, AfterValidator(_no_overlap)]
Grace = Annotated[int, Field(ge=0, le=86_400)]
CatchUpLimit = Annotated[int, Field(ge=1, le=100)]
Threshold = Annotated[int, Field(ge=1, le=100)]
MaxRuns = Annotated[int, Field(ge=1, le=1_000_000)]
Ttl = Annotated[int, Field(ge=MIN_TTL_SECONDS, le=MAX_TTL_SECONDS)]
MaxRun = Annotated[int, Field(ge=60, le=30 * 86_400)]

ModelName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=80),
    AfterValidator(_printable_line),
]

_UNNAMED = datetime(1970, 1, 1, tzinfo=UTC)

DEFAULT_NODE_THRESHOLD = 5
# A prompt that fails costs money each time, and somebody reads the chat: it stops at the first failure.
DEFAULT_CHAT_THRESHOLD = 1
_NAME_FROM_PROMPT = 60
DEFAULT_GRACE_SECONDS = 60
DEFAULT_CATCH_UP_LIMIT = 100


class Strict(BaseModel):
    """No coercion, no unknown keys, no change after reading."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class NewSchedule(Strict):
    """A schedule to be made. `schedule` and `timezone` are read by the timetable package."""

    name: Name
    task: Text
    target_node_id: TargetId
    schedule: Any = None
    timezone: Any = "UTC"
    priority: Priority = "normal"
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    max_runs: MaxRuns | None = None
    misfire_policy: Misfire = MisfirePolicy.CATCH_UP_ONCE
    misfire_grace_seconds: Grace = DEFAULT_GRACE_SECONDS
    catch_up_limit: CatchUpLimit = DEFAULT_CATCH_UP_LIMIT
    overlap_policy: Overlap = OverlapPolicy.SKIP
    failure_threshold: Threshold | None = DEFAULT_NODE_THRESHOLD
    ttl_seconds: Ttl | None = None
    max_run_seconds: MaxRun | None = None


class NewChatSchedule(Strict):
    """A schedule of prompts into a chat of one's own. `schedule` and `timezone` are read by the timetable package.

    `policy` (None: ask each time) and `expires_at` (None: never) are those of the mandate under which its turns
    act. Without a name it is called like the start of its prompt.
    """

    chat_id: TargetId
    prompt: Text
    name: Name = ""
    model: ModelName | None = None
    schedule: Any = None
    timezone: Any = "UTC"
    policy: Any = None
    expires_at: Instant | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    max_runs: MaxRuns | None = None
    misfire_policy: Misfire = MisfirePolicy.CATCH_UP_ONCE
    misfire_grace_seconds: Grace = DEFAULT_GRACE_SECONDS
    catch_up_limit: CatchUpLimit = DEFAULT_CATCH_UP_LIMIT
    overlap_policy: ChatOverlap = OverlapPolicy.SKIP
    failure_threshold: Threshold | None = DEFAULT_CHAT_THRESHOLD
    max_run_seconds: MaxRun | None = None

    @property
    def name_or_start(self) -> str:
        """The name, else the first words of the prompt."""
        return self.name or name_from(self.prompt)


def name_from(prompt: str) -> str:
    """A name made of the start of a prompt: one line, cut between words where it is long."""
    letters = (" " if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter for letter in prompt)
    line = " ".join("".join(letters).split())
    if len(line) <= _NAME_FROM_PROMPT:
        return line or "Prompt"
    cut = line[: _NAME_FROM_PROMPT - 1]
    return (cut.rpartition(" ")[0] or cut) + "…"


class ScheduleChanges(Strict):
    """Changes to a schedule: a field that is not set keeps its value (ask `model_fields_set`)."""

    name: Name = ""
    task: Text = ""
    target_node_id: TargetId = ""
    schedule: Any = None
    timezone: Any = None
    priority: Priority = "normal"
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    max_runs: MaxRuns | None = None
    misfire_policy: Misfire = MisfirePolicy.CATCH_UP_ONCE
    misfire_grace_seconds: Grace = DEFAULT_GRACE_SECONDS
    catch_up_limit: CatchUpLimit = DEFAULT_CATCH_UP_LIMIT
    overlap_policy: Overlap = OverlapPolicy.SKIP
    failure_threshold: Threshold | None = None
    ttl_seconds: Ttl | None = None
    max_run_seconds: MaxRun | None = None
    status: Literal["active", "paused"] | None = None

    def has(self, field: str) -> bool:
        """Whether the caller named this field."""
        return field in self.model_fields_set


class ChatScheduleChanges(ScheduleChanges):
    """Changes to a schedule of prompts; `task` is the prompt, `model` None the default one."""

    model: ModelName | None = None


class ChatTaskChanges(Strict):
    """Changes to a chat task: a field that is not set keeps its value."""

    prompt: Text = ""
    name: Name = ""
    model: ModelName | None = None
    schedule: Any = None
    timezone: Any = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    max_runs: MaxRuns | None = None
    misfire_policy: Misfire = MisfirePolicy.CATCH_UP_ONCE
    misfire_grace_seconds: Grace = DEFAULT_GRACE_SECONDS
    catch_up_limit: CatchUpLimit = DEFAULT_CATCH_UP_LIMIT
    overlap_policy: ChatOverlap = OverlapPolicy.SKIP
    failure_threshold: Threshold | None = None
    max_run_seconds: MaxRun | None = None

    def as_changes(self) -> ChatScheduleChanges:
        """The same for the schedule behind it, which calls the prompt its task."""
        named = {field: getattr(self, field) for field in self.model_fields_set}
        if "prompt" in named:
            named["task"] = named.pop("prompt")
        return ChatScheduleChanges(**named)


class PauseRequest(Strict):
    """Why to pause, and when to go on by itself."""

    reason: Reason | None = None
    resume_at: Instant | None = None


class SkipRequest(Strict):
    """Skip the next slot; `slot` names it, for whoever would not have another one skipped by mistake."""

    slot: Instant | None = None


class MoveRequest(Strict):
    """When the next slot is to fall due instead; `slot` names it."""

    to: Instant
    slot: Instant | None = None


class BulkRequest(Strict):
    """The same to many schedules, each by its id; `reason` and `resume_at` go with a pause alone."""

    action: Literal["pause", "resume", "cancel"]
    schedule_ids: Annotated[list[TargetId], Field(min_length=1, max_length=MAX_IN_BULK)]
    reason: Reason | None = None
    resume_at: Instant | None = None

    @field_validator("schedule_ids")
    @classmethod
    def _each_once(cls, ids: list[str]) -> list[str]:
        return list(dict.fromkeys(ids))

    @field_validator("reason", "resume_at")
    @classmethod
    def _for_a_pause(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("action", "pause") != "pause":
            raise ValueError("goes with a pause alone")
        return value

    def pause(self) -> PauseRequest:
        """What belongs to the pause."""
        named = self.model_fields_set & {"reason", "resume_at"}
        return PauseRequest(**{name: getattr(self, name) for name in named})


class PreviewRequest(Strict):
    """Which slots a timetable has: `count` of them after `after` (the present instant when not named)."""

    schedule: Any = None
    timezone: Any = "UTC"
    after: Instant = _UNNAMED
    count: Annotated[int, Field(ge=1, le=100)] = 5
    starts_at: Instant | None = None
    ends_at: Instant | None = None

    def after_or(self, now: datetime) -> datetime:
        """The instant that was named, else `now`."""
        return self.after if "after" in self.model_fields_set else now
