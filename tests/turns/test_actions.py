"""What a turn does beside talking: permitted, asked for, denied, revoked; never twice and never after."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from tests.factories import actor_of, make_member, make_user
from tests.support.model_server import Answer, Calls, Held
from tests.turns.stage import Stage, change_turn
from webapp.audit import AuditEntry
from webapp.chat import operations as chats
from webapp.chat import runner
from webapp.chat.bodies import NewMessageBody
from webapp.chat.lifecycle import ApprovalStatus, TurnStatus
from webapp.chat.models import Turn
from webapp.clock import FrozenClock
from webapp.identity import operations as people
from webapp.identity.models import Role
from webapp.mandates import operations as mandates
from webapp.mandates import policy
from webapp.mandates.bodies import MandateChanges
from webapp.nodes import operations as node_operations
from webapp.nodes.bodies import NodeChanges
from webapp.scheduling import operations as schedules
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus
from webapp.scheduling.models import Alert, Schedule
from webapp.store import reading

SEND = ("send_task", {"node": "atlas", "task": "Sweep the inbox."})


def results(stage: Stage) -> list[str]:
    return [text for role, text in stage.said() if role == "tool"]


def audited(stage: Stage, verb: str) -> list[AuditEntry]:
    with reading() as session:
        return list(
            session.scalars(select(AuditEntry).where(AuditEntry.verb == verb).order_by(AuditEntry.seq))
        )


# Preapproved and denied


def test_what_is_preapproved_is_done_and_recorded(stage: Stage) -> None:
    schedule = stage.order(policy.exactly(["nodes.send_task"], [f"node:{stage.node.node_id}"]))
    stage.server.will(Calls([SEND]), Answer("Sent."))
    turn = stage.run(schedule)
    stage.work()
    assert stage.state(turn) == ("completed", None)
    (task,) = stage.tasks()
    assert task.task_id in results(stage)[0]
    assert task.created_by_pk == stage.cast.alice.id
    (use,) = [entry for entry in audited(stage, "mandate.use") if "operation" in entry.detail]
    assert use.detail["operation"] == "nodes.send_task"
    assert use.detail["turn_id"] == turn.turn_id
    action = stage.messages()[-2].meta["action"]
    assert action["arguments"]["node_id"] == stage.node.node_id
    assert stage.run_of(turn).status is RunStatus.COMPLETED
    assert stage.run_of(turn).result == "Sent."
    assert stage.approvals() == []


@pytest.mark.parametrize("allowed", ["talk only", "another operation", "another node"])
def test_what_is_denied_is_told_to_the_model_and_audited(stage: Stage, allowed: str) -> None:
    policies = {
        "talk only": policy.talk_only(),
        "another operation": policy.exactly(["nodes.list"]),
        "another node": policy.exactly(["nodes.send_task"], ["node:node_somebodyelse"]),
    }
    schedule = stage.order(policies[allowed])
    stage.server.will(Calls([SEND]), Answer("I may not."))
    turn = stage.run(schedule)
    stage.work()
    assert stage.state(turn) == ("completed", None)
    assert stage.tasks() == []
    assert "Not permitted (mandate_denies)" in results(stage)[0]
    assert audited(stage, "mandate.deny")[-1].detail["code"] == "mandate_denies"


# Approvals


def test_an_approval_shows_the_exact_call_and_resumes_the_same_turn_elsewhere(stage: Stage) -> None:
    schedule = stage.order(policy.ask_each_time())
    stage.server.will(Calls([SEND], text="May I?"), Answer("Sent."))
    turn = stage.run(schedule)
    assert stage.work("worker-1") == 1
    waiting = stage.turn(turn)
    assert (waiting.status, waiting.lease_owner) == (TurnStatus.WAITING_FOR_ACTION, None)
    (approval,) = stage.approvals()
    assert (approval.operation, approval.schedule_id) == ("nodes.send_task", schedule.schedule_id)
    assert approval.arguments == {
        "node": "atlas",
        "node_id": stage.node.node_id,
        "task": "Sweep the inbox.",
        "priority": "normal",
    }
    assert stage.tasks() == []
    stage.clock.advance(hours=1)
    assert stage.work() == 0, "it waits without a worker, past the time limit of work"
    stage.approve(approval)
    assert stage.work("worker-of-another-process") == 1
    assert stage.state(turn) == ("completed", None)
    assert len(stage.tasks()) == 1
    assert stage.approvals()[0].used_at is not None
    assert stage.server.count == 2
    assert stage.run_of(turn).status is RunStatus.COMPLETED


def test_a_denial_goes_back_to_the_model_in_words(stage: Stage) -> None:
    stage.server.will(Calls([SEND]), Answer("Then not."))
    turn = stage.say("Send it.")
    stage.work()
    stage.deny(stage.approvals()[0])
    stage.work()
    assert stage.state(turn) == ("completed", None)
    assert "A person denied this" in results(stage)[0]
    assert "A person denied this" in stage.server.requests[-1].texts[-1]
    assert stage.tasks() == []


def test_all_calls_of_one_answer_are_asked_for_together(stage: Stage) -> None:
    other = ("send_task", {"node": "atlas", "task": "Another."})
    stage.server.will(Calls([SEND, ("list_nodes", {}), other]), Answer("Half of it."))
    turn = stage.say("Send both.")
    stage.work()
    first, second = stage.approvals()
    stage.approve(second)
    assert stage.work() == 0, "one answer is missing"
    stage.deny(first)
    stage.work()
    assert stage.state(turn) == ("completed", None)
    told = stage.server.requests[-1].body["messages"]
    assert [message["role"] for message in told[-3:]] == ["tool"] * 3
    by_call = {message["tool_call_id"]: message["content"] for message in told[-3:]}
    asked = [call["id"] for call in told[-4]["tool_calls"]]
    assert "denied" in by_call[asked[0]]
    assert "atlas" in by_call[asked[1]]
    assert "put into its inbox" in by_call[asked[2]]
    assert len(stage.tasks()) == 1


def test_the_same_call_id_in_two_answers_is_two_calls(stage: Stage) -> None:
    schedule = stage.order(policy.exactly(["nodes.send_task"]))
    stage.server.will(
        Calls([SEND, SEND], ids=["call_0", "call_0"]), Calls([SEND], ids=["call_0"]), Answer("Three.")
    )
    turn = stage.run(schedule)
    stage.work()
    assert stage.state(turn) == ("completed", None)
    assert len({task.task_id for task in stage.tasks()}) == 3


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        ({"type": "interval", "every_seconds": 3600}, 1800),
        ({"type": "daily", "time": "09:00"}, 4 * 3600),
        ({"type": "once", "run_at": "2026-12-01T09:00:00Z"}, 4 * 3600),
    ],
    ids=["hourly", "daily", "once"],
)
def test_an_answer_may_take_half_a_period_and_four_hours_at_most(
    stage: Stage, schedule: dict[str, Any], seconds: int
) -> None:
    order = stage.order(policy.ask_each_time(), schedule=schedule)
    stage.server.will(Calls([SEND]))
    stage.run(order)
    stage.work()
    (approval,) = stage.approvals()
    assert approval.deadline_at == stage.clock.now() + timedelta(seconds=seconds)


def test_the_operator_sets_another_deadline(
    app: Flask, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = app.extensions["carillon_config"]
    monkeypatch.setitem(app.extensions, "carillon_config", replace(config, approval_seconds=90))
    stage.server.will(Calls([SEND]))
    stage.say("Send it.")
    stage.work()
    assert stage.approvals()[0].deadline_at == stage.clock.now() + timedelta(seconds=90)


def test_nobody_answering_counts_as_denied_and_twice_in_a_row_raises_one_card(stage: Stage) -> None:
    order = stage.order(policy.ask_each_time())
    for number in range(3):
        stage.server.will(Calls([SEND]), Answer("Nobody said yes."))
        turn = stage.run(order)
        stage.work()
        stage.clock.advance(hours=4)
        assert stage.recover() == 1
        stage.work()
        assert stage.state(turn) == ("completed", None)
        assert stage.count(Alert, Alert.kind == "unanswered") == (0 if number == 0 else 1)
    assert "Nobody answered in time" in results(stage)[0]
    assert stage.tasks() == []


def test_an_approval_is_bound_to_the_revision_of_the_mandate(stage: Stage) -> None:
    order = stage.order(policy.ask_each_time())
    stage.server.will(Calls([SEND]), Answer("It changed."))
    turn = stage.run(order)
    stage.work()
    mandate = stage.mandate(order)
    narrower = policy.ask_each_time().to_json() | {"targets": [f"node:{stage.node.node_id}"]}
    mandates.change(
        stage.alice,
        mandate.mandate_id,
        lambda: MandateChanges(policy=narrower),
        revision=lambda: mandate.revision,
        now=stage.clock.now(),
    )
    (approval,) = stage.approvals()
    if approval.status is ApprovalStatus.PENDING:
        stage.approve(approval)
    stage.work()
    assert stage.tasks() == []
    assert "mandate_changed" in results(stage)[0]
    assert stage.state(turn) == ("completed", None)


def test_an_approval_is_bound_to_the_node_that_was_shown(stage: Stage) -> None:
    stage.server.will(Calls([SEND]), Answer("Another one has that name now."))
    stage.say("Send it.")
    stage.work()
    now = stage.clock.now()
    node_operations.update_node(stage.alice, stage.node.node_id, NodeChanges(alias="retired"), now=now)
    node_operations.create_node(stage.alice, stage.cast.network.id, "atlas", now=now)
    stage.approve(stage.approvals()[0])
    stage.work()
    assert stage.tasks() == []
    assert "not what would be done now" in results(stage)[0]


# A person's own turn


def test_a_persons_turn_reads_freely_and_asks_before_it_changes_anything(stage: Stage) -> None:
    stage.server.will(Calls([("list_nodes", {}), ("list_schedules", {})]), Calls([SEND]), Answer("Sent."))
    turn = stage.say("Send it.")
    stage.work()
    (approval,) = stage.approvals()
    assert (approval.mandate_pk, approval.schedule_id) == (None, None)
    assert approval.deadline_at == stage.clock.now() + timedelta(hours=4)
    stage.approve(approval)
    stage.work()
    assert stage.state(turn) == ("completed", None)
    assert len(stage.tasks()) == 1
    assert [entry.actor for entry in audited(stage, "turn.act")] == ["Alice"]


def test_a_person_who_lost_their_rights_acts_no_more(stage: Stage) -> None:
    stage.server.will(Calls([SEND]))
    turn = stage.say("Send it.")
    stage.work()
    stage.approve(stage.approvals()[0])
    _remove(stage)
    stage.work()
    assert stage.state(turn) == ("aborted", "sponsor_not_permitted")
    assert stage.tasks() == []


def _remove(stage: Stage) -> None:
    zoe = make_user("Zoe")
    make_member(zoe, stage.cast.network, Role.OWNER)
    people.remove_member(
        actor_of(zoe), stage.cast.network.network_id, stage.cast.alice.user_id, now=stage.clock.now()
    )


# Untrusted arguments


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("send_task", "{not json", "not a JSON object"),
        ("send_task", "[1, 2]", "not a JSON object"),
        ("send_task", {"node": "atlas"}, "task: Field required"),
        ("send_task", {"node": "atlas", "task": "x", "as": "root"}, "as: Extra inputs"),
        ("send_task", {"node": "atlas", "task": 7}, "task: Input should be a valid string"),
        ("send_task", {"node": "atlas", "task": "  "}, "task: "),
        ("send_task", {"node": "atlas", "task": "a\x00b"}, "task: "),
        ("send_task", {"node": "atlas", "task": "x" * 10_001}, "task: "),
        ("send_task", {"node": "nowhere", "task": "x"}, "no node called nowhere"),
        ("send_task", {"node": "atlas", "task": "x", "priority": "urgent"}, "priority: "),
        ("list_nodes", {"network_id": "net_other"}, "Extra inputs"),
        ("drop_tables", {}, "no tool called drop_tables"),
        ("propose_schedule", {"task": "x", "schedule": {"type": "cron", "cron": "* *"}}, "invalid_cron"),
        ("propose_schedule", {"task": "x", "schedule": "daily"}, "schedule: "),
        ("propose_schedule", {"task": "x", "schedule": {"type": "daily", "time": "7"}}, "invalid_time"),
        (
            "propose_schedule",
            {"task": "x", "schedule": {"type": "daily", "time": "07:00"}, "timezone": "Mars/Base"},
            "invalid_timezone",
        ),
    ],
)
def test_arguments_are_checked_before_anything_is_asked_or_done(
    stage: Stage, name: str, arguments: Any, words: str
) -> None:
    stage.server.will(Calls([(name, arguments)]), Answer("I see."))
    turn = stage.say("Do it.")
    stage.work()
    assert stage.state(turn) == ("completed", None)
    assert words in results(stage)[0]
    assert "Nothing was done." in results(stage)[0]
    assert stage.approvals() == []
    assert stage.tasks() == []


def test_a_node_that_takes_no_work_is_given_none(stage: Stage) -> None:
    order = stage.order(policy.exactly(["nodes.send_task"]))
    stage.server.will(Calls([SEND]), Answer("It is stopped."))
    turn = stage.run(order)
    node_operations.update_node(
        stage.alice, stage.node.node_id, NodeChanges(lifecycle_state="stopped"), now=stage.clock.now()
    )
    stage.work()
    assert stage.state(turn) == ("completed", None)
    assert "takes no work" in results(stage)[0]
    assert stage.tasks() == []


def test_more_calls_than_anybody_reads_are_refused(stage: Stage) -> None:
    stage.server.will(Calls([("list_nodes", {})] * 27), Answer("Many."))
    stage.say("Look.")
    stage.work()
    assert len([text for text in results(stage) if "alias" in text]) == 25
    assert len(results(stage)) == 27


# Proposals


def test_a_proposal_waits_for_a_person(stage: Stage) -> None:
    wanted = {
        "task": "Wake up.",
        "node": "atlas",
        "schedule": {"type": "daily", "time": "07:00"},
        "timezone": "Europe/Berlin",
    }
    stage.server.will(Calls([("propose_schedule", wanted)]), Answer("Proposed."))
    stage.say("Every morning, please.")
    stage.work()
    (approval,) = stage.approvals()
    assert approval.arguments["in_words"]
    stage.approve(approval)
    stage.work()
    with reading() as session:
        made = session.scalars(select(Schedule)).one()
    assert (made.status, made.sponsor_pk) == (ScheduleStatus.PROPOSED, stage.cast.alice.id)
    assert stage.mandate(made).confirmed_at is None
    schedules.confirm(stage.alice, made.schedule_id, now=stage.clock.now())
    assert stage.fresh(made).status is ScheduleStatus.ACTIVE


def test_a_schedule_proposed_for_this_chat_speaks_in_it(stage: Stage) -> None:
    order = stage.order(policy.exactly(["schedules.propose"]))
    wanted = {"task": "What is new?", "schedule": {"type": "daily", "time": "07:00"}}
    stage.server.will(Calls([("propose_schedule", wanted)]), Answer("Proposed."))
    stage.run(order)
    stage.work()
    with reading() as session:
        made = session.scalars(select(Schedule).where(Schedule.id != order.id)).one()
    assert (made.target_id, made.status) == (stage.chat.chat_id, ScheduleStatus.PROPOSED)


def test_lists_show_no_chat_of_others(stage: Stage) -> None:
    stage.order(policy.talk_only(), text="Alice's own words.")
    bob = actor_of(stage.cast.bob)
    chat = chats.create_chat(bob, stage.cast.network.id, "Bob's", now=stage.clock.now())
    chats.post_message(bob, chat.chat_id, NewMessageBody(text="Which?"), now=stage.clock.now())
    stage.server.will(Calls([("list_schedules", {})]), Answer("None."))
    stage.work()
    (told,) = [text for role, text in stage.said(chat) if role == "tool"]
    assert told == '{"schedules": []}'


# Stops


class TurningClock:
    """The stage's clock, but for one moment: the n-th time that it is asked, something happens first."""

    def __init__(self, clock: FrozenClock, at: int, happening) -> None:
        self._clock, self._left, self._happening = clock, at, happening

    def now(self) -> datetime:
        self._left -= 1
        if self._left == 0:
            self._happening()
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    @property
    def happened(self) -> bool:
        return self._left <= 0


