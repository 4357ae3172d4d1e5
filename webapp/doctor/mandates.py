"""Invariants of mandates: one live one for each workload, bound to its schedule, at rest when that is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.orm import Session

from webapp.doctor.violation import MOST_LISTED, Violation, violation
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import Mandate
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule


def _listed(session: Session, statement: Select[*tuple[Any, ...]]) -> Sequence[Any]:
    return session.execute(statement.limit(MOST_LISTED)).all()


def workloads_with_two_mandates(session: Session, _now: datetime) -> list[Violation]:
    """Workloads that have more than one live mandate."""
    statement = (
        select(Mandate.workload, func.count())
        .where(Mandate.state != MandateState.REVOKED)
        .group_by(Mandate.workload)
        .having(func.count() > 1)
    )
    return [
        violation(3, "workload_with_two_mandates", f"It has {count} live mandates.", workload=workload)
        for workload, count in _listed(session, statement)
    ]


def mandates_that_outlive_their_schedule(session: Session, _now: datetime) -> list[Violation]:
    """Completed or cancelled schedules whose mandate is active."""
    statement = (
        select(Schedule.schedule_id, Schedule.status, Mandate.mandate_id)
        .join(Mandate, Mandate.workload == "schedule:" + Schedule.schedule_id)
        .where(
            Schedule.status.in_([ScheduleStatus.COMPLETED, ScheduleStatus.CANCELLED]),
            Mandate.state == MandateState.ACTIVE,
        )
        .order_by(Schedule.id)
    )
    return [
        violation(
            5,
            "mandate_outlives_schedule",
            f"It is {status.value} and its mandate is active.",
            schedule_id=schedule_id,
            mandate_id=mandate_id,
        )
        for schedule_id, status, mandate_id in _listed(session, statement)
    ]


def schedules_without_their_mandate(session: Session, _now: datetime) -> list[Violation]:
    """Schedules whose mandate is not there, is for something or somebody else, or is not as they know it.

    A schedule that never had one may be cancelled, and nothing else.
    """
    bound = and_(
        Mandate.mandate_id == Schedule.mandate_id,
        Mandate.workload == "schedule:" + Schedule.schedule_id,
        Mandate.network_pk == Schedule.network_pk,
        Mandate.subject_pk == Schedule.sponsor_pk,
        Mandate.revision == Schedule.mandate_revision,
    )
    never_had = and_(Schedule.mandate_pk.is_(None), Schedule.status == ScheduleStatus.CANCELLED)
    statement = (
        select(Schedule.schedule_id, Schedule.status, Schedule.mandate_id)
        .outerjoin(Mandate, Mandate.id == Schedule.mandate_pk)
        .where(or_(Mandate.id.is_(None), ~func.coalesce(bound, False)), ~never_had)
        .order_by(Schedule.id)
    )
    return [
        violation(
            5,
            "schedule_without_its_mandate",
            f"It is {status.value}, and its mandate is not there or not its own.",
            schedule_id=schedule_id,
            mandate_id=mandate_id,
        )
        for schedule_id, status, mandate_id in _listed(session, statement)
    ]


def impossible_counts(session: Session, _now: datetime) -> list[Violation]:
    """Mandates that have given back more than was set aside, or counted backwards."""
    statement = (
        select(Mandate.mandate_id, Mandate.used_runs, Mandate.used_tokens, Mandate.reserved_tokens)
        .where(or_(Mandate.used_runs < 0, Mandate.used_tokens < 0, Mandate.reserved_tokens < 0))
        .order_by(Mandate.id)
    )
    return [
        violation(
            3,
            "mandate_counts_backwards",
            f"It has used {runs} runs and {tokens} tokens and set {reserved} aside.",
            mandate_id=mandate_id,
        )
        for mandate_id, runs, tokens, reserved in _listed(session, statement)
    ]


CHECKS: tuple[Callable[[Session, datetime], list[Violation]], ...] = (
    workloads_with_two_mandates,
    mandates_that_outlive_their_schedule,
    schedules_without_their_mandate,
    impossible_counts,
)
