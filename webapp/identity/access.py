"""Who may do what: one table, one pure question. Every route names the verb it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from webapp.errors import AppError
from webapp.identity.models import Role

_STRENGTH = {Role.VIEWER: 0, Role.MEMBER: 1, Role.ADMIN: 2, Role.OWNER: 3}


@dataclass(frozen=True)
class Actor:
    """The person on whose behalf a call is made.

    `roles` maps the primary key of each network that this call may reach to the person's role there; a
    token bound to one network has that one alone. An empty mapping reaches nothing.
    """

    user_pk: int
    user_id: str
    name: str
    is_admin: bool = False
    roles: Mapping[int, Role] = field(default_factory=dict)

    @property
    def networks(self) -> frozenset[int]:
        """Primary keys of the networks whose rows this person may see."""
        return frozenset(self.roles)


class Verb(StrEnum):
    """Everything that a person can ask for."""

    READ = "read"
    CREATE_SCHEDULE = "create_schedule"
    EDIT_SCHEDULE = "edit_schedule"
    PAUSE_SCHEDULE = "pause_schedule"
    RESUME_SCHEDULE = "resume_schedule"
    CANCEL_SCHEDULE = "cancel_schedule"
    RUN_SCHEDULE = "run_schedule"
    CONFIRM_SCHEDULE = "confirm_schedule"
    CREATE_NODE = "create_node"
    STEER_NODE = "steer_node"
    SEND_TASK = "send_task"
    STEER_TASK = "steer_task"
    CREATE_CHAT = "create_chat"
    USE_CHAT = "use_chat"
    DECIDE_APPROVAL = "decide_approval"
    READ_MANDATE = "read_mandate"
    CHANGE_MANDATE = "change_mandate"
    STOP_MANDATE = "stop_mandate"
    MANAGE_MEMBERS = "manage_members"
    MANAGE_OWNERS = "manage_owners"
    CREATE_NETWORK = "create_network"
    READ_AUDIT = "read_audit"
    MANAGE_USERS = "manage_users"
    MANAGE_OWN_TOKENS = "manage_own_tokens"


@dataclass(frozen=True)
class Facts:
    """What the question is about; keys are users' primary keys.

    `sponsor_pk` is the sponsor of a schedule, the owner of a chat, the subject of a mandate. `private` says that
    it is a chat's: its words are its owner's alone, and an admin may stop it but not speak in it.
    """

    network_pk: int | None = None
    sponsor_pk: int | None = None
    paused_by_pk: int | None = None
    private: bool = False


def _at_least(role: Role) -> Callable[[Actor, Facts], bool]:
    def rule(actor: Actor, facts: Facts) -> bool:
        held = actor.roles.get(facts.network_pk) if facts.network_pk is not None else None
        return held is not None and _STRENGTH[held] >= _STRENGTH[role]

    return rule


_viewer, _member = _at_least(Role.VIEWER), _at_least(Role.MEMBER)
_admin, _owner = _at_least(Role.ADMIN), _at_least(Role.OWNER)


def _sponsor_or_admin(actor: Actor, facts: Facts) -> bool:
    return _admin(actor, facts) or (_member(actor, facts) and actor.user_pk == facts.sponsor_pk)


def _sponsor(actor: Actor, facts: Facts) -> bool:
    return _member(actor, facts) and actor.user_pk == facts.sponsor_pk


def _may_edit(actor: Actor, facts: Facts) -> bool:
    return _sponsor(actor, facts) if facts.private else _sponsor_or_admin(actor, facts)


def _may_pause(actor: Actor, facts: Facts) -> bool:
    return _sponsor_or_admin(actor, facts) if facts.private else _member(actor, facts)


def _may_resume(actor: Actor, facts: Facts) -> bool:
    if facts.private:
        return _sponsor(actor, facts)
    lifts_own_pause = facts.paused_by_pk is not None and facts.paused_by_pk == actor.user_pk
    return _sponsor_or_admin(actor, facts) or (_member(actor, facts) and lifts_own_pause)


def _system_admin(actor: Actor, _facts: Facts) -> bool:
    return actor.is_admin


def _anyone(_actor: Actor, _facts: Facts) -> bool:
    return True


# The table. `docs/operations.md` shows the same rows in words.
RULES: dict[Verb, Callable[[Actor, Facts], bool]] = {
    Verb.READ: _viewer,
    Verb.CREATE_SCHEDULE: _member,
    Verb.EDIT_SCHEDULE: _may_edit,
    Verb.PAUSE_SCHEDULE: _may_pause,
    Verb.RESUME_SCHEDULE: _may_resume,
    Verb.CANCEL_SCHEDULE: _sponsor_or_admin,
    Verb.RUN_SCHEDULE: _may_edit,
    # To stand behind what an agent proposed.
    Verb.CONFIRM_SCHEDULE: _sponsor,
    Verb.CREATE_NODE: _member,
    Verb.STEER_NODE: _admin,
    Verb.SEND_TASK: _member,
    Verb.STEER_TASK: _sponsor_or_admin,
    Verb.CREATE_CHAT: _member,
    # To read it, write in it, archive it, abort its turns: its owner alone.
    Verb.USE_CHAT: _sponsor,
    Verb.DECIDE_APPROVAL: _sponsor,
    Verb.READ_MANDATE: _viewer,
    # To narrow, broaden, confirm, resume: the subject alone.
    Verb.CHANGE_MANDATE: _sponsor,
    # To pause and to revoke.
    Verb.STOP_MANDATE: _sponsor_or_admin,
    Verb.MANAGE_MEMBERS: _admin,
    # To make somebody an owner, to change one and to remove one.
    Verb.MANAGE_OWNERS: _owner,
    Verb.CREATE_NETWORK: _system_admin,
    Verb.READ_AUDIT: _viewer,
    Verb.MANAGE_USERS: _system_admin,
    Verb.MANAGE_OWN_TOKENS: _anyone,
}


def may(actor: Actor, verb: Verb, facts: Facts) -> bool:
    """Whether `actor` may do `verb` in the situation of `facts`."""
    return RULES[verb](actor, facts)


def demand(actor: Actor, verb: Verb, facts: Facts) -> None:
    """Raise AppError `permission_denied` unless `actor` may do `verb`."""
    if not may(actor, verb, facts):
        raise AppError("permission_denied")


def may_sponsor(role: Role | None) -> bool:
    """Whether a person with this role (None = not a member) may have schedules act on their authority."""
    return role is not None and _STRENGTH[role] >= _STRENGTH[Role.MEMBER]