@pytest.mark.parametrize(("what", "number"), [("revoke", 10), ("cancel", 3)])
def test_ten_calls_and_a_stop_at_each_boundary(stage: Stage, what: str, number: int) -> None:
    """Nothing is done after the stop was committed, wherever between two steps it comes."""
    calls = [("send_task", {"node": "atlas", "task": f"Number {place}."}) for place in range(number)]
    code = {"revoke": "mandate_revoked", "cancel": "schedule_cancelled"}[what]
    seen = set()
    for boundary in range(1, 40):
        stage.server.will(Calls(calls), Answer("All sent."))
        order = stage.order(policy.exactly(["nodes.send_task"]), chat=stage.new_chat(f"Chat {boundary}"))
        turn = stage.run(order)
        before = len(stage.tasks())

        def stop(order: Schedule = order) -> None:
            if what == "revoke":
                stage.revoke(order)
            else:
                schedules.cancel(stage.alice, order.schedule_id, now=stage.clock.now())

        clock = TurningClock(stage.clock, boundary, stop)
        hold = stage.take()
        assert hold is not None
        runner.carry(hold, clock)
        if not clock.happened:
            stage.server.left_over()
            assert stage.state(turn) == ("completed", None)
            break
        stage.server.left_over()
        done = len(stage.tasks()) - before
        seen.add(done)
        assert stage.state(turn) == ("aborted", code)
        assert (stage.run_of(turn).status, stage.run_of(turn).error_code) == (RunStatus.CANCELLED, code)
        assert _uses_after_the_end(order) == []
    assert seen == set(range(number + 1)), "every boundary was met"


