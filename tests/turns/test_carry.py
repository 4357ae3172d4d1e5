"""One turn from its prompt to its end: every way in which the model's endpoint can behave."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from flask import Flask

from tests.support.model_server import Answer, Calls, Drop, Hang, Refusal
from tests.turns.stage import KEY_VARIABLE, Stage
from webapp.chat import runner
from webapp.chat.lifecycle import TurnStatus
from webapp.chat.models import ModelPause
from webapp.mandates import policy

SOON = timedelta(seconds=5)


def test_an_answer_ends_the_turn_with_its_words_and_usage(stage: Stage) -> None:
    stage.server.will(Answer("Nothing new.", input_tokens=31, output_tokens=7))
    turn = stage.say("What is new?")
    assert stage.work() == 1
    assert stage.state(turn) == ("completed", None)
    assert stage.said() == [("user", "What is new?"), ("assistant", "Nothing new.")]
    assert stage.messages()[-1].author == "model talker"
    after = stage.turn(turn)
    assert (after.input_tokens, after.output_tokens, after.requests) == (31, 7, 1)
    assert (after.lease_owner, after.request_sent_at, after.history) == (None, None, None)
    (request,) = stage.server.requests
    assert request.texts[-1] == "What is new?"
    assert request.tools == ["list_nodes", "send_task", "list_schedules", "propose_schedule"]
    assert request.body["max_completion_tokens"] == 1_000
    assert stage.work() == 0


def test_what_was_said_before_is_told_again_but_not_what_waits(stage: Stage) -> None:
    stage.server.will(Answer("One."), Answer("Two."), Answer("Three."))
    stage.say("First?")
    stage.work()
    stage.say("Second?")
    stage.say("Third?")
    hold = stage.take()
    assert hold is not None
    assert stage.take() is None, "one turn of a chat at a time"
    runner.carry(hold, stage.clock)
    assert stage.server.requests[-1].texts[1:] == ["First?", "One.", "Second?"]
    stage.work()
    assert stage.server.requests[-1].texts[1:] == ["First?", "One.", "Second?", "Two.", "Third?"]


def test_an_answer_that_streams_slowly_is_whole(stage: Stage) -> None:
    stage.server.will(Answer("A slow word or two.", pieces=4, seconds_between=0.2))
    turn = stage.say()
    stage.work()
    assert stage.state(turn) == ("completed", None)
    assert stage.said()[-1] == ("assistant", "A slow word or two.")
    assert stage.server.count == 1


@pytest.mark.parametrize(
    "trouble",
    [Refusal(500), Refusal(503), Drop(), Drop(pieces=2), Hang(), Answer("x", pieces=1, seconds_between=5.0)],
    ids=["500", "503", "dropped", "dropped in the middle", "hangs", "too slow"],
)
def test_what_may_pass_by_itself_is_tried_three_times_with_growing_pauses(stage: Stage, trouble) -> None:
    stage.server.will(trouble, trouble, trouble)
    turn = stage.say()
    stage.work()
    assert stage.state(turn) == ("running", None)
    assert (stage.turn(turn).attempt, stage.turn(turn).lease_owner) == (2, None)
    assert stage.turn(turn).not_before == stage.clock.now() + SOON
    assert stage.work() == 0, "not before its time"
    stage.clock.advance(seconds=5)
    assert stage.work() == 1
    assert stage.turn(turn).not_before == stage.clock.now() + 3 * SOON
    stage.clock.advance(seconds=15)
    stage.work()
    assert stage.state(turn) == ("failed", "model_failed")
    assert stage.server.count == 3
    assert stage.said() == [("user", "What is new?")], "half an answer is none"


def test_an_answer_after_a_failure_ends_the_turn(stage: Stage) -> None:
    stage.server.will(Drop(), Refusal(500), Answer("There."))
    turn = stage.say()
    for _ in range(3):
        stage.work()
        stage.clock.advance(seconds=20)
    assert stage.state(turn) == ("completed", None)
    assert (stage.server.count, stage.turn(turn).requests) == (3, 3)


@pytest.mark.parametrize("status", [401, 403, 404, 402])
def test_what_a_person_has_to_mend_is_named_and_not_tried_again(stage: Stage, status: int) -> None:
    stage.server.will(Refusal(status, message="No such thing."))
    turn = stage.say()
    stage.work()
    assert stage.state(turn) == ("failed", "model_unavailable")
    assert str(status) in (stage.turn(turn).error_message or "") or status == 402
    stage.clock.advance(hours=1)
    assert (stage.work(), stage.server.count) == (0, 1)


def test_a_request_that_is_refused_as_such_is_not_sent_again(stage: Stage) -> None:
    stage.server.will(Refusal(400, message="context too long"))
    turn = stage.say()
    stage.work()
    assert stage.state(turn) == ("failed", "model_failed")
    assert "context too long" in (stage.turn(turn).error_message or "")
    assert stage.server.count == 1


def test_without_its_key_a_model_is_unavailable_and_nothing_is_sent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = stage.say()
    monkeypatch.delenv(KEY_VARIABLE)
    stage.work()
    assert stage.state(turn) == ("failed", "model_unavailable")
    assert KEY_VARIABLE in (stage.turn(turn).error_message or "")
    assert stage.server.count == 0


def test_retry_after_is_obeyed_by_everything_that_shares_the_profile(stage: Stage) -> None:
    stage.server.will(Refusal(429, retry_after=40))
    first = stage.say()
    elsewhere, third = stage.new_chat(), stage.new_chat()
    stage.work()
    assert stage.turn(first).not_before == stage.clock.now() + timedelta(seconds=40)
    other_chat = stage.say(chat=elsewhere)
    other_profile = stage.say(chat=third, model="other")
    assert stage.work() == 1, "only the turn with another profile"
    assert stage.state(other_profile) == ("completed", None)
    assert stage.state(other_chat) == ("queued", None)
    stage.clock.advance(seconds=39)
    assert (stage.work(), stage.server.count) == (0, 2)
    stage.clock.advance(seconds=1)
    assert stage.work() == 2
    assert stage.state(first) == stage.state(other_chat) == ("completed", None)
    stage.recover()
    assert stage.count(ModelPause) == 0, "a pause that is over is forgotten"


def test_a_wait_that_outlasts_the_turn_ends_it_now(stage: Stage) -> None:
    stage.server.will(Refusal(429, retry_after="Wed, 21 Oct 2099 07:28:00 GMT"))
    turn = stage.say()
    stage.work()
    assert stage.state(turn) == ("failed", "model_failed")
    assert "time limit" in (stage.turn(turn).error_message or "")


def test_tools_are_called_and_the_model_is_told_what_came_of_it(stage: Stage) -> None:
    stage.server.will(
        Calls([("list_nodes", {}), ("list_schedules", {})], text="Let me look."), Answer("One node.")
    )
    turn = stage.say("Which nodes are there?")
    stage.work()
    assert stage.state(turn) == ("completed", None)
    roles = [role for role, _ in stage.said()]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert '"alias": "atlas"' in stage.said()[2][1]
    told = stage.server.requests[-1].body["messages"]
    assert [message["role"] for message in told] == ["system", "user", "assistant", "tool", "tool"]
    assert told[3]["tool_call_id"] == told[2]["tool_calls"][0]["id"]
    after = stage.turn(turn)
    assert (after.requests, after.input_tokens, after.output_tokens) == (2, 40, 10)


def test_a_turn_may_not_ask_more_often_than_its_profile_says(stage: Stage) -> None:
    stage.server.standing = Calls([("list_nodes", {})])
    turn = stage.say()
    stage.work()
    assert stage.state(turn) == ("failed", "turn_limit_reached")
    assert "requests" in (stage.turn(turn).error_message or "")
    assert stage.server.count == 6


def test_a_turn_may_not_use_more_tokens_than_its_profile_says(stage: Stage) -> None:
    stage.server.will(Calls([("list_nodes", {})], input_tokens=49_000, output_tokens=900))
    turn = stage.say()
    stage.work()
    assert stage.state(turn) == ("failed", "turn_limit_reached")
    assert "tokens" in (stage.turn(turn).error_message or "")
    assert stage.server.count == 1


def test_the_time_limit_ends_a_turn_between_two_steps_and_in_recovery(stage: Stage) -> None:
    stage.server.will(Refusal(500))
    turn = stage.say()
    stage.work()
    stage.clock.advance(seconds=600)
    assert stage.recover() == 1
    assert stage.state(turn) == ("failed", "turn_timed_out")
    second = stage.say()
    hold = stage.take()
    assert hold is not None
    stage.clock.advance(seconds=601)
    runner.carry(hold, stage.clock)
    assert stage.state(second) == ("failed", "turn_timed_out")
    assert stage.server.count == 1


def test_a_profile_that_was_taken_out_is_named(
    stage: Stage, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = stage.say()
    config = app.extensions["carillon_config"]
    left = tuple(profile for profile in config.models if profile.name != "talker")
    monkeypatch.setitem(app.extensions, "carillon_config", replace(config, models=left))
    stage.work()
    assert stage.state(turn) == ("failed", "model_unavailable")
    assert stage.server.count == 0


def test_an_answer_without_usage_counts_as_the_most_that_it_can_have_been(stage: Stage) -> None:
    stage.server.will(Answer("Short.", says_usage=False))
    turn = stage.say()
    stage.work()
    after = stage.turn(turn)
    assert after.status is TurnStatus.COMPLETED
    assert after.input_tokens > 500
    assert after.output_tokens >= len("Short.")


def test_echo_answers_without_any_endpoint_and_says_what_it_is(stage: Stage) -> None:
    turn = stage.say("Good morning", model="echo")
    stage.work()
    assert stage.state(turn) == ("completed", None)
    assert stage.said()[-1] == ("assistant", "[echo: no model is set up] Good morning")
    assert stage.server.count == 0


def test_echo_asks_for_tools_where_a_line_says_so(stage: Stage) -> None:
    schedule = stage.order(
        policy.exactly(["nodes.send_task", "nodes.list"]),
        "Every morning:\n/send-task atlas: Sweep the inbox.\n/list-nodes\n/propose-schedule atlas at 07:00: Wake up.",
        model="echo",
    )
    turn = stage.run(schedule)
    stage.work()
    assert stage.state(turn) == ("completed", None)
    (task,) = stage.tasks()
    assert task.node_pk == stage.node.id
    assert "mandate_denies" in stage.said()[-1][1], "what is not in the list is told so"
