"""Loading the facts of admission, as sets: a few statements for any number of schedules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.identity.access import may_sponsor
from webapp.identity.models import Membership, Role, User
from webapp.scheduling.lifecycle import TargetKind
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
) -> dict[int, Admission]:
    """The admission facts of these schedules, by the schedule's key.

    `sponsors` names another sponsor for some schedules (key of the schedule -> key of the user), for
    questions such as "would it fire if I did it?".
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
    return {
        row.id: Admission(
            target_refusal=_target_refusal(row, targets),
            sponsor_active=sponsor_of[row.id] in active,
            sponsor_permitted=may_sponsor(roles.get((sponsor_of[row.id], row.network_pk))),
        )
        for row in rows
    }


def _target_refusal(row: Any, targets: Mapping[tuple[TargetKind, int], TargetFacts]) -> str | None:
    facts = targets.get((row.target_kind, row.target_pk))
    if facts is None or facts.network_pk != row.network_pk:
        return target_for(row.target_kind).missing_code
    return target_for(row.target_kind).refuses(facts, row)