def _uses_after_the_end(order: Schedule) -> list[int]:
    """Uses of the mandate that were written after it was revoked; the audit numbers commits in their order."""
    with reading() as session:
        entries = session.execute(
            select(AuditEntry.seq, AuditEntry.verb, AuditEntry.detail)
            .where(AuditEntry.subject_id == order.mandate_id)
            .order_by(AuditEntry.seq)
        ).all()
    end = min(seq for seq, verb, _ in entries if verb == "mandate.revoke")
    return [seq for seq, verb, _ in entries if verb == "mandate.use" and seq > end]


def test_a_revocation_from_another_thread_stops_the_very_next_call(app: Flask, stage: Stage) -> None:
    for moment in range(0, 6, 2):
        calls = [("send_task", {"node": "atlas", "task": f"Number {number}."}) for number in range(10)]
        stage.server.will(Calls(calls), Answer("All sent."))
        order = stage.order(policy.exactly(["nodes.send_task"]), chat=stage.new_chat(f"Chat {moment}"))
        turn = stage.run(order)
        before = len(stage.tasks())
        hold = stage.take()
        assert hold is not None

        def carry(hold=hold) -> None:
            with app.app_context():
                runner.carry(hold, stage.clock)

        at_work = threading.Thread(target=carry)
        at_work.start()
        while len(stage.tasks()) - before < moment and at_work.is_alive():
            pass
        stage.revoke(order)
        at_work.join(30)
        stage.server.left_over()
        assert stage.state(turn) in [("aborted", "mandate_revoked"), ("completed", None)]
        assert _uses_after_the_end(order) == []
        with reading() as session:
            uses = session.scalars(
                select(AuditEntry).where(
                    AuditEntry.subject_id == order.mandate_id, AuditEntry.verb == "mandate.use"
                )
            ).all()
        assert len([use for use in uses if "operation" in use.detail]) == len(stage.tasks()) - before


