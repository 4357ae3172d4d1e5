"""Every slot that was due while its schedule was active has its run, or one that stands for it.

What was in force, and when, is read from the audit; the slots are derived from it again and compared with the
runs, one after the other. What cannot be derived any more is left out: history that was pruned, and wall
times under zone data that this process does not have.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from webapp.audit import AuditEntry
from webapp.doctor import next_changes
from webapp.doctor.next_changes import Record
from webapp.doctor.violation import MOST_LISTED, Violation, violation
from webapp.scheduling.lifecycle import ScheduleStatus, Trigger
from webapp.scheduling.models import DailyCount, Run, Schedule, ScheduleDue, ZoneData
from webapp.scheduling.plans import instant_of_audit, plan_of_audited
from webapp.scheduling.steps import DEFINING_VERBS
from webapp.timetable import ZONE_DATA_VERSION, Interval, Once, Plan

_JUST = timedelta(milliseconds=1)
_SCHEDULES_A_PAGE = 500
_RUNS_A_PAGE = 20_000


@dataclass(frozen=True)
class Covered:
    """What one run stands for: the slots from `first` to `slot`, `count` of them."""

    first: datetime
    slot: datetime
    count: int
    record: Record


@dataclass(frozen=True)
class Force:
    """A definition while it was in force: its slots from `first` to `last`, both included.

    `may_end_early`: `max_runs` was reached at some time, so that the newest slots may not have been in force.
    """

    plan: Plan
    first: datetime
    last: datetime
    may_end_early: bool


def unaccounted(session: Session, now: datetime) -> list[Violation]:
    """Slots without a run, slots that two runs stand for, and runs for slots that never were."""
    zones = session.execute(select(ZoneData.version, ZoneData.changed_at)).one_or_none()
    found: list[Violation] = []
    after = 0
    while len(found) < MOST_LISTED:
        schedules = _schedules(session, after)
        if not schedules:
            break
        after = schedules[-1].id
        entries = _definitions(session, schedules)
        covered = _covered(session, after=schedules[0].id, until=after)
        for schedule in schedules:
            found.extend(_judge(schedule, entries[schedule.schedule_id], covered[schedule.id], zones, now))
    return found[:MOST_LISTED]


# --- Reading ---


def _schedules(session: Session, after: int) -> Sequence[Any]:
    pruned = select(DailyCount.schedule_pk).where(DailyCount.schedule_pk == Schedule.id).exists()
    statement = (
        select(
            Schedule.id,
            Schedule.schedule_id,
            Schedule.network_pk,
            ScheduleDue.next_run_at,
            ScheduleDue.claimed_through,
            ScheduleDue.dispatched_count,
            pruned.label("pruned"),
        )
        .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(Schedule.id > after)
        .order_by(Schedule.id)
        .limit(_SCHEDULES_A_PAGE)
    )
    return session.execute(statement).all()


def _definitions(session: Session, schedules: Sequence[Any]) -> dict[str, list[Any]]:
    """The audit entries that carry a definition, by the schedule's public id, oldest first."""
    statement = (
        select(AuditEntry.subject_id, AuditEntry.at, AuditEntry.detail)
        .where(
            AuditEntry.network_pk.in_({schedule.network_pk for schedule in schedules}),
            AuditEntry.subject_id.in_([schedule.schedule_id for schedule in schedules]),
            AuditEntry.verb.in_(DEFINING_VERBS),
        )
        .order_by(AuditEntry.network_pk, AuditEntry.seq)
    )
    found: dict[str, list[Any]] = defaultdict(list)
    for entry in session.execute(statement):
        if "timetable" in entry.detail:
            found[entry.subject_id].append(entry)
    return found


