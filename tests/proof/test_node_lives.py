"""Long random lives of an order to a node, step by step against the plain rules: by operations, and over HTTP.

A hundred thousand steps, on both databases, in `make proof-long` alone: a step costs 20 to 40 ms. What people and the
node do goes to the product and to `node_rules.py`; the order, its next slot, its history and the words sent must be
the same in both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from typing import Any, ClassVar, Protocol

import hypothesis
import pytest
from flask import Flask
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from tests.api import documented
from tests.factories import bearer, make_node_token, make_token
from tests.proof import ledger
from tests.proof.conftest import LONG, kept_seeds
from tests.proof.node_rules import PlainOrder
from tests.scheduling.stage import Stage, set_stage
from tests.support.refusals import Refused, code_of
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.nodes.lifecycle import TaskStatus
from webapp.nodes.models import Task
from webapp.scheduling import claim
from webapp.scheduling.models import Run, Schedule, ScheduleDue
from webapp.store import reading
from webapp.store.texts import WorkText
from webapp.targets import node as bridge

pytestmark = pytest.mark.long

# In sum ten thousand and more; what a step over HTTP adds is the door, which both databases share.
STEPS = {"operations": 3_600, "http": 1_500}
TIMES_IN_PROOF_LONG = 10
STEPS_A_LIFE = 100
MINUTES = (0, 20, 40)
# What a task itself allows ends within no life.
_PATIENT = {"ttl_seconds": 604_800, "max_run_seconds": 2_592_000}

_STATE = select(Schedule.status, ScheduleDue.next_run_at).join(
    ScheduleDue, ScheduleDue.schedule_pk == Schedule.id
)
_HISTORY = (
    select(Run.scheduled_for, Run.trigger, Run.status, Run.error_code, WorkText.body)
    .outerjoin(Task, Task.run_pk == Run.id)
    .outerjoin(WorkText, WorkText.id == Task.text_pk)
)


class Hands(Protocol):
    """How people and the node do what they do. A refusal is an AppError."""

    def do(self, schedule: Schedule, what: str) -> object: ...
    def edit(self, schedule: Schedule, /, **fields: Any) -> object: ...
    def fetch(self) -> object: ...
    def acknowledge(self, task_id: str) -> object: ...
    def reply(self, task_id: str, status: TaskStatus) -> object: ...


class ByOperations:
    """As the worker's process would call them."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.alice = stage, stage.alice

    def do(self, schedule: Schedule, what: str) -> object:
        return getattr(self.stage, what)(schedule, self.alice)

    def edit(self, schedule: Schedule, /, **fields: Any) -> object:
        return self.stage.edit(schedule, self.alice, **fields)

    def fetch(self) -> object:
        return self.stage.fetch()

    def acknowledge(self, task_id: str) -> object:
        return bridge.acknowledge(self.stage.node.id, task_id, None, now=self.stage.clock.now())

    def reply(self, task_id: str, status: TaskStatus) -> object:
        return bridge.reply(self.stage.node.id, task_id, status, "done", None, now=self.stage.clock.now())


