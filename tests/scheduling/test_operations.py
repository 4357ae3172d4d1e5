"""What a person can do to a schedule: every row of the state table that a node schedule knows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from tests.factories import actor_of
from tests.scheduling.stage import Stage, code_of
from webapp.audit import AuditEntry
from webapp.errors import AppError
from webapp.identity import operations as people
from webapp.identity.access import Actor
from webapp.nodes import operations as node_operations
from webapp.nodes.bodies import NodeChanges
from webapp.nodes.lifecycle import TaskStatus
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.store import reading
from webapp.targets import node as bridge

CANCELLED, COMPLETED = ScheduleStatus.CANCELLED, ScheduleStatus.COMPLETED


def in_state(stage: Stage, status: ScheduleStatus) -> Schedule:
    """A schedule that has come into `status` by the product's own ways."""
    if status is COMPLETED:
        schedule = stage.create(schedule={"type": "once", "run_at": "2026-11-30T08:30:00Z"})
        stage.clock.set(stage.at(8, 30))
        stage.tick()
        stage.serve()
    elif status is ScheduleStatus.NEEDS_ATTENTION:
        schedule = stage.create(stage.bob)
        people.deactivate_user(None, stage.cast.bob.user_id, now=stage.clock.now())
        people.reactivate_user(None, stage.cast.bob.user_id, now=stage.clock.now())
    else:
        schedule = stage.create()
        if status is ScheduleStatus.PAUSED:
            stage.pause(schedule, reason="holidays")
        elif status is CANCELLED:
            stage.cancel(schedule)
    saved = stage.schedule(schedule)
    assert saved.status is status
    return saved


CALLS = {
    "pause": lambda stage, schedule: stage.pause(schedule),
    "resume": lambda stage, schedule: stage.resume(schedule),
    "cancel": lambda stage, schedule: stage.cancel(schedule),
    "run_now": lambda stage, schedule: stage.run_now(schedule),
    "edit": lambda stage, schedule: stage.edit(schedule, name="New name"),
}

