"""Each thing that people do, met by a claim that stands still at each of its steps; on both ways of dispatching.

The claim is held at a barrier in one thread, the deed is done in another: it is acknowledged meanwhile, or it waits for
the claim's locks. Whichever was first, nothing may be dispatched after the acknowledgement of what forbids it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from tests.concurrency.scene import nothing_is_usual
from tests.factories import actor_of, make_member
from tests.proof import ledger
from tests.proof.conftest import LONG
from tests.scheduling.stage import Stage, set_stage
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.identity import operations as people
from webapp.mandates import operations as mandates
from webapp.mandates.bodies import MandateChanges, RevokeMandate
from webapp.mandates.models import Mandate
from webapp.nodes import operations as nodes
from webapp.nodes.bodies import NodeChanges
from webapp.nodes.lifecycle import TaskStatus
from webapp.nodes.models import Node, Task
from webapp.scheduling import claim, usual
from webapp.scheduling.lifecycle import OPEN, Trigger
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.tick import tick
from webapp.store import reading
from webapp.store.texts import WorkText
from webapp.store.transaction import Tx
from webapp.worker import new_worker

NEW_WORDS = "Sweep the archive."
# What a deed that needs the claim's locks is given before the claim goes on.
_PATIENCE_SECONDS = 0.06
_LONG_SECONDS = 60


@dataclass
class Barrier:
    """Where the claim stands still, in its own thread, the first time it comes by."""

    reached: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    thread: int | None = None

    def stop(self) -> None:
        """Called by everybody who passes; only the claim stops, once."""
        if threading.get_ident() == self.thread and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(_LONG_SECONDS)


Patched = Callable[[pytest.MonkeyPatch, Barrier], None]


def _before(owner: Any, name: str) -> Patched:
    def patch(monkeypatch: pytest.MonkeyPatch, barrier: Barrier) -> None:
        whole = getattr(owner, name)

        def held(*args: Any, **kwargs: Any) -> Any:
            barrier.stop()
            return whole(*args, **kwargs)

        monkeypatch.setattr(owner, name, held)

    return patch


def _after(owner: Any, name: str) -> Patched:
    def patch(monkeypatch: pytest.MonkeyPatch, barrier: Barrier) -> None:
        whole = getattr(owner, name)

        def held(*args: Any, **kwargs: Any) -> Any:
            result = whole(*args, **kwargs)
            barrier.stop()
            return result

        monkeypatch.setattr(owner, name, held)

    return patch


def _after_facts(monkeypatch: pytest.MonkeyPatch, barrier: Barrier) -> None:
    # One by one they are loaded; in sets they are read by the statement that chooses.
    _after(claim, "load_facts")(monkeypatch, barrier)
    _after(usual, "_choose")(monkeypatch, barrier)


BARRIERS: dict[str, Patched] = {
    "before lock": _before(claim, "_networks_with_due"),
    "after lock": _before(claim, "_claim"),
    "after facts": _after_facts,
    "before commit": lambda _monkeypatch, _barrier: None,  # See `_held`: an event, not a function of ours.
    "after commit": _before(Tx, "ring"),
}


@dataclass
class Scene:
    """The stage with one schedule for each meeting."""

    stage: Stage
    schedule: Schedule
    node: Node


def _edit(**fields: Any) -> Callable[[Scene], object]:
    return lambda scene: scene.stage.edit(scene.schedule, **fields)


def _mandate_of(scene: Scene) -> Mandate:
    with reading() as session:
        return session.scalars(select(Mandate).where(Mandate.id == scene.schedule.mandate_pk)).one()


def _revoke(scene: Scene) -> object:
    stage, mandate = scene.stage, _mandate_of(scene)
    wish = lambda: RevokeMandate(reason="Enough.")  # noqa: E731
    return mandates.revoke(stage.alice, mandate.mandate_id, wish, now=stage.clock.now())


def _expire(scene: Scene) -> object:
    stage, mandate, slot = scene.stage, _mandate_of(scene), scene.stage.clock.now()
    return mandates.change(
        stage.alice,
        mandate.mandate_id,
        lambda: MandateChanges(expires_at=slot),
        revision=lambda: mandate.revision,
        now=slot - timedelta(milliseconds=1),
    )


def _remove_member(scene: Scene) -> object:
    cast, now = scene.stage.cast, scene.stage.clock.now()
    return people.remove_member(scene.stage.alice, cast.network.network_id, cast.bob.user_id, now=now)


def _stop_node(scene: Scene) -> object:
    change = NodeChanges(lifecycle_state="stopped")
    return nodes.update_node(scene.stage.alice, scene.node.node_id, change, now=scene.stage.clock.now())


def _another_tick(scene: Scene) -> object:
    return tick(new_worker(scene.stage.app), scene.stage.clock)


DEEDS: dict[str, Callable[[Scene], object]] = {
    "pause": lambda scene: scene.stage.pause(scene.schedule),
    "resume": lambda scene: scene.stage.resume(scene.schedule),
    "cancel": lambda scene: scene.stage.cancel(scene.schedule),
    "edit timetable": _edit(schedule={"type": "cron", "cron": "30 * * * *"}),
    "edit text": _edit(task=NEW_WORDS),
    "revoke": _revoke,
    "expire": _expire,
    "remove member": _remove_member,
    "stop node": _stop_node,
    "run now": lambda scene: scene.stage.run_now(scene.schedule),
    "another worker's tick": _another_tick,
}
# After these nothing of the schedule may reach a node; what was written and not fetched is withdrawn.
FORBIDS = {"pause", "cancel", "revoke", "remove member"}
# These let what was dispatched before be finished, and nothing be dispatched after.
FORBIDS_MORE = {"expire", "stop node"}


@pytest.fixture
def stage(app: Flask, clock: FrozenClock) -> Iterator[Stage]:
    yield from set_stage(app, clock)


# A claim takes what is usual in sets, and the rest one by one. At full length every meeting is had both ways; else
# every second one this way on one database and that way on the other.
WAYS: dict[str, Callable[..., usual.Usual]] = {"one by one": nothing_is_usual, "in sets": usual.dispatch}
ROUNDS = [0, 1] if LONG else [0]


@pytest.mark.parametrize("turn", ROUNDS)
def test_whatever_is_done_at_whatever_step_of_a_claim(
    stage: Stage, turn: int, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    met, first = 0, 0
    turn += database_url.startswith("sqlite")
    for barrier in BARRIERS:
        for deed in DEEDS:
            stage.clock.set(stage.clock.now() + timedelta(minutes=10))
            way = list(WAYS)[(met + turn) % 2]
            monkeypatch.setattr(usual, "dispatch", WAYS[way])
            scene = _prepare(stage, deed, met)
            acknowledged = _meet(scene, barrier, deed, monkeypatch)
            met, first = met + 1, first + acknowledged
            _look(scene, deed, acknowledged=acknowledged, told=f"{deed}, {barrier}, {way}")
            _clear(scene, deed)
    audited = ledger.assert_clean(stage.app)
    print(f"{met} meetings, in {first} the deed was first; {audited.slots} slots looked at")
    assert met == len(BARRIERS) * len(DEEDS) == 55
    # Before the lock every deed comes first; after the commit none does.
    assert first >= len(DEEDS)


def _prepare(stage: Stage, deed: str, number: int) -> Scene:
    node = stage.add_node(f"node-{number}") if deed == "stop node" else stage.node
    actor = stage.bob if deed == "remove member" else stage.alice
    schedule = stage.create(actor, target_node_id=node.node_id, name=f"{deed} {number}")
    slot = stage.schedule(schedule).due.next_run_at
    assert slot is not None
    stage.clock.set(slot)
    return Scene(stage, schedule, node)


def _meet(scene: Scene, name: str, deed: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Hold a worker's claim at the barrier and do the deed; whether it was acknowledged before the claim committed."""
    with _held(name, monkeypatch) as barrier, ThreadPoolExecutor(2) as pool:
        claiming = pool.submit(_in_app, scene, lambda: _claim(scene, barrier))
        assert barrier.reached.wait(_LONG_SECONDS), claiming.exception() if claiming.done() else name
        doing: Future[object] = pool.submit(_in_app, scene, lambda: DEEDS[deed](scene))
        free = name in ("before lock", "after commit")
        wait_for([doing], _LONG_SECONDS if free else _PATIENCE_SECONDS)
        acknowledged = doing.done() and name != "after commit"
        assert doing.done() or not free, f"{deed} waits at {name} although nothing is locked"
        barrier.go_on.set()
        claiming.result(_LONG_SECONDS)
        refusal = doing.exception(_LONG_SECONDS)
    # A slot that is at work already is the one thing for which a person may be turned away here.
    if refusal is not None and (deed, _code(refusal)) != ("run now", "previous_run_active"):
        raise refusal
    return acknowledged


