"""What is done, and died in: one transaction each, or a whole pass; with the scene that it needs, again and again.

Each deed is prepared and healed by the nursery: `prepare` brings about what the deed needs and returns it, and doing
the same deed again by a healthy process is what the next worker would do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert, select, update

from tests.concurrency.planting import Ground, add_node, every, once_at, plant, prepare_ground
from tests.doctor.hands import do
from tests.factories import actor_of
from tests.support.file_clock import FileClock
from webapp import retention
from webapp.errors import AppError
from webapp.identity.models import User
from webapp.nodes.lifecycle import TaskStatus
from webapp.nodes.models import Task
from webapp.scheduling import claim, maintenance, operations
from webapp.scheduling.fields import PauseRequest
from webapp.scheduling.lifecycle import MisfirePolicy, OverlapPolicy, ScheduleStatus
from webapp.scheduling.models import Run, Schedule, ZoneData
from webapp.scheduling.tick import BatchSize, Worker, tick
from webapp.store import reading
from webapp.store.texts import WorkText
from webapp.targets import node as bridge

_OLD_ZONE_DATA = "2000a"


@dataclass
class Scene:
    """A ground with a few schedules that stay: one of a kind, each minute."""

    clock: FileClock
    ground: Ground
    # Another node of the same network, whose inbox only fills.
    crowd: Ground
    plain: int
    queueing: int
    sleeping: int

    @property
    def now(self) -> datetime:
        return self.clock.now()


def set_scene(clock: FileClock) -> Scene:
    """Plant what the deeds need; needs an app context."""
    now = clock.now()
    ground = prepare_ground(now)
    first = now.replace(second=0) + timedelta(minutes=1)
    (plain,) = plant(ground, 1, every(60, first), now=now)
    (queueing,) = plant(ground, 1, every(60, first), now=now, overlap_policy=OverlapPolicy.QUEUE_ONE)
    (sleeping,) = plant(ground, 1, every(60, first), now=now)
    plant(ground, 1, every(60, first), now=now, misfire_policy=MisfirePolicy.SKIP)
    plant(ground, 1, every(60, first), now=now, overlap_policy=OverlapPolicy.ALLOW, ttl_seconds=90)
    crowd = replace(
        ground,
        **dict(zip(("node_pk", "node_id"), add_node(ground.network_pk, "boreas", now=now), strict=True)),
    )
    return Scene(clock, ground, crowd, plain, queueing, sleeping)


# --- Bringing about ---


def _next_minute(scene: Scene) -> None:
    scene.clock.advance(minutes=1)


def _claim_all(scene: Scene) -> None:
    claim.claim_batch(limit=500, after_network_pk=0, now=scene.now)


def _herd_is_due(scene: Scene) -> None:
    """Enough of those for which all is as usual, beside those for which it is not."""
    first = scene.now.replace(second=0) + timedelta(minutes=1)
    plant(scene.crowd, 10, once_at(first), now=scene.now, target_alias="boreas")
    _next_minute(scene)


def _task_of(schedule_pk: int, *statuses: TaskStatus) -> Task | None:
    statement = (
        select(Task)
        .join(Run, Run.id == Task.run_pk)
        .where(Run.schedule_pk == schedule_pk, Task.status.in_(statuses))
        .order_by(Task.id.desc())
    )
    with reading() as session:
        return session.scalars(statement).first()


def _delivered_task(scene: Scene, schedule_pk: int) -> Task:
    """The open task of a schedule, in the hands of its node."""
    for _ in range(4):
        _next_minute(scene)
        _claim_all(scene)
        bridge.fetch(scene.ground.node_pk, 50, now=scene.now)
        task = _task_of(schedule_pk, TaskStatus.DELIVERED)
        if task is not None:
            return task
        begun = _task_of(schedule_pk, TaskStatus.ACKED, TaskStatus.RUNNING)
        if begun is not None:
            _answer(scene, begun)
    raise AssertionError("no task came into the hands of the node")


def _a_task_in_hand(scene: Scene) -> Task:
    return _delivered_task(scene, scene.plain)


def _a_task_in_hand_and_a_run_that_waits(scene: Scene) -> Task:
    task = _delivered_task(scene, scene.queueing)
    _next_minute(scene)
    _claim_all(scene)
    waiting = select(Run.id).where(
        Run.schedule_pk == scene.queueing, Run.wait_reason == "previous_run_active"
    )
    with reading() as session:
        assert session.scalars(waiting).first() is not None, "a run waits"
    return task


def _a_run_that_could_be_delivered(scene: Scene) -> None:
    """A waiting run whose blocker has ended behind the engine's back, as after a bell that was lost."""
    task = _a_task_in_hand_and_a_run_that_waits(scene)
    ended = {"status": "replied", "completed_at": scene.now}
    do(
        update(Task.__table__).where(Task.__table__.c.id == task.id).values(**ended),
        update(Run.__table__)
        .where(Run.__table__.c.id == task.run_pk)
        .values(status="completed", completed_at=scene.now),
    )


