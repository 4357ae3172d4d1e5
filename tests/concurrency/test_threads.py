"""Two things that may not both win, from eight threads at one moment and in either order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from flask import Flask

from tests.scheduling.stage import Stage, set_stage
from tests.support.doctor import assert_doctor_clean
from tests.support.races import at_once
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.nodes.lifecycle import TaskStatus
from webapp.scheduling.lifecycle import OPEN, RunStatus, ScheduleStatus, Trigger
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.tick import tick
from webapp.targets import node as bridge
from webapp.worker import new_worker

SCHEDULES = 8
THREADS_A_SIDE = 4
ORDERS = ["one first", "the other first", "at once"]
Act = Callable[[], Any]


@pytest.fixture
def stage(app: Flask, clock: FrozenClock) -> Iterator[Stage]:
    for stage in set_stage(app, clock):
        yield stage
        assert_doctor_clean(app)


def collide(stage: Stage, order: str, one: Sequence[Act], other: Sequence[Act]) -> list[AppError]:
    """Do all of both sides in this order, or from eight threads at once; returns what was refused.

    Anything else that is raised fails the test.
    """
    if order == "at once":
        sides = [acts[start::THREADS_A_SIDE] for acts in (one, other) for start in range(THREADS_A_SIDE)]
        results = at_once(stage.app, [lambda side=side: [_refusal(act) for act in side] for side in sides])
        found = [refusal for result in results for refusal in _unless_raised(result)]
    else:
        first, second = (one, other) if order == "one first" else (other, one)
        found = [_refusal(act) for act in (*first, *second)]
    return [refusal for refusal in found if refusal is not None]


def _refusal(act: Act) -> AppError | None:
    try:
        act()
    except AppError as refused:
        return refused
    return None


def _unless_raised(result: list[AppError | None] | Exception) -> list[AppError | None]:
    if isinstance(result, Exception):
        raise result
    return result


def herd(stage: Stage, **fields: Any) -> list[Schedule]:
    return [stage.create(name=f"Order {number}", **fields) for number in range(SCHEDULES)]


def ticks(stage: Stage) -> list[Act]:
    """A pass of a worker of its own for each thread."""
    return [lambda: tick(new_worker(stage.app), stage.clock) for _ in range(THREADS_A_SIDE)]


def the_run(stage: Stage, schedule: Schedule) -> Run:
    (run,) = stage.runs(schedule)
    return run


@pytest.mark.parametrize("order", ORDERS)
def test_a_pause_and_a_slot(stage: Stage, order: str) -> None:
    schedules = herd(stage)
    stage.clock.set(stage.at(9))
    pauses = [lambda schedule=schedule: stage.pause(schedule) for schedule in schedules]
    assert collide(stage, order, pauses, ticks(stage)) == []
    ends = set()
    for schedule in schedules:
        run = the_run(stage, schedule)
        assert run.error_code == "schedule_paused"
        ends.add(run.status)
        saved = stage.schedule(schedule)
        assert (saved.status, saved.due.next_run_at) == (ScheduleStatus.PAUSED, None)
    assert {task.status for task in stage.tasks()} <= {TaskStatus.CANCELLED}
    if order != "at once":
        assert ends == {RunStatus.SKIPPED if order == "one first" else RunStatus.CANCELLED}
    assert stage.tick(hours=3)["schedules"] == 0


@pytest.mark.parametrize("order", ORDERS)
def test_a_cancel_and_an_answer(stage: Stage, order: str) -> None:
    schedules = herd(stage)
    stage.tick(hours=1)
    tasks = stage.fetch()
    assert len(tasks) == SCHEDULES
    cancels = [lambda schedule=schedule: stage.cancel(schedule) for schedule in schedules]
    replies = [lambda task=task: stage.reply(task) for task in tasks]
    refused = collide(stage, order, cancels, replies)
    assert {error.code for error in refused} <= {"task_already_final"}
    ends = [the_run(stage, schedule) for schedule in schedules]
    assert sum(run.status is RunStatus.CANCELLED for run in ends) == len(refused)
    assert {(run.status, run.error_code) for run in ends} <= {
        (RunStatus.COMPLETED, None),
        (RunStatus.CANCELLED, "schedule_cancelled"),
    }
    assert {stage.schedule(schedule).status for schedule in schedules} == {ScheduleStatus.CANCELLED}
    if order != "at once":
        assert len(refused) == (SCHEDULES if order == "one first" else 0)


@pytest.mark.parametrize("order", ORDERS)
def test_a_run_by_hand_and_a_slot_never_run_side_by_side(stage: Stage, order: str) -> None:
    schedules = herd(stage)
    stage.clock.set(stage.at(9))
    by_hand = [lambda schedule=schedule: stage.run_now(schedule) for schedule in schedules]
    refused = collide(stage, order, by_hand, ticks(stage))
    assert {error.code for error in refused} <= {"previous_run_active"}
    won_by_hand = 0
    for schedule in schedules:
        runs = stage.runs(schedule)
        (dispatched,) = (run for run in runs if run.status in OPEN)
        won_by_hand += dispatched.trigger is Trigger.MANUAL
        others = {(run.status, run.error_code, run.blocked_by) for run in runs if run is not dispatched}
        assert others <= {(RunStatus.SKIPPED, "previous_run_active", dispatched.run_id)}
    assert len(stage.tasks()) == SCHEDULES
    assert len(refused) == SCHEDULES - won_by_hand
    if order != "at once":
        assert won_by_hand == (SCHEDULES if order == "one first" else 0)


@pytest.mark.parametrize("order", ORDERS)
def test_another_try_and_a_cancel(stage: Stage, order: str) -> None:
    schedules = herd(stage)
    stage.tick(hours=1)
    stage.serve(TaskStatus.FAILED)
    tries = [
        lambda task=task: bridge.retry(stage.alice, task.task_id, now=stage.clock.now())
        for task in stage.tasks()
    ]
    cancels = [lambda schedule=schedule: stage.cancel(schedule) for schedule in schedules]
    refused = collide(stage, order, tries, cancels)
    assert {error.code for error in refused} <= {"schedule_cancelled"}
    ends = [the_run(stage, schedule) for schedule in schedules]
    assert {(run.status, run.error_code, run.attempt) for run in ends} <= {
        (RunStatus.CANCELLED, "schedule_cancelled", 2),
        (RunStatus.FAILED, "task_failed", 1),
    }
    assert sum(run.attempt == 1 for run in ends) == len(refused)
    if order != "at once":
        assert len(refused) == (0 if order == "one first" else SCHEDULES)


@pytest.mark.parametrize("order", ORDERS)
def test_an_answer_and_the_slot_behind_it(stage: Stage, order: str) -> None:
    schedules = herd(stage, overlap_policy="queue_one")
    stage.tick(hours=1)
    tasks = stage.fetch()
    stage.clock.set(stage.at(10))
    replies = [lambda task=task: stage.reply(task) for task in tasks]
    assert collide(stage, order, replies, ticks(stage)) == []
    # A schedule that was in the hands of an answer is left to the next pass.
    stage.tick()
    for schedule in schedules:
        assert stage.told(schedule) == [("09:00", "completed", None), ("10:00", "queued", None)]
        last = stage.runs(schedule)[-1]
        assert last.task_id is not None, "no waiter is left behind"


@pytest.mark.parametrize("order", ORDERS)
def test_ticks_beside_ticks_claim_each_slot_once(stage: Stage, order: str) -> None:
    schedules = herd(stage)
    stage.clock.set(stage.at(9))
    assert collide(stage, order, ticks(stage), ticks(stage)) == []
    assert [stage.told(schedule) for schedule in schedules] == [[("09:00", "queued", None)]] * SCHEDULES
    assert len(stage.tasks()) == SCHEDULES
