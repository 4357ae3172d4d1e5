"""What hangs on a mandate: what would stop if it were paused or revoked now. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from webapp.chat.lifecycle import ACTIVE_TURN
from webapp.chat.models import Turn
from webapp.mandates.models import Mandate
from webapp.scheduling.lifecycle import UNACKNOWLEDGED, ScheduleStatus
from webapp.scheduling.models import STILL_OPEN, Run, Schedule, ScheduleDue
from webapp.scheduling.plans import plan_of
from webapp.timetable import TimetableError

SLOTS_SHOWN = 5


@dataclass(frozen=True)
class BlastRadius:
    """The schedule of a mandate and its next slots; runs that nobody has taken up, runs and turns at work."""

    schedule_id: str
    status: ScheduleStatus
    next_slots: tuple[datetime, ...]
    withdrawn: int
    at_work: int
    turns: int


def blast_radius(session: Session, mandate: Mandate, *, now: datetime) -> BlastRadius | None:
    """What hangs on this mandate; None where no schedule acts under it any more."""
    statement = (
        select(Schedule, ScheduleDue.next_run_at)
        .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(Schedule.mandate_pk == mandate.id)
    )
    found = session.execute(statement).one_or_none()
    if found is None:
        return None
    schedule, next_run_at = found
    open_runs = session.scalars(select(Run.status).where(Run.schedule_pk == schedule.id, STILL_OPEN)).all()
    withdrawn = sum(1 for status in open_runs if status in UNACKNOWLEDGED)
    turns = select(func.count()).where(Turn.mandate_pk == mandate.id, Turn.status.in_(ACTIVE_TURN))
    return BlastRadius(
        schedule.schedule_id,
        schedule.status,
        _next_slots(schedule, next_run_at, now),
        withdrawn,
        len(open_runs) - withdrawn,
        session.scalar(turns) or 0,
    )


def _next_slots(schedule: Schedule, next_run_at: datetime | None, now: datetime) -> tuple[datetime, ...]:
    slots: list[datetime] = []
    slot = next_run_at
    try:
        plan = plan_of(schedule)
    except TimetableError:
        return () if slot is None else (slot,)
    while slot is not None and len(slots) < SLOTS_SHOWN:
        slots.append(slot)
        slot = plan.next_after(max(slot, now))
    return tuple(slots)
