"""Misfire, overlap, admission and failure as tables: facts in, decision out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from webapp.scheduling import policy
from webapp.scheduling.lifecycle import (
    FINAL,
    OPEN,
    RUN_MOVES,
    SCHEDULE_MOVES,
    MisfirePolicy,
    OverlapPolicy,
    RunStatus,
    ScheduleStatus,
    TargetKind,
    Trigger,
)
from webapp.scheduling.policy import Admission, Fate, Misfire, OpenRun, Slots
from webapp.timetable import Plan, parse_timetable

NINE = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def hourly(**bounds: datetime) -> Plan:
    timetable = parse_timetable({"type": "cron", "cron": "0 * * * *"}, "UTC", now=NINE)
    return Plan(timetable, bounds.get("starts_at"), bounds.get("ends_at"))


def decide(
    missed_hours: int,
    late: timedelta,
    wanted: MisfirePolicy,
    *,
    limit: int = 100,
    draining: bool = False,
    grace: timedelta = MINUTE,
) -> Misfire:
    """The decision at nine plus `late`, when the first slot due was `missed_hours` before nine."""
    now = NINE + late
    plan = hourly()
    due = policy.due_slots(plan, NINE - missed_hours * HOUR, now)
    return policy.misfire(
        plan, due, now=now, policy=wanted, grace=grace, catch_up_limit=limit, draining=draining
    )


@pytest.mark.parametrize("late", [timedelta(0), MINUTE, 59 * MINUTE])
def test_catch_up_once_runs_the_newest_slot_however_late_it_is(late: timedelta) -> None:
    assert decide(0, late, MisfirePolicy.CATCH_UP_ONCE) == Misfire(run=Slots(NINE))


def test_catch_up_once_stands_for_every_older_slot() -> None:
    assert decide(3, MINUTE, MisfirePolicy.CATCH_UP_ONCE) == Misfire(run=Slots(NINE, 3, NINE - 3 * HOUR))


def test_skip_runs_a_newest_slot_that_is_on_time_and_records_the_older_ones_as_one() -> None:
    assert decide(3, MINUTE, MisfirePolicy.SKIP) == Misfire(
        run=Slots(NINE), skipped=Slots(NINE - HOUR, 2, NINE - 3 * HOUR)
    )
    assert decide(1, MINUTE, MisfirePolicy.SKIP) == Misfire(run=Slots(NINE), skipped=Slots(NINE - HOUR))
    assert decide(0, MINUTE, MisfirePolicy.SKIP) == Misfire(run=Slots(NINE))


def test_skip_records_everything_as_one_when_the_newest_is_a_millisecond_too_late() -> None:
    late = MINUTE + timedelta(milliseconds=1)
    assert decide(2, late, MisfirePolicy.SKIP) == Misfire(skipped=Slots(NINE, 2, NINE - 2 * HOUR))
    assert decide(0, late, MisfirePolicy.SKIP) == Misfire(skipped=Slots(NINE))


def test_catch_up_all_runs_a_single_slot_that_is_on_time_at_once() -> None:
    assert decide(0, MINUTE, MisfirePolicy.CATCH_UP_ALL) == Misfire(run=Slots(NINE))


def test_catch_up_all_makes_a_backlog_of_what_was_missed_oldest_first() -> None:
    late = 2 * MINUTE
    assert decide(2, late, MisfirePolicy.CATCH_UP_ALL).backlog == (NINE - 2 * HOUR, NINE - HOUR, NINE)
    assert decide(0, late, MisfirePolicy.CATCH_UP_ALL) == Misfire(backlog=(NINE,))


def test_catch_up_all_limits_what_was_missed_and_one_skipped_run_stands_for_the_rest() -> None:
    decision = decide(5, 2 * MINUTE, MisfirePolicy.CATCH_UP_ALL, limit=2)
    assert decision.backlog == (NINE - HOUR, NINE)
    assert decision.skipped == Slots(NINE - 2 * HOUR, 3, NINE - 5 * HOUR)


def test_the_newest_slot_on_time_comes_on_top_of_the_limit() -> None:
    decision = decide(5, MINUTE, MisfirePolicy.CATCH_UP_ALL, limit=2)
    assert decision.backlog == (NINE - 2 * HOUR, NINE - HOUR, NINE)
    assert decision.skipped == Slots(NINE - 3 * HOUR, 2, NINE - 5 * HOUR)


def test_a_slot_that_falls_due_while_a_backlog_drains_joins_its_end() -> None:
    assert decide(0, MINUTE, MisfirePolicy.CATCH_UP_ALL, draining=True) == Misfire(backlog=(NINE,))


@pytest.mark.parametrize("wanted", list(MisfirePolicy))
@pytest.mark.parametrize("missed", [0, 1, 2, 5, 99, 100, 101, 500])
@pytest.mark.parametrize("late", [timedelta(0), 2 * MINUTE])
@pytest.mark.parametrize("draining", [False, True])
def test_every_due_slot_is_accounted_for_exactly_once(
    wanted: MisfirePolicy, missed: int, late: timedelta, draining: bool
) -> None:
    decision = decide(missed, late, wanted, draining=draining)
    standing = [slots for slots in (decision.run, decision.skipped) if slots is not None]
    counted = len(decision.backlog) + sum(1 + slots.missed_count for slots in standing)
    assert counted == missed + 1
    assert decision.newest == NINE
    covered = set(decision.backlog)
    for slots in standing:
        since = slots.missed_since or slots.slot
        own = {since + place * HOUR for place in range(slots.missed_count + 1)}
        assert max(own) == slots.slot
        assert not own & covered
        covered |= own
    assert covered == {NINE - place * HOUR for place in range(missed + 1)}


# --- Overlap ---


def open_run(
    *,
    dispatched: bool = True,
    trigger: Trigger = Trigger.SCHEDULED,
    backlog: bool = False,
    age: timedelta = MINUTE,
    acknowledged: bool = False,
    heard: timedelta | None = None,
    pk: int = 1,
) -> OpenRun:
    return OpenRun(
        pk=pk,
        run_id=f"srun_{pk}",
        trigger=trigger,
        status=RunStatus.RUNNING if acknowledged else RunStatus.QUEUED,
        dispatched=dispatched,
        backlog=backlog,
        created_at=NINE - age,
        scheduled_for=NINE - age,
        received=acknowledged,
        acknowledged=acknowledged,
        heard_at=None if heard is None else NINE - heard,
    )


def fate(
    runs: list[OpenRun],
    wanted: OverlapPolicy,
    *,
    trigger: Trigger = Trigger.SCHEDULED,
    once: bool = False,
    backlog: bool = False,
    period: timedelta | None = MINUTE,
) -> policy.Overlap:
    return policy.overlap(
        runs, policy=wanted, trigger=trigger, once=once, now=NINE, period=period, backlog=backlog
    )


@pytest.mark.parametrize("wanted", list(OverlapPolicy))
def test_nothing_open_means_dispatch(wanted: OverlapPolicy) -> None:
    assert fate([], wanted) == policy.Overlap(Fate.DISPATCH)


def test_skip_names_the_run_that_is_in_the_way() -> None:
    blocker = open_run()
    assert fate([blocker], OverlapPolicy.SKIP) == policy.Overlap(Fate.SKIP, blocker)


def test_a_run_by_hand_blocks_a_slot_too() -> None:
    assert fate([open_run(trigger=Trigger.MANUAL)], OverlapPolicy.SKIP).fate is Fate.SKIP


def test_a_once_is_never_skipped_but_a_run_of_it_by_hand_is() -> None:
    assert fate([open_run()], OverlapPolicy.SKIP, once=True).fate is Fate.WAIT
    by_hand = fate([open_run()], OverlapPolicy.SKIP, once=True, trigger=Trigger.MANUAL)
    assert by_hand.fate is Fate.SKIP


def test_allow_never_asks() -> None:
    assert fate([open_run(), open_run(pk=2)], OverlapPolicy.ALLOW) == policy.Overlap(Fate.DISPATCH)


def test_queue_one_keeps_the_newest_waiting() -> None:
    blocker, waiter = open_run(), open_run(pk=2, dispatched=False)
    decision = fate([blocker, waiter], OverlapPolicy.QUEUE_ONE)
    assert decision == policy.Overlap(Fate.WAIT, blocker, supersede=(waiter,))


@pytest.mark.parametrize("trigger", list(Trigger))
def test_waiters_by_hand_and_by_timetable_never_supersede_each_other(trigger: Trigger) -> None:
    other = Trigger.MANUAL if trigger is Trigger.SCHEDULED else Trigger.SCHEDULED
    waiter = open_run(pk=2, dispatched=False, trigger=other)
    decision = fate([open_run(), waiter], OverlapPolicy.QUEUE_ONE, trigger=trigger)
    assert decision.fate is Fate.WAIT
    assert decision.supersede == ()


def test_a_waiter_of_a_backlog_is_never_superseded() -> None:
    waiter = open_run(pk=2, dispatched=False, backlog=True)
    assert fate([open_run(), waiter], OverlapPolicy.QUEUE_ONE).supersede == ()


def test_a_backlog_looks_only_at_runs_outside_it() -> None:
    own = open_run(backlog=True)
    assert fate([own], OverlapPolicy.SKIP, backlog=True).fate is Fate.DISPATCH
    assert fate([own, open_run(pk=2)], OverlapPolicy.SKIP, backlog=True).fate is Fate.SKIP
    assert fate([own], OverlapPolicy.SKIP).fate is Fate.SKIP


@pytest.mark.parametrize(
    ("period", "limit"),
    [
        (MINUTE, HOUR),
        (10 * MINUTE, HOUR),
        (20 * MINUTE, 2 * HOUR),
        (4 * HOUR, 24 * HOUR),
        (24 * HOUR, 24 * HOUR),
        (None, 24 * HOUR),
    ],
)
def test_work_that_nobody_took_up_blocks_six_periods_within_an_hour_and_a_day(
    period: timedelta | None, limit: timedelta
) -> None:
    at_limit = open_run(age=limit)
    beyond = open_run(age=limit + timedelta(milliseconds=1))
    assert fate([at_limit], OverlapPolicy.SKIP, period=period).fate is Fate.SKIP
    assert fate([beyond], OverlapPolicy.SKIP, period=period) == policy.Overlap(
        Fate.DISPATCH, expire=(beyond,)
    )


def test_healthy_work_blocks_for_as_long_as_it_runs() -> None:
    at_work = open_run(age=72 * HOUR, acknowledged=True, heard=10 * MINUTE)
    assert fate([at_work], OverlapPolicy.SKIP).fate is Fate.SKIP


def test_the_age_of_silent_work_counts_from_the_last_call_of_its_node() -> None:
    silent = open_run(age=72 * HOUR, acknowledged=True, heard=HOUR)
    assert fate([silent], OverlapPolicy.SKIP).fate is Fate.SKIP
    gone = open_run(age=72 * HOUR, acknowledged=True, heard=HOUR + timedelta(milliseconds=1))
    assert fate([gone], OverlapPolicy.SKIP).expire == (gone,)


def test_a_slot_waits_while_one_of_two_blockers_is_healthy() -> None:
    silent = open_run(age=2 * HOUR)
    healthy = open_run(pk=2, age=2 * HOUR, acknowledged=True, heard=MINUTE)
    decision = fate([silent, healthy], OverlapPolicy.SKIP)
    assert (decision.fate, decision.blocker, decision.expire) == (Fate.SKIP, healthy, (silent,))


# --- Admission and failure ---


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (Admission(None, sponsor_active=True, sponsor_permitted=True), None),
        (Admission(None, sponsor_active=False, sponsor_permitted=False), "sponsor_inactive"),
        (Admission(None, sponsor_active=True, sponsor_permitted=False), "sponsor_not_permitted"),
        (
            Admission("target_not_active", sponsor_active=True, sponsor_permitted=True),
            "target_not_active",
        ),
        (
            Admission("target_node_not_found", sponsor_active=True, sponsor_permitted=True),
            "target_node_not_found",
        ),
        (
            Admission("target_node_not_found", sponsor_active=False, sponsor_permitted=True),
            "sponsor_inactive",
        ),
    ],
)
def test_admission_reports_the_first_refusal(facts: Admission, code: str | None) -> None:
    assert policy.refusal(facts) == code


def test_what_heals_by_itself_stops_nothing() -> None:
    heals = {"target_not_active", "model_unavailable", "mandate_paused"}
    asked = {
        "mandate_missing",
        "mandate_unconfirmed",
        "mandate_exhausted",
        "mandate_expired",
        "mandate_revoked",
        "mandate_changed",
        "mandate_denies",
        "sponsor_inactive",
        "sponsor_not_permitted",
        "chat_archived",
        "chat_not_owned",
        "target_node_not_found",
        "chat_not_found",
    }
    assert asked == policy.PERMANENT
    assert not heals & policy.PERMANENT


@pytest.mark.parametrize(
    ("status", "code", "counts"),
    [
        (RunStatus.FAILED, "task_failed", True),
        (RunStatus.FAILED, "target_node_not_found", True),
        (RunStatus.EXPIRED, "task_timed_out", True),
        (RunStatus.FAILED, "target_not_active", False),
        (RunStatus.EXPIRED, "task_expired", False),
        (RunStatus.EXPIRED, "blocker_timed_out", False),
        (RunStatus.SKIPPED, "previous_run_active", False),
        (RunStatus.CANCELLED, "task_cancelled", False),
        (RunStatus.COMPLETED, None, False),
    ],
)
def test_which_ends_count_as_failures(status: RunStatus, code: str | None, counts: bool) -> None:
    assert policy.counts_as_failure(status, code, trigger=Trigger.SCHEDULED, stale=False) is counts
    assert not policy.counts_as_failure(status, code, trigger=Trigger.MANUAL, stale=False)
    assert not policy.counts_as_failure(status, code, trigger=Trigger.SCHEDULED, stale=True)


@pytest.mark.parametrize(
    ("failures", "threshold", "since", "stops"),
    [
        (5, 5, HOUR, True),
        (9, 5, HOUR - timedelta(milliseconds=1), False),
        (4, 5, 9 * HOUR, False),
        (99, None, 9 * HOUR, False),
        (1, 1, HOUR, True),
    ],
)
def test_a_schedule_stops_by_number_and_by_time(
    failures: int, threshold: int | None, since: timedelta, stops: bool
) -> None:
    since_first = {"first_failure_at": NINE - since, "now": NINE}
    assert policy.threshold_reached(failures, threshold, kind=TargetKind.NODE, **since_first) is stops


def test_a_schedule_of_a_chat_stops_at_the_number_however_quickly_it_came() -> None:
    for failures, stops in ((1, False), (2, True), (3, True)):
        reached = policy.threshold_reached(failures, 2, kind=TargetKind.CHAT, first_failure_at=NINE, now=NINE)
        assert reached is stops


# --- Lifecycle ---


def test_final_runs_move_only_by_a_retry() -> None:
    assert set(RunStatus) == OPEN | FINAL
    for status in FINAL:
        assert RUN_MOVES[status] <= {RunStatus.QUEUED}
    assert set(RUN_MOVES) == set(RunStatus)


def test_cancelled_is_the_end_of_a_schedule() -> None:
    assert set(SCHEDULE_MOVES) == set(ScheduleStatus)
    assert not SCHEDULE_MOVES[ScheduleStatus.CANCELLED]
    assert all(status not in moves for status, moves in SCHEDULE_MOVES.items())
