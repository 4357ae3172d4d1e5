"""What a person can do to a mandate. Each is one transaction; repeating it does no harm.

The order of checks is the contract's: scope, permission, revision and state, then the fields; whoever may not
do it learns nothing of revision or policy.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from webapp.errors import AppError
from webapp.identity.access import Actor, Facts, Verb, demand
from webapp.mandates import hooks, steps
from webapp.mandates.bodies import MandateChanges, PauseMandate, RevokeMandate
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import Mandate
from webapp.mandates.policy import stored_policy
from webapp.mandates.queries import find_mandate
from webapp.store.transaction import Tx, operation

Revision = Callable[[], int | None]


def _any_revision() -> int | None:
    return None


@operation
def change(
    tx: Tx,
    actor: Actor,
    mandate_id: str,
    read_changes: Callable[[], MandateChanges],
    *,
    revision: Revision,
    now: datetime,
) -> Mandate:
    """Give a mandate another policy or end. Only its subject may; `revision` gives the one that was seen.

    Raises AppError: `mandate_not_found`, `permission_denied`, `mandate_is_revoked`,
    `mandate_revision_conflict` (with `current_revision`; None conflicts too), `invalid_policy`,
    `invalid_expires_at`.
    """
    mandate = _hold(tx, actor, mandate_id, Verb.CHANGE_MANDATE)
    _refuse_revoked(mandate)
    seen = revision()
    if seen != mandate.revision:
        raise AppError("mandate_revision_conflict", current_revision=mandate.revision)
    changes = read_changes()
    policy = changes.read_policy() if changes.has("policy") else stored_policy(mandate.policy)
    expires_at = changes.expires_at if changes.has("expires_at") else mandate.expires_at
    if changes.has("expires_at") and expires_at is not None and expires_at <= now:
        raise AppError("invalid_expires_at", field="expires_at")
    if steps.rewrite(tx, mandate, policy=policy, expires_at=expires_at, actor=actor.name, now=now):
        hooks.mandate_changed(tx, mandate, actor=actor.name, now=now)
    return mandate


@operation
def confirm(
    tx: Tx, actor: Actor, mandate_id: str, *, revision: Revision = _any_revision, now: datetime
) -> Mandate:
    """Stand behind a mandate that an agent asked for. Only its subject may; again is fine.

    Raises AppError: `mandate_not_found`, `permission_denied`, `mandate_is_revoked`,
    `mandate_revision_conflict`.
    """
    mandate = _hold(tx, actor, mandate_id, Verb.CHANGE_MANDATE)
    _refuse_revoked(mandate)
    _check_revision(mandate, revision())
    if mandate.confirmed_at is None:
        steps.confirm(tx, mandate, by_pk=actor.user_pk, actor=actor.name, now=now)
        hooks.mandate_changed(tx, mandate, actor=actor.name, now=now)
    return mandate


@operation
def pause(
    tx: Tx,
    actor: Actor,
    mandate_id: str,
    read_wish: Callable[[], PauseMandate],
    *,
    revision: Revision = _any_revision,
    now: datetime,
) -> Mandate:
    """Let a mandate permit nothing until its subject resumes it; its schedule is paused at once. Again is fine.

    Raises AppError: `mandate_not_found`, `permission_denied`, `mandate_is_revoked`,
    `mandate_revision_conflict`, `invalid_reason`.
    """
    mandate = _hold(tx, actor, mandate_id, Verb.STOP_MANDATE)
    _refuse_revoked(mandate)
    _check_revision(mandate, revision())
    wish = read_wish()
    if mandate.state is not MandateState.PAUSED:
        steps.pause(tx, mandate, reason=wish.reason or None, actor=actor.name, now=now)
        hooks.mandate_changed(tx, mandate, actor=actor.name, now=now)
    return mandate


@operation
def resume(
    tx: Tx, actor: Actor, mandate_id: str, *, revision: Revision = _any_revision, now: datetime
) -> Mandate:
    """Let a paused mandate permit again. Only its subject may; its schedule stays paused. Again is fine.

    Raises AppError: `mandate_not_found`, `permission_denied`, `mandate_is_revoked`,
    `mandate_revision_conflict`.
    """
    mandate = _hold(tx, actor, mandate_id, Verb.CHANGE_MANDATE)
    _refuse_revoked(mandate)
    _check_revision(mandate, revision())
    if mandate.state is not MandateState.ACTIVE:
        steps.resume(tx, mandate, actor=actor.name, now=now)
        hooks.mandate_changed(tx, mandate, actor=actor.name, now=now)
    return mandate


@operation
def revoke(
    tx: Tx,
    actor: Actor,
    mandate_id: str,
    read_wish: Callable[[], RevokeMandate],
    *,
    revision: Revision = _any_revision,
    now: datetime,
) -> Mandate:
    """End a mandate for good: its schedule stops, turns at work may do nothing more.

    Again changes nothing, also with an old revision.

    Raises AppError: `mandate_not_found`, `permission_denied`, `mandate_revision_conflict`, `reason_required`,
    `invalid_reason`.
    """
    mandate = _hold(tx, actor, mandate_id, Verb.STOP_MANDATE)
    seen = revision()
    if mandate.state is not MandateState.REVOKED:
        _check_revision(mandate, seen)
    wish = read_wish()
    if mandate.state is MandateState.REVOKED:
        return mandate
    if not wish.reason:
        raise AppError("reason_required", field="reason")
    steps.revoke(tx, mandate, reason=wish.reason, actor=actor.name, now=now)
    hooks.mandate_changed(tx, mandate, actor=actor.name, now=now)
    return mandate


def _hold(tx: Tx, actor: Actor, mandate_id: str, verb: Verb) -> Mandate:
    """Lock a mandate that the actor may do this to, and what hangs on it before it."""
    found = find_mandate(tx.session, actor.networks, mandate_id)
    demand(actor, verb, Facts(network_pk=found.network_pk, sponsor_pk=found.subject_pk))
    hooks.before_change(tx, found.workload)
    return steps.lock(tx, found.id)


def _refuse_revoked(mandate: Mandate) -> None:
    if mandate.state is MandateState.REVOKED:
        raise AppError("mandate_is_revoked")


def _check_revision(mandate: Mandate, seen: int | None) -> None:
    if seen is not None and seen != mandate.revision:
        raise AppError("mandate_revision_conflict", current_revision=mandate.revision)