# state -> call -> the state after it, or the refusal
TABLE: dict[ScheduleStatus, dict[str, Any]] = {
    ScheduleStatus.ACTIVE: {
        "pause": "paused",
        "resume": "active",
        "cancel": "cancelled",
        "run_now": "active",
        "edit": "active",
    },
    ScheduleStatus.PAUSED: {
        "pause": "paused",
        "resume": "active",
        "cancel": "cancelled",
        "run_now": "paused",
        "edit": "paused",
    },
    ScheduleStatus.NEEDS_ATTENTION: {
        "pause": "paused",
        "resume": "active",
        "cancel": "cancelled",
        "run_now": "needs_attention",
        "edit": "needs_attention",
    },
    COMPLETED: dict.fromkeys(CALLS, ("schedule_completed", 409)),
    CANCELLED: {**dict.fromkeys(CALLS, ("schedule_cancelled", 409)), "cancel": "cancelled"},
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", TABLE)
def test_every_state_answers_every_call_as_the_table_says(
    stage: Stage, status: ScheduleStatus, call: str
) -> None:
    schedule = in_state(stage, status)
    expected = TABLE[status][call]
    if isinstance(expected, tuple):
        with pytest.raises(AppError) as refused:
            CALLS[call](stage, schedule)
        assert code_of(refused.value) == expected
        assert stage.schedule(schedule).status is status
        assert stage.schedule(schedule).revision == schedule.revision
    else:
        CALLS[call](stage, schedule)
        assert stage.schedule(schedule).status.value == expected


@pytest.mark.parametrize(
    ("status", "call"),
    [
        (ScheduleStatus.PAUSED, "pause"),
        (ScheduleStatus.ACTIVE, "resume"),
        (CANCELLED, "cancel"),
    ],
)
def test_going_where_it_already_is_changes_nothing(stage: Stage, status: ScheduleStatus, call: str) -> None:
    schedule = in_state(stage, status)
    CALLS[call](stage, schedule)
    assert stage.schedule(schedule).revision == schedule.revision


# --- Create ---


def test_the_same_key_and_input_answer_the_first_schedule_also_when_its_once_has_passed(
    stage: Stage,
) -> None:
    once = {"type": "once", "run_at": "2026-11-30T09:00:00Z"}
    first = stage.create(key="k-1", schedule=once)
    stage.clock.advance(days=1)
    again = stage.create(key="k-1", schedule={"type": "once", "run_at": "2026-11-30T10:00:00+01:00"})
    assert again.schedule_id == first.schedule_id
    with pytest.raises(AppError) as refused:
        stage.create(key="k-1", schedule=once, name="Other")
    assert code_of(refused.value) == ("idempotency_conflict", 409)
    stage.tick()


def test_an_interval_without_anchor_can_be_sent_twice(stage: Stage) -> None:
    spec = {"type": "interval", "every_seconds": 600}
    first = stage.create(key="k-1", schedule=spec)
    stage.clock.advance(seconds=2)
    assert stage.create(key="k-1", schedule=spec).schedule_id == first.schedule_id


def test_a_refused_create_leaves_no_key_behind(stage: Stage) -> None:
    with pytest.raises(AppError) as refused:
        stage.create(key="k-1", target_node_id="node_gone234567")
    assert code_of(refused.value) == ("target_node_not_found", 404)
    assert stage.create(key="k-1").status is ScheduleStatus.ACTIVE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (
            {"schedule": {"type": "once", "run_at": "2026-11-30T08:12:00Z"}},
            "schedule_has_no_future_occurrence",
        ),
        ({"ends_at": "2026-11-30T08:30:00Z"}, "schedule_has_no_future_occurrence"),
        ({"starts_at": "2026-12-02T00:00:00Z", "ends_at": "2026-12-01T00:00:00Z"}, "invalid_ends_at"),
        ({"timezone": "Mars/Olympus"}, "invalid_timezone"),
        ({"schedule": None}, "schedule_required"),
    ],
)
def test_a_schedule_that_can_never_fire_is_refused(stage: Stage, fields: dict[str, Any], code: str) -> None:
    with pytest.raises(AppError) as refused:
        stage.create(**fields)
    assert code_of(refused.value) == (code, 400)


def test_what_would_stop_it_from_firing_comes_back_as_a_warning(stage: Stage) -> None:
    from webapp.scheduling import operations
    from webapp.scheduling.fields import NewSchedule

    changes = NodeChanges(lifecycle_state="stopped")
    node_operations.update_node(stage.alice, stage.node.node_id, changes, now=stage.clock.now())
    saved = operations.create(
        stage.alice,
        stage.cast.network.id,
        lambda: NewSchedule(
            name="a",
            task="b",
            target_node_id=stage.node.node_id,
            schedule={"type": "daily", "time": "09:00"},
        ),
        now=stage.clock.now(),
    )
    assert saved.warnings == ("target_not_active",)


# --- Rights ---


def _who(stage: Stage) -> dict[str, Actor]:
    return {
        "alice": stage.alice,
        "bob": stage.bob,
        "vera": actor_of(stage.cast.vera),
        "charlie": actor_of(stage.cast.charlie),
    }


@pytest.mark.parametrize(
    ("person", "allowed"),
    [
        ("alice", {"pause", "resume", "cancel", "run_now", "edit"}),
        ("bob", {"pause"}),
        ("vera", set()),
    ],
)
@pytest.mark.parametrize("call", CALLS)
def test_who_may_do_what_to_somebody_elses_schedule(
    stage: Stage, person: str, allowed: set[str], call: str
) -> None:
    carol = stage.create()
    actor = _who(stage)[person]
    calls = {
        "pause": lambda: stage.pause(carol, actor),
        "resume": lambda: stage.resume(carol, actor),
        "cancel": lambda: stage.cancel(carol, actor),
        "run_now": lambda: stage.run_now(carol, actor),
        "edit": lambda: stage.edit(carol, actor, name="Mine"),
    }
    if call in allowed:
        calls[call]()
        return
    with pytest.raises(AppError) as refused:
        calls[call]()
    assert code_of(refused.value) == ("permission_denied", 403)