def _covered(session: Session, *, after: int, until: int) -> dict[int, list[Covered]]:
    """What the scheduled runs of these schedules stand for, by the schedule's key, oldest slot first."""
    found: dict[int, list[Covered]] = defaultdict(list)
    for schedule_pk, runs in groupby(_runs(session, after, until), key=lambda row: row.schedule_pk):
        found[schedule_pk] = [
            Covered(
                run.missed_since or run.scheduled_for,
                run.scheduled_for,
                run.missed_count + 1,
                Record(run.scheduled_for, run.created_at, run.error_code, run.missed_count),
            )
            for run in runs
        ]
    return found


def _runs(session: Session, after: int, until: int) -> Iterator[Any]:
    place = tuple_(Run.schedule_pk, Run.scheduled_for, Run.id)
    statement = (
        select(
            Run.schedule_pk,
            Run.scheduled_for,
            Run.id,
            Run.missed_count,
            Run.missed_since,
            Run.created_at,
            Run.error_code,
        )
        .where(Run.schedule_pk.between(after, until), Run.trigger == Trigger.SCHEDULED)
        .order_by(Run.schedule_pk, Run.scheduled_for, Run.id)
        .limit(_RUNS_A_PAGE)
    )
    page = session.execute(statement).all()
    while page:
        yield from page
        last = page[-1]
        following = statement.where(place > (last.schedule_pk, last.scheduled_for, last.id))
        page = session.execute(following).all() if len(page) == _RUNS_A_PAGE else ()


# --- Judging ---


def _judge(
    schedule: Any, entries: Sequence[Any], covered: Sequence[Covered], zones: Any, now: datetime
) -> list[Violation]:
    if covered and not entries:
        return [_violation(schedule, "definition_unknown", "It has runs, and the audit knows no definition.")]
    found: list[Violation] = []
    known_from = _known_from(schedule, covered)
    for force in _in_force(schedule, entries, zones, now):
        if known_from is not None:
            force = replace(force, first=max(force.first, known_from))
        runs = covered[
            bisect_left(covered, force.first, key=_slot) : bisect_right(covered, force.last, key=_slot)
        ]
        if force.may_end_early:
            newest = runs[-1].slot if runs else force.first - _JUST
            force = replace(force, last=min(force.last, newest))
        found.extend(_compare(schedule, force, runs))
    faults = next_changes.faults(entries, [run.record for run in covered])
    found.extend(_violation(schedule, fault.code, fault.sentence) for fault in faults)
    return found


def _slot(run: Covered) -> datetime:
    return run.slot


def _known_from(schedule: Any, covered: Sequence[Covered]) -> datetime | None:
    """From when on all runs are still there; None when none was ever pruned."""
    if not schedule.pruned:
        return None
    if covered:
        return covered[0].first
    claimed: datetime | None = schedule.claimed_through
    return None if claimed is None else claimed + _JUST


def _in_force(schedule: Any, entries: Sequence[Any], zones: Any, now: datetime) -> Iterator[Force]:
    """The stretches of time in which an active definition had slots, as far as they can be derived."""
    for place, entry in enumerate(entries):
        first = instant_of_audit(entry.detail.get("next_run_at"))
        if entry.detail.get("status") != ScheduleStatus.ACTIVE or first is None:
            continue
        plan = plan_of_audited(entry.detail)
        if plan is None:
            continue
        following = entries[place + 1] if place + 1 < len(entries) else None
        last = _until(following) if following is not None else _until_now(schedule, now)
        if last is None:
            continue
        trusted = _with_our_zone_data(entry.detail, plan, first, last, zones)
        if trusted is not None:
            most = entry.detail.get("max_runs")
            spent = most is not None and schedule.dispatched_count >= most
            yield Force(plan, *trusted, may_end_early=spent)


def _until(following: Any) -> datetime:
    """The last instant of a definition that `following` replaced: slots that it took over are its own."""
    taken_over = instant_of_audit(following.detail.get("next_run_at"))
    at: datetime = following.at
    # A clock that was set back may have stood before what was claimed already.
    claimed = instant_of_audit(following.detail.get("claimed_through"))
    at = at if claimed is None else max(at, claimed)
    return at if taken_over is None else min(at, taken_over - _JUST)


