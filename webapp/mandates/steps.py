"""What may happen to mandates inside somebody else's transaction; each change and each use is audited there.

The lock order is schedule, run, mandate, work: whoever calls these has locked the schedule of the mandate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import ColumnElement, Table, Update, bindparam, or_, select, update

from webapp import audit
from webapp.errors import AppError
from webapp.events import outbox
from webapp.identity.access import may_sponsor
from webapp.identity.models import Membership, User
from webapp.ids import new_id
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import Mandate
from webapp.mandates.policy import Policy, Verdict, is_narrower, permits, standing_refusal, stored_policy
from webapp.mandates.queries import facts_of
from webapp.store.given import Given, GivenRows, bound_now, key_of
from webapp.store.transaction import Tx
from webapp.timetable import utc_text

_mandates = cast(Table, Mandate.__table__)


class UseRefused(Exception):
    """A mandate moved between the look at it and its use; the transaction must not stand."""


def issue(
    tx: Tx,
    *,
    network_pk: int,
    subject_pk: int,
    workload: str,
    policy: Policy,
    expires_at: datetime | None,
    confirmed_by_pk: int | None,
    actor: str,
    now: datetime,
) -> Mandate:
    """Make the live mandate of a workload; `confirmed_by_pk` None leaves it to be confirmed by its subject."""
    mandate = Mandate(
        mandate_id=new_id("mand"),
        network_pk=network_pk,
        subject_pk=subject_pk,
        workload=workload,
        policy=policy.to_json(),
        state=MandateState.ACTIVE,
        expires_at=expires_at,
        confirmed_at=None if confirmed_by_pk is None else now,
        confirmed_by_pk=confirmed_by_pk,
        max_runs=policy.max_runs,
        max_tokens=policy.max_tokens,
        revision=1,
        used_runs=0,
        used_tokens=0,
        reserved_tokens=0,
        created_at=now,
        updated_at=now,
    )
    tx.session.add(mandate)
    tx.session.flush()
    detail = {
        "workload": workload,
        "policy": mandate.policy,
        "expires_at": _iso(expires_at),
        "confirmed": confirmed_by_pk is not None,
    }
    _record(tx, mandate, "mandate.create", detail, actor=actor, now=now)
    return mandate


def lock(tx: Tx, mandate_pk: int) -> Mandate:
    """Lock a mandate and read it as it now is."""
    statement = select(Mandate).where(Mandate.id == mandate_pk).with_for_update()
    return tx.session.execute(statement.execution_options(populate_existing=True)).scalar_one()


# --- Changes; each returns whether it changed anything ---


def rewrite(
    tx: Tx,
    mandate: Mandate,
    *,
    policy: Policy,
    expires_at: datetime | None,
    actor: str,
    now: datetime,
) -> bool:
    """Give a locked mandate another policy and end, as a new revision. Raises AppError `mandate_is_revoked`."""
    _refuse_revoked(mandate)
    written = policy.to_json()
    if (written, expires_at) == (mandate.policy, mandate.expires_at):
        return False
    was = {"policy": mandate.policy, "expires_at": _iso(mandate.expires_at)}
    # Said in the audit, so that whoever looks for it need not compare lists.
    ends_later = mandate.expires_at is not None and (expires_at is None or expires_at > mandate.expires_at)
    broadens = ends_later or not is_narrower(policy, stored_policy(mandate.policy))
    mandate.policy, mandate.expires_at = written, expires_at
    mandate.max_runs, mandate.max_tokens = policy.max_runs, policy.max_tokens
    detail = {"was": was, "policy": written, "expires_at": _iso(expires_at), "broadens": broadens}
    _changed(tx, mandate, "mandate.change", detail, actor=actor, now=now)
    return True


def confirm(tx: Tx, mandate: Mandate, *, by_pk: int, actor: str, now: datetime) -> bool:
    """Say that a person stands behind a locked mandate. Raises AppError `mandate_is_revoked`."""
    _refuse_revoked(mandate)
    if mandate.confirmed_at is not None:
        return False
    mandate.confirmed_at, mandate.confirmed_by_pk = now, by_pk
    _changed(tx, mandate, "mandate.confirm", {}, actor=actor, now=now)
    return True


def pause(tx: Tx, mandate: Mandate, *, reason: str | None, actor: str, now: datetime) -> bool:
    """Let a locked mandate permit nothing for the time being. Raises AppError `mandate_is_revoked`."""
    _refuse_revoked(mandate)
    if mandate.state is MandateState.PAUSED:
        return False
    mandate.state, mandate.state_reason = MandateState.PAUSED, reason
    _changed(tx, mandate, "mandate.pause", {"reason": reason}, actor=actor, now=now)
    return True


def resume(tx: Tx, mandate: Mandate, *, actor: str, now: datetime) -> bool:
    """Let a locked mandate permit again what it says. Raises AppError `mandate_is_revoked`."""
    _refuse_revoked(mandate)
    if mandate.state is MandateState.ACTIVE:
        return False
    mandate.state, mandate.state_reason = MandateState.ACTIVE, None
    _changed(tx, mandate, "mandate.resume", {}, actor=actor, now=now)
    return True


def revoke(tx: Tx, mandate: Mandate, *, reason: str, actor: str, now: datetime) -> bool:
    """End a locked mandate for good."""
    if mandate.state is MandateState.REVOKED:
        return False
    mandate.state, mandate.state_reason, mandate.ended_at = MandateState.REVOKED, reason[:500], now
    _changed(tx, mandate, "mandate.revoke", {"reason": reason[:500]}, actor=actor, now=now)
    return True


def _refuse_revoked(mandate: Mandate) -> None:
    if mandate.state is MandateState.REVOKED:
        raise AppError("mandate_is_revoked")


def _changed(
    tx: Tx, mandate: Mandate, verb: str, detail: dict[str, Any], *, actor: str, now: datetime
) -> None:
    mandate.revision += 1
    mandate.updated_at = now
    tx.session.flush()
    _record(tx, mandate, verb, {**detail, "revision": mandate.revision}, actor=actor, now=now)


def _record(
    tx: Tx, mandate: Mandate, verb: str, detail: dict[str, Any], *, actor: str, now: datetime
) -> None:
    audit.record(
        tx,
        mandate.network_pk,
        actor=actor,
        verb=verb,
        subject_kind="mandate",
        subject_id=mandate.mandate_id,
        detail=detail,
        now=now,
    )
    outbox.emit(tx, mandate.network_pk, "mandate", {"mandates": [mandate.mandate_id]}, now=now)


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else utc_text(instant)


# --- Use ---


@dataclass(frozen=True)
class Use:
    """One run that starts under a mandate, in the revision that was looked at."""

    mandate_pk: int
    mandate_id: str
    revision: int
    network_pk: int
    actor: str
    run_id: str


def use_runs(tx: Tx, uses: Sequence[Use], *, now: datetime) -> None:
    """Count runs against their mandates, each compared and set: state, revision, end and limit as they were seen.

    One statement for all of them. Raises UseRefused when one of them moved: the caller's transaction must end.
    """
    if not uses:
        return
    statement = _counting(bindparam("key"), bindparam("seen"), now)
    # In the order of their keys, so that two callers never wait in a ring.
    ordered = sorted(uses, key=lambda use: use.mandate_pk)
    rows = [{"key": use.mandate_pk, "seen": use.revision} for use in ordered]
    counted = tx.session.connection().execute(statement, rows)
    if counted.rowcount != len(uses):
        raise UseRefused
    for use in uses:
        audit.record(
            tx,
            use.network_pk,
            actor=use.actor,
            verb="mandate.use",
            subject_kind="mandate",
            subject_id=use.mandate_id,
            detail={"run_id": use.run_id, "revision": use.revision},
            now=now,
        )


def use_runs_given(tx: Tx, uses: GivenRows, counts: Mapping[int, int], *, actor: str, now: datetime) -> None:
    """The same for given rows, one run a mandate: `mandate_pk`, `mandate_id`, `mandate_revision`, `run_id`, and
    `network_pk` with `from_end` (see `audit.record_given`). `counts`: how many of each network.
    """
    if uses.execute(_counting_given, now=now).rowcount != uses.count:
        raise UseRefused
    audit.record_given(
        tx,
        uses,
        counts,
        actor=actor,
        verb="mandate.use",
        subject_kind="mandate",
        subject_id="mandate_id",
        # As the text of a single one's detail.
        detail=('{"run_id": "', "run_id", '", "revision": ', "mandate_revision", "}"),
        now=now,
    )


def _counting_given(uses: Given) -> Update:
    given = uses.table("mandate_pk", "mandate_revision")
    return _counting(key_of(given.c.mandate_pk), given.c.mandate_revision, bound_now())


def _counting(
    key: ColumnElement[int], seen: ColumnElement[int], now: datetime | ColumnElement[datetime]
) -> Update:
    """Count a run against the mandate of this key, if it is still as it was seen."""
    table = _mandates.c
    return (
        update(_mandates)
        .where(
            table.id == key,
            table.revision == seen,
            table.state == MandateState.ACTIVE,
            table.confirmed_at.is_not(None),
            or_(table.expires_at.is_(None), table.expires_at > now),
            or_(table.max_runs.is_(None), table.used_runs < table.max_runs),
        )
        .values(used_runs=table.used_runs + 1)
    )


def note_denial(
    tx: Tx, network_pk: int, mandate_id: str, code: str, *, actor: str, now: datetime, **about: Any
) -> None:
    """Audit that something was refused under a mandate; `about` holds public ids and names."""
    audit.record(
        tx,
        network_pk,
        actor=actor,
        verb="mandate.deny",
        subject_kind="mandate",
        subject_id=mandate_id,
        detail={"code": code, **about},
        now=now,
    )


def authorize(
    tx: Tx,
    mandate_pk: int,
    known_revision: int | None,
    operation: str,
    target: str | None,
    *,
    actor: str,
    approved: bool = False,
    now: datetime,
    about: dict[str, Any] | None = None,
) -> Verdict | str:
    """Whether work at this moment may do `operation` at `target` (`node:<id>`): a verdict, or a refusal's code.

    Locks the mandate until the transaction ends, so that a revocation either comes before and is seen, or comes
    after the side effect. `approved` says that a person has approved exactly this call: what needs approval is
    then answered `preapproved`. A use, a question and a denial are audited, with `about` (such as the ids of turn
    and call).
    """
    mandate = lock(tx, mandate_pk)
    verdict: Verdict | str | None = standing_refusal(facts_of(mandate), known_revision, now)
    verdict = verdict or _subject_refusal(tx, mandate)
    if verdict is None:
        verdict = permits(stored_policy(mandate.policy), operation, target)
        if verdict is Verdict.NEEDS_APPROVAL and approved:
            verdict = Verdict.PREAPPROVED
    detail = {**(about or {}), "operation": operation, "target": target, "revision": mandate.revision}
    if verdict is Verdict.PREAPPROVED:
        _record(tx, mandate, "mandate.use", {**detail, "approved": approved}, actor=actor, now=now)
    elif verdict is Verdict.NEEDS_APPROVAL:
        _record(tx, mandate, "mandate.ask", detail, actor=actor, now=now)
    else:
        code = "mandate_denies" if verdict is Verdict.DENIED else str(verdict)
        note_denial(tx, mandate.network_pk, mandate.mandate_id, code, actor=actor, now=now, **detail)
    return verdict


def _subject_refusal(tx: Tx, mandate: Mandate) -> str | None:
    subject = select(User.active, Membership.role).outerjoin(
        Membership, (Membership.user_pk == User.id) & (Membership.network_pk == mandate.network_pk)
    )
    active, role = tx.session.execute(subject.where(User.id == mandate.subject_pk)).one()
    if not active:
        return "sponsor_inactive"
    return None if may_sponsor(role) else "sponsor_not_permitted"


# --- Tokens ---


def reserve_tokens(tx: Tx, mandate_pk: int, amount: int) -> bool:
    """Set `amount` tokens aside for a request to a model; False when the mandate has not so many left."""
    free = or_(
        Mandate.max_tokens.is_(None),
        Mandate.used_tokens + Mandate.reserved_tokens + amount <= Mandate.max_tokens,
    )
    statement = (
        update(Mandate)
        .where(Mandate.id == mandate_pk, free)
        .values(reserved_tokens=Mandate.reserved_tokens + amount)
        .execution_options(synchronize_session=False)
    )
    return bool(tx.session.execute(statement).rowcount)  # type: ignore[attr-defined]


def settle_tokens(tx: Tx, mandate_pk: int, *, reserved: int, used: int) -> None:
    """Give back what was set aside and count what was used; asks for no live authority, as work has ended."""
    tx.session.execute(
        update(Mandate)
        .where(Mandate.id == mandate_pk)
        .values(reserved_tokens=Mandate.reserved_tokens - reserved, used_tokens=Mandate.used_tokens + used)
        .execution_options(synchronize_session=False)
    )
