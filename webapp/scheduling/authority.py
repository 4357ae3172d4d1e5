"""The mandate of a schedule: given, kept in step with the schedule, mended by a resume, counted at each use.

Steps inside somebody else's transaction; the schedule is locked. The schedule remembers the revision of its
mandate that it knows: whatever changes a mandate here or by a person's hand writes the new one to it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum

from sqlalchemy import select

from webapp.errors import AppError
from webapp.identity.access import Actor, Facts, Verb, may
from webapp.identity.models import User
from webapp.mandates import steps as mandates
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import Mandate
from webapp.mandates.policy import (
    MandateFacts,
    Policy,
    ask_each_time,
    is_expired,
    node_policy,
    retargeted,
    stored_policy,
)
from webapp.mandates.queries import facts_of
from webapp.scheduling.admission import mandate_refusal, workload_of
from webapp.scheduling.lifecycle import TargetKind
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.policy import MANDATE_CODES, Admission
from webapp.store.transaction import Tx

# A mandate that lasted for a moment only is renewed for longer than that.
SHORTEST_RENEWAL = timedelta(days=1)
SPONSOR_CHANGED = "The schedule acts on the authority of another person now."
RENEWED = "It had expired; a new mandate took its place."
CANCELLED = "The schedule was cancelled."
COMPLETED = "The schedule is completed."
# What a resume by the sponsor puts right.
_MENDED = frozenset(
    {
        "mandate_missing",
        "mandate_revoked",
        "mandate_expired",
        "mandate_paused",
        "mandate_unconfirmed",
        "mandate_changed",
    }
)


def usual_policy(schedule: Schedule) -> Policy:
    """What a schedule may do where nobody says anything else."""
    return node_policy(schedule.target_id) if schedule.target_kind is TargetKind.NODE else ask_each_time()


def give_mandate(
    tx: Tx,
    schedule: Schedule,
    policy: Policy,
    *,
    expires_at: datetime | None = None,
    confirmed: bool = True,
    actor: str,
    now: datetime,
) -> Mandate:
    """Issue the mandate of a schedule to its sponsor; `confirmed` says that the sponsor's own act is behind it."""
    mandate = mandates.issue(
        tx,
        network_pk=schedule.network_pk,
        subject_pk=schedule.sponsor_pk,
        workload=workload_of(schedule.schedule_id),
        policy=policy,
        expires_at=expires_at,
        confirmed_by_pk=schedule.sponsor_pk if confirmed else None,
        actor=actor,
        now=now,
    )
    schedule.mandate_pk, schedule.mandate_id = mandate.id, mandate.mandate_id
    schedule.mandate_revision = mandate.revision
    return mandate


def lock_mandate(tx: Tx, schedule: Schedule) -> Mandate | None:
    """Lock the mandate of a schedule: the live one, else the last that it knew; None where there is none."""
    workload = workload_of(schedule.schedule_id)
    live = select(Mandate.id).where(Mandate.workload == workload, Mandate.state != MandateState.REVOKED)
    last = select(Mandate.id).where(Mandate.id == schedule.mandate_pk, Mandate.workload == workload)
    pk = tx.session.scalars(live).one_or_none() or tx.session.scalars(last).one_or_none()
    return None if pk is None else mandates.lock(tx, pk)


# --- What the life of a schedule does to its mandate ---


def rest(tx: Tx, schedule: Schedule, *, actor: str, now: datetime) -> None:
    """A completed schedule needs no authority: its mandate is paused, and resumed when it is armed again."""
    mandate = lock_mandate(tx, schedule)
    if mandate is None or mandate.state is MandateState.REVOKED:
        return
    mandates.pause(tx, mandate, reason=COMPLETED, actor=actor, now=now)
    schedule.mandate_revision = mandate.revision


def give_up(tx: Tx, schedule: Schedule, *, reason: str, actor: str, now: datetime) -> None:
    """Revoke the mandate of a schedule, without the effects that a person's revocation has on it."""
    mandate = lock_mandate(tx, schedule)
    if mandate is not None:
        mandates.revoke(tx, mandate, reason=reason, actor=actor, now=now)
        schedule.mandate_revision = mandate.revision


def aim(tx: Tx, schedule: Schedule, *, actor: str, now: datetime) -> None:
    """Follow a schedule whose sponsor gave it another target: the targets of its mandate are rewritten."""
    mandate = lock_mandate(tx, schedule)
    if (
        mandate is None
        or mandate.state is MandateState.REVOKED
        or schedule.target_kind is not TargetKind.NODE
    ):
        return
    policy = retargeted(stored_policy(mandate.policy), f"node:{schedule.target_id}")
    mandates.rewrite(tx, mandate, policy=policy, expires_at=mandate.expires_at, actor=actor, now=now)
    schedule.mandate_revision = mandate.revision


def change_sponsor(tx: Tx, schedule: Schedule, sponsor: Actor, *, now: datetime) -> None:
    """Have a schedule act on the authority of another person, who has just said so: a new mandate, old policy."""
    old = lock_mandate(tx, schedule)
    if old is not None:
        mandates.revoke(tx, old, reason=SPONSOR_CHANGED, actor=sponsor.name, now=now)
    schedule.sponsor = tx.session.get_one(User, sponsor.user_pk)
    schedule.sponsor_pk = sponsor.user_pk
    _renew(tx, schedule, old, actor=sponsor.name, now=now)


