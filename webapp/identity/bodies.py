"""What people send about people, networks and tokens, from forms and JSON alike; shape only."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

RoleName = Literal["owner", "admin", "member", "viewer"]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    ERROR_CODES: ClassVar[dict[str, str]] = {}


class NewUserBody(_Body):
    """A person to be created, and the place they get at once."""

    ERROR_CODES: ClassVar[dict[str, str]] = {"name": "invalid_user_name", "admin": "invalid_admin"}

    name: str
    password: str
    admin: bool = False
    network_id: str | None = None
    role: RoleName = "member"


class UserChanges(_Body):
    """What a system administrator changes about a person."""

    active: bool


class NewNetworkBody(_Body):
    """A network to be created."""

    ERROR_CODES: ClassVar[dict[str, str]] = {"name": "invalid_network_name"}

    name: str
    slug: str


class NewMemberBody(_Body):
    """An existing person's place in a network; the person is named by id or by name."""

    ERROR_CODES: ClassVar[dict[str, str]] = {"name": "invalid_user_name", "user_id": "user_not_found"}

    user_id: str | None = None
    name: str | None = None
    role: RoleName = "member"


class MemberChanges(_Body):
    """What somebody becomes in a network."""

    role: RoleName


class NewTokenBody(_Body):
    """A token to be made for oneself."""

    label: str = ""
    network_id: str | None = None
    expires_days: int | None = None
