"""What callers may ask of mandates, as strict models: built by forms and JSON bodies alike. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StringConstraints

from webapp.clock import parse_instant
from webapp.mandates.policy import Policy, parse_policy


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("a NUL character cannot be stored")
    return text


def _instant(value: Any) -> Any:
    if value is None or isinstance(value, datetime):
        return value
    return parse_instant(value)


Reason = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500), AfterValidator(_storable)]
Instant = Annotated[datetime, BeforeValidator(_instant)]


class MandateChanges(BaseModel):
    """`PATCH /api/mandates/{id}`; what is not sent keeps its value, `expires_at` null lets it never expire."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    policy: Any = None
    expires_at: Instant | None = None

    def has(self, field: str) -> bool:
        """Whether the caller named this field."""
        return field in self.model_fields_set

    def read_policy(self) -> Policy:
        """The policy that was sent. Raises AppError `invalid_policy`."""
        return parse_policy(self.policy)


class PauseMandate(BaseModel):
    """`POST /api/mandates/{id}/pause`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    reason: Reason = ""


class RevokeMandate(BaseModel):
    """`POST /api/mandates/{id}/revoke`: says why."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    reason: Reason = ""
