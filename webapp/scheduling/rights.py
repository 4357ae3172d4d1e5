"""What every change of a schedule by a person asks first: is it there, may they, does its state allow it."""

from __future__ import annotations

from sqlalchemy import select

from webapp.errors import AppError
from webapp.identity.access import Actor, Facts
from webapp.ids import is_public_id
from webapp.scheduling import steps
from webapp.scheduling.lifecycle import ScheduleStatus, TargetKind
from webapp.scheduling.models import Schedule
from webapp.store.transaction import Tx


def lock_visible(tx: Tx, actor: Actor, schedule_id: str) -> Schedule:
    """Lock a schedule that the actor may see. Raises AppError `schedule_not_found`."""
    statement = select(Schedule.id).where(
        Schedule.schedule_id == schedule_id, Schedule.network_pk.in_(actor.networks)
    )
    pk = tx.session.scalars(statement).one_or_none() if is_public_id(schedule_id) else None
    if pk is None:
        raise AppError("schedule_not_found")
    return steps.lock_schedule(tx, pk)


def facts_about(schedule: Schedule, *, sponsor_alone: bool = False) -> Facts:
    """What rights are judged by; `sponsor_alone`: it is the sponsor's own, as everything in a chat is."""
    return Facts(
        network_pk=schedule.network_pk,
        sponsor_pk=schedule.sponsor_pk,
        paused_by_pk=schedule.paused_by_pk,
        private=sponsor_alone or schedule.target_kind is TargetKind.CHAT,
    )


def refuse_ended(schedule: Schedule) -> None:
    """Raise AppError `schedule_cancelled`, `schedule_completed` or `schedule_proposed` in these states."""
    code = ended_code(schedule.status)
    if code is not None:
        raise AppError(code)


def ended_code(status: ScheduleStatus) -> str | None:
    """The code with which a schedule in this state refuses what only a living one can do, or None."""
    ended = (ScheduleStatus.CANCELLED, ScheduleStatus.COMPLETED, ScheduleStatus.PROPOSED)
    return f"schedule_{status.value}" if status in ended else None


def check_revision(schedule: Schedule, seen: int | None) -> None:
    """Raise AppError `revision_conflict` where somebody has seen another revision; None says nothing."""
    if seen is not None and seen != schedule.revision:
        raise AppError("revision_conflict", current_revision=schedule.revision)