def _old_history(scene: Scene) -> None:
    for _ in range(2):
        _answer(scene, _a_task_in_hand(scene))


def _old_history_and_an_unused_text(scene: Scene) -> None:
    _old_history(scene)
    do(insert(WorkText).values(body="Nobody's order"))


def _everything_at_once(scene: Scene) -> None:
    """A pass that has something to do in each of its parts."""
    _herd_is_due(scene)
    with reading() as session:
        schedule = session.get_one(Schedule, scene.sleeping)
    actor = actor_of(_sponsor(scene))
    if schedule.status is ScheduleStatus.ACTIVE:
        wish = PauseRequest(resume_at=(scene.now + timedelta(minutes=1)).isoformat())
        operations.pause(actor, schedule.schedule_id, lambda: wish, now=scene.now)
    _a_run_that_could_be_delivered(scene)
    do(
        update(ZoneData).values(version=_OLD_ZONE_DATA),
        update(Schedule.__table__)
        .where(Schedule.__table__.c.id.in_([scene.plain, scene.queueing]))
        .values(zone_version=_OLD_ZONE_DATA),
    )
    _next_minute(scene)


def _sponsor(scene: Scene) -> User:
    with reading() as session:
        return session.get_one(User, scene.ground.sponsor_pk)


# --- Deeds ---


def _answer(scene: Scene, task: Task) -> None:
    try:
        bridge.reply(task.node_pk, task.task_id, TaskStatus.REPLIED, "done", task.attempt, now=scene.now)
    except AppError as refused:
        # The time of the task may have run out meanwhile; then that is its end.
        if refused.code != "task_already_final":
            raise


def _forget(scene: Scene, _nothing: object) -> None:
    cutoff = scene.now - timedelta(seconds=30)
    retention._forget_runs(cutoff, cutoff)


def _forget_everything(scene: Scene, _nothing: object) -> None:
    retention.prune(now=scene.now + timedelta(days=500))


def _claim(scene: Scene, _nothing: object) -> None:
    _claim_all(scene)


def _unblock(scene: Scene, _nothing: object) -> None:
    maintenance.unblock(now=scene.now)


def _fetch(scene: Scene, _nothing: object) -> None:
    bridge.fetch(scene.crowd.node_pk, 5, now=scene.now)


def _acknowledge(scene: Scene, task: Task) -> None:
    try:
        bridge.acknowledge(task.node_pk, task.task_id, None, now=scene.now)
    except AppError as refused:
        if refused.code != "task_already_final":
            raise


def _pass(scene: Scene, _nothing: object) -> None:
    worker = Worker(BatchSize(500, fixed=True), started_at=scene.now)
    while tick(worker, scene.clock)["more"]:
        pass
    maintenance.worker_seen(worker.worker_id, started_at=scene.now, lag_ms=0, stopped=True, now=scene.now)


def _unfetched(scene: Scene) -> None:
    _herd_is_due(scene)
    _claim_all(scene)


@dataclass(frozen=True)
class Deed:
    """What must be there, and what is done with it."""

    prepare: Callable[[Scene], Any]
    do: Callable[[Scene, Any], None]


DEEDS = {
    "claim": Deed(_herd_is_due, _claim),
    "settle": Deed(_a_task_in_hand, _answer),
    "deliver": Deed(_a_task_in_hand_and_a_run_that_waits, _answer),
    "unblock": Deed(_a_run_that_could_be_delivered, _unblock),
    "fetch": Deed(_unfetched, _fetch),
    "acknowledge": Deed(_a_task_in_hand, _acknowledge),
    "prune": Deed(_old_history, _forget),
    "prune all": Deed(_old_history_and_an_unused_text, _forget_everything),
    "pass": Deed(_everything_at_once, _pass),
}