@pytest.mark.parametrize("call", CALLS)
def test_a_stranger_finds_nothing(stage: Stage, call: str) -> None:
    schedule = stage.create()
    stranger = Actor(10**9, "user_x", "Nobody")
    for actor in (stranger, _who(stage)["charlie"]):
        with pytest.raises(AppError) as refused:
            {
                "pause": lambda who: stage.pause(schedule, who),
                "resume": lambda who: stage.resume(schedule, who),
                "cancel": lambda who: stage.cancel(schedule, who),
                "run_now": lambda who: stage.run_now(schedule, who),
                "edit": lambda who: stage.edit(schedule, who, name="x"),
            }[call](actor)
        assert code_of(refused.value) == ("schedule_not_found", 404)


def test_a_member_lifts_only_a_pause_of_their_own(stage: Stage) -> None:
    schedule = stage.create()
    stage.pause(schedule, stage.bob)
    stage.resume(schedule, stage.bob)
    stage.pause(schedule)
    with pytest.raises(AppError) as refused:
        stage.resume(schedule, stage.bob)
    assert refused.value.code == "permission_denied"


# --- Pause and resume ---


def test_a_pause_takes_back_what_nobody_took_up_and_leaves_work_in_hand(stage: Stage) -> None:
    schedule = stage.create(overlap_policy="allow")
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    stage.tick(hours=1)
    stage.pause(schedule)
    assert stage.told(schedule) == [("09:00", "running", None), ("10:00", "cancelled", "schedule_paused")]
    assert stage.fetch() == []
    stage.reply(task)
    assert stage.told(schedule)[0][1] == "completed"
    assert stage.schedule(schedule).status is ScheduleStatus.PAUSED


def test_slots_that_fell_due_before_a_pause_are_written_first(stage: Stage) -> None:
    schedule = stage.create()
    stage.clock.advance(hours=3)
    stage.pause(schedule)
    (run,) = stage.runs(schedule)
    assert (run.status, run.error_code, run.missed_count) == (RunStatus.SKIPPED, "schedule_paused", 2)
    assert stage.schedule(schedule).due.next_run_at is None
    stage.clock.advance(hours=5)
    stage.resume(schedule)
    stage.tick()
    assert len(stage.runs(schedule)) == 1
    assert stage.schedule(schedule).due.next_run_at == stage.at(17)


def test_a_pause_that_ends_by_itself_is_in_the_name_of_who_asked(stage: Stage) -> None:
    schedule = stage.create()
    until = stage.clock.now() + timedelta(hours=2)
    stage.pause(schedule, stage.bob, reason="maintenance", resume_at=until)
    stage.tick(hours=1)
    assert stage.schedule(schedule).status is ScheduleStatus.PAUSED
    stage.tick(hours=1)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.resume_at) == (ScheduleStatus.ACTIVE, None)
    with reading() as session:
        entry = session.scalars(select(AuditEntry).where(AuditEntry.verb == "schedule.active")).one()
    assert entry.actor == "Bob"


def test_a_pause_stays_when_the_person_may_no_longer_resume(stage: Stage) -> None:
    schedule = stage.create()
    stage.pause(schedule, stage.bob, resume_at=stage.clock.now() + timedelta(hours=2))
    people.remove_member(
        stage.alice, stage.cast.network.network_id, stage.cast.bob.user_id, now=stage.clock.now()
    )
    stage.tick(hours=3)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason, saved.resume_at) == (
        ScheduleStatus.PAUSED,
        "resume_not_permitted",
        None,
    )
    assert stage.open_alerts() == [("resume_refused", schedule.schedule_id, "resume_not_permitted")]


