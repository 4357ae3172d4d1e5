"""What a mandate permits, and when it may not be used at all. Pure: values in, a decision out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from webapp.errors import AppError
from webapp.mandates.lifecycle import MandateState

MAX_NAMES: Final = 100
MAX_POLICY_BYTES: Final = 16 * 1024
MAX_LIMIT: Final = 10**12
WILDCARD: Final = "*"
SEND_TASK: Final = "nodes.send_task"
_APP = re.compile(r"[a-z][a-z0-9_]{0,39}")
_OPERATION = re.compile(r"[a-z][a-z0-9_]{0,39}\.[a-z][a-z0-9_]{0,39}")
_TARGET = re.compile(r"[a-z]{1,20}:[0-9A-Za-z_.-]{1,200}")

# A list of names, or None for the wildcard.
Names = frozenset[str] | None


class Actions(StrEnum):
    """What becomes of a call that the lists permit. Ordered from narrow to broad."""

    DENY = "deny"
    REQUIRE_APPROVAL = "require_approval"
    PREAPPROVED = "preapproved"


class Verdict(StrEnum):
    """What a policy says to one call."""

    DENIED = "denied"
    NEEDS_APPROVAL = "needs_approval"
    PREAPPROVED = "preapproved"


_BREADTH = {actions: place for place, actions in enumerate(Actions)}


@dataclass(frozen=True)
class Policy:
    """Version 1. `apps` and `operations`: None is the wildcard. `targets`: None restricts nothing."""

    apps: Names
    operations: Names
    actions: Actions
    targets: Names = None
    max_runs: int | None = None
    max_tokens: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The canonical stored form: lists unique and sorted, only what is there."""
        written: dict[str, Any] = {
            "version": 1,
            "apps": _written(self.apps),
            "operations": _written(self.operations),
            "actions": self.actions.value,
        }
        if self.targets is not None:
            written["targets"] = sorted(self.targets)
        limits = {"max_runs": self.max_runs, "max_tokens": self.max_tokens}
        limits = {name: limit for name, limit in limits.items() if limit is not None}
        return written | ({"limits": limits} if limits else {})


def _written(names: Names) -> list[str] | str:
    return WILDCARD if names is None else sorted(names)


# --- The policies that the product itself makes ---


def node_policy(node_id: str) -> Policy:
    """Exactly what a schedule of a node needs: to send tasks to that node (its public id)."""
    return exactly([SEND_TASK], [f"node:{node_id}"])


def talk_only() -> Policy:
    """A chat's schedule that may talk and do nothing else."""
    return Policy(frozenset(), frozenset(), Actions.DENY)


def ask_each_time() -> Policy:
    """A chat's schedule that may ask for everything, and a person answers each time."""
    return Policy(None, None, Actions.REQUIRE_APPROVAL)


def exactly(operations: list[str], targets: list[str] | None = None) -> Policy:
    """Exactly these operations (at these targets), without asking. Raises AppError `invalid_policy`."""
    written: dict[str, Any] = {
        "version": 1,
        "apps": [operation.partition(".")[0] for operation in operations],
        "operations": operations,
        "actions": Actions.PREAPPROVED.value,
    }
    return parse_policy(written | ({} if targets is None else {"targets": targets}))


def retargeted(policy: Policy, target: str) -> Policy:
    """The same policy for another single target; one without targets stays without."""
    return policy if policy.targets is None else replace(policy, targets=frozenset({target}))


# --- Reading what somebody wrote ---


def parse_policy(untrusted: object) -> Policy:
    """Read a policy, strictly. Raises AppError `invalid_policy` with a sentence that says what is wrong."""
    if not isinstance(untrusted, Mapping):
        raise _refused("A policy is an object.")
    unknown = set(untrusted) - {"version", "apps", "operations", "actions", "targets", "limits"}
    if unknown:
        raise _refused(f"A policy has no {min(map(str, unknown))[:60]!r}.")
    if untrusted.get("version") != 1 or type(untrusted["version"]) is not int:
        raise _refused("The version of a policy is 1.")
    actions = untrusted.get("actions")
    if not isinstance(actions, str) or actions not in {known.value for known in Actions}:
        raise _refused("actions is deny, require_approval or preapproved.")
    limits = _limits(untrusted.get("limits", {}))
    policy = Policy(
        apps=_names("apps", untrusted.get("apps"), _APP, wildcard=True),
        operations=_names("operations", untrusted.get("operations"), _OPERATION, wildcard=True),
        actions=Actions(actions),
        targets=_names("targets", untrusted["targets"], _TARGET) if "targets" in untrusted else None,
        max_runs=limits.get("max_runs"),
        max_tokens=limits.get("max_tokens"),
    )
    _check_whole(policy)
    return policy


