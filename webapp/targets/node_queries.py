"""What a task of a schedule is shown with: its run and the slot behind it. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from webapp.nodes.models import Task
from webapp.scheduling.lifecycle import Trigger
from webapp.scheduling.models import Run, Schedule


@dataclass(frozen=True)
class RunFacts:
    """The run that a task carries: public ids, its slot (UTC), and how many slots it stands for beside."""

    run_id: str
    schedule_id: str
    scheduled_for: datetime
    trigger: Trigger
    missed_count: int


class CarriesRun(Protocol):
    """A task or a turn: the work of a run, or of a person."""

    @property
    def run_pk(self) -> int | None: ...


def facts_of_runs(session: Session, work: Iterable[CarriesRun]) -> dict[int, RunFacts]:
    """The facts of the runs behind `work`, by the run's primary key; what people asked for has none."""
    pks = sorted({item.run_pk for item in work if item.run_pk is not None})
    if not pks:
        return {}
    rows = session.execute(
        select(Run.id, Run.run_id, Schedule.schedule_id, Run.scheduled_for, Run.trigger, Run.missed_count)
        .join(Schedule, Schedule.id == Run.schedule_pk)
        .where(Run.id.in_(pks))
    )
    return {row.id: RunFacts(*row[1:]) for row in rows}


@dataclass(frozen=True)
class WorkInstants:
    """When the node acknowledged the work of a run and when it began, UTC; None for what has not happened."""

    acknowledged_at: datetime | None = None
    started_at: datetime | None = None


def work_instants(session: Session, run: Run) -> WorkInstants:
    """How far the present attempt of a run's task has come; a turn is begun without an acknowledgement."""
    if run.turn_id is not None:
        return WorkInstants(started_at=run.started_at)
    row = session.execute(select(Task.acked_at, Task.started_at).where(Task.run_pk == run.id)).one_or_none()
    return WorkInstants() if row is None else WorkInstants(row.acked_at, row.started_at)
