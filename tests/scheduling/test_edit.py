"""What an edit changes, keeps, recomputes and takes back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduling.stage import Stage, code_of
from webapp.errors import AppError
from webapp.identity import operations as people
from webapp.nodes.lifecycle import TaskStatus
from webapp.scheduling import queries
from webapp.scheduling.lifecycle import ScheduleStatus


def test_text_name_priority_and_policies_never_move_the_next_slot(stage: Stage) -> None:
    schedule = stage.create()
    before = stage.schedule(schedule).due.next_run_at
    saved = stage.edit(
        schedule,
        name="Other",
        task="Other text",
        priority="high",
        misfire_policy="skip",
        misfire_grace_seconds=5,
        catch_up_limit=7,
        overlap_policy="allow",
        failure_threshold=None,
        ttl_seconds=600,
        max_run_seconds=600,
    )
    assert saved.due.next_run_at == before
    assert saved.revision == 2


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"name": "  Nightly sweep  "},
        {"task": "Sweep the inbox."},
        {"schedule": {"type": "cron", "cron": "0 */1 * * *"}},
        {"schedule": {"type": "cron", "cron": "@hourly"}},
        {"timezone": "utc"},
        {"failure_threshold": 5},
        {"max_runs": None},
    ],
)
def test_an_edit_that_changes_nothing_leaves_the_revision_alone(
    stage: Stage, changes: dict[str, Any]
) -> None:
    schedule = stage.create()
    saved = stage.edit(schedule, **changes)
    assert saved.revision == 1
    assert saved.due.next_run_at == stage.at(9)


@pytest.mark.parametrize("revision", [None, 2, 99])
def test_a_stale_or_missing_revision_is_a_conflict(stage: Stage, revision: int | None) -> None:
    schedule = stage.create()
    with pytest.raises(AppError) as refused:
        stage.edit(schedule, name="x", revision=revision)
    assert code_of(refused.value) == ("revision_conflict", 409)
    assert refused.value.details == {"current_revision": 1}


def test_the_runs_of_a_schedule_never_make_an_edit_stale(stage: Stage) -> None:
    schedule = stage.create()
    for _ in range(3):
        stage.tick(hours=1)
        stage.serve()
    assert stage.edit(schedule, name="Still mine", revision=1).revision == 2


def test_a_new_timetable_accounts_for_what_was_due_and_withdraws_what_waits(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    stage.clock.advance(hours=2)
    stage.edit(schedule, schedule={"type": "cron", "cron": "30 * * * *"})
    assert stage.told(schedule) == [
        ("09:00", "cancelled", "schedule_changed"),
        ("11:00", "skipped", "schedule_changed"),
    ]
    assert stage.runs(schedule)[1].missed_count == 1
    assert stage.schedule(schedule).due.next_run_at == stage.at(11, 30)
    assert stage.fetch() == []


def test_a_new_timetable_leaves_a_run_by_hand_alone(stage: Stage) -> None:
    schedule = stage.create()
    stage.run_now(schedule)
    stage.edit(schedule, schedule={"type": "cron", "cron": "30 * * * *"})
    assert stage.runs(schedule)[0].status.value == "queued"


def test_a_text_edit_just_after_a_slot_keeps_the_slot_with_the_new_text(stage: Stage) -> None:
    schedule = stage.create()
    stage.clock.set(stage.at(9).replace(second=1))
    stage.edit(schedule, task="The new words.")
    stage.tick()
    (task,) = stage.fetch()
    assert task.text.body == "The new words."


def test_a_task_in_an_inbox_keeps_its_own_text(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    stage.edit(schedule, task="The new words.")
    (task,) = stage.fetch()
    assert task.text.body == "Sweep the inbox."
    assert queries.changed_since(stage.runs(schedule)[0])


def test_a_rename_makes_nothing_stale(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    stage.edit(schedule, name="Renamed")
    assert not queries.changed_since(stage.runs(schedule)[0])


@pytest.mark.parametrize("changes", [{"task": "New."}, {"schedule": {"type": "cron", "cron": "30 * * * *"}}])
def test_the_failure_of_a_stale_run_counts_for_no_threshold(stage: Stage, changes: dict[str, Any]) -> None:
    schedule = stage.create(failure_threshold=1)
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    stage.edit(schedule, **changes)
    stage.reply(task, TaskStatus.FAILED)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.due.consecutive_failures) == (ScheduleStatus.ACTIVE, 0)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"task": "New."}, ScheduleStatus.COMPLETED),
        ({"schedule": {"type": "once", "run_at": "2026-11-30T15:00:00Z"}}, ScheduleStatus.ACTIVE),
    ],
)
def test_only_a_new_timetable_keeps_an_old_run_from_completing_a_once(
    stage: Stage, changes: dict[str, Any], status: ScheduleStatus
) -> None:
    schedule = stage.create(schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"})
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    stage.edit(schedule, **changes)
    stage.reply(task)
    assert stage.schedule(schedule).status is status


def test_a_zone_alone_moves_wall_times_and_leaves_intervals_and_instants(stage: Stage) -> None:
    daily = stage.create(schedule={"type": "daily", "time": "09:00"})
    interval = stage.create(schedule={"type": "interval", "every_seconds": 3600})
    instant = stage.create(schedule={"type": "once", "run_at": "2026-12-01T09:00:00Z"})
    local = stage.create(schedule={"type": "once", "run_at": "2026-12-01T09:00"})
    before = {row.id: stage.schedule(row).due.next_run_at for row in (interval, instant)}
    for row in (daily, interval, instant, local):
        stage.edit(row, timezone="America/New_York")
    assert stage.schedule(daily).due.next_run_at == stage.at(14)
    assert {row.id: stage.schedule(row).due.next_run_at for row in (interval, instant)} == before
    assert stage.schedule(local).due.next_run_at == stage.at(14).replace(month=12, day=1)


def test_an_interval_keeps_its_anchor_when_an_edit_does_not_name_it(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "interval", "every_seconds": 3600})
    stage.clock.advance(minutes=10)
    stage.edit(schedule, schedule={"type": "interval", "every_seconds": 1800})
    assert stage.schedule(schedule).due.next_run_at == stage.at(8, 42)


def test_bounds_only_clear_or_restore_the_next_slot(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    stage.edit(schedule, max_runs=1)
    assert stage.schedule(schedule).due.next_run_at is None
    stage.edit(schedule, max_runs=2)
    assert stage.schedule(schedule).due.next_run_at == stage.at(10)
    stage.edit(schedule, ends_at="2026-11-30T09:59:00Z")
    assert stage.schedule(schedule).due.next_run_at is None
    stage.edit(schedule, ends_at="2026-11-30T10:00:00Z")
    assert stage.schedule(schedule).due.next_run_at == stage.at(10)
    stage.serve()


def test_a_bound_that_leaves_nothing_completes_an_idle_schedule(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    stage.serve()
    stage.edit(schedule, max_runs=1)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.COMPLETED, "max_runs_reached")


def test_another_target_takes_back_what_the_old_one_has_not_taken_up(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    other = stage.add_node("hermes")
    stage.edit(schedule, target_node_id=other.node_id)
    assert stage.told(schedule) == [("09:00", "cancelled", "schedule_changed")]
    stage.tick(hours=1)
    assert len(stage.fetch(other)) == 1


def test_a_once_that_a_change_of_target_leaves_with_nothing_needs_attention(stage: Stage) -> None:
    schedule = stage.create(schedule={"type": "once", "run_at": "2026-11-30T09:00:00Z"})
    stage.tick(hours=1)
    stage.edit(schedule, target_node_id=stage.add_node("hermes").node_id)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.status_reason) == (ScheduleStatus.NEEDS_ATTENTION, "schedule_changed")


@pytest.mark.parametrize(
    ("changes", "sponsor"),
    [
        ({"task": "My words"}, "Alice"),
        ({"overlap_policy": "allow"}, "Alice"),
        ({"name": "Other name"}, "Bob"),
        ({"schedule": {"type": "daily", "time": "10:00"}}, "Bob"),
        ({"timezone": "Europe/Berlin"}, "Bob"),
    ],
)
def test_an_admins_words_run_on_the_admins_authority(
    stage: Stage, changes: dict[str, Any], sponsor: str
) -> None:
    schedule = stage.create(stage.bob)
    stage.edit(schedule, **changes)
    assert stage.schedule(schedule).sponsor.name == sponsor


def test_an_edit_heals_what_needed_attention_when_admission_then_permits(stage: Stage) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    from webapp.nodes import operations as node_operations

    node_operations.delete_node(stage.alice, stage.node.node_id, now=stage.clock.now())
    stage.edit(schedule, name="Only a name")
    assert stage.schedule(schedule).status is ScheduleStatus.NEEDS_ATTENTION
    stage.edit(schedule, task="Only the text")
    assert stage.schedule(schedule).status is ScheduleStatus.NEEDS_ATTENTION
    stage.edit(schedule, target_node_id=stage.add_node("hermes").node_id)
    saved = stage.schedule(schedule)
    assert (saved.status, saved.due.next_run_at) == (ScheduleStatus.ACTIVE, stage.at(10))
    assert stage.open_alerts() == []


def test_an_admins_edit_takes_over_from_a_sponsor_who_left(stage: Stage) -> None:
    schedule = stage.create(stage.bob)
    people.deactivate_user(None, stage.cast.bob.user_id, now=stage.clock.now())
    assert stage.schedule(schedule).status_reason == "sponsor_inactive"
    stage.edit(schedule, task="I take this over.")
    saved = stage.schedule(schedule)
    assert (saved.status, saved.sponsor.name) == (ScheduleStatus.ACTIVE, "Alice")


def test_an_edit_never_resumes_what_a_person_paused(stage: Stage) -> None:
    schedule = stage.create()
    stage.pause(schedule)
    stage.edit(schedule, schedule={"type": "daily", "time": "10:00"}, task="New")
    saved = stage.schedule(schedule)
    assert (saved.status, saved.due.next_run_at) == (ScheduleStatus.PAUSED, None)


@pytest.mark.parametrize("status", ["paused", "active"])
def test_status_in_an_edit_is_a_pause_or_a_resume(stage: Stage, status: str) -> None:
    schedule = stage.create()
    if status == "active":
        stage.pause(schedule)
    stage.edit(schedule, status=status)
    assert stage.schedule(schedule).status.value == status


def test_a_refused_field_changes_nothing_of_the_others(stage: Stage) -> None:
    schedule = stage.create()
    with pytest.raises(AppError) as refused:
        stage.edit(schedule, name="New", target_node_id="node_gone234567")
    assert code_of(refused.value) == ("target_node_not_found", 404)
    saved = stage.schedule(schedule)
    assert (saved.name, saved.revision) == ("Nightly sweep", 1)
