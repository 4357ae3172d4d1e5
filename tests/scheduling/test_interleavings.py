"""Random lives of a few schedules: whatever people, nodes and time do, the doctor finds nothing.

Every step is one that somebody could take; a refusal by code is an answer, anything else is a fault. The seed
stands in the test's name, so a failing life can be lived again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from tests.scheduling.stage import Stage
from tests.support.doctor import assert_doctor_clean
from webapp.errors import AppError
from webapp.identity import operations as people
from webapp.nodes import operations as node_operations
from webapp.nodes.bodies import NodeChanges
from webapp.nodes.lifecycle import NodeStatus, TaskStatus
from webapp.nodes.models import Task
from webapp.scheduling import next_slot
from webapp.scheduling.fields import MoveRequest, SkipRequest
from webapp.scheduling.lifecycle import OverlapPolicy
from webapp.scheduling.models import Schedule
from webapp.targets import node as bridge

STEPS = 60
# Each engine has lives of its own: the same one twice would show less than two.
LIVES = [*(("sqlite", seed) for seed in range(6)), *(("postgresql", seed) for seed in range(6, 10))]
TIMETABLES = [
    {"type": "cron", "cron": "*/7 * * * *"},
    {"type": "cron", "cron": "0 * * * *"},
    {"type": "interval", "every_seconds": 600},
    {"type": "daily", "time": "10:00"},
]


class Life:
    """A random life; every method is a step."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.chance = random.Random(seed)
        self.schedules = [self._born() for _ in range(3)]

    def _born(self) -> Schedule:
        chance = self.chance
        timetable = chance.choice(TIMETABLES)
        if chance.random() < 0.3:
            at = self.stage.clock.now() + timedelta(minutes=chance.randint(1, 90))
            timetable = {"type": "once", "run_at": at.isoformat()}
        return self.stage.create(
            chance.choice([self.stage.alice, self.stage.bob]),
            schedule=timetable,
            misfire_policy=chance.choice(["catch_up_once", "skip", "catch_up_all"]),
            overlap_policy=chance.choice(["skip", "queue_one", "allow"]),
            catch_up_limit=chance.randint(1, 5),
            max_runs=chance.choice([None, None, 3]),
            failure_threshold=chance.choice([None, 1, 2]),
            ttl_seconds=chance.choice([None, 60, 3600]),
            max_run_seconds=chance.choice([None, 60, 7200]),
        )

    def one(self) -> Schedule:
        return self.chance.choice(self.schedules)

    def task(self) -> Task | None:
        tasks = self.stage.tasks()
        return self.chance.choice(tasks) if tasks else None

    def pass_time(self) -> None:
        seconds = self.chance.choice([1, 30, 300, 900, 3600, 4 * 3600, 26 * 3600])
        self.stage.clock.advance(seconds=seconds)

    def step_back(self) -> None:
        self.stage.clock.advance(seconds=-self.chance.choice([1, 60, 3600]))

    def tick(self) -> None:
        self.stage.tick()

    def create(self) -> None:
        if len(self.schedules) < 6:
            self.schedules.append(self._born())

    def pause(self) -> None:
        ahead = timedelta(minutes=self.chance.randint(1, 120))
        resume_at = self.stage.clock.now() + ahead if self.chance.random() < 0.4 else None
        self.stage.pause(self.one(), resume_at=resume_at)

    def resume(self) -> None:
        self.stage.resume(self.one())

    def cancel(self) -> None:
        if self.chance.random() < 0.2:
            self.stage.cancel(self.one())

    def run_now(self) -> None:
        self.stage.run_now(self.one())

    def edit_text(self) -> None:
        self.stage.edit(self.one(), task=f"Text {self.chance.random()}")

    def edit_timetable(self) -> None:
        self.stage.edit(self.one(), schedule=self.chance.choice(TIMETABLES))

    def edit_policies(self) -> None:
        self.stage.edit(
            self.one(),
            overlap_policy=self.chance.choice(["skip", "queue_one", "allow"]),
            misfire_policy=self.chance.choice(["catch_up_once", "skip", "catch_up_all"]),
        )

    def edit_bounds(self) -> None:
        ahead = timedelta(minutes=self.chance.randint(1, 600))
        ends_at = self.stage.clock.now() + ahead if self.chance.random() < 0.5 else None
        self.stage.edit(self.one(), max_runs=self.chance.choice([None, 1, 5]), ends_at=ends_at)

    def skip_next(self) -> None:
        call = partial(next_slot.skip_next, read_fields=SkipRequest)
        call(self.stage.alice, self.one().schedule_id, now=self.stage.clock.now())

    def move_next(self) -> None:
        to = self.stage.clock.now() + timedelta(minutes=self.chance.choice([1, 5, 30, 90, 600]))
        call = partial(next_slot.move_next, read_fields=lambda: MoveRequest(to=to))
        call(self.stage.alice, self.one().schedule_id, now=self.stage.clock.now())

    def undo_next_change(self) -> None:
        next_slot.undo_next_change(self.stage.alice, self.one().schedule_id, now=self.stage.clock.now())

    def fetch(self) -> None:
        self.stage.fetch()

    def acknowledge(self) -> None:
        if (task := self.task()) is not None:
            self.stage.acknowledge(task)

    def reply(self) -> None:
        if (task := self.task()) is not None:
            ends = [TaskStatus.REPLIED, TaskStatus.FAILED, TaskStatus.CANCELLED]
            self.stage.reply(task, self.chance.choice(ends))

    def serve(self) -> None:
        self.stage.serve(self.chance.choice([TaskStatus.REPLIED, TaskStatus.FAILED]))

    def heartbeat(self) -> None:
        bridge.heartbeat(self.stage.node.id, NodeStatus.IDLE, None, now=self.stage.clock.now())

    def cancel_task(self) -> None:
        if (task := self.task()) is not None:
            bridge.cancel(self.stage.alice, task.task_id, now=self.stage.clock.now())

    def retry_task(self) -> None:
        if (task := self.task()) is not None:
            bridge.retry(self.stage.alice, task.task_id, now=self.stage.clock.now())

    def stop_node(self) -> None:
        state = self.chance.choice(["active", "active", "stopping", "stopped"])
        node_operations.update_node(
            self.stage.alice,
            self.stage.node.node_id,
            NodeChanges(lifecycle_state=state),
            now=self.stage.clock.now(),
        )

    def bob_leaves_and_returns(self) -> None:
        if self.chance.random() < 0.3:
            people.deactivate_user(None, self.stage.cast.bob.user_id, now=self.stage.clock.now())
            people.reactivate_user(None, self.stage.cast.bob.user_id, now=self.stage.clock.now())

    def live(self) -> list[str]:
        """Take the steps; the names of those that were taken, for whoever reads a failure."""
        weighted = [self.pass_time, self.tick, self.tick, self.serve, self.fetch, self.acknowledge]
        rare: list[Callable[[], None]] = [
            getattr(self, name)
            for name, member in vars(type(self)).items()
            if callable(member) and name not in ("one", "task", "live") and not name.startswith("_")
        ]
        taken = []
        for _ in range(STEPS):
            step = self.chance.choice(weighted + rare)
            taken.append(step.__name__)
            try:
                step()
            except AppError as refusal:
                taken[-1] += f" ({refusal.code})"
            self._never_two_at_once(taken)
        return taken

    def _never_two_at_once(self, taken: list[str]) -> None:
        """Under `skip` and `queue_one` a schedule never has two dispatched runs, unless its policy was other."""
        for schedule in self.schedules:
            saved = self.stage.schedule(schedule)
            if saved.overlap_policy is OverlapPolicy.ALLOW or "edit_policies" in taken:
                continue
            dispatched = [
                run.run_id
                for run in self.stage.runs(schedule)
                if run.status.value in ("queued", "delivered", "running") and run.task_id is not None
            ]
            assert len(dispatched) <= 1, taken


@pytest.mark.parametrize(("database_url", "seed"), LIVES, indirect=["database_url"])
def test_the_doctor_finds_nothing_after_a_random_life(stage: Stage, seed: int) -> None:
    life = Life(stage, seed)
    taken = life.live()
    try:
        assert_doctor_clean(stage.app)
    except AssertionError as found:
        raise AssertionError(f"{found}\nafter: {taken}") from None
