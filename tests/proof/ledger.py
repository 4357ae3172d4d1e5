"""The checker at the end of every scenario of the proof: who was due, when, and what became of it.

Two opinions that share no code: the product's own `doctor`, and this ledger, which reads what was in force from the
audit, walks through every slot of it by plain rules (`wall_oracle`) and looks for the one run that accounts for it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from flask import Flask
from sqlalchemy import func, select

from tests.proof import wall_oracle
from webapp.audit import AuditCounter, AuditEntry
from webapp.doctor import examine as ask_the_doctor
from webapp.events.models import Event, EventCounter
from webapp.nodes.models import Task
from webapp.scheduling.models import DailyCount, Run, Schedule, ScheduleDue
from webapp.store import app_clock, reading

_JUST = timedelta(milliseconds=1)
_LETTERS = "23456789abcdefghjkmnpqrstwxyz"
# A next slot further away than this is not walked to.
_FAR = timedelta(days=8)
_IDS_IN_AN_EVENT = 100


@dataclass(frozen=True)
class Stretch:
    """A definition while it was in force; it accounts for its slots from `first` to `last`, both included."""

    detail: dict[str, Any]
    first: datetime
    last: datetime


@dataclass(frozen=True)
class Audited:
    """How much was looked at, so that a scenario can say what its clean ledger is worth."""

    schedules: int
    slots: int
    runs: int
    tasks: int


def assert_clean(app: Flask, *, calm: bool = True) -> Audited:
    """Fail with everything that is wrong. `calm`: nothing may be due any more."""
    found, audited = look(app, calm=calm)
    assert not found, f"{len(found)} faults in the ledger:\n" + "\n".join(found[:20])
    return audited


def look(app: Flask, *, calm: bool = True) -> tuple[list[str], Audited]:
    """Everything that is wrong, as sentences that begin with a code, and how much was looked at."""
    with app.app_context():
        now = app_clock().now()
        found = [f"doctor/{fault['code']}: {fault}" for fault in ask_the_doctor()]
        slots, faults = _slots(now, calm=calm)
        found += faults
        found += [*_tasks(), *_sequences(), *_unheard_runs()]
        with reading() as session:
            count = {
                model: session.scalar(select(func.count()).select_from(model)) or 0
                for model in (Schedule, Run, Task)
            }
    return found, Audited(count[Schedule], slots, count[Run], count[Task])


# --- Slots and runs ---


def _slots(now: datetime, *, calm: bool) -> tuple[int, list[str]]:
    with reading() as session:
        schedules = session.execute(
            select(
                Schedule.id,
                Schedule.schedule_id,
                Schedule.status,
                Schedule.max_runs,
                ScheduleDue.next_run_at,
                ScheduleDue.due_at,
                ScheduleDue.claimed_through,
                ScheduleDue.dispatched_count,
            ).outerjoin(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        ).all()
        runs = defaultdict(list)
        columns = (
            Run.schedule_pk,
            Run.run_id,
            Run.scheduled_for,
            Run.missed_count,
            Run.missed_since,
            Run.task_id,
            Run.turn_id,
        )
        for run in session.execute(
            select(*columns).where(Run.trigger == "scheduled").order_by(Run.scheduled_for)
        ):
            runs[run.schedule_pk].append(run)
        entries = defaultdict(list)
        for entry in session.execute(
            select(AuditEntry.subject_id, AuditEntry.at, AuditEntry.detail)
            .where(AuditEntry.subject_kind == "schedule")
            .order_by(AuditEntry.network_pk, AuditEntry.seq)
        ):
            if "timetable" in entry.detail:
                entries[entry.subject_id].append(entry)
        pruned = set(session.scalars(select(DailyCount.schedule_pk)))
    slots, found = 0, []
    for schedule in schedules:
        own = runs[schedule.id]
        if schedule.status == "active" and calm and schedule.due_at is not None and schedule.due_at <= now:
            found.append(f"left_due: {schedule.schedule_id} is due since {schedule.due_at} and lies there")
        if schedule.id not in pruned:
            dispatched = sum(1 for run in own if run.task_id or run.turn_id)
            if schedule.max_runs is not None and dispatched > schedule.max_runs:
                found.append(
                    f"too_many: {dispatched} runs of {schedule.schedule_id}, which may have {schedule.max_runs}"
                )
            if dispatched != schedule.dispatched_count:
                found.append(
                    f"miscounted: {schedule.schedule_id} has {dispatched} dispatched runs, "
                    f"and counts {schedule.dispatched_count}"
                )
        stretches = [
            *_stretches(schedule, entries[schedule.schedule_id], own, now, pruned=schedule.id in pruned)
        ]
        number, faults = _account(schedule, stretches, own)
        slots += number
        found += faults
    return slots, found


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _stretches(
    schedule: Any, entries: Sequence[Any], runs: Sequence[Any], now: datetime, *, pruned: bool
) -> Iterator[Stretch]:
    for place, entry in enumerate(entries):
        first = _instant(entry.detail.get("next_run_at"))
        if entry.detail.get("status") != "active" or first is None:
            continue
        if place + 1 < len(entries):
            following = entries[place + 1]
            claimed = _instant(following.detail.get("claimed_through"))
            last = following.at if claimed is None else max(following.at, claimed)
            taken_over = _instant(following.detail.get("next_run_at"))
            if taken_over is not None:
                last = min(last, taken_over - _JUST)
        elif schedule.next_run_at is not None:
            # Whatever lies before the next slot must have its run, not only what lies before now.
            last = schedule.next_run_at - _JUST
            if last > now + _FAR:
                last = max(now, schedule.claimed_through or now)
        elif schedule.claimed_through is not None:
            last = schedule.claimed_through
        else:
            continue
        most = entry.detail.get("max_runs")
        if most is not None and schedule.dispatched_count >= most:
            last = min(last, max((run.scheduled_for for run in runs), default=first - _JUST))
        if pruned:
            kept = runs[0].missed_since or runs[0].scheduled_for if runs else schedule.claimed_through
            first = max(first, kept if runs else kept + _JUST)
        yield Stretch(entry.detail, first, last)


def _account(schedule: Any, stretches: Sequence[Stretch], runs: Sequence[Any]) -> tuple[int, list[str]]:
    name, found = schedule.schedule_id, []
    due: list[datetime] = []
    for stretch in stretches:
        ends_at = _instant(stretch.detail.get("ends_at"))
        last = stretch.last if ends_at is None else min(stretch.last, ends_at)
        due += wall_oracle.slots(stretch.detail["timetable"], stretch.detail["timezone"], stretch.first, last)
    due.sort()
    accounted: Counter[datetime] = Counter()
    for run in runs:
        begin = run.missed_since or run.scheduled_for
        covered = due[bisect_left(due, begin) : bisect_right(due, run.scheduled_for)]
        accounted.update(covered)
        if run.scheduled_for not in covered:
            found.append(f"never_due: {name} has a run for {run.scheduled_for}, which was no slot in force")
        elif len(covered) != run.missed_count + 1 or covered[0] != begin:
            found.append(
                f"stands_wrong: the run of {run.scheduled_for} of {name} says {run.missed_count + 1} slots "
                f"from {begin} on, there were {len(covered)}"
            )
        expected = derived("srun", name, "slot", str(round(run.scheduled_for.timestamp() * 1000)))
        if run.run_id != expected:
            found.append(f"id_not_derived: the run of {run.scheduled_for} of {name} is {run.run_id}")
    for slot in sorted(set(due)):
        if accounted[slot] != 1:
            code = "unaccounted" if accounted[slot] == 0 else "accounted_twice"
            found.append(f"{code}: {accounted[slot]} runs account for {slot} of {name}")
    found += _next(schedule, stretches)
    return len(due), found


def _next(schedule: Any, stretches: Sequence[Stretch]) -> Iterator[str]:
    """The next slot is one, and none lies between it and what was claimed."""
    following = schedule.next_run_at
    if following is None or not stretches:
        return
    detail = stretches[-1].detail
    if not wall_oracle.slots(detail["timetable"], detail["timezone"], following, following):
        yield f"next_is_no_slot: {schedule.schedule_id} waits for {following}"


def derived(prefix: str, *parts: str) -> str:
    """A derived id, written down a second time: the digits of a digest, the lowest first."""
    number = int.from_bytes(hashlib.sha256("\x1f".join(parts).encode()).digest()[:16])
    letters = ""
    for _ in range(20):
        number, digit = divmod(number, len(_LETTERS))
        letters += _LETTERS[digit]
    return f"{prefix}_{letters}"


# --- Tasks, events ---


def _tasks() -> Iterator[str]:
    with reading() as session:
        tasks: Counter[int] = Counter()
        names: dict[int, str] = {}
        for run_pk, task_id in session.execute(
            select(Task.run_pk, Task.task_id).where(Task.run_pk.is_not(None))
        ):
            tasks[run_pk] += 1
            names[run_pk] = task_id
        runs = session.execute(select(Run.id, Run.run_id, Run.task_id)).all()
    known = {run.id for run in runs}
    yield from (f"task_of_nobody: {names[pk]}" for pk in names if pk not in known)
    for run in runs:
        if run.task_id is None:
            if tasks[run.id]:
                yield f"task_unnamed: {run.run_id} has a task and names none"
        elif run.task_id != derived("task", run.run_id):
            yield f"id_not_derived: {run.run_id} names the task {run.task_id}"
        elif tasks[run.id] != 1 or names[run.id] != run.task_id:
            yield f"not_one_task: {run.run_id} has {tasks[run.id]} tasks"


def _sequences() -> Iterator[str]:
    for model, counter in ((Event, EventCounter), (AuditEntry, AuditCounter)):
        with reading() as session:
            last = dict(session.execute(select(counter.network_pk, counter.seq)).all())
            numbers = defaultdict(list)
            for network_pk, seq in session.execute(select(model.network_pk, model.seq)):
                numbers[network_pk].append(seq)
        for network_pk in last | numbers:
            own = sorted(numbers[network_pk])
            if own != list(range(last.get(network_pk, 0) - len(own) + 1, last.get(network_pk, 0) + 1)):
                yield f"gap: {model.__tablename__} of network {network_pk}, up to {last.get(network_pk)}"


def _unheard_runs() -> Iterator[str]:
    """Runs of whose making no event speaks: a page that was open would not have heard of them."""
    with reading() as session:
        if (session.scalar(select(func.min(Event.seq))) or 1) > 1:
            return
        heard: set[tuple[str, datetime]] = set()
        for data, at in session.execute(select(Event.data, Event.at).where(Event.type == "run")):
            runs = data.get("runs", ())
            heard.update((run_id, at) for run_id in runs)
            if len(runs) >= _IDS_IN_AN_EVENT:
                heard.update((schedule_id, at) for schedule_id in data.get("schedules", ()))
        made = select(Run.run_id, Run.created_at, Schedule.schedule_id)
        for run_id, at, schedule_id in session.execute(made.join(Schedule, Schedule.id == Run.schedule_pk)):
            if not {(run_id, at), (schedule_id, at)} & heard:
                yield f"unheard: no event speaks of the making of {run_id}"
