"""What callers may ask of nodes and tasks, as strict models: built by forms and JSON bodies alike. Pure.

A field that is left out keeps its default and is not in `model_fields_set`; null is a wrong type everywhere.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from webapp.ids import is_public_id
from webapp.nodes.lifecycle import DEFAULT_TTL_SECONDS, MAX_TTL_SECONDS, MIN_TTL_SECONDS

MAX_TASK_LENGTH = 10_000
_ALIAS = re.compile(r"[a-z0-9][a-z0-9._-]{1,59}")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_MAX_ATTEMPT = 2**31 - 1


def _alias(text: str) -> str:
    if _ALIAS.fullmatch(text) is None:
        raise ValueError("an alias has 2 to 60 characters a-z, 0-9, dot, dash, underscore")
    return text


def _storable(text: str) -> str:
    if _UNSTORABLE.search(text):
        raise ValueError("NUL and halves of surrogate pairs cannot be stored")
    return text


def _task_text(text: str) -> str:
    text = _storable(text).strip()
    if not 1 <= len(text) <= MAX_TASK_LENGTH:
        raise ValueError("1 to 10 000 characters after trimming")
    return text


def _public_id(text: str) -> str:
    if not is_public_id(text):
        raise ValueError("not the shape of an id")
    return text


Alias = Annotated[str, AfterValidator(_alias)]
NodeId = Annotated[str, Field(min_length=2, max_length=200), AfterValidator(_storable)]
NetworkId = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_storable)]
TaskId = Annotated[str, AfterValidator(_public_id)]
Attempt = Annotated[int, Field(ge=1, le=_MAX_ATTEMPT)]
TtlSeconds = Annotated[int, Field(ge=MIN_TTL_SECONDS, le=MAX_TTL_SECONDS)]


class Body(BaseModel):
    """Strict: no coercion, no unknown keys, no change after it was read."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NewNodeBody(Body):
    """`POST /api/nodes`. `network_id` is needed by those who belong to several networks."""

    alias: Alias
    network_id: NetworkId = ""


class NodeChanges(Body):
    """`PATCH /api/nodes/{id}`; what is not sent keeps its value."""

    alias: Alias = ""
    lifecycle_state: Literal["active", "stopping", "stopped"] = "active"


class NewTaskBody(Body):
    """`POST /api/tasks`: work for one node. The network is the node's; `network_id` only narrows it."""

    node_id: NodeId
    task: Annotated[str, AfterValidator(_task_text)]
    priority: Literal["high", "normal", "low"] = "normal"
    ttl_seconds: TtlSeconds = DEFAULT_TTL_SECONDS
    network_id: NetworkId = ""


class HeartbeatBody(Body):
    """`POST /api/node/heartbeat`."""

    status: Literal["working", "idle", "blocked", "error", "waiting_input", "offline"]
    task_id: TaskId = ""


class ReportBody(Body):
    """`POST /api/node/tasks/{id}/ack` and `/start`. No attempt means the present one."""

    attempt: Attempt = 1

    @property
    def attempt_or_none(self) -> int | None:
        """The attempt that the node named, None when it named none."""
        return self.attempt if "attempt" in self.model_fields_set else None


class ReplyBody(ReportBody):
    """`POST /api/node/tasks/{id}/reply`: how the work ended, and what came of it."""

    status: Literal["replied", "failed", "cancelled"]
    result: str = ""

    @property
    def result_or_none(self) -> str | None:
        """The result, None when none was sent."""
        return self.result if "result" in self.model_fields_set else None


class NoBody(Body):
    """A call that takes nothing."""