def test_pausing_again_stores_another_reason_and_time(stage: Stage) -> None:
    schedule = stage.create()
    stage.pause(schedule, reason="one")
    stage.pause(schedule, reason="two", resume_at=stage.clock.now() + timedelta(hours=1))
    saved = stage.schedule(schedule)
    assert (saved.status_reason, saved.revision) == ("two", 3)
    assert saved.resume_at is not None


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_pause_cannot_end_in_the_past(stage: Stage, seconds: int) -> None:
    schedule = stage.create()
    with pytest.raises(AppError) as refused:
        stage.pause(schedule, resume_at=stage.clock.now() + timedelta(seconds=seconds))
    assert code_of(refused.value) == ("invalid_resume_at", 400)
    assert stage.schedule(schedule).status is ScheduleStatus.ACTIVE


def test_a_once_that_passed_while_paused_cannot_be_resumed(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"})
    stage.pause(schedule)
    stage.clock.advance(hours=2)
    with pytest.raises(AppError) as refused:
        stage.resume(schedule)
    assert code_of(refused.value) == ("schedule_has_no_future_occurrence", 409)
    assert stage.tick()["dispatched"] == 0


def test_resume_is_refused_with_the_permanent_code_of_admission(stage: Stage) -> None:
    schedule = stage.create()
    stage.pause(schedule)
    node_operations.delete_node(stage.alice, stage.node.node_id, now=stage.clock.now())
    with pytest.raises(AppError) as refused:
        stage.resume(schedule)
    assert code_of(refused.value) == ("target_node_not_found", 409)


def test_an_interval_keeps_its_grid_through_a_pause(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "interval", "every_seconds": 3600})
    anchor = stage.clock.now()
    stage.pause(schedule)
    stage.clock.advance(hours=5, minutes=17)
    stage.resume(schedule)
    assert stage.schedule(schedule).due.next_run_at == anchor + timedelta(hours=6)


# --- Cancel ---


def test_cancel_rings_whoever_is_at_work_and_takes_the_rest_back(stage: Stage) -> None:
    schedule = stage.create(overlap_policy="allow")
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    stage.tick(hours=1)
    stage.cancel(schedule)
    assert stage.told(schedule) == [
        ("09:00", "running", None),
        ("10:00", "cancelled", "schedule_cancelled"),
    ]
    with reading() as session:
        from webapp.events.models import Event

        bells = session.scalars(select(Event).where(Event.type == "cancel")).all()
    assert [bell.data["task_id"] for bell in bells] == [task.task_id]
    stage.reply(task, TaskStatus.CANCELLED)
    assert stage.told(schedule)[0] == ("09:00", "cancelled", "task_cancelled")


# --- Run now ---


def test_run_now_stands_beside_the_timetable(stage: Stage) -> None:
    schedule = stage.create()
    run = stage.run_now(schedule)
    assert (run.trigger.value, run.actor, run.scheduled_for) == ("manual", "Alice", stage.clock.now())
    assert stage.schedule(schedule).due.next_run_at == stage.at(9)
    stage.serve()
    stage.tick(hours=1)
    assert stage.told(schedule)[-1] == ("09:00", "queued", None)


def test_run_now_by_the_same_key_is_one_run(stage: Stage) -> None:
    schedule = stage.create()
    first = stage.run_now(schedule, key="again")
    stage.clock.advance(minutes=1)
    assert stage.run_now(schedule, key="again").run_id == first.run_id
    assert len(stage.runs(schedule)) == 1
    stage.serve()
    stage.cancel(schedule)
    assert stage.run_now(schedule, key="again").run_id == first.run_id


