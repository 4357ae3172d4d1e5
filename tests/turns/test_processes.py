"""Real workers that run turns: killed, asked to leave, taken over by others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from flask import current_app

from tests.concurrency.scene import Crew, count, crew, soon
from tests.factories import make_schedule
from tests.support.databases import SECRET_KEY, START, dispose_engines
from tests.support.doctor import assert_doctor_clean
from tests.support.file_clock import FileClock
from tests.support.model_server import Answer, Calls, Hang, Held, ModelServer
from tests.support.processes import Herd
from tests.turns.conftest import SECRET
from tests.turns.stage import KEY_VARIABLE, Stage, make_stage
from webapp import create_app
from webapp.chat import steps
from webapp.chat.lifecycle import TurnStatus
from webapp.chat.models import Approval, Turn
from webapp.config import Config
from webapp.mandates import policy
from webapp.nodes.models import Task
from webapp.store.transaction import Tx, operation

pytestmark = pytest.mark.processes

PROFILE = """
default = "talker"

[profiles.talker]
base_url = "{base_url}"
model = "gpt-test"
api_key_env = "{variable}"
"""
SEND = ("send_task", {"node": "atlas", "task": "Sweep the inbox."})


@pytest.fixture
def environment(server: ModelServer, database_url: str, tmp_path: Path) -> dict[str, str]:
    """What an operator sets: the profiles in a file, the key in a variable."""
    models = tmp_path / "models.toml"
    models.write_text(PROFILE.format(base_url=server.base_url, variable=KEY_VARIABLE))
    return {
        "CARILLON_DATABASE_URL": database_url,
        "CARILLON_SECRET_KEY": SECRET_KEY,
        "CARILLON_MODELS_FILE": str(models),
        "CARILLON_TICK_SECONDS": "0.2",
        KEY_VARIABLE: SECRET,
    }


@pytest.fixture
def house(server: ModelServer, environment: dict[str, str], tmp_path: Path) -> Iterator[Stage]:
    """The stage in a process beside the workers, under one file clock."""
    clock = FileClock(tmp_path / "clock", START)
    app = create_app(Config.from_environment(environment), clock)
    with app.app_context():
        yield make_stage(clock, server)  # type: ignore[arg-type]
        assert_doctor_clean(app)
    dispose_engines(app)


@pytest.fixture
def workers(herd: Herd, house: Stage, environment: dict[str, str], database_url: str) -> Iterator[Crew]:
    with crew(herd, 1, database_url, house.clock, environment) as running:  # type: ignore[arg-type]
        yield running
        running.leave()


@operation
def _hold_chat(tx: Tx, chat_pk: int, held: threading.Event, release: threading.Event) -> None:
    """Keep others from writing into a chat until told otherwise."""
    steps.lock_chat(tx, chat_pk)
    held.set()
    release.wait(12)


def test_a_worker_killed_between_answer_and_commit_is_marked_and_nothing_is_sent_twice(
    house: Stage, workers: Crew
) -> None:
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    reply = Held(Answer("Nobody will read this."))
    house.server.will(reply)
    turn = house.say()
    assert reply.arrived.wait(60), "the worker asks the model"
    held, release = threading.Event(), threading.Event()

    def keep() -> None:
        with app.app_context():
            _hold_chat(house.chat.id, held, release)

    keeper = threading.Thread(target=keep)
    keeper.start()
    assert held.wait(20)
    reply.release.set()
    assert house.server.answered.wait(20), "the whole answer is on its way"
    (victim,) = workers.living()
    workers.kill(victim)
    release.set()
    keeper.join(20)
    assert house.state(turn) == ("running", None)
    assert house.turn(turn).request_sent_at is not None
    workers.start()
    house.lose_worker(turn)
    soon(lambda: house.state(turn) == ("failed", "worker_lost"), "the next worker marks it")
    after = house.say("Are you there?")
    soon(lambda: house.state(after) == ("completed", None), "the chat goes on")
    assert house.server.count == 2


def test_an_approval_is_resumed_by_another_process_after_a_kill(house: Stage, workers: Crew) -> None:
    order = house.order(policy.ask_each_time())
    house.server.will(Calls([SEND]), Answer("Sent."))
    turn = house.run(order)
    soon(lambda: count(Approval) == 1 and house.state(turn)[0] == "waiting_for_action", "it asks")
    (victim,) = workers.living()
    workers.kill(victim)
    house.approve(house.approvals()[0])
    workers.start()
    soon(lambda: house.state(turn) == ("completed", None), "another worker goes on")
    assert (house.server.count, count(Task)) == (2, 1)


def test_a_model_that_takes_its_time_holds_up_no_slot_and_no_other_chat(house: Stage, workers: Crew) -> None:
    reply = Held(Answer("At last."))
    house.server.will(reply)
    slow = house.say()
    assert reply.arrived.wait(60)
    make_schedule(house.cast.alice, house.node, schedule={"type": "interval", "every_seconds": 60})
    house.clock.set(START + timedelta(seconds=61))
    soon(lambda: count(Task) == 1, "the slot is dispatched")
    other = house.say(chat=house.new_chat())
    soon(lambda: house.state(other) == ("completed", None), "another chat is answered")
    assert house.state(slow) == ("running", None)
    reply.release.set()
    soon(lambda: house.state(slow) == ("completed", None), "and so is the first")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_that_is_asked_to_leave_gives_its_turn_back(house: Stage, workers: Crew) -> None:
    house.server.will(Hang())
    turn = house.say()
    house.server.wait_for(1, 60)
    workers.leave()
    given_back = house.turn(turn)
    assert (given_back.status, given_back.lease_owner) == (TurnStatus.RUNNING, None)
    assert given_back.request_sent_at is None
    workers.start()
    soon(lambda: house.state(turn) == ("completed", None), "the next worker goes on")
    assert count(Turn) == 1
