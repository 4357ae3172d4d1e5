"""Reading mandates. Nothing here writes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, SQLColumnExpression, and_, or_, select
from sqlalchemy.orm import Session, joinedload

from webapp.errors import AppError
from webapp.ids import is_public_id
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import ENDS, RESTS, Mandate
from webapp.mandates.policy import MandateFacts
from webapp.store.counting import count_each, count_up_to
from webapp.store.given import json_text
from webapp.store.paging import Page, PageRequest, newest_first

EXPIRES_SOON = timedelta(days=14)
MOST_ENDING = 1000

# In the order of the fields of `MandateFacts`.
_COLUMNS = (
    Mandate.id,
    Mandate.mandate_id,
    Mandate.network_pk,
    Mandate.subject_pk,
    Mandate.workload,
    Mandate.state,
    Mandate.revision,
    Mandate.confirmed_at.is_not(None),
    Mandate.expires_at,
    Mandate.policy,
    Mandate.max_runs,
    Mandate.used_runs,
    Mandate.max_tokens,
    Mandate.used_tokens,
)


def load_facts(session: Session, mandate_pks: Collection[int]) -> dict[int, MandateFacts]:
    """What admission must know of these mandates, in one statement; one that is not there is missing."""
    if not mandate_pks:
        return {}
    rows = session.execute(select(*_COLUMNS).where(Mandate.id.in_(mandate_pks)))
    return {row[0]: MandateFacts._make(row) for row in rows}


def carries(
    now: ColumnElement[datetime],
    *,
    workload: SQLColumnExpression[str],
    subject_pk: SQLColumnExpression[int],
    network_pk: SQLColumnExpression[int],
    known_revision: SQLColumnExpression[int | None],
    policy: SQLColumnExpression[str],
) -> ColumnElement[bool]:
    """Of a `Mandate` in a statement: that it is this workload's, and that `policy.refusal` says nothing at `now`.

    Only one that has exactly this policy (its text as it is stored) and no limit; others are to be read.
    """
    return and_(
        Mandate.workload == workload,
        Mandate.subject_pk == subject_pk,
        Mandate.network_pk == network_pk,
        Mandate.revision == known_revision,
        Mandate.state == MandateState.ACTIVE,
        Mandate.confirmed_at.is_not(None),
        or_(Mandate.expires_at.is_(None), Mandate.expires_at > now),
        Mandate.max_runs.is_(None),
        Mandate.max_tokens.is_(None),
        json_text(Mandate.policy) == policy,
    )


def facts_of(mandate: Mandate) -> MandateFacts:
    """The same of a mandate that is loaded."""
    return MandateFacts(
        pk=mandate.id,
        mandate_id=mandate.mandate_id,
        network_pk=mandate.network_pk,
        subject_pk=mandate.subject_pk,
        workload=mandate.workload,
        state=mandate.state,
        revision=mandate.revision,
        confirmed=mandate.confirmed_at is not None,
        expires_at=mandate.expires_at,
        policy=mandate.policy,
        max_runs=mandate.max_runs,
        used_runs=mandate.used_runs,
        max_tokens=mandate.max_tokens,
        used_tokens=mandate.used_tokens,
    )


@dataclass(frozen=True)
class MandateFilter:
    """What a list of mandates is narrowed to; None = not narrowed."""

    state: MandateState | None = None
    subject_pk: int | None = None
    workload: str | None = None


def list_mandates(
    session: Session, networks: Collection[int], wanted: MandateFilter, request: PageRequest
) -> Page[Mandate]:
    """A page of mandates with their subjects, the one changed last first. Raises AppError `invalid_cursor`."""
    statement = select(Mandate).where(Mandate.network_pk.in_(networks)).options(joinedload(Mandate.subject))
    if wanted.state is not None:
        statement = statement.where(Mandate.state == wanted.state)
        if wanted.state is not MandateState.ACTIVE:
            statement = statement.where(RESTS)
    if wanted.subject_pk is not None:
        statement = statement.where(Mandate.subject_pk == wanted.subject_pk)
    if wanted.workload is not None:
        statement = statement.where(Mandate.workload == wanted.workload)
    return newest_first(
        session, statement, Mandate.updated_at, Mandate.id, request, lambda row: (row.updated_at, row.id)
    )


def count_by_state(session: Session, networks: Collection[int]) -> dict[MandateState, int]:
    """How many mandates are in each state, up to a bound (`AtLeast`); a state without any is left out."""
    all_of_them = select(Mandate.id).where(Mandate.network_pk.in_(networks))
    each = {state: all_of_them.where(Mandate.state == state) for state in MandateState}
    return count_each(
        session,
        {state: one if state is MandateState.ACTIVE else one.where(RESTS) for state, one in each.items()},
        most=1000,
    )


def find_mandate(session: Session, networks: Collection[int], mandate_id: str) -> Mandate:
    """A mandate with its subject, by its public id. Raises AppError `mandate_not_found`."""
    statement = (
        select(Mandate)
        .where(Mandate.mandate_id == mandate_id, Mandate.network_pk.in_(networks))
        .options(joinedload(Mandate.subject))
    )
    found = session.scalars(statement).one_or_none() if is_public_id(mandate_id) else None
    if found is None:
        raise AppError("mandate_not_found")
    return found


def expiring(
    session: Session,
    networks: Collection[int],
    *,
    within: timedelta = EXPIRES_SOON,
    subject_pk: int | None = None,
    ended_too: bool = True,
    limit: int = 200,
    now: datetime,
) -> list[Mandate]:
    """Live mandates (of one subject) that end within this time, or have ended (`ended_too`), the first to end first."""
    statement = (
        ending_of(networks, now + within, subject_pk=subject_pk, since=None if ended_too else now)
        .options(joinedload(Mandate.subject))
        .order_by(Mandate.expires_at, Mandate.id)
        .limit(limit)
    )
    return list(session.scalars(statement))


def count_expiring(
    session: Session, networks: Collection[int], *, within: timedelta = EXPIRES_SOON, now: datetime
) -> int:
    """How many live mandates end within this time or have ended, up to a bound (`AtLeast`)."""
    statement = ending_of(networks, now + within).with_only_columns(Mandate.id)
    return count_up_to(session, statement, most=MOST_ENDING)


def ending_of(
    networks: Any, until: Any, *, subject_pk: Any | None = None, since: Any | None = None
) -> Select[Mandate]:
    """Live mandates (of one subject) that end up to an instant (and after another); the values may be bound later."""
    statement = select(Mandate).where(
        Mandate.network_pk.in_(networks),
        Mandate.expires_at <= until,
        Mandate.state == MandateState.ACTIVE,
        ENDS,
    )
    if subject_pk is not None:
        statement = statement.where(Mandate.subject_pk == subject_pk)
    if since is not None:
        statement = statement.where(Mandate.expires_at > since)
    return statement
