"""From slot to run: what is due becomes exactly one piece of work, or one recorded reason why not."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from tests.factories import actor_of
from tests.scheduling.stage import Stage
from webapp.identity import operations as people
from webapp.nodes import operations as node_operations
from webapp.nodes.bodies import NodeChanges
from webapp.nodes.lifecycle import NodeLifecycle, TaskStatus
from webapp.scheduling import claim, operations, settle
from webapp.scheduling.fields import NewSchedule
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.store.transaction import Tx, operation


def test_nothing_happens_before_the_slot_and_one_task_at_it(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(minutes=47, seconds=59.999)
    assert stage.told(schedule) == []
    stage.tick(seconds=0.001)
    assert stage.told(schedule) == [("09:00", "queued", None)]
    assert len(stage.tasks()) == 1
    stage.tick()
    assert len(stage.tasks()) == 1


def test_the_history_follows_the_node_to_the_end(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    (task,) = stage.fetch()
    assert stage.told(schedule)[0][1] == "delivered"
    stage.acknowledge(task)
    assert stage.told(schedule)[0][1] == "running"
    stage.clock.advance(minutes=3)
    stage.reply(task, result="412 moved")
    (run,) = stage.runs(schedule)
    assert (run.status, run.result, run.completed_at) == (
        RunStatus.COMPLETED,
        "412 moved",
        stage.clock.now(),
    )
    assert stage.schedule(schedule).due.last_run_at == stage.at(9)
    assert stage.schedule(schedule).revision == 1


def test_an_outage_of_a_day_becomes_one_run_that_stands_for_the_rest(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "cron", "cron": "* * * * *"})
    counts = stage.tick(hours=24)
    assert (counts["dispatched"], counts["slots"]) == (1, 1440)
    (run,) = stage.runs(schedule)
    assert run.missed_count == 1439
    assert run.missed_since == stage.at(8, 13)


def test_skip_records_an_outage_and_runs_the_slot_that_is_on_time(stage: Stage) -> None:
    schedule = stage.create(misfire_policy="skip")
    stage.tick(hours=3)
    assert stage.told(schedule) == [("11:00", "skipped", "misfire_skipped")]
    assert stage.schedule(schedule).due.last_run_at is None
    stage.clock.set(stage.at(14))
    stage.tick()
    assert stage.told(schedule)[1:] == [
        ("13:00", "skipped", "misfire_skipped"),
        ("14:00", "queued", None),
    ]


def test_catch_up_all_works_a_backlog_off_one_by_one(stage: Stage) -> None:
    schedule = stage.create(misfire_policy="catch_up_all", catch_up_limit=2)
    stage.tick(hours=4)
    assert stage.told(schedule) == [
        ("10:00", "skipped", "misfire_skipped"),
        ("11:00", "queued", None),
        ("12:00", "queued", None),
    ]
    assert len(stage.tasks()) == 1
    stage.clock.set(stage.at(13))
    stage.tick()
    assert stage.told(schedule)[-1] == ("13:00", "queued", None)
    assert [stage.serve() for _ in range(4)] == [1, 1, 1, 0]
    assert [row[1] for row in stage.told(schedule)] == ["skipped", "completed", "completed", "completed"]
    stage.clock.set(stage.at(14))
    stage.tick()
    assert stage.told(schedule)[-1] == ("14:00", "queued", None)
    assert stage.serve() == 1


def test_overlap_skip_names_the_blocker_and_raises_one_card_after_three(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    for _ in range(4):
        stage.clock.advance(minutes=55)
        stage.heard()
        stage.tick(minutes=5)
    told = stage.told(schedule)
    assert told[0][1] == "running"
    assert {row[1:] for row in told[1:]} == {("skipped", "previous_run_active")}
    blocked = stage.runs(schedule)[-1]
    assert (blocked.blocked_by, blocked.blocker_received) == (stage.runs(schedule)[0].run_id, True)
    assert stage.open_alerts() == [("blocked", schedule.schedule_id, "previous_run_active")]
    stage.reply(task)
    stage.tick(hours=1)
    assert stage.open_alerts() == []


def test_queue_one_keeps_the_newest_and_dispatches_it_when_the_blocker_ends(stage: Stage) -> None:
    schedule = stage.create(overlap_policy="queue_one")
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    for _ in range(2):
        stage.clock.advance(minutes=55)
        stage.heard()
        stage.tick(minutes=5)
    assert [row[1:] for row in stage.told(schedule)] == [
        ("running", None),
        ("skipped", "superseded"),
        ("queued", None),
    ]
    assert len(stage.tasks()) == 1
    stage.reply(task)
    assert len(stage.tasks()) == 2
    assert stage.runs(schedule)[-1].wait_reason == "not_fetched"
    assert stage.serve() == 1


def test_allow_gives_the_node_two_at_once(stage: Stage) -> None:
    schedule = stage.create(overlap_policy="allow")
    stage.tick(hours=1)
    stage.tick(hours=1)
    assert [row[1] for row in stage.told(schedule)] == ["queued", "queued"]
    assert len(stage.tasks()) == 2


def test_work_that_nobody_fetched_does_not_block_for_ever(stage: Stage) -> None:
    schedule = stage.create()
    for _ in range(7):
        stage.tick(hours=1)
    told = stage.told(schedule)
    assert told[0] == ("09:00", "queued", None)
    assert {row[1] for row in told[1:7]} == {"skipped"}
    stage.tick(hours=1)
    told = stage.told(schedule)
    assert told[0] == ("09:00", "expired", "blocker_timed_out")
    assert told[-1] == ("16:00", "queued", None)
    assert [task.status for task in stage.tasks()] == [TaskStatus.EXPIRED, TaskStatus.CREATED]
    assert stage.schedule(schedule).due.consecutive_failures == 0


def test_a_once_waits_for_a_run_by_hand_and_then_completes_the_schedule(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"})
    stage.run_now(schedule)
    stage.tick(hours=1)
    assert [row[1] for row in stage.told(schedule)] == ["queued", "queued"]
    assert len(stage.tasks()) == 1
    stage.serve()
    assert stage.schedule(schedule).status is ScheduleStatus.ACTIVE
    stage.serve()
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.COMPLETED, None)


def test_a_silent_blocker_of_a_once_is_found_without_another_slot(stage: Stage) -> None:
    schedule = stage.create(
        schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"}, ttl_seconds=7 * 86400
    )
    by_hand = stage.run_now(schedule)
    stage.tick(hours=1)
    stage.tick(hours=22, minutes=40)
    assert len(stage.tasks()) == 1
    stage.tick(hours=1)
    first, second = stage.runs(schedule)
    assert (first.run_id, first.status, first.error_code) == (
        by_hand.run_id,
        RunStatus.EXPIRED,
        "blocker_timed_out",
    )
    assert second.task_id is not None
    stage.serve()


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (TaskStatus.REPLIED, None),
        (TaskStatus.FAILED, "task_failed"),
        (TaskStatus.CANCELLED, "task_cancelled"),
    ],
)
def test_a_once_completes_at_its_end_with_the_reason(
    stage: Stage, end: TaskStatus, reason: str | None
) -> None:
    schedule = stage.create(schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"})
    stage.tick(hours=1)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.due.next_run_at) == (ScheduleStatus.ACTIVE, None)
    stage.serve(end)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.COMPLETED, reason)


def test_a_once_missed_under_skip_is_completed_with_that_reason(stage: Stage) -> None:
    schedule = stage.create(
        schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"}, misfire_policy="skip"
    )
    stage.tick(hours=2)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.COMPLETED, "misfire_skipped")


def test_max_runs_completes_when_the_last_run_has_ended(stage: Stage) -> None:
    schedule = stage.create(max_runs=2)
    stage.tick(hours=1)
    stage.serve()
    stage.tick(hours=1)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.due.next_run_at) == (ScheduleStatus.ACTIVE, None)
    stage.serve()
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.COMPLETED, "max_runs_reached")


def test_ends_at_is_inclusive_and_completes(stage: Stage) -> None:
    schedule = stage.create(ends_at="2026-11-30T10:00:00Z")
    stage.tick(hours=1)
    stage.serve()
    stage.tick(hours=1)
    assert stage.told(schedule)[-1] == ("10:00", "queued", None)
    stage.serve()
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.COMPLETED, "ends_at_reached")


def test_a_stopped_node_fails_the_run_counts_for_nothing_and_heals(stage: Stage) -> None:
    schedule = stage.create(failure_threshold=1)
    _set_lifecycle(stage, NodeLifecycle.STOPPED)
    for _ in range(3):
        stage.tick(hours=1)
    assert {row[1:] for row in stage.told(schedule)} == {("failed", "target_not_active")}
    saved = stage.schedule(schedule)
    assert (saved.status, saved.due.consecutive_failures) == (ScheduleStatus.ACTIVE, 0)
    assert saved.due.last_run_at is None
    _set_lifecycle(stage, NodeLifecycle.ACTIVE)
    stage.tick(hours=1)
    assert stage.serve() == 1


def _set_lifecycle(stage: Stage, state: NodeLifecycle) -> None:
    changes = NodeChanges(lifecycle_state=state.value)
    node_operations.update_node(stage.alice, stage.node.node_id, changes, now=stage.clock.now())


def test_failures_in_a_row_stop_it_but_not_within_an_hour(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "cron", "cron": "*/10 * * * *"}, failure_threshold=3)
    for _ in range(6):
        stage.tick(minutes=10)
        stage.serve(TaskStatus.FAILED)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.due.consecutive_failures) == (ScheduleStatus.ACTIVE, 6)
    stage.tick(minutes=10)
    stage.serve(TaskStatus.FAILED)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (
        ScheduleStatus.NEEDS_ATTENTION,
        "failure_threshold_reached",
    )
    assert stage.open_alerts() == [("needs_attention", schedule.schedule_id, "failure_threshold_reached")]
    stage.resume(schedule)
    assert stage.schedule(schedule).due.consecutive_failures == 0
    assert stage.open_alerts() == []


def test_a_success_forgets_the_failures_before_it(stage: Stage) -> None:
    schedule = stage.create(failure_threshold=2)
    for end in (TaskStatus.FAILED, TaskStatus.REPLIED, TaskStatus.FAILED):
        stage.tick(hours=1)
        stage.serve(end)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.due.consecutive_failures) == (ScheduleStatus.ACTIVE, 1)


def test_a_sponsor_who_leaves_stops_their_schedules_at_once(stage: Stage) -> None:
    schedule = stage.create(stage.bob)
    stage.tick(hours=1)
    people.remove_member(
        stage.alice, stage.cast.network.network_id, stage.cast.bob.user_id, now=stage.clock.now()
    )
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (
        ScheduleStatus.NEEDS_ATTENTION,
        "sponsor_not_permitted",
    )
    assert stage.told(schedule) == [("09:00", "cancelled", "schedule_stopped")]
    assert stage.fetch() == []


def test_a_deleted_node_stops_its_schedules_at_once(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    node_operations.delete_node(stage.alice, stage.node.node_id, now=stage.clock.now())
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (
        ScheduleStatus.NEEDS_ATTENTION,
        "target_node_not_found",
    )
    assert stage.told(schedule) == [("09:00", "cancelled", "schedule_stopped")]


@pytest.mark.parametrize("state", ["paused", "active"])
def test_work_in_hand_at_a_deleted_node_ends_with_it(stage: Stage, state: str) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    if state == "paused":
        stage.pause(schedule)
        stage.run_now(stage.create(name="Other"))
    node_operations.delete_node(stage.alice, stage.node.node_id, now=stage.clock.now())
    assert stage.told(schedule) == [("09:00", "expired", "target_node_not_found")]
    assert {task.status for task in stage.tasks()} <= {TaskStatus.EXPIRED, TaskStatus.CANCELLED}


def test_a_row_that_cannot_be_handled_costs_only_itself_and_stops_after_ten_times(stage: Stage) -> None:
    poison, healthy = stage.create(), stage.create(name="Healthy")
    _spoil(poison.id)
    stage.tick(hours=1)
    assert stage.told(healthy) == [("09:00", "queued", None)]
    saved = stage.schedule(poison)
    assert saved.due.claim_not_before is not None
    assert saved.due.next_run_at == stage.at(9)
    for _ in range(9):
        stage.tick(minutes=11)
    saved = stage.schedule(poison)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.NEEDS_ATTENTION, "internal_error")
    assert ("needs_attention", poison.schedule_id, "internal_error") in stage.open_alerts()
    _mend(poison.id)


@operation
def _spoil(tx: Tx, schedule_pk: int) -> None:
    tx.session.execute(update(Schedule).where(Schedule.id == schedule_pk).values(timetable={"v": 99}))


@operation
def _mend(tx: Tx, schedule_pk: int) -> None:
    timetable = {"v": 1, "type": "cron", "cron": "0 * * * *"}
    tx.session.execute(update(Schedule).where(Schedule.id == schedule_pk).values(timetable=timetable))


def test_a_clock_that_was_set_back_fires_nothing_twice(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    stage.serve()
    stage.clock.set(stage.at(8, 30))
    stage.tick()
    stage.edit(schedule, schedule={"type": "cron", "cron": "0,30 * * * *"})
    stage.clock.set(stage.at(9, 0))
    stage.tick()
    assert [row[0] for row in stage.told(schedule)] == ["09:00"]
    stage.clock.set(stage.at(9, 30))
    stage.tick()
    assert [row[0] for row in stage.told(schedule)] == ["09:00", "09:30"]


def test_overdue_work_expires_by_its_own_code(stage: Stage) -> None:
    unfetched = stage.create(ttl_seconds=60)
    stage.tick(hours=1)
    stage.tick(seconds=61)
    assert stage.told(unfetched) == [("09:00", "expired", "task_expired")]
    assert stage.schedule(unfetched).due.consecutive_failures == 0
    stage.cancel(unfetched)
    started = stage.create(max_run_seconds=60)
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    stage.tick(seconds=61)
    assert stage.told(started) == [("10:00", "expired", "task_timed_out")]
    assert stage.schedule(started).due.consecutive_failures == 1


def test_the_alias_is_refreshed_at_dispatch(stage: Stage) -> None:
    schedule = stage.create()
    changes = NodeChanges(alias="titan")
    node_operations.update_node(stage.alice, stage.node.node_id, changes, now=stage.clock.now())
    stage.tick(hours=1)
    assert stage.schedule(schedule).target_alias == "titan"


def test_networks_are_served_in_turn(stage: Stage) -> None:
    for place in range(8):
        stage.create(name=f"Busy {place}")
    charlie = actor_of(stage.cast.charlie)
    node, _ = node_operations.create_node(charlie, stage.cast.elsewhere.id, "hermes", now=stage.clock.now())
    operations.create(
        charlie,
        stage.cast.elsewhere.id,
        lambda: NewSchedule(
            name="The one",
            task="Work.",
            target_node_id=node.node_id,
            schedule={"type": "cron", "cron": "0 * * * *"},
        ),
        now=stage.clock.now(),
    )
    stage.clock.advance(hours=1)
    claimed = claim.claim_batch(limit=4, after_network_pk=0, now=stage.clock.now())
    # Half of the batch for each; what the small one leaves goes to the next batch.
    assert claimed.schedules == 3
    assert len(stage.fetch(node)) == 1
    stage.tick()
    assert len(stage.tasks()) == 9


def test_the_log_names_the_runs_that_were_written_and_how_they_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, object]] = []
    for module in (claim, settle):
        monkeypatch.setattr(
            module._log, "info", lambda event, **words: said.append({"event": event, **words})
        )
    schedule = stage.create()
    stage.tick(hours=1)
    stage.serve(TaskStatus.FAILED)
    (run,) = stage.runs(schedule)
    assert said == [
        {"event": "runs written", "count": 1, "dispatched": 1, "run_ids": [run.run_id]},
        {
            "event": "run ended",
            "run_id": run.run_id,
            "schedule_id": schedule.schedule_id,
            "status": "failed",
            "code": "task_failed",
        },
    ]