class OverHttp:
    """As callers with tokens; every answer must be one that the OpenAPI document names."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.person = bearer(make_token(stage.cast.alice))
        self.node = bearer(make_node_token(stage.node.id, stage.cast.network.id))
        self.client = stage.app.test_client()

    def call(self, who: dict[str, str], method: str, path: str, body: Any = None) -> Any:
        sent = {} if body is None else {"json": body}
        # In a context of its own: within the test's, every request would share what the first one remembers.
        response = Context().run(self.client.open, path, method=method, headers=who, **sent)
        answer = documented.check(self.stage.app, method, path, response)
        if response.status_code >= 400:
            raise AppError(answer["error"])
        return answer

    def do(self, schedule: Schedule, what: str) -> object:
        path = f"/api/scheduled-tasks/{schedule.schedule_id}/{what.replace('_', '-')}"
        return self.call(self.person, "POST", path, {})

    def edit(self, schedule: Schedule, /, **fields: Any) -> object:
        path = f"/api/scheduled-tasks/{schedule.schedule_id}"
        body = {"revision": self.stage.schedule(schedule).revision, **fields}
        return self.call(self.person, "PATCH", path, body)

    def fetch(self) -> object:
        return self.call(self.node, "GET", "/api/node/inbox?limit=50")

    def acknowledge(self, task_id: str) -> object:
        return self.call(self.node, "POST", f"/api/node/tasks/{task_id}/ack", {})

    def reply(self, task_id: str, status: TaskStatus) -> object:
        body = {"status": status.value, "result": "done"}
        return self.call(self.node, "POST", f"/api/node/tasks/{task_id}/reply", body)


class Life(RuleBasedStateMachine):
    """One order of Alice's after the other. Every rule does the same to the product and to the plain rules."""

    stage: ClassVar[Stage]
    hands: ClassVar[Hands]
    steps: ClassVar[int]

    def check_invariants(self, settings: Any, output: Any, runtimes: Any) -> None:
        """Called by hypothesis after each step."""
        type(self).steps += 1
        super().check_invariants(settings, output, runtimes)

    @initialize(minute=st.sampled_from(MINUTES))
    def begin(self, minute: int) -> None:
        # Every life begins at the same time of a day of its own, so that it can be lived again.
        now = self.stage.clock.now()
        self.stage.clock.set((now + timedelta(days=1)).replace(hour=8, minute=12, second=0, microsecond=0))
        self._order(minute)

    def _order(self, minute: int) -> None:
        self.words = 0
        self.real = self.stage.create(schedule=_hourly(minute), task="Words.", **_PATIENT)
        self.plain = PlainOrder(self.stage.clock.now(), minute, "Words.")
        self.compare()

    @precondition(lambda self: self.plain.status == "cancelled" and self.plain.open is None)
    @rule(minute=st.sampled_from(MINUTES))
    def another(self, minute: int) -> None:
        self._order(minute)

    def both(self, product: Callable[[], Any], plain: Callable[[], Any]) -> None:
        """Do it twice; refusals must agree."""
        product_says, rules_say = code_of(product, AppError), code_of(plain, Refused)
        assert product_says == rules_say, f"the product says {product_says}, the rules {rules_say}"
        self.compare()

    # --- People ---

    @rule()
    def pause(self) -> None:
        self.both(lambda: self.hands.do(self.real, "pause"), self.plain.pause)

    @rule()
    def resume(self) -> None:
        self.both(lambda: self.hands.do(self.real, "resume"), self.plain.resume)

    @precondition(lambda self: len(self.plain.runs) >= 6)
    @rule()
    def cancel(self) -> None:
        self.both(lambda: self.hands.do(self.real, "cancel"), self.plain.cancel)

    @rule()
    def edit_words(self) -> None:
        self.words += 1
        words = f"Other words {self.words}."
        self.both(lambda: self.hands.edit(self.real, task=words), lambda: self.plain.edit_words(words))

    @rule(minute=st.sampled_from(MINUTES))
    def edit_minute(self, minute: int) -> None:
        self.both(
            lambda: self.hands.edit(self.real, schedule=_hourly(minute)),
            lambda: self.plain.edit_minute(minute),
        )

    @rule()
    def run_now(self) -> None:
        # Runs by hand of one instant are one: a person who presses twice.
        self.pass_time(timedelta(milliseconds=1))
        self.both(lambda: self.hands.do(self.real, "run_now"), self.plain.run_now)

    # --- Time, the worker and the node ---

    @rule(minutes=st.sampled_from([1, 20, 60, 150]))
    def time_passes(self, minutes: int) -> None:
        self.pass_time(timedelta(minutes=minutes))
        self.compare()

    @rule(minutes=st.sampled_from([0, 20, 60, 60]))
    def the_worker_claims(self, minutes: int) -> None:
        self.pass_time(timedelta(minutes=minutes))
        now = self.stage.clock.now()
        self.both(lambda: claim.claim_batch(limit=50, after_network_pk=0, now=now), self.plain.claim)

    @rule(minutes=st.sampled_from([20, 60]))
    def an_hour_goes_by(self, minutes: int) -> None:
        self.the_worker_claims(minutes)

    @precondition(lambda self: self.plain.open is not None)
    @rule(well=st.booleans())
    def the_node_moves(self, well: bool) -> None:
        """It fetches what waits, acknowledges what it has, answers what it works on."""
        assert self.plain.open is not None
        if self.plain.open.status == "queued":
            self.both(self.hands.fetch, self.plain.fetch)
        elif self.plain.open.status == "delivered":
            self.both(lambda: self.hands.acknowledge(self.task_id()), self.plain.acknowledge)
        else:
            status = TaskStatus.REPLIED if well else TaskStatus.FAILED
            self.both(lambda: self.hands.reply(self.task_id(), status), lambda: self.plain.reply(well=well))

    @precondition(lambda self: self.plain.open is not None)
    @rule(well=st.booleans())
    def the_node_moves_on(self, well: bool) -> None:
        self.the_node_moves(well)

    def pass_time(self, span: timedelta) -> None:
        self.stage.clock.advance(seconds=span.total_seconds())
        self.plain.now = self.stage.clock.now()

    def task_id(self) -> str:
        """The one task that is open."""
        with reading() as session:
            statement = select(Run.task_id).where(Run.schedule_pk == self.real.id)
            return str(session.scalars(statement.where(Run.status.in_(("delivered", "running")))).one())

    # --- Comparing ---

    def compare(self) -> None:
        with reading() as session:
            status, following = session.execute(_STATE.where(Schedule.id == self.real.id)).one()
            history = session.execute(_HISTORY.where(Run.schedule_pk == self.real.id)).all()
        stored = sorted(
            (at, by.value, state.value, code or "", words or "") for at, by, state, code, words in history
        )
        said = sorted(
            (run.slot, "manual" if run.by_hand else "scheduled", run.status, run.code or "", run.words or "")
            for run in self.plain.runs
        )
        assert (status.value, following, stored) == (self.plain.status, self.plain.next, said)

    def teardown(self) -> None:
        """Leave nothing open, so that the next life is alone."""
        if not hasattr(self, "plain"):
            return
        self.stage.cancel(self.real)
        if self.plain.open is not None and self.plain.open.status == "running":
            self.hands.reply(self.task_id(), TaskStatus.REPLIED)


