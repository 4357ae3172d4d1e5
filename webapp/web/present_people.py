"""People, networks and tokens as the API shows them: no keys of ours, no secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from webapp.identity.models import Network, Role, User
from webapp.identity.queries import Member, Person, Place, TokenRow
from webapp.timetable import utc_text


def instant(value: datetime | None) -> str | None:
    """UTC ISO 8601 with `Z` and milliseconds; None stays None."""
    return None if value is None else utc_text(value)


def user(row: User) -> dict[str, Any]:
    """A person as others see them."""
    return {
        "user_id": row.user_id,
        "name": row.name,
        "active": row.active,
        "admin": row.is_admin,
        "created_at": instant(row.created_at),
    }


def person(found: Person) -> dict[str, Any]:
    """The caller, with what this call may reach."""
    return {
        "user_id": found.actor.user_id,
        "name": found.actor.name,
        "admin": found.actor.is_admin,
        "timezone": found.timezone,
        "networks": [place(row) for row in found.places],
    }


def place(row: Place) -> dict[str, Any]:
    """A network with the caller's role in it."""
    return {"network_id": row.network_id, "slug": row.slug, "name": row.name, "role": row.role.value}


def network(row: Network, role: Role) -> dict[str, Any]:
    """A network that was just made, with the caller's role in it."""
    return {"network_id": row.network_id, "slug": row.slug, "name": row.name, "role": role.value}


def member(row: Member) -> dict[str, Any]:
    """A person as a member of one network."""
    return {
        "user_id": row.user_id,
        "name": row.name,
        "role": row.role.value,
        "active": row.active,
        "since": instant(row.since),
    }


def token(row: TokenRow) -> dict[str, Any]:
    """A user's token; its secret is shown once, beside this."""
    return {
        "token_id": row.token_id,
        "label": row.label,
        "hint": row.hint,
        "network_id": row.network_id,
        "created_at": instant(row.created_at),
        "expires_at": instant(row.expires_at),
        "last_used_at": instant(row.last_used_at),
        "revoked_at": instant(row.revoked_at),
    }