def test_a_blocked_run_now_is_refused_audited_and_makes_no_run(stage: Stage) -> None:
    schedule = stage.create()
    first = stage.run_now(schedule)
    with pytest.raises(AppError) as refused:
        stage.run_now(schedule, key="k")
    assert code_of(refused.value) == ("previous_run_active", 409)
    assert refused.value.details == {"blocking_run_id": first.run_id}
    assert len(stage.runs(schedule)) == 1
    with reading() as session:
        verbs = session.scalars(select(AuditEntry.verb)).all()
    assert verbs.count("schedule.run_now_refused") == 1
    stage.serve()
    assert stage.run_now(schedule, key="k").run_id != first.run_id


def test_run_now_is_refused_by_the_code_of_admission(stage: Stage) -> None:
    schedule = stage.create()
    changes = NodeChanges(lifecycle_state="stopping")
    node_operations.update_node(stage.alice, stage.node.node_id, changes, now=stage.clock.now())
    with pytest.raises(AppError) as refused:
        stage.run_now(schedule)
    assert code_of(refused.value) == ("target_not_active", 409)
    assert stage.runs(schedule) == []


def test_a_run_by_hand_of_a_once_completes_nothing(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "once", "run_at": "2026-11-30T12:00:00Z"})
    stage.run_now(schedule)
    stage.serve()
    assert stage.schedule(schedule).status is ScheduleStatus.ACTIVE
    assert stage.schedule(schedule).due.next_run_at == stage.at(12)


def test_failures_by_hand_do_not_count(stage: Stage) -> None:
    schedule = stage.create(failure_threshold=1)
    stage.run_now(schedule)
    stage.serve(TaskStatus.FAILED)
    assert stage.schedule(schedule).due.consecutive_failures == 0


# --- Retry ---


def test_a_retry_reopens_the_run_as_its_next_attempt(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    stage.serve(TaskStatus.FAILED)
    (task,) = stage.tasks()
    bridge.retry(stage.alice, task.task_id, now=stage.clock.now())
    (run,) = stage.runs(schedule)
    assert (run.status, run.attempt, run.error_code, run.completed_at) == (
        RunStatus.QUEUED,
        2,
        None,
        None,
    )
    (again,) = stage.fetch()
    assert again.attempt == 2
    with pytest.raises(AppError) as refused:
        bridge.reply(stage.node.id, task.task_id, TaskStatus.REPLIED, "late", 1, now=stage.clock.now())
    assert code_of(refused.value) == ("task_attempt_superseded", 409)
    stage.acknowledge(again)
    stage.reply(again)
    assert stage.told(schedule) == [("09:00", "completed", None)]


@pytest.mark.parametrize("status", [COMPLETED, CANCELLED])
def test_a_retry_is_refused_where_the_schedule_has_ended(stage: Stage, status: ScheduleStatus) -> None:
    schedule = stage.create(
        schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"}
        if status is COMPLETED
        else {"type": "cron", "cron": "0 * * * *"}
    )
    stage.tick(hours=1)
    stage.serve(TaskStatus.FAILED)
    if status is CANCELLED:
        stage.cancel(schedule)
    (task,) = stage.tasks()
    with pytest.raises(AppError) as refused:
        bridge.retry(stage.alice, task.task_id, now=stage.clock.now())
    assert code_of(refused.value) == (f"schedule_{status.value}", 409)


def test_a_retry_waits_for_nobody_it_is_refused_while_another_run_is_open(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    stage.serve(TaskStatus.FAILED)
    (task,) = stage.tasks()
    blocker = stage.run_now(schedule)
    with pytest.raises(AppError) as refused:
        bridge.retry(stage.alice, task.task_id, now=stage.clock.now())
    assert refused.value.code == "previous_run_active"
    assert refused.value.details["blocking_run_id"] == blocker.run_id


def test_a_person_cancels_a_task_and_its_run_with_it(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    bridge.cancel(stage.alice, task.task_id, now=stage.clock.now())
    assert stage.told(schedule) == [("09:00", "cancelled", "task_cancelled")]
    with pytest.raises(AppError) as refused:
        stage.reply(task)
    assert refused.value.code == "task_already_final"