def _hourly(minute: int) -> dict[str, Any]:
    return {"type": "cron", "cron": f"{minute} * * * *"}


@pytest.mark.parametrize("way", list(STEPS))
def test_no_step_of_any_life_differs_from_the_plain_rules(
    app: Flask, clock: FrozenClock, way: str, seed: int
) -> None:
    wanted = int(os.environ.get("CARILLON_PROOF_STEPS") or STEPS[way] * (TIMES_IN_PROOF_LONG if LONG else 1))
    for stage in set_stage(app, clock):
        hands: Hands = ByOperations(stage) if way == "operations" else OverHttp(stage)
        lived = [_live(stage, hands, number, wanted) for number in [*kept_seeds(), seed]]
        audited = ledger.assert_clean(app)
    print(f"{lived} steps by {way}; {audited.slots} slots and {audited.runs} runs looked at")
    assert min(lived) >= wanted


def test_the_steps_are_ten_thousand() -> None:
    assert 2 * sum(STEPS.values()) >= 10_000


def _live(stage: Stage, hands: Hands, seed: int, wanted: int) -> int:
    """Lives by this seed until so many steps are taken; returns how many were."""
    kind = type("LifeHere", (Life,), {"stage": stage, "hands": hands, "steps": 0})
    for turn in range(1_000):
        if kind.steps >= wanted:
            break
        run_state_machine_as_test(
            hypothesis.seed(seed + turn)(kind),
            settings=settings(
                max_examples=(wanted - kind.steps) // STEPS_A_LIFE + 1,
                stateful_step_count=STEPS_A_LIFE,
                # A failing life is printed as it was lived: shrinking it takes longer than reading it.
                phases=[Phase.generate],
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    return int(kind.steps)
