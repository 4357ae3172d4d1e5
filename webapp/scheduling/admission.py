"""Loading the facts of admission, as sets: a few statements for any number of schedules."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, select
from sqlalchemy.orm import Session

from webapp.identity.access import may_sponsor
from webapp.identity.models import Membership, Role, User
from webapp.mandates.policy import (
    SEND_TASK,
    MandateFacts,
    Verdict,
    node_policy,
    permits,
    refusal,
    stored_policy,
)
from webapp.mandates.queries import carries
from webapp.mandates.queries import load_facts as load_mandates
from webapp.scheduling.lifecycle import TargetKind
from webapp.scheduling.models import Schedule
from webapp.scheduling.policy import Admission
from webapp.scheduling.target import TargetFacts, target_for


def load_targets(session: Session, definitions: Iterable[Any]) -> dict[tuple[TargetKind, int], TargetFacts]:
    """The facts of every target that these schedules name, by (kind, key)."""
    wanted: dict[TargetKind, set[int]] = defaultdict(set)
    for definition in definitions:
        wanted[definition.target_kind].add(definition.target_pk)
    return {
        (kind, pk): facts
        for kind, pks in wanted.items()
        for pk, facts in target_for(kind).load(session, pks).items()
    }


def load_admission(
    session: Session,
    definitions: Iterable[Any],
    targets: Mapping[tuple[TargetKind, int], TargetFacts],
    *,
    sponsors: Mapping[int, int] | None = None,
    mandates: bool = True,
    now: datetime,
) -> dict[int, Admission]:
    """The admission facts of these schedules at `now`, by the schedule's key.

    `sponsors` names another sponsor for some schedules (key of the schedule -> key of the user), for
    questions such as "would it fire if I did it?". `mandates` False leaves them out of the question.
    """
    rows = list(definitions)
    sponsor_of = {row.id: (sponsors or {}).get(row.id, row.sponsor_pk) for row in rows}
    users = set(sponsor_of.values())
    active = set(session.scalars(select(User.id).where(User.id.in_(users), User.active)))
    roles: dict[tuple[int, int], Role] = {
        (user_pk, network_pk): role
        for user_pk, network_pk, role in session.execute(
            select(Membership.user_pk, Membership.network_pk, Membership.role).where(
                Membership.user_pk.in_(users)
            )
        )
    }
    known = {row.mandate_pk for row in rows if row.mandate_pk is not None} if mandates else set()
    held = load_mandates(session, known)
    found = {}
    for row in rows:
        mandate = held.get(row.mandate_pk) if mandates else None
        found[row.id] = Admission(
            target_refusal=_target_refusal(row, targets),
            sponsor_active=sponsor_of[row.id] in active,
            sponsor_permitted=may_sponsor(roles.get((sponsor_of[row.id], row.network_pk))),
            mandate_refusal=mandate_refusal(row, mandate, known_revision=row.mandate_revision, now=now)
            if mandates
            else None,
            mandate=mandate,
            kind=row.target_kind,
            asks_mandate=mandates,
        )
    return found


def mandate_refusal(
    definition: Any, mandate: MandateFacts | None, *, known_revision: int | None, now: datetime
) -> str | None:
    """Why this mandate does not carry the work of a schedule (or a row with its columns) at `now`, or None.

    A mandate of another person, network or workload is none at all.
    """
    if mandate is not None and (mandate.workload, mandate.subject_pk, mandate.network_pk) != (
        workload_of(definition.schedule_id),
        definition.sponsor_pk,
        definition.network_pk,
    ):
        mandate = None
    code = refusal(mandate, known_revision, now)
    if code is not None or mandate is None or definition.target_kind is not TargetKind.NODE:
        # In a chat the turn asks at each of its calls; to talk needs no operation.
        return code
    verdict = _verdict(mandate.policy, f"node:{definition.target_id}")
    return None if verdict is Verdict.PREAPPROVED else "mandate_denies"


def _verdict(policy: Mapping[str, Any], target: str) -> Verdict:
    if policy == {**_USUAL, "targets": [target]}:
        # What nearly every node's schedule has, written as `node_policy` writes it.
        return Verdict.PREAPPROVED
    return permits(stored_policy(policy), SEND_TASK, target)


_USUAL = node_policy("any").to_json()
# The same as its column holds it, before and after the id of the node.
_USUAL_BEFORE, _USUAL_AFTER = json.dumps(_USUAL).split("any")
_SPONSORS = [role for role in Role if may_sponsor(role)]


def admits(now: ColumnElement[datetime]) -> ColumnElement[bool]:
    """Of a `Schedule` of a node with its `Mandate`: that `load_admission` would find nothing against it at `now`.

    As a condition for a statement that joins the two; the target has its own. Only the usual policy passes, without
    limits: any other is to be read.
    """
    sponsor = exists().where(
        User.id == Schedule.sponsor_pk,
        User.active,
        Membership.user_pk == User.id,
        Membership.network_pk == Schedule.network_pk,
        Membership.role.in_(_SPONSORS),
    )
    carried = carries(
        now,
        workload=WORKLOAD + Schedule.schedule_id,
        subject_pk=Schedule.sponsor_pk,
        network_pk=Schedule.network_pk,
        known_revision=Schedule.mandate_revision,
        policy=_USUAL_BEFORE + Schedule.target_id + _USUAL_AFTER,
    )
    return and_(sponsor, carried)


WORKLOAD = "schedule:"


def workload_of(schedule_id: str) -> str:
    """What a mandate calls the schedule that it is for."""
    return f"{WORKLOAD}{schedule_id}"


def _target_refusal(row: Any, targets: Mapping[tuple[TargetKind, int], TargetFacts]) -> str | None:
    facts = targets.get((row.target_kind, row.target_pk))
    if facts is None or facts.network_pk != row.network_pk:
        return target_for(row.target_kind).missing_code
    return target_for(row.target_kind).refuses(facts, row)