def test_an_abort_while_the_model_thinks_breaks_the_request_off(app: Flask, stage: Stage) -> None:
    held = Held(Answer("Too late."))
    stage.server.will(held)
    turn = stage.say()
    hold = stage.take()
    assert hold is not None

    def carry() -> None:
        with app.app_context():
            runner.carry(hold, stage.clock)

    at_work = threading.Thread(target=carry)
    at_work.start()
    assert held.arrived.wait(20)
    stage.abort(turn)
    at_work.join(20)
    assert not at_work.is_alive()
    assert stage.state(turn) == ("aborted", "turn_aborted")
    assert stage.said() == [("user", "What is new?")]


def test_an_abort_of_a_waiting_turn_withdraws_what_it_asked(stage: Stage) -> None:
    stage.server.will(Calls([SEND]))
    turn = stage.say("Send it.")
    stage.work()
    stage.abort(turn)
    assert stage.state(turn) == ("aborted", "turn_aborted")
    assert stage.approvals()[0].status is ApprovalStatus.WITHDRAWN
    assert stage.work() == 0


# Lost workers


def test_a_turn_whose_worker_died_between_two_steps_is_taken_up(stage: Stage) -> None:
    turn = stage.say()
    assert stage.take("worker-that-dies") is not None
    assert stage.recover() == 0, "its lease stands"
    stage.lose_worker(turn)
    assert stage.recover() == 1
    assert stage.work() == 1
    assert stage.state(turn) == ("completed", None)
    assert stage.server.count == 1


def test_a_request_that_was_under_way_when_its_worker_died_is_not_sent_again(stage: Stage) -> None:
    order = stage.order(policy.ask_each_time())
    turn = stage.run(order)
    assert stage.take("worker-that-dies") is not None

    def ask(row: Turn) -> None:
        row.request_sent_at = stage.clock.now()

    change_turn(turn.id, ask)
    stage.lose_worker(turn)
    assert stage.recover() == 1
    assert stage.state(turn) == ("failed", "worker_lost")
    assert stage.run_of(turn).error_code == "worker_lost"
    assert (stage.work(), stage.server.count) == (0, 0)


def test_a_worker_that_was_only_slow_finds_its_turn_gone(stage: Stage) -> None:
    turn = stage.say()
    slow = stage.take("slow")
    assert slow is not None
    stage.lose_worker(turn)
    stage.recover()
    assert stage.work("quick") == 1
    runner.carry(slow, stage.clock)
    assert stage.state(turn) == ("completed", None)
    assert stage.server.count == 1
    assert len(stage.said()) == 2
