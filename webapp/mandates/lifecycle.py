"""The states of a mandate. Pure."""

from __future__ import annotations

from enum import StrEnum


class MandateState(StrEnum):
    """The life of a mandate; revoked is final. Expiry is an instant, not a state."""

    ACTIVE = "active"
    PAUSED = "paused"
    REVOKED = "revoked"
