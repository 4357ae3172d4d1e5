"""A stage for the engine: a network, its people, a node, and short words for what they do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flask import Flask
from sqlalchemy import select

from tests.factories import Cast, actor_of, make_cast
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.identity.access import Actor
from webapp.nodes import operations as node_operations
from webapp.nodes.lifecycle import NodeStatus, TaskStatus
from webapp.nodes.models import Node, Task
from webapp.scheduling import operations, queries
from webapp.scheduling.fields import NewSchedule, PauseRequest, ScheduleChanges
from webapp.scheduling.models import Alert, Run, Schedule
from webapp.scheduling.tick import Counts, Worker, tick
from webapp.store import reading
from webapp.store.paging import PageRequest
from webapp.targets import node as bridge
from webapp.worker import new_worker


@dataclass
class Stage:
    """Harbour with Alice (owner), Bob (member), Vera (viewer), and the node `atlas`."""

    app: Flask
    clock: FrozenClock
    cast: Cast
    node: Node
    worker: Worker

    @property
    def alice(self) -> Actor:
        return actor_of(self.cast.alice)

    @property
    def bob(self) -> Actor:
        return actor_of(self.cast.bob)

    # --- A person's words ---

    def create(self, actor: Actor | None = None, *, key: str | None = None, **fields: Any) -> Schedule:
        values = {
            "name": "Nightly sweep",
            "task": "Sweep the inbox.",
            "target_node_id": self.node.node_id,
            "schedule": {"type": "cron", "cron": "0 * * * *"},
        } | fields
        return operations.create(
            actor or self.alice,
            self.cast.network.id,
            lambda: NewSchedule(**values),
            request_key=key,
            now=self.clock.now(),
        ).schedule

    def edit(self, schedule: Schedule, actor: Actor | None = None, /, **fields: Any) -> Schedule:
        revision = fields.pop("revision", self.schedule(schedule).revision)
        return operations.edit(
            actor or self.alice,
            schedule.schedule_id,
            lambda: ScheduleChanges(**fields),
            revision=lambda: revision,
            wants_status_alone=set(fields) == {"status"},
            now=self.clock.now(),
        ).schedule

    def pause(self, schedule: Schedule, actor: Actor | None = None, **fields: Any) -> Schedule:
        return operations.pause(
            actor or self.alice,
            schedule.schedule_id,
            lambda: PauseRequest(**fields),
            now=self.clock.now(),
        )

    def resume(self, schedule: Schedule, actor: Actor | None = None) -> Schedule:
        return operations.resume(actor or self.alice, schedule.schedule_id, now=self.clock.now())

    def cancel(self, schedule: Schedule, actor: Actor | None = None) -> Schedule:
        return operations.cancel(actor or self.alice, schedule.schedule_id, now=self.clock.now())

    def run_now(self, schedule: Schedule, actor: Actor | None = None, *, key: str | None = None) -> Run:
        return operations.run_now(
            actor or self.alice, schedule.schedule_id, request_key=key, now=self.clock.now()
        )

    # --- The worker's and the node's ---

    def tick(self, **ahead: float) -> Counts:
        """Let time pass, then make a pass."""
        if ahead:
            self.clock.advance(**ahead)
        return tick(self.worker, self.clock)

    def fetch(self, node: Node | None = None) -> list[Task]:
        return bridge.fetch((node or self.node).id, 50, now=self.clock.now())

    def acknowledge(self, task: Task) -> Task:
        return bridge.acknowledge(task.node_pk, task.task_id, None, now=self.clock.now())

    def reply(self, task: Task, status: TaskStatus = TaskStatus.REPLIED, result: str = "done") -> Task:
        return bridge.reply(task.node_pk, task.task_id, status, result, None, now=self.clock.now())

    def serve(self, status: TaskStatus = TaskStatus.REPLIED) -> int:
        """The node fetches all that it holds and answers it; returns how many."""
        tasks = self.fetch()
        for task in tasks:
            self.acknowledge(task)
            self.reply(task, status)
        return len(tasks)

    def heard(self) -> None:
        bridge.heartbeat(self.node.id, NodeStatus.WORKING, None, now=self.clock.now())

    def add_node(self, alias: str) -> Node:
        node, _ = node_operations.create_node(self.alice, self.cast.network.id, alias, now=self.clock.now())
        return node

    # --- What the database says ---

    def schedule(self, schedule: Schedule) -> Schedule:
        with reading() as session:
            return queries.find_schedule(session, [schedule.network_pk], schedule.schedule_id)

    def runs(self, schedule: Schedule) -> list[Run]:
        """Oldest slot first."""
        with reading() as session:
            page = queries.list_runs(
                session,
                [schedule.network_pk],
                queries.RunFilter(schedule_pk=schedule.id),
                PageRequest(limit=200),
            )
        return list(reversed(page.rows))

    def told(self, schedule: Schedule) -> list[tuple[str, str, str | None]]:
        """The history in short: slot as `HH:MM`, state, code; oldest first."""
        return [
            (run.scheduled_for.strftime("%H:%M"), run.status.value, run.error_code)
            for run in self.runs(schedule)
        ]

    def tasks(self) -> list[Task]:
        with reading() as session:
            return list(session.scalars(select(Task).order_by(Task.id)))

    def open_alerts(self) -> list[tuple[str, str, str]]:
        with reading() as session:
            rows = session.scalars(select(Alert).where(Alert.resolved_at.is_(None)).order_by(Alert.id))
            return [(alert.kind, alert.subject_id, alert.code) for alert in rows]

    def at(self, hour: int, minute: int = 0, *, day: int = 30) -> datetime:
        return self.clock.now().replace(month=11, day=day, hour=hour, minute=minute, second=0, microsecond=0)


def set_stage(app: Flask, clock: FrozenClock) -> Iterator[Stage]:
    """The stage within an app context."""
    with app.app_context():
        cast = make_cast()
        node, _ = node_operations.create_node(actor_of(cast.alice), cast.network.id, "atlas", now=clock.now())
        yield Stage(app, clock, cast, node, new_worker(app))


def code_of(error: AppError) -> tuple[str, int]:
    """A refusal in short."""
    return error.code, error.status
