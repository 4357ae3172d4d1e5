"""What the doctor says of mandates that were changed behind the product's back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Executable, insert, select, text, update

from tests.doctor.hands import do
from tests.scheduling.stage import Stage
from webapp.doctor import examine
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import Mandate
from webapp.scheduling.models import Schedule
from webapp.store import reading


def codes() -> list[str]:
    return [found["code"] for found in examine()]


def test_what_the_product_makes_is_sound(stage: Stage) -> None:
    stage.cancel(stage.create())
    stage.create(schedule={"type": "once", "run_at": stage.at(9).isoformat()})
    stage.tick(hours=1)
    stage.serve()
    assert codes() == []


def test_two_live_mandates_of_one_workload(stage: Stage) -> None:
    schedule = stage.create()
    with reading() as session:
        columns = Mandate.__table__.columns
        row = dict(session.execute(select(*columns).where(Mandate.id == schedule.mandate_pk)).one()._mapping)
    row |= {"id": row["id"] + 1, "mandate_id": "mand_another"}
    do(text("DROP INDEX uq_mandates_live"), insert(Mandate.__table__).values(**row))
    assert codes() == ["workload_with_two_mandates"]
    (found,) = examine()
    assert (found["invariant"], found["workload"]) == (3, f"schedule:{schedule.schedule_id}")


@pytest.mark.parametrize("ended", ["cancelled", "completed"])
def test_a_mandate_that_outlives_its_schedule(stage: Stage, ended: str) -> None:
    schedule = stage.create(schedule={"type": "once", "run_at": stage.at(9).isoformat()})
    if ended == "cancelled":
        stage.cancel(schedule)
    else:
        stage.tick(hours=1)
        stage.serve()
    do(update(Mandate).where(Mandate.id == schedule.mandate_pk).values(state=MandateState.ACTIVE))
    (found,) = examine()
    assert (found["code"], found["schedule_id"]) == ("mandate_outlives_schedule", schedule.schedule_id)


BREAKS: dict[str, Callable[[Schedule], Executable]] = {
    "gone": lambda it: update(Schedule).where(Schedule.id == it.id).values(mandate_pk=None),
    "unknown": lambda it: update(Schedule).where(Schedule.id == it.id).values(mandate_pk=10**6),
    "renamed": lambda it: update(Schedule).where(Schedule.id == it.id).values(mandate_id="mand_other"),
    "older": lambda it: update(Schedule).where(Schedule.id == it.id).values(mandate_revision=None),
    "for another": lambda it: (
        update(Mandate).where(Mandate.id == it.mandate_pk).values(workload="schedule:x")
    ),
    "newer": lambda it: update(Mandate).where(Mandate.id == it.mandate_pk).values(revision=2),
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_schedule_whose_mandate_is_not_its_own(stage: Stage, how: str) -> None:
    schedule = stage.create()
    do(BREAKS[how](schedule))
    (found,) = examine()
    assert (found["code"], found["schedule_id"]) == ("schedule_without_its_mandate", schedule.schedule_id)


def test_a_mandate_of_somebody_else(stage: Stage) -> None:
    schedule = stage.create()
    do(update(Mandate).where(Mandate.id == schedule.mandate_pk).values(subject_pk=stage.cast.bob.id))
    assert codes() == ["schedule_without_its_mandate"]


def test_a_mandate_that_counts_backwards(stage: Stage) -> None:
    schedule = stage.create()
    do(update(Mandate).where(Mandate.id == schedule.mandate_pk).values(reserved_tokens=-1))
    assert codes() == ["mandate_counts_backwards"]
