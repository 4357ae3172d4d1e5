"""Work of schedules as a node sees it: on the wire, mirrored in the run, withdrawn with its node."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from tests import factories
from tests.nodes.scene import Scene
from webapp.clock import FrozenClock
from webapp.events.models import Event
from webapp.nodes.models import Node
from webapp.scheduling import operations as schedules
from webapp.scheduling.models import Run, Schedule
from webapp.store import reading
from webapp.targets import node as node_target

pytestmark = pytest.mark.usefixtures("doctor_clean")


def make_schedule(scene: Scene, **fields: Any) -> str:
    with scene.app.app_context():
        with reading() as session:
            node = session.scalars(select(Node).where(Node.node_id == scene.node_id("atlas"))).one()
        return factories.make_schedule(scene.cast.bob, node, **fields).schedule_id


def run_now(scene: Scene, schedule_id: str) -> Run:
    with scene.app.app_context():
        now = scene.app.extensions["carillon_clock"].now()
        return schedules.run_now(factories.actor_of(scene.cast.bob), schedule_id, now=now)


def stored(scene: Scene, run_id: str) -> Run:
    with scene.app.app_context(), reading() as session:
        return session.scalars(select(Run).where(Run.run_id == run_id)).one()


def test_scheduled_work_on_the_wire(scene: Scene) -> None:
    schedule_id = make_schedule(scene, task="Sweep", priority="high", ttl_seconds=600)
    run = run_now(scene, schedule_id)
    (item,) = scene.inbox()
    assert item.pop("delivery_id").startswith("dlv_")
    assert item == {
        "task_id": run.task_id,
        "type": "task",
        "priority": "high",
        "content": "Sweep",
        "from": "scheduler",
        "requires_response": "reply",
        "created_at": "2026-11-30T08:12:00.000Z",
        "expires_at": "2026-11-30T08:22:00.000Z",
        "attempt": 1,
        "meta": {
            "scheduled_task_id": schedule_id,
            "scheduled_run_id": run.run_id,
            "scheduled_for": "2026-11-30T08:12:00.000Z",
            "auth_origin": "hub_scheduler",
            "trigger": "manual",
            "missed_count": 0,
        },
    }
    task = scene.task(str(run.task_id))
    assert (task["run_id"], task["schedule_id"], task["from"]) == (run.run_id, schedule_id, "scheduler")


def test_a_run_mirrors_its_task(scene: Scene, clock: FrozenClock) -> None:
    run = run_now(scene, make_schedule(scene))
    task_id = str(run.task_id)
    seen = [stored(scene, run.run_id).status.value]
    scene.inbox()
    seen.append(stored(scene, run.run_id).status.value)
    for what, body in (("ack", {}), ("start", {}), ("reply", {"status": "failed", "result": "broke"})):
        assert scene.report(task_id, what, body)[0] == 200
        seen.append(stored(scene, run.run_id).status.value)
    assert seen == ["queued", "delivered", "running", "running", "failed"]
    ended = stored(scene, run.run_id)
    assert (ended.error_code, ended.result) == ("task_failed", "broke")
    code, answer = scene.call("bob", "POST", f"/api/tasks/{task_id}/retry")
    assert (code, answer["task"]["attempt"], answer["task"]["status"]) == (200, 2, "created")
    again = stored(scene, run.run_id)
    assert (again.status.value, again.attempt, again.error_code) == ("queued", 2, None)
    scene.inbox()
    assert scene.report(task_id, "reply", {"status": "replied", "attempt": 1})[1]["error"] == (
        "task_attempt_superseded"
    )
    assert scene.report(task_id, "reply", {"status": "replied", "result": "ok", "attempt": 2})[0] == 200
    assert stored(scene, run.run_id).status.value == "completed"


def test_a_heartbeat_that_names_the_task_starts_the_run_it_carries(scene: Scene) -> None:
    run = run_now(scene, make_schedule(scene))
    scene.inbox()
    scene.report(str(run.task_id), "ack")
    beat = {"status": "working", "task_id": run.task_id}
    assert scene.call("atlas", "POST", "/api/node/heartbeat", beat)[0] == 200
    assert scene.task(str(run.task_id))["status"] == "running"
    assert stored(scene, run.run_id).status.value == "running"


def test_expiry_of_the_task_is_the_end_of_the_run(scene: Scene, clock: FrozenClock) -> None:
    run = run_now(scene, make_schedule(scene, ttl_seconds=60))
    clock.advance(seconds=60)
    assert scene.inbox() == []
    with scene.app.app_context():
        assert node_target.expire_overdue(now=clock.now()) == 1
    ended = stored(scene, run.run_id)
    assert (ended.status.value, ended.error_code) == ("expired", "task_expired")


def test_pausing_takes_unacknowledged_work_out_of_the_inbox(scene: Scene) -> None:
    schedule_id = make_schedule(scene)
    run = run_now(scene, schedule_id)
    scene.inbox()
    assert scene.call("bob", "POST", f"/api/scheduled-tasks/{schedule_id}/pause")[0] == 200
    assert scene.inbox() == []
    code, answer = scene.report(str(run.task_id), "ack")
    assert (code, answer["error"]) == (409, "task_withdrawn")
    task = scene.task(str(run.task_id))
    assert (task["status"], task["error_code"]) == ("cancelled", "schedule_paused")


def test_cancelling_a_schedule_rings_the_node_that_works_on_it(scene: Scene) -> None:
    schedule_id = make_schedule(scene)
    run = run_now(scene, schedule_id)
    scene.inbox()
    scene.report(str(run.task_id), "ack")
    assert scene.call("bob", "POST", f"/api/scheduled-tasks/{schedule_id}/cancel")[0] == 200
    with scene.app.app_context(), reading() as session:
        rings = list(session.scalars(select(Event.data).where(Event.type == "cancel")))
    assert rings == [{"node_id": scene.node_id("atlas"), "task_id": run.task_id}]
    beat = {"status": "working", "task_id": run.task_id}
    assert scene.call("atlas", "POST", "/api/node/heartbeat", beat)[1]["cancel"] == [run.task_id]
    # What it has taken up may still end as it does.
    assert scene.report(str(run.task_id), "reply", {"status": "replied", "result": "done"})[0] == 200
    assert stored(scene, run.run_id).status.value == "completed"


def test_deleting_a_node_ends_what_its_schedules_had_given_it(scene: Scene) -> None:
    schedule_id = make_schedule(scene, overlap_policy="allow")
    waiting, at_work = run_now(scene, schedule_id), run_now(scene, schedule_id)
    scene.inbox()
    scene.report(str(at_work.task_id), "ack")
    assert scene.call("alice", "DELETE", f"/api/nodes/{scene.node_id('atlas')}")[0] == 200
    task = scene.task(str(waiting.task_id))
    assert task["status"] in ("cancelled", "failed", "expired")
    assert stored(scene, waiting.run_id).status.value in ("cancelled", "failed", "expired")
    with scene.app.app_context(), reading() as session:
        schedule = session.scalars(select(Schedule).where(Schedule.schedule_id == schedule_id)).one()
        assert schedule.status.value in ("active", "needs_attention")
