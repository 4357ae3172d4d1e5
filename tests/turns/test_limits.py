"""What a mandate may use is exact, however many workers ask at once; keys stay where they are."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from flask import Flask
from sqlalchemy import select

from tests.support.model_server import Answer, Calls, Refusal
from tests.support.races import at_once
from tests.turns.conftest import SECRET
from tests.turns.stage import Stage
from webapp.chat import execution, model, steps
from webapp.chat.lifecycle import TurnStatus
from webapp.chat.models import Chat, Turn
from webapp.ids import new_id
from webapp.mandates import policy
from webapp.mandates.models import Mandate
from webapp.scheduling.models import Schedule
from webapp.store import db, reading
from webapp.store.base import Base
from webapp.store.transaction import Tx, operation

WORKERS = 8
TURNS = 16
MOST_TOKENS = 14_000


def limited(most: int) -> policy.Policy:
    return policy.parse_policy(policy.ask_each_time().to_json() | {"limits": {"max_tokens": most}})


@operation
def _turn_under(tx: Tx, chat: Chat, order: Schedule, model: str, stage: Stage) -> Turn:
    """A turn of this schedule's authority without a run: what the engine itself lets happen only one by one."""
    return steps.create_turn(
        tx,
        steps.lock_chat(tx, chat.id),
        turn_id=new_id("turn"),
        by_person=False,
        model=model,
        run_pk=None,
        mandate_pk=order.mandate_pk,
        mandate_revision=order.mandate_revision,
        author="schedule Morning round, for Alice",
        text="What is new?",
        time_limit_seconds=600,
        now=stage.clock.now(),
    )


def test_eight_workers_use_no_token_more_than_the_mandate_has(app: Flask, stage: Stage) -> None:
    stage.server.standing = Answer("Done.", input_tokens=1_000, output_tokens=500)
    order = stage.order(limited(MOST_TOKENS))
    turns = [_turn_under(stage.new_chat(), order, "other", stage) for _ in range(TURNS)]

    def work(owner: str) -> Callable[[], int]:
        return lambda: stage.work(owner)

    while stage.count(Turn, Turn.completed_at.is_(None)):
        for result in at_once(app, [work(f"worker-{number}") for number in range(WORKERS)]):
            assert isinstance(result, int), result
        stage.clock.advance(seconds=2)
    mandate = stage.mandate(order)
    after = [stage.turn(turn) for turn in turns]
    used = sum(turn.input_tokens + turn.output_tokens for turn in after)
    assert (mandate.used_tokens, mandate.reserved_tokens) == (used, 0)
    completed = [turn for turn in after if turn.status is TurnStatus.COMPLETED]
    refused = [turn for turn in after if turn.error_code == "mandate_exhausted"]
    assert len(completed) + len(refused) == TURNS
    assert len(completed) == stage.server.count, "who was refused has asked nothing"
    # Whoever was refused would have needed less than 4,000 at most: nothing worth asking for was left.
    assert MOST_TOKENS - 4_000 < used <= MOST_TOKENS


def test_a_turn_that_would_pass_the_mandates_limit_does_not_ask(stage: Stage) -> None:
    order = stage.order(limited(100))
    turn = stage.run(order)
    stage.work()
    assert stage.state(turn) == ("failed", "mandate_exhausted")
    assert stage.server.count == 0
    assert stage.run_of(turn).error_code == "mandate_exhausted"


def test_what_is_left_of_the_mandate_bounds_the_answer(stage: Stage) -> None:
    order = stage.order(limited(3_000))
    stage.server.will(Answer("Short.", input_tokens=400, output_tokens=20))
    stage.run(order)
    stage.work()
    assert 16 <= stage.server.requests[0].body["max_completion_tokens"] < 1_000
    mandate = stage.mandate(order)
    assert (mandate.used_tokens, mandate.reserved_tokens) == (420, 0)


@pytest.mark.parametrize("reply", [Refusal(500), Refusal(401)], ids=["transient", "permanent"])
def test_what_was_set_aside_comes_back_when_the_model_does_not_answer(stage: Stage, reply: Refusal) -> None:
    order = stage.order(limited(10_000))
    stage.server.will(reply)
    stage.run(order)
    stage.work()
    mandate = stage.mandate(order)
    assert (mandate.used_tokens, mandate.reserved_tokens) == (0, 0)


def test_what_was_set_aside_comes_back_from_a_lost_worker(stage: Stage) -> None:
    order = stage.order(limited(10_000))
    turn = stage.run(order)
    hold = stage.take()
    assert hold is not None
    history = model.begin("You are here.", (), "What is new?")
    grant = execution.request_sent(hold, history, most_input_tokens=500, now=stage.clock.now())
    assert grant is not None
    assert stage.mandate(order).reserved_tokens == 1_500
    stage.lose_worker(turn)
    stage.recover()
    assert stage.state(turn) == ("failed", "worker_lost")
    assert stage.mandate(order).reserved_tokens == 0


def test_keys_are_in_no_table_and_in_no_log(
    stage: Stage, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    stage.server.will(
        Calls([("list_nodes", {})]),
        Answer("Done."),
        Refusal(401, message=f"Incorrect API key provided: {SECRET}."),
        Refusal(400, message=f"The header was Bearer {SECRET}."),
    )
    for number in range(3):
        stage.say(f"Number {number}")
        stage.work()
    assert stage.server.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert stage.server.count == 4
    assert "***" in str([stage.turn(row).error_message for row in _all_turns()])
    with reading() as session:
        for table in Base.metadata.sorted_tables:
            assert SECRET not in str(session.execute(select(table)).all()), table.name
    assert SECRET not in caplog.text
    captured = capfd.readouterr()
    assert SECRET not in captured.out + captured.err
    assert stage.server.base_url not in captured.err, "requests are not logged one by one"
    db.session.remove()


def _all_turns() -> list[Turn]:
    with reading() as session:
        return list(session.scalars(select(Turn).order_by(Turn.id)))


def test_a_mandate_without_limits_still_counts(stage: Stage) -> None:
    order = stage.order(policy.talk_only())
    stage.run(order)
    stage.work()
    with reading() as session:
        mandate = session.scalars(select(Mandate).where(Mandate.id == order.mandate_pk)).one()
    assert mandate.used_tokens == 25
