"""A schedule of prompts and its chat: one turn at a time, the words as they now stand, the run follows the turn."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.scheduling.stage import code_of
from tests.targets.parlour import Parlour
from webapp.chat.lifecycle import TurnStatus
from webapp.errors import AppError
from webapp.scheduling.lifecycle import MisfirePolicy, RunStatus, ScheduleStatus, WaitReason


def test_a_slot_becomes_a_prompt_that_says_whose_it_is(parlour: Parlour) -> None:
    schedule = parlour.prompt(name="News", timezone="Europe/Berlin")
    parlour.tick(minutes=48)
    (run,) = parlour.runs(schedule)
    assert (run.status, run.wait_reason) == (RunStatus.DELIVERED, None)
    assert run.delivered_at == parlour.clock.now()
    (message,) = parlour.messages()
    assert message.author == "schedule News, for Bob"
    assert message.text == (
        "[Scheduled prompt “News”, for Monday 2026-11-30 10:00 Europe/Berlin.]\n\nWhat is new?"
    )
    assert message.meta == {
        "scheduled_task": {
            "task_id": schedule.short_id,
            "occurrence_id": run.run_id,
            "scheduled_for": "2026-11-30T09:00:00.000Z",
            "trigger": "scheduled",
        }
    }
    turn = parlour.turn_of(run)
    mandate = parlour.mandate(schedule)
    assert (turn.mandate_pk, turn.mandate_revision, turn.by_person) == (mandate.id, 1, False)
    assert mandate.used_runs == 1


def test_the_run_follows_its_turn(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.tick(minutes=48)
    hold = parlour.take()
    assert hold is not None
    (run,) = parlour.runs(schedule)
    assert (run.status, run.started_at) == (RunStatus.RUNNING, parlour.clock.now())
    parlour.clock.advance(seconds=9)
    parlour.answer(hold, "All quiet.")
    (run,) = parlour.runs(schedule)
    assert (run.status, run.error_code, run.result) == (RunStatus.COMPLETED, None, "All quiet.")
    assert run.completed_at == parlour.clock.now()
    assert parlour.schedule(schedule).due.last_run_at == run.scheduled_for


def test_a_run_by_hand_says_so(parlour: Parlour) -> None:
    schedule = parlour.prompt(name="News")
    run = parlour.run_now(schedule, parlour.bob)
    assert run.status is RunStatus.DELIVERED
    assert parlour.messages()[0].text.startswith("[Scheduled prompt “News”, run by hand on Monday")
    parlour.talk()
    assert parlour.runs(schedule)[0].status is RunStatus.COMPLETED


def test_a_prompt_that_stands_for_missed_slots_says_so(parlour: Parlour) -> None:
    parlour.prompt(name="News")
    parlour.tick(hours=3)
    text = parlour.messages()[0].text
    assert "It also stands for 2 earlier that were missed since Monday 2026-11-30 09:00 UTC." in text


def test_a_busy_chat_makes_the_run_wait_and_nothing_of_it_counts(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    turn = parlour.say()
    parlour.tick(minutes=48)
    (run,) = parlour.runs(schedule)
    assert (run.status, run.wait_reason, run.turn_id) == (RunStatus.QUEUED, WaitReason.CHAT_BUSY, None)
    due = parlour.schedule(schedule).due
    assert (due.dispatched_count, due.last_run_at, parlour.mandate(schedule).used_runs) == (0, None, 0)
    assert [turn.turn_id for turn in parlour.turns()] == [turn.turn_id]
    parlour.talk(1)
    (run,) = parlour.runs(schedule)
    assert (run.status, run.wait_reason) == (RunStatus.DELIVERED, None)
    due = parlour.schedule(schedule).due
    assert (due.dispatched_count, due.last_run_at) == (1, run.scheduled_for)
    assert parlour.mandate(schedule).used_runs == 1


def test_two_schedules_at_one_slot_take_turns_in_the_order_of_their_slots(parlour: Parlour) -> None:
    hourly = parlour.prompt(name="Hourly")
    early = parlour.prompt(name="Early", schedule={"type": "cron", "cron": "55 * * * *"})
    late = parlour.prompt(name="Late", schedule={"type": "cron", "cron": "5 * * * *"})
    parlour.tick(minutes=55)
    states = {one.name: parlour.runs(one)[0].status for one in (hourly, early, late)}
    assert states == {
        "Early": RunStatus.DELIVERED,
        "Hourly": RunStatus.QUEUED,
        "Late": RunStatus.QUEUED,
    }
    assert parlour.talk() == 3
    assert [message.author for message in parlour.messages() if message.role == "user"] == [
        "schedule Early, for Bob",
        "schedule Hourly, for Bob",
        "schedule Late, for Bob",
    ]


def test_people_go_before_schedules(parlour: Parlour) -> None:
    one, two = parlour.prompt(name="One"), parlour.prompt(name="Two")
    parlour.tick(minutes=48)
    parlour.say("Me first.")
    hold = parlour.take()
    assert hold is not None
    parlour.answer(hold)
    spoken = [message.text for message in parlour.messages() if message.author == "Bob"]
    assert spoken == ["Me first."]
    waiting = [parlour.runs(each)[0].wait_reason for each in (one, two)]
    assert WaitReason.CHAT_BUSY in waiting
    assert parlour.talk() == 2
    assert [parlour.runs(each)[0].status for each in (one, two)] == [RunStatus.COMPLETED] * 2


def test_a_new_slot_does_not_overtake_what_waits(parlour: Parlour) -> None:
    """The chat is idle for a moment, but an older run waits for it: the new one goes behind."""
    first = parlour.prompt(name="First", schedule={"type": "once", "run_at": "2026-11-30T08:30:00Z"})
    second = parlour.prompt(name="Second", schedule={"type": "once", "run_at": "2026-11-30T08:40:00Z"})
    turn = parlour.say()
    parlour.tick(minutes=20)
    parlour.tick(minutes=10)
    parlour.abort(turn)
    authors = [message.author for message in parlour.messages()]
    assert authors == ["Bob", "schedule First, for Bob"]
    assert parlour.runs(second)[0].wait_reason is WaitReason.CHAT_BUSY
    assert parlour.talk() == 2
    assert parlour.schedule(first).status is parlour.schedule(second).status is ScheduleStatus.COMPLETED


def test_what_waits_is_found_again_by_the_next_minute(parlour: Parlour) -> None:
    """The bell after the commit may be lost with the process that should have rung it."""
    schedule = parlour.prompt()
    turn = parlour.say()
    parlour.tick(minutes=48)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("webapp.scheduling.deliver.deliver_next", lambda *_args, **_named: 0)
        parlour.abort(turn)
    assert parlour.runs(schedule)[0].wait_reason is WaitReason.CHAT_BUSY
    parlour.tick(minutes=1)
    assert parlour.runs(schedule)[0].status is RunStatus.DELIVERED


def test_a_text_edit_reaches_a_run_that_waits(parlour: Parlour) -> None:
    schedule = parlour.prompt(name="News", prompt="Old words.")
    parlour.say()
    parlour.tick(minutes=48)
    parlour.change(schedule, task="New words.")
    parlour.talk()
    assert parlour.messages()[2].text.endswith("\n\nNew words.")
    (run,) = parlour.runs(schedule)
    assert run.schedule_revision == parlour.schedule(schedule).revision


def test_a_new_timetable_takes_scheduled_runs_back_and_leaves_those_by_hand(parlour: Parlour) -> None:
    schedule = parlour.prompt(overlap_policy="queue_one")
    parlour.say()
    parlour.tick(minutes=48)
    by_hand = parlour.run_now(schedule, parlour.bob)
    assert by_hand.wait_reason is WaitReason.PREVIOUS_RUN_ACTIVE
    parlour.change(schedule, schedule={"type": "daily", "time": "12:00"})
    assert parlour.told(schedule) == [
        ("09:00", "cancelled", "schedule_changed"),
        ("09:00", "queued", None),
    ]
    parlour.talk()
    assert parlour.runs(schedule)[1].status is RunStatus.COMPLETED


def test_a_pause_takes_back_a_turn_that_nobody_has_begun(parlour: Parlour) -> None:
    schedule, other = parlour.prompt(name="One"), parlour.prompt(name="Two")
    parlour.tick(minutes=48)
    parlour.pause(schedule, parlour.bob)
    assert parlour.told(schedule) == [("09:00", "cancelled", "schedule_paused")]
    assert parlour.turns()[0].status is TurnStatus.ABORTED
    assert parlour.turns()[0].error_code == "schedule_paused"
    assert parlour.runs(other)[0].status is RunStatus.DELIVERED


def test_a_pause_leaves_a_turn_at_work_to_end(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.tick(minutes=48)
    hold = parlour.take()
    assert hold is not None
    parlour.pause(schedule, parlour.bob)
    parlour.answer(hold)
    assert parlour.told(schedule) == [("09:00", "completed", None)]
    assert parlour.schedule(schedule).status is ScheduleStatus.PAUSED


@pytest.mark.parametrize(("how", "code"), [("cancel", "schedule_cancelled"), ("revoke", "mandate_revoked")])
def test_cancel_and_revoke_stop_a_turn_at_its_next_step(parlour: Parlour, how: str, code: str) -> None:
    schedule = parlour.prompt()
    parlour.tick(minutes=48)
    hold = parlour.take()
    assert hold is not None
    if how == "cancel":
        parlour.cancel(schedule, parlour.bob)
    else:
        parlour.revoke(schedule)
    assert parlour.runs(schedule)[0].status is RunStatus.RUNNING
    parlour.answer(hold)
    assert parlour.told(schedule) == [("09:00", "cancelled", code)]
    assert (parlour.turns()[0].status, parlour.turns()[0].error_code) == (TurnStatus.ABORTED, code)


def test_a_person_may_abort_the_turn_of_a_schedule(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.tick(minutes=48)
    parlour.abort(parlour.turns()[0])
    assert parlour.told(schedule) == [("09:00", "cancelled", "turn_aborted")]
    assert parlour.schedule(schedule).status is ScheduleStatus.ACTIVE
    assert parlour.schedule(schedule).due.consecutive_failures == 0


def test_one_failed_turn_stops_it_at_once(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.tick(minutes=48)
    hold = parlour.take()
    assert hold is not None
    parlour.fail(hold, "model_unavailable")
    saved = parlour.schedule(schedule)
    assert (saved.status, saved.status_reason) == (
        ScheduleStatus.NEEDS_ATTENTION,
        "failure_threshold_reached",
    )
    assert parlour.told(schedule) == [("09:00", "failed", "model_unavailable")]
    assert parlour.open_alerts() == [("needs_attention", schedule.schedule_id, "failure_threshold_reached")]


def test_a_late_failure_of_old_words_leaves_the_schedule_alone(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.tick(minutes=48)
    hold = parlour.take()
    assert hold is not None
    parlour.change(schedule, task="Other words.")
    parlour.fail(hold)
    saved = parlour.schedule(schedule)
    assert (saved.status, saved.due.consecutive_failures) == (ScheduleStatus.ACTIVE, 0)


def test_the_next_slot_is_skipped_while_a_run_waits_for_the_chat(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.say()
    parlour.tick(minutes=48)
    parlour.tick(hours=1)
    assert parlour.told(schedule) == [("09:00", "queued", None), ("10:00", "skipped", "previous_run_active")]
    assert parlour.runs(schedule)[1].blocker_received is False


def test_queue_one_keeps_the_newest_waiting_run(parlour: Parlour) -> None:
    schedule = parlour.prompt(overlap_policy="queue_one")
    parlour.say()
    parlour.tick(minutes=48)
    parlour.tick(hours=1)
    assert parlour.told(schedule) == [("09:00", "skipped", "superseded"), ("10:00", "queued", None)]
    parlour.talk()
    assert parlour.told(schedule)[1] == ("10:00", "completed", None)


def test_a_backlog_is_worked_off_turn_by_turn(parlour: Parlour) -> None:
    schedule = parlour.prompt(misfire_policy=MisfirePolicy.CATCH_UP_ALL)
    parlour.tick(hours=3)
    assert [run.status.value for run in parlour.runs(schedule)] == ["delivered", "queued", "queued"]
    assert parlour.talk() == 3
    assert [run.status.value for run in parlour.runs(schedule)] == ["completed"] * 3
    slots = [message.meta["scheduled_task"]["scheduled_for"] for message in parlour.messages()[::2]]
    assert slots == sorted(slots)


def test_a_turn_at_work_is_never_cut_off_for_holding_up_the_next_slot(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.tick(minutes=48)
    hold = parlour.take()
    assert hold is not None
    parlour.tick(hours=30)
    assert parlour.runs(schedule)[0].status is not RunStatus.EXPIRED
    assert parlour.runs(schedule)[0].error_code != "blocker_timed_out"


def test_a_turn_that_nobody_begins_gives_way_in_the_end(parlour: Parlour) -> None:
    schedule = parlour.prompt()
    parlour.tick(minutes=48)
    parlour.tick(hours=7)
    assert parlour.told(schedule)[0] == ("09:00", "expired", "blocker_timed_out")
    assert parlour.turns()[0].status is TurnStatus.FAILED
    newest = parlour.runs(schedule)[-1]
    assert (newest.status, newest.missed_count) == (RunStatus.DELIVERED, 6)


def test_the_words_and_the_chat_are_the_owners_alone(parlour: Parlour) -> None:
    with pytest.raises(AppError) as refused:
        parlour.prompt(parlour.alice)
    assert code_of(refused.value) == ("chat_not_found", 404)
    schedule = parlour.prompt()
    for change in ({"task": "Alice's words."}, {"name": "Alice's name"}, {"timezone": "Europe/Berlin"}):
        with pytest.raises(AppError) as refused:
            parlour.change(schedule, parlour.alice, **change)
        assert code_of(refused.value) == ("permission_denied", 403)
    parlour.pause(schedule, parlour.alice)
    with pytest.raises(AppError) as refused:
        parlour.resume(schedule, parlour.alice)
    assert code_of(refused.value) == ("permission_denied", 403)
    parlour.cancel(schedule, parlour.alice)
    assert parlour.schedule(schedule).sponsor_pk == parlour.cast.bob.id


@pytest.mark.parametrize("field", ["overlap_policy", "target_node_id", "model"])
def test_what_a_chat_does_not_know_is_refused(parlour: Parlour, field: str) -> None:
    schedule = parlour.prompt()
    value = {"overlap_policy": "allow", "target_node_id": parlour.node.node_id, "model": "no-such-model"}[
        field
    ]
    with pytest.raises(AppError) as refused:
        parlour.change(schedule, **{field: value})
    assert code_of(refused.value) == (f"invalid_{field}", 400)


def test_an_archived_chat_is_none_on_create(parlour: Parlour) -> None:
    parlour.archive()
    with pytest.raises(AppError) as refused:
        parlour.prompt()
    assert code_of(refused.value) == ("chat_not_found", 404)


def test_the_end_of_the_mandate_lies_ahead(parlour: Parlour) -> None:
    with pytest.raises(AppError) as refused:
        parlour.prompt(expires_at=parlour.clock.now())
    assert code_of(refused.value) == ("invalid_expires_at", 400)
    schedule = parlour.prompt(expires_at=parlour.clock.now() + timedelta(days=90))
    assert parlour.mandate(schedule).expires_at == parlour.clock.now() + timedelta(days=90)
