"""The API as its callers know it: people and nodes with tokens, spoken to over HTTP; no answer goes unchecked."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from flask import Flask
from sqlalchemy import select, update

from tests import factories
from tests.api import documented
from tests.factories import Cast
from webapp.clock import FrozenClock
from webapp.scheduling import steps
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule, ScheduleDue
from webapp.scheduling.tick import Counts, Worker, tick
from webapp.store.transaction import Tx, operation
from webapp.worker import new_worker

TASKS = "/api/scheduled-tasks"
PEOPLE = ("alice", "bob", "vera", "charlie")
NOTHING: Any = object()


@dataclass
class Reply:
    """An answer: status, JSON, headers."""

    status: int
    json: dict[str, Any]
    headers: Any

    @property
    def error(self) -> tuple[int, str]:
        """Status and code of a refusal."""
        assert self.status >= 400, self.json
        return self.status, self.json["error"]

    def part(self, name: str, status: int = 200) -> Any:
        """A part of a successful answer."""
        assert self.status == status, self.json
        return self.json[name]


@dataclass
class House:
    """Alice (owner), Bob (member) and Vera (viewer) of Harbour with the node `atlas`; Charlie of Elsewhere."""

    app: Flask
    clock: FrozenClock
    cast: Cast
    tokens: dict[str, str]
    worker: Worker
    node_ids: dict[str, str] = field(default_factory=dict)
    node_pks: dict[str, int] = field(default_factory=dict)

    def call(
        self,
        who: str | None,
        method: str,
        path: str,
        body: Any = NOTHING,
        *,
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> Reply:
        """One call as a person or a node (None is nobody); what is answered must be documented."""
        sent = dict(headers or {})
        if who is not None:
            sent.update(factories.bearer(self.tokens[who]))
        if body is not NOTHING:
            options["json"] = body
        response = self.app.test_client().open(path, method=method, headers=sent, **options)
        answer = documented.check(self.app, method, path, response)
        return Reply(response.status_code, answer, response.headers)

    def body(self, **fields: Any) -> dict[str, Any]:
        """A body that makes an hourly schedule for atlas."""
        return {
            "name": "Morning papers",
            "task": "Read the papers.",
            "target_node_id": self.node_ids["atlas"],
            "schedule": {"type": "cron", "cron": "0 * * * *"},
            **fields,
        }

    def create(self, who: str = "alice", **fields: Any) -> dict[str, Any]:
        """A schedule over the API; returns its view."""
        view: dict[str, Any] = self.call(who, "POST", TASKS, self.body(**fields)).part("schedule", 201)
        return view

    def show(self, schedule_id: str) -> dict[str, Any]:
        view: dict[str, Any] = self.call("alice", "GET", f"{TASKS}/{schedule_id}").part("schedule")
        return view

    def do(self, who: str, schedule_id: str, what: str, body: Any = NOTHING, **options: Any) -> Reply:
        """`POST /{id}/{what}`."""
        return self.call(who, "POST", f"{TASKS}/{schedule_id}/{what}", body, **options)

    def edit(self, who: str, schedule_id: str, **fields: Any) -> Reply:
        """PATCH with the present revision where `fields` name none."""
        fields.setdefault("revision", self.show(schedule_id)["revision"])
        return self.call(who, "PATCH", f"{TASKS}/{schedule_id}", fields)

    def tick(self, **ahead: float) -> Counts:
        """Let time pass, then have the worker make a pass."""
        if ahead:
            self.clock.advance(**ahead)
        with self.app.app_context():
            return tick(self.worker, self.clock)

    def serve(self, status: str = "replied") -> None:
        """The node fetches and answers all that it holds."""
        for item in self.call("atlas", "GET", "/api/node/inbox").part("items"):
            path = f"/api/node/tasks/{item['task_id']}"
            self.call("atlas", "POST", f"{path}/ack").part("task")
            self.call("atlas", "POST", f"{path}/reply", {"status": status, "result": "Quiet."}).part("task")

    def in_state(self, state: str, who: str = "alice") -> str:
        """A new schedule that has come to `state`; returns its id."""
        schedule_id: str = self.create(who)["schedule_id"]
        with self.app.app_context():
            if state == "proposed":
                _propose(schedule_id)
            elif state == "needs_attention":
                _stop(schedule_id, now=self.clock.now())
        if state == "paused":
            self.do(who, schedule_id, "pause").part("schedule")
        elif state == "cancelled":
            self.do(who, schedule_id, "cancel").part("schedule")
        elif state == "completed":
            self.edit(who, schedule_id, max_runs=1).part("schedule")
            self.tick(hours=1)
            self.serve()
        assert self.show(schedule_id)["status"] == state
        return schedule_id

    def add_node(self, alias: str, owner: str = "alice") -> str:
        with self.app.app_context():
            node, token = factories.make_node(getattr(self.cast, owner), alias)
        self.tokens[alias], self.node_ids[alias], self.node_pks[alias] = token, node.node_id, node.id
        return node.node_id


def make_house(app: Flask, clock: FrozenClock) -> House:
    """The house with `atlas` of Harbour and `zephyr` of Elsewhere."""
    with app.app_context():
        cast = factories.make_cast()
        tokens = {name: factories.make_token(getattr(cast, name)) for name in PEOPLE}
    house = House(app, clock, cast, tokens, new_worker(app))
    house.add_node("atlas")
    house.add_node("zephyr", "charlie")
    return house


@operation
def _stop(tx: Tx, schedule_id: str, *, now: datetime) -> None:
    steps.stop(tx, steps.lock_schedule(tx, _pk_of(tx, schedule_id)), "failure_threshold_reached", now=now)


@operation
def _propose(tx: Tx, schedule_id: str) -> None:
    """As an agent's tool call will leave it: nothing is due."""
    pk = _pk_of(tx, schedule_id)
    tx.session.execute(update(Schedule).where(Schedule.id == pk).values(status=ScheduleStatus.PROPOSED))
    tx.session.execute(
        update(ScheduleDue).where(ScheduleDue.schedule_pk == pk).values(next_run_at=None, due_at=None)
    )


def _pk_of(tx: Tx, schedule_id: str) -> int:
    return tx.session.scalars(select(Schedule.id).where(Schedule.schedule_id == schedule_id)).one()