def _code(refusal: BaseException) -> str:
    return refusal.code if isinstance(refusal, AppError) else repr(refusal)


def _claim(scene: Scene, barrier: Barrier) -> object:
    barrier.thread = threading.get_ident()
    return claim.claim_batch(limit=100, after_network_pk=0, now=scene.stage.clock.now())


def _in_app(scene: Scene, act: Callable[[], object]) -> object:
    with scene.stage.app.app_context():
        return act()


@contextmanager
def _held(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Barrier]:
    barrier = Barrier()

    def stop(_session: Session) -> None:
        barrier.stop()

    with monkeypatch.context() as patches:
        BARRIERS[name](patches, barrier)
        if name == "before commit":
            event.listen(Session, "before_commit", stop)
        try:
            yield barrier
        finally:
            barrier.go_on.set()
            if name == "before commit":
                event.remove(Session, "before_commit", stop)


def _look(scene: Scene, deed: str, *, acknowledged: bool, told: str) -> None:
    """What the order of the two demands; then a healthy worker comes by, and it must still hold."""
    for _ in range(2):
        runs = scene.stage.runs(scene.schedule)
        tasks = _tasks(runs)
        scheduled = [run for run in runs if run.trigger is Trigger.SCHEDULED]
        slots = [run.scheduled_for for run in scheduled]
        assert len(slots) == len(set(slots)), f"{told}: two runs for one slot"
        at_work = [task for task in tasks if task.status is not TaskStatus.CANCELLED]
        assert len(at_work) <= 1, f"{told}: two tasks at work"
        assert sum(run.status in OPEN for run in runs) <= 1, f"{told}: two open runs"
        if deed in FORBIDS:
            assert at_work == [], f"{told}: work is left for the node"
            assert not any(run.status in OPEN for run in runs), f"{told}: a run is left open"
        if acknowledged and deed in FORBIDS | FORBIDS_MORE:
            assert tasks == [], f"{told}: dispatched after it was acknowledged"
            assert all(run.error_code for run in scheduled), f"{told}: a slot without its reason"
        if acknowledged and deed == "edit text":
            assert [_words(task) for task in tasks] == [NEW_WORDS], f"{told}: the old words were sent"
        if deed in ("resume", "edit text", "another worker's tick"):
            assert len(scheduled) == len(tasks) == 1, f"{told}: the slot is not dispatched once"
        if deed == "edit timetable":
            following = scene.stage.schedule(scene.schedule).due.next_run_at
            assert following is not None, told
            assert following.minute == 30, told
        _in_app(scene, lambda: _another_tick(scene))


def _tasks(runs: list[Run]) -> list[Task]:
    keys = [run.id for run in runs]
    with reading() as session:
        return list(session.scalars(select(Task).where(Task.run_pk.in_(keys))))


def _words(task: Task) -> str:
    with reading() as session:
        return session.scalars(select(WorkText.body).where(WorkText.id == task.text_pk)).one()


def _clear(scene: Scene, deed: str) -> None:
    stage = scene.stage
    if deed != "cancel":
        stage.cancel(scene.schedule)
    if deed == "remove member":
        make_member(stage.cast.bob, stage.cast.network, "member")
        assert actor_of(stage.cast.bob).networks