def _until_now(schedule: Any, now: datetime) -> datetime | None:
    """The last instant whose slots must have been claimed: what is due and waits is not yet missing."""
    next_run_at: datetime | None = schedule.next_run_at
    claimed_through: datetime | None = schedule.claimed_through
    if next_run_at is None:
        return claimed_through
    return min(now if claimed_through is None else max(now, claimed_through), next_run_at - _JUST)


def _with_our_zone_data(
    detail: dict[str, Any], plan: Plan, first: datetime, last: datetime, zones: Any
) -> tuple[datetime, datetime] | None:
    """The part of a stretch in which wall times stood under the zone data of this process."""
    follows_a_clock = not isinstance(plan.timetable, Interval | Once) or (
        isinstance(plan.timetable, Once) and plan.timetable.wall is not None
    )
    if not follows_a_clock or detail.get("timezone") == "UTC":
        return first, last
    if zones is not None and zones.version > ZONE_DATA_VERSION:
        last = min(last, zones.changed_at)
    if detail.get("zone_version") == ZONE_DATA_VERSION:
        return first, last
    if zones is None or zones.version != ZONE_DATA_VERSION:
        return None
    return max(first, zones.changed_at + _JUST), last


def _compare(schedule: Any, force: Force, runs: Sequence[Covered]) -> Iterator[Violation]:
    """Walk from slot to slot beside the runs; each must begin where the one before it has ended."""
    plan = force.plan
    expected = plan.next_after(force.first - _JUST)
    for place, run in enumerate(runs):
        if place and runs[place - 1].slot == run.slot:
            # Two runs of one slot are another check's to tell.
            continue
        if expected is None or run.first < expected:
            yield _not_once(schedule, plan, run)
            if expected is None or run.slot < expected:
                continue
        elif run.first > expected:
            yield _missing(schedule, plan, expected, run.first - _JUST)
        if run.count > 1 or run.first != run.slot:
            yield from _check_stand_in(schedule, plan, run)
        expected = plan.next_after(run.slot)
    if expected is not None and expected <= force.last:
        yield _missing(schedule, plan, expected, force.last)


def _not_once(schedule: Any, plan: Plan, run: Covered) -> Violation:
    if plan.next_after(run.first - _JUST) == run.first:
        sentence = f"The slot {run.first.isoformat()} is accounted for by more than one run."
        return _violation(schedule, "slot_accounted_twice", sentence)
    sentence = f"A run stands for {run.first.isoformat()}, which was no slot of the timetable in force."
    return _violation(schedule, "slot_never_was", sentence)


def _missing(schedule: Any, plan: Plan, first: datetime, last: datetime) -> Violation:
    lost = plan.span(first - _JUST, last)
    if not lost.count:
        sentence = (
            f"A run stands for {(last + _JUST).isoformat()}, which was no slot of the timetable in force."
        )
        return _violation(schedule, "slot_never_was", sentence)
    sentence = f"{lost.count} slots from {first.isoformat()} on have no run and none that stands for them."
    return _violation(schedule, "slot_without_run", sentence, count=lost.count)


def _check_stand_in(schedule: Any, plan: Plan, run: Covered) -> Iterator[Violation]:
    due = plan.span(run.first - _JUST, run.slot)
    if (due.count, due.oldest, due.newest) != (run.count, run.first, run.slot):
        sentence = (
            f"The run of {run.slot.isoformat()} says that it stands for {run.count} slots "
            f"from {run.first.isoformat()} on; there were {due.count}."
        )
        yield _violation(schedule, "stand_in_miscounts", sentence)


def _violation(schedule: Any, code: str, sentence: str, **about: Any) -> Violation:
    return violation(2, code, sentence, schedule_id=schedule.schedule_id, **about)