def _renew(tx: Tx, schedule: Schedule, old: Mandate | None, *, actor: str, now: datetime) -> None:
    """Issue the mandate that takes the place of a revoked one: the old policy, for as long again."""
    policy = renewed_policy(schedule, None if old is None else facts_of(old))
    expires_at = None if old is None else old.expires_at
    if old is not None and expires_at is not None and expires_at <= now:
        expires_at = now + max(expires_at - old.created_at, SHORTEST_RENEWAL)
    give_mandate(tx, schedule, policy, expires_at=expires_at, actor=actor, now=now)


def renewed_policy(schedule: Schedule, facts: MandateFacts | None) -> Policy:
    """The policy of a schedule's next mandate: that of the last one, at the target as it now is."""
    if facts is None or facts.workload != workload_of(schedule.schedule_id):
        return usual_policy(schedule)
    policy = stored_policy(facts.policy)
    if schedule.target_kind is not TargetKind.NODE:
        return policy
    return retargeted(policy, f"node:{schedule.target_id}")


# --- Mending ---


class Mending(Enum):
    """What a resume has to do to a mandate first."""

    NOTHING = "nothing"
    RESTORE = "resume and confirm it, and know its present revision"
    RENEW = "issue and confirm a new one"
    TAKE_OVER = "the same, and whoever resumes becomes the sponsor"


def mending(schedule: Schedule, admission: Admission, person: Actor | None, *, now: datetime) -> Mending:
    """What the resume of a schedule by `person` (None: by the worker, which mends nothing) does to its mandate."""
    code, mandate = admission.mandate_refusal, admission.mandate
    if code not in _MENDED or person is None:
        return Mending.NOTHING
    if person.user_pk == schedule.sponsor_pk:
        gone = mandate is None or mandate.state is MandateState.REVOKED
        if code == "mandate_missing" or gone or (mandate and is_expired(mandate.expires_at, now)):
            return Mending.RENEW
        return Mending.RESTORE
    facts = Facts(schedule.network_pk, schedule.sponsor_pk)
    takes_over = schedule.target_kind is TargetKind.NODE and may(person, Verb.EDIT_SCHEDULE, facts)
    return Mending.TAKE_OVER if takes_over else Mending.NOTHING


def as_if_mended(
    schedule: Schedule, admission: Admission, person: Actor | None, *, now: datetime
) -> Admission:
    """The facts of admission as they would be once `person` had resumed the schedule."""
    what, mandate = mending(schedule, admission, person, now=now), admission.mandate
    if what is Mending.NOTHING or person is None:
        return admission
    if what is Mending.RESTORE and mandate is not None:
        after = mandate._replace(state=MandateState.ACTIVE, confirmed=True)
    else:
        after = MandateFacts(
            pk=0,
            mandate_id="",
            network_pk=schedule.network_pk,
            subject_pk=schedule.sponsor_pk,
            workload=workload_of(schedule.schedule_id),
            state=MandateState.ACTIVE,
            revision=1,
            confirmed=True,
            expires_at=None,
            policy=renewed_policy(schedule, mandate).to_json(),
        )
    code = mandate_refusal(schedule, after, known_revision=after.revision, now=now)
    mended = replace(admission, mandate_refusal=code)
    if what is Mending.TAKE_OVER:
        mended = replace(mended, sponsor_active=True, sponsor_permitted=True)
    return mended


def mend(tx: Tx, schedule: Schedule, admission: Admission, person: Actor | None, *, now: datetime) -> bool:
    """Do to the mandate what `mending` says; returns whether the sponsor changed."""
    what = mending(schedule, admission, person, now=now)
    if what is Mending.NOTHING or person is None:
        return False
    if what is Mending.TAKE_OVER:
        change_sponsor(tx, schedule, person, now=now)
        return True
    old = lock_mandate(tx, schedule)
    if what is Mending.RESTORE and old is not None:
        mandates.confirm(tx, old, by_pk=person.user_pk, actor=person.name, now=now)
        mandates.resume(tx, old, actor=person.name, now=now)
        schedule.mandate_revision = old.revision
        return False
    if old is not None:
        mandates.revoke(tx, old, reason=RENEWED, actor=person.name, now=now)
    _renew(tx, schedule, old, actor=person.name, now=now)
    return False


# --- Use ---


def use(tx: Tx, schedule: Schedule, run: Run, *, actor: str, now: datetime) -> None:
    """Count one run of a schedule that admission has let pass in this transaction."""
    if schedule.mandate_pk is None or schedule.mandate_id is None or schedule.mandate_revision is None:
        raise RuntimeError("a run was admitted without a mandate")
    used = mandates.Use(
        schedule.mandate_pk,
        schedule.mandate_id,
        schedule.mandate_revision,
        schedule.network_pk,
        actor,
        run.run_id,
    )
    mandates.use_runs(tx, [used], now=now)


def note_denial(
    tx: Tx, schedule: Schedule, code: str, *, actor: str, now: datetime, run_id: str | None
) -> None:
    """Audit that the mandate of a schedule did not carry a run."""
    if schedule.mandate_id is not None:
        about = {"schedule_id": schedule.schedule_id} | ({"run_id": run_id} if run_id else {})
        mandates.note_denial(
            tx, schedule.network_pk, schedule.mandate_id, code, actor=actor, now=now, **about
        )


def note_refusal(
    tx: Tx, schedule: Schedule, refused: AppError, run_id: str | None, *, actor: str, now: datetime
) -> None:
    """The same for a refusal of something that a person asked for, where the mandate is what refuses."""
    if refused.code in MANDATE_CODES:
        note_denial(tx, schedule, refused.code, actor=actor, run_id=run_id, now=now)