def _check_whole(policy: Policy) -> None:
    if (policy.apps is None or policy.operations is None) and policy.actions is not Actions.REQUIRE_APPROVAL:
        raise _refused('"*" is allowed only with require_approval.')
    if policy.actions is Actions.PREAPPROVED and not (policy.apps and policy.operations):
        raise _refused("preapproved needs lists of apps and operations that are not empty.")
    if len(json.dumps(policy.to_json()).encode()) > MAX_POLICY_BYTES:
        raise _refused("A policy has at most 16 KiB.")


def _names(field: str, value: object, shape: re.Pattern[str], *, wildcard: bool = False) -> Names:
    if wildcard and value == WILDCARD and isinstance(value, str):
        return None
    if not isinstance(value, list):
        raise _refused(f"{field} is a list{' or *' if wildcard else ''}.")
    if len(value) > MAX_NAMES:
        raise _refused(f"{field} has at most {MAX_NAMES} entries.")
    for name in value:
        if not isinstance(name, str) or shape.fullmatch(name) is None:
            raise _refused(f"{field} holds an entry that is no name of that kind.")
    return frozenset(value)


def _limits(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping) or set(value) - {"max_runs", "max_tokens"}:
        raise _refused("limits is an object with max_runs and max_tokens.")
    for limit in value.values():
        if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
            raise _refused("A limit is a whole number from 1.")
    return dict(value)


def _refused(sentence: str) -> AppError:
    return AppError("invalid_policy", field="policy", message=sentence)


def stored_policy(stored: Mapping[str, Any]) -> Policy:
    """The policy of a row. One that cannot be read permits nothing: better no work than work unasked."""
    try:
        return parse_policy(stored)
    except AppError:
        return talk_only()


# --- Deciding ---


def permits(policy: Policy, operation: str, target: str | None) -> Verdict:
    """What the policy says to `operation` (`<app>.<what>`) at `target` (`node:<id>`, None where there is none)."""
    app = operation.partition(".")[0]
    listed = (policy.apps is None or app in policy.apps) and (
        policy.operations is None or operation in policy.operations
    )
    aimed = target is None or policy.targets is None or target in policy.targets
    if policy.actions is Actions.DENY or not listed or not aimed:
        return Verdict.DENIED
    return Verdict.NEEDS_APPROVAL if policy.actions is Actions.REQUIRE_APPROVAL else Verdict.PREAPPROVED


def is_narrower(new: Policy, old: Policy) -> bool:
    """Whether `new` permits nothing that `old` does not; the same policy is as narrow as itself."""
    return (
        _within(new.apps, old.apps)
        and _within(new.operations, old.operations)
        and _within(new.targets, old.targets)
        and _BREADTH[new.actions] <= _BREADTH[old.actions]
        and _limited(new.max_runs, old.max_runs)
        and _limited(new.max_tokens, old.max_tokens)
    )


def _within(new: Names, old: Names) -> bool:
    return old is None or (new is not None and new <= old)


def _limited(new: int | None, old: int | None) -> bool:
    return old is None or (new is not None and new <= old)


class MandateFacts(NamedTuple):
    """A mandate as admission sees it. Keys are database keys; instants UTC. Thousands are made for a herd."""

    pk: int
    mandate_id: str
    network_pk: int
    subject_pk: int
    workload: str
    state: MandateState
    revision: int
    confirmed: bool
    expires_at: datetime | None
    policy: Mapping[str, Any]
    max_runs: int | None = None
    used_runs: int = 0
    max_tokens: int | None = None
    used_tokens: int = 0


def refusal(mandate: MandateFacts | None, known_revision: int | None, now: datetime) -> str | None:
    """The code that keeps work from being started under this mandate, or None.

    `known_revision` is the one that the workload knows. What its policy says is asked with `permits`.
    """
    code = standing_refusal(mandate, known_revision, now)
    if code is not None or mandate is None:
        return code
    runs_left = mandate.max_runs is None or mandate.used_runs < mandate.max_runs
    tokens_left = mandate.max_tokens is None or mandate.used_tokens < mandate.max_tokens
    return None if runs_left and tokens_left else "mandate_exhausted"


def standing_refusal(mandate: MandateFacts | None, known_revision: int | None, now: datetime) -> str | None:
    """The same without the limits: a run that they let start may end."""
    if mandate is None:
        return "mandate_missing"
    if mandate.state is MandateState.REVOKED:
        return "mandate_revoked"
    if not mandate.confirmed:
        return "mandate_unconfirmed"
    if is_expired(mandate.expires_at, now):
        return "mandate_expired"
    if mandate.state is MandateState.PAUSED:
        return "mandate_paused"
    return None if mandate.revision == known_revision else "mandate_changed"


def is_expired(expires_at: datetime | None, now: datetime) -> bool:
    """Whether the time of a mandate is over; it works up to `expires_at`, not at it."""
    return expires_at is not None and expires_at <= now
