"""What is old goes, what is open or needed stays, and the doctor finds no gap at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from tests.concurrency.planting import every, fill_history, plant, prepare_ground
from tests.doctor.hands import do
from tests.scheduling.stage import Stage, set_stage
from tests.support.databases import START
from webapp import retention
from webapp.audit import AuditCounter, AuditEntry
from webapp.clock import FrozenClock
from webapp.config import Config
from webapp.doctor import examine
from webapp.events.models import Event, EventCounter
from webapp.identity.models import RequestKey
from webapp.nodes import operations as nodes
from webapp.nodes.bodies import NewTaskBody
from webapp.nodes.models import Task, TaskEvent
from webapp.scheduling import alerts
from webapp.scheduling.lifecycle import OverlapPolicy, RunStatus
from webapp.scheduling.models import Alert, DailyCount, Run, ScheduleDue
from webapp.store import reading
from webapp.store.texts import WorkText
from webapp.store.transaction import Tx, operation
from webapp.targets import node as bridge

DAILY = {"type": "daily", "time": "09:00"}


@pytest.fixture
def stage(app: Flask, clock: FrozenClock) -> Iterator[Stage]:
    for stage in set_stage(app, clock):
        yield stage
        assert examine() == []


def prune(stage: Stage) -> dict[str, int]:
    """What went, without the zeros."""
    return {kind: count for kind, count in retention.prune(now=stage.clock.now()).items() if count}


def count(model: type[Any]) -> int:
    with reading() as session:
        return session.scalar(select(func.count()).select_from(model)) or 0


def test_old_runs_go_with_their_tasks_and_stay_counted_by_the_day(stage: Stage) -> None:
    schedule = stage.create(schedule=DAILY)
    stage.tick(hours=1)
    stage.serve()
    stage.tick(days=1)
    stage.tick(hours=1)
    assert [run.status for run in stage.runs(schedule)] == [RunStatus.COMPLETED, RunStatus.QUEUED]
    stage.serve()
    stage.tick(days=100)
    kept = stage.runs(schedule)[-1]
    events = count(TaskEvent)
    gone = prune(stage)
    assert (gone["runs"], gone["tasks"]) == (2, 2)
    assert count(TaskEvent) == events - gone["task_events"] == 1
    assert [run.run_id for run in stage.runs(schedule)] == [kept.run_id]
    with reading() as session:
        days = session.execute(
            select(DailyCount.day, DailyCount.status, DailyCount.count).order_by(DailyCount.day)
        ).all()
    assert [(str(row.day), row.status, row.count) for row in days] == [
        ("2026-11-30", RunStatus.COMPLETED, 1),
        ("2026-12-01", RunStatus.COMPLETED, 1),
    ]
    assert prune(stage) == {}


def test_runs_of_one_day_that_go_on_two_days_are_added_up(stage: Stage) -> None:
    schedule = stage.create()
    for _ in range(4):
        stage.tick(hours=1)
        stage.serve()
    stage.clock.set(stage.at(10, 30) + timedelta(days=90))
    assert prune(stage)["runs"] == 2
    stage.clock.advance(hours=12)
    assert prune(stage)["runs"] == 2
    with reading() as session:
        (row,) = session.scalars(select(DailyCount)).all()
    assert (row.schedule_pk, row.status, row.count) == (schedule.id, RunStatus.COMPLETED, 4)


def test_open_work_stays_and_so_does_what_came_after_it(stage: Stage) -> None:
    schedule = stage.create(schedule=DAILY, overlap_policy=OverlapPolicy.ALLOW, max_run_seconds=30 * 86_400)
    stage.tick(hours=1)
    stage.serve()
    stage.tick(days=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    do(update(Task).where(Task.id == task.id).values(deadline_at=stage.clock.now() + timedelta(days=999)))
    for _ in range(2):
        stage.tick(days=1)
        stage.reply(stage.fetch()[0])
    stage.clock.advance(days=100)
    assert prune(stage)["runs"] == 1
    assert [run.status for run in stage.runs(schedule)] == [
        RunStatus.RUNNING,
        RunStatus.COMPLETED,
        RunStatus.COMPLETED,
    ]
    stage.reply(task)
    assert prune(stage)["runs"] == 3


def test_what_was_claimed_stays_claimed(stage: Stage) -> None:
    schedule = stage.create(schedule=DAILY)
    stage.tick(hours=1)
    stage.serve()
    claimed = stage.schedule(schedule).due.claimed_through
    stage.pause(schedule)
    stage.clock.advance(days=100)
    assert prune(stage)["runs"] == 1
    assert stage.schedule(schedule).due.claimed_through == claimed
    stage.clock.set(START + timedelta(minutes=20))
    stage.resume(schedule)
    assert stage.tick(hours=1)["schedules"] == 0
    assert stage.tick(hours=24)["dispatched"] == 1


def test_the_newest_event_stays_however_old_it_is(stage: Stage) -> None:
    stage.create()
    with reading() as session:
        last = session.scalar(
            select(EventCounter.seq).where(EventCounter.network_pk == stage.cast.network.id)
        )
    assert last is not None
    assert last > 1
    stage.clock.advance(days=6)
    assert "events" not in prune(stage)
    stage.clock.advance(days=2)
    assert prune(stage)["events"] == last - 1
    with reading() as session:
        assert session.scalars(select(Event.seq)).all() == [last]
    stage.create(name="Another")
    assert examine() == []


def test_a_request_is_known_for_thirty_days(stage: Stage) -> None:
    stage.create(key="create-1")
    stage.clock.advance(days=29)
    assert "request_keys" not in prune(stage)
    stage.clock.advance(days=2)
    assert prune(stage)["request_keys"] == 1
    assert count(RequestKey) == 0


@pytest.fixture
def config(config: Config, request: pytest.FixtureRequest) -> Config:
    """With one day of retention where a test asks for it."""
    return replace(config, run_retention_days=getattr(request, "param", config.run_retention_days))


@pytest.mark.parametrize("config", [1], indirect=True)
def test_a_repeated_request_is_answered_though_runs_are_kept_for_a_day(stage: Stage) -> None:
    schedule = stage.create(schedule=DAILY)
    run = stage.run_now(schedule, key="now-1")
    stage.serve()
    stage.tick(hours=1)
    stage.serve()
    stage.tick(days=5)
    assert prune(stage)["runs"] == 1
    assert stage.run_now(schedule, key="now-1").run_id == run.run_id
    stage.tick(days=30)
    stage.serve()
    prune(stage)
    assert run.run_id not in [kept.run_id for kept in stage.runs(schedule)]


def test_a_card_goes_when_it_was_resolved_long_ago(stage: Stage) -> None:
    network_pk = stage.cast.network.id

    @operation
    def raise_two(tx: Tx) -> None:
        for subject in ("open", "resolved"):
            alerts.raise_alert(tx, network_pk, "blocked", subject, "internal_error", now=stage.clock.now())
        alerts.resolve_alerts(tx, network_pk, "resolved", now=stage.clock.now())

    raise_two()
    stage.clock.advance(days=89)
    assert "alerts" not in prune(stage)
    stage.clock.advance(days=2)
    assert prune(stage)["alerts"] == 1
    with reading() as session:
        assert session.scalars(select(Alert.subject_id)).all() == ["open"]


def test_old_tasks_of_people_go_when_they_have_ended(stage: Stage) -> None:
    new = NewTaskBody(node_id=stage.node.node_id, task="Say hello.", ttl_seconds=7 * 86_400)
    ended = nodes.create_task(stage.alice, new, now=stage.clock.now())
    bridge.cancel(stage.alice, ended.task_id, now=stage.clock.now())
    nodes.create_task(stage.alice, new, now=stage.clock.now())
    stage.clock.advance(days=91)
    gone = prune(stage)
    assert (gone["tasks"], gone["texts"]) == (1, 1)
    assert [task.status.value for task in stage.tasks()] == ["created"]


def test_a_text_goes_with_the_last_that_refers_to_it(stage: Stage) -> None:
    schedule = stage.create(schedule=DAILY, task="First wording.")
    stage.edit(schedule, task="Second wording.")
    stage.tick(hours=1)
    stage.serve()
    stage.edit(schedule, task="Third wording.")

    def kept() -> list[str]:
        with reading() as session:
            return list(session.scalars(select(WorkText.body).order_by(WorkText.id)))

    assert prune(stage)["texts"] == 1
    assert kept() == ["Second wording.", "Third wording."]
    stage.clock.advance(days=91)
    assert prune(stage)["texts"] == 1
    assert kept() == ["Third wording."]


def test_the_audit_goes_back_to_what_the_oldest_kept_run_needs(stage: Stage) -> None:
    schedule = stage.create(schedule=DAILY)
    stage.tick(hours=1)
    stage.serve()
    network = AuditEntry.network_pk == stage.cast.network.id

    def oldest() -> str | None:
        with reading() as session:
            return session.scalars(select(AuditEntry.verb).where(network).order_by(AuditEntry.seq)).first()

    stage.clock.advance(days=100)
    prune(stage)
    assert oldest() == "schedule.create", "what came before the definition in force may go, itself it may not"
    assert stage.edit(schedule, schedule={"type": "daily", "time": "10:00"}).revision == 2
    stage.tick(days=1)
    stage.serve()
    stage.tick(days=100)
    stage.serve()
    prune(stage)
    assert oldest() == "schedule.edit"
    stage.cancel(schedule)
    stage.clock.advance(days=200)
    prune(stage)
    with reading() as session:
        last = session.scalar(
            select(AuditCounter.seq).where(AuditCounter.network_pk == stage.cast.network.id)
        )
        assert session.scalars(select(AuditEntry.seq).where(network)).all() == [last]
    assert stage.runs(schedule) == []


def test_the_doctor_finds_nothing_after_each_of_many_transactions(stage: Stage) -> None:
    now = stage.clock.now()
    first = now.replace(minute=0) + timedelta(hours=1)
    keys = plant(prepare_ground(now), 2, every(60, first), now=now)
    fill_history(keys, first, 700)
    stage.clock.set(first + timedelta(minutes=699, seconds=30, days=90))
    do(update(ScheduleDue).values(next_run_at=None, due_at=None))
    assert {found["code"] for found in examine()} == {"active_without_next_slot"}
    steps = 0
    for forgotten in retention.batches(now=stage.clock.now()):
        steps += forgotten["runs"] > 0
        assert {found["code"] for found in examine()} == {"active_without_next_slot"}
    assert steps == 3
    assert count(Run) == 0
    with reading() as session:
        assert session.scalar(select(func.sum(DailyCount.count))) == 1400
        due = session.get_one(ScheduleDue, keys[0])
        assert due.claimed_through == first + timedelta(minutes=699)
    following = first + timedelta(minutes=700, days=90)
    claimed = following - timedelta(minutes=1)
    claimed = following - timedelta(minutes=1)
    do(update(ScheduleDue).values(next_run_at=following, due_at=following, claimed_through=claimed))


def test_the_command_prints_what_went(stage: Stage) -> None:
    stage.create()
    stage.clock.advance(days=8)
    result = stage.app.test_cli_runner().invoke(args=["prune"])
    assert result.exit_code == 0
    assert '"events": ' in result.output
    assert '"runs": 0' in result.output
