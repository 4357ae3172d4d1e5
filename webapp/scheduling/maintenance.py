"""What keeps the engine honest between slots: silent blockers, waiting runs, returns from a pause, zone data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from sqlalchemy import Table, delete, select, update
from sqlalchemy.orm import Session

from webapp.logs import get_logger
from webapp.mandates.policy import is_expired
from webapp.scheduling import alerts, operations, policy, steps
from webapp.scheduling.admission import load_admission, load_targets
from webapp.scheduling.claim import load_definitions
from webapp.scheduling.deliver import deliver_waiting
from webapp.scheduling.lifecycle import ScheduleStatus, WaitReason
from webapp.scheduling.models import STILL_OPEN, Run, Schedule, ScheduleDue, WorkerSeen, ZoneData
from webapp.scheduling.next_change import ChangeKind, change_of
from webapp.store import dialect, reading
from webapp.store.transaction import Tx, each_alone, operation
from webapp.timetable import ZONE_DATA_VERSION, Plan

LOOK_AHEAD = timedelta(days=7)
PROPOSALS_KEPT = timedelta(days=7)
# No change of a zone's rules has ever moved a wall time by more.
_LARGEST_SHIFT = timedelta(hours=3)
_PAGE = 500
_log = get_logger(__name__)


# --- Waiting runs and their blockers ---


def unblock(*, now: datetime) -> int:
    """Deliver runs whose time to wait is over, also where nothing else would have noticed.

    Each schedule is a transaction of its own. Returns how many runs were dispatched.
    """
    waiting = select(Run.schedule_pk).where(
        STILL_OPEN,
        Run.wait_reason.in_([WaitReason.PREVIOUS_RUN_ACTIVE, WaitReason.CATCH_UP, WaitReason.CHAT_BUSY]),
    )
    with reading() as session:
        schedule_pks = session.scalars(waiting.distinct().limit(_PAGE)).all()
    return each_alone(schedule_pks, partial(_unblock_one, now=now), "delivering what waits")


@operation
def _unblock_one(tx: Tx, schedule_pk: int, *, now: datetime) -> int:
    return deliver_waiting(tx, steps.lock_schedule(tx, schedule_pk), now=now)


# --- Pauses that end by themselves ---


def resume_due(*, now: datetime) -> int:
    """Resume paused schedules whose `resume_at` has come; returns how many were resumed."""
    due = select(Schedule.id).where(Schedule.resume_at <= now).order_by(Schedule.resume_at).limit(_PAGE)
    with reading() as session:
        pks = session.scalars(due).all()
    return each_alone(pks, partial(operations.resume_when_due, now=now), "resuming at its time")


# --- Proposals that nobody answered ---


def drop_old_proposals(*, now: datetime) -> int:
    """Cancel what agents proposed and nobody answered within seven days; returns how many."""
    before = now - PROPOSALS_KEPT
    old = (
        select(Schedule.id)
        .where(Schedule.status == ScheduleStatus.PROPOSED, Schedule.created_at <= before)
        .order_by(Schedule.id)
        .limit(_PAGE)
    )
    with reading() as session:
        pks = session.scalars(old).all()
    drop = partial(operations.drop_old_proposal, proposed_before=before, now=now)
    return each_alone(pks, drop, "dropping old proposals")


# --- Looking ahead ---


def look_ahead(*, now: datetime) -> int:
    """Raise a card for every schedule that would be refused at a slot of the next seven days.

    Returns how many would be refused.
    """
    after, found = 0, 0
    while True:
        with reading() as session:
            # Narrow rows: in a large house this looks at a hundred thousand of them while slots fall due.
            statement = (
                select(
                    Schedule.id,
                    Schedule.schedule_id,
                    Schedule.network_pk,
                    Schedule.target_kind,
                    Schedule.target_pk,
                    Schedule.target_id,
                    Schedule.sponsor_pk,
                    Schedule.model,
                    Schedule.mandate_pk,
                    Schedule.mandate_revision,
                )
                .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
                .where(Schedule.id > after, ScheduleDue.next_run_at <= now + LOOK_AHEAD)
                .order_by(Schedule.id)
                .limit(_PAGE)
            )
            schedules = session.execute(statement).all()
            if not schedules:
                return found
            facts = load_admission(session, schedules, load_targets(session, schedules), now=now)
            carded = alerts.open_subjects(
                session, "would_not_fire", [schedule.schedule_id for schedule in schedules]
            )
            refused = {pk: code for pk in facts if (code := policy.refusal(facts[pk])) is not None}
            refused |= _run_out_of_authority(session, facts, refused, now=now)
        found += len(refused)
        if refused or carded:
            _update_cards(
                {schedule.id: (schedule.network_pk, schedule.schedule_id) for schedule in schedules},
                refused,
                now=now,
            )
        after = schedules[-1].id


def _run_out_of_authority(
    session: Session, facts: Mapping[int, policy.Admission], refused: Mapping[int, str], *, now: datetime
) -> dict[int, str]:
    """Schedules whose mandate carries the next slot, but ends or is used up before the last of these days."""
    until = now + LOOK_AHEAD
    mandates = {pk: admission.mandate for pk, admission in facts.items() if pk not in refused}
    ending = {
        pk: mandate
        for pk, mandate in mandates.items()
        if mandate is not None and (is_expired(mandate.expires_at, until) or mandate.max_runs is not None)
    }
    found: dict[int, str] = {}
    # Few: most mandates have neither an end nor a limit.
    definitions = load_definitions(session, list(ending)) if ending else ()
    for definition in definitions:
        plan, mandate = steps.plan_or_none(definition), ending[definition.id]
        if plan is None:
            continue
        last = _last_due(definition, plan, now, until)
        if last is not None and is_expired(mandate.expires_at, last):
            found[definition.id] = "mandate_expired"
        elif (
            mandate.max_runs is not None
            and mandate.used_runs + _runs_to_come(definition, plan, now, until) > mandate.max_runs
        ):
            found[definition.id] = "mandate_exhausted"
    return found


def _last_due(definition: Any, plan: Plan, now: datetime, until: datetime) -> datetime | None:
    """When the last slot of these days falls due."""
    newest = plan.span(now, until).newest
    change = change_of(definition.next_change, definition.next_run_at)
    if change is None or (newest is not None and newest > change.slot):
        return newest
    return None if change.kind is ChangeKind.SKIP else change.falls_due_at


def _runs_to_come(definition: Any, plan: Plan, now: datetime, until: datetime) -> int:
    slots = plan.span(now, until).count
    if definition.max_runs is None:
        return slots
    return min(slots, max(0, int(definition.max_runs) - int(definition.dispatched_count)))


@operation
def _update_cards(
    tx: Tx, looked_at: dict[int, tuple[int, str]], refused: dict[int, str], *, now: datetime
) -> None:
    for pk, code in refused.items():
        network_pk, schedule_id = looked_at[pk]
        alerts.raise_alert(tx, network_pk, "would_not_fire", schedule_id, code, schedule_pk=pk, now=now)
    fine = [subject for pk, (_, subject) in looked_at.items() if pk not in refused]
    alerts.resolve_kind(tx, "would_not_fire", fine, now=now)


# --- Zone data ---


@dataclass(frozen=True)
class ZoneVerdict:
    """Whether this process may claim, and whether it brings newer zone data than any before it."""

    may_claim: bool
    newer: bool


def judge_zone_data() -> ZoneVerdict:
    """Compare this process's zone data with the newest that any worker has used."""
    with reading() as session:
        known = session.get(ZoneData, 1)
    if known is None:
        return ZoneVerdict(may_claim=True, newer=True)
    return ZoneVerdict(may_claim=known.version <= ZONE_DATA_VERSION, newer=known.version < ZONE_DATA_VERSION)


def adopt_zone_data(*, now: datetime) -> list[str]:
    """Recompute every active next slot with this process's newer zone data, after due slots were claimed.

    Returns the public ids of the schedules whose next slot moved; each is audited.
    """
    moved: list[str] = []
    after = 0
    while (page := _adopt_page(after, now=now)) is not None:
        after = page.last_pk
        moved.extend(page.moved)
    _store_zone_version(now=now)
    for schedule_id in moved:
        _log.warning("the next slot moved with the new zone data", schedule_id=schedule_id)
    return moved


@dataclass(frozen=True)
class _Page:
    last_pk: int
    moved: list[str]


@operation
def _adopt_page(tx: Tx, after: int, *, now: datetime) -> _Page | None:
    pks = tx.session.scalars(
        select(Schedule.id)
        .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(
            Schedule.id > after,
            Schedule.zone_version < ZONE_DATA_VERSION,
            ScheduleDue.next_run_at.is_not(None),
        )
        .order_by(Schedule.id)
        .limit(_PAGE)
    ).all()
    if not pks:
        return None
    steps.lock_due(tx, pks)
    moved = [
        schedule.schedule_id
        for schedule in (steps.load_locked(tx, pk) for pk in pks)
        if _adopt(tx, schedule, now=now)
    ]
    return _Page(pks[-1], moved)


def _adopt(tx: Tx, schedule: Schedule, *, now: datetime) -> bool:
    plan = steps.plan_or_none(schedule)
    before = schedule.due.next_run_at
    if plan is None or before is None or before <= now:
        return False
    schedule.zone_version = ZONE_DATA_VERSION
    slot = steps.next_slot(plan, schedule.due, max_runs=schedule.max_runs, now=now)
    if slot is not None and _is_the_claimed_slot(tx, schedule, plan, slot):
        slot = plan.next_after(slot)
    if slot == before:
        return False
    steps.set_next(schedule, slot)
    change = {"was": before.isoformat(), **steps.definition_in_force(schedule)}
    steps.record(tx, schedule, "schedule.zone_data", change, actor=steps.WORKER, now=now)
    steps.tell(tx, schedule, now=now)
    return True


def _is_the_claimed_slot(tx: Tx, schedule: Schedule, plan: Plan, slot: datetime) -> bool:
    """Whether `slot` is, on the wall, the slot that was claimed last under the old rules.

    That one is off the new grid, and the new rules put the same wall time a little later.
    """
    claimed = schedule.due.claimed_through
    if claimed is None or slot - claimed > _LARGEST_SHIFT:
        return False
    if plan.next_after(claimed - timedelta(milliseconds=1)) == claimed:
        return False
    same_definition = select(Run.id).where(
        Run.schedule_pk == schedule.id,
        Run.scheduled_for == claimed,
        Run.timetable_version == schedule.timetable_version,
    )
    return tx.session.scalars(same_definition).first() is not None


@operation
def _store_zone_version(tx: Tx, *, now: datetime) -> None:
    # Several workers may start at once on an empty database: the second one finds the row and leaves it.
    row = {"id": 1, "version": ZONE_DATA_VERSION, "changed_at": now}
    dialect.insert_new(tx.session, cast(Table, ZoneData.__table__), [row])
    older = update(ZoneData).where(ZoneData.version < ZONE_DATA_VERSION)
    tx.session.execute(older.values(version=ZONE_DATA_VERSION, changed_at=now))


# --- Workers ---


@operation
def worker_seen(
    tx: Tx, worker_id: str, *, started_at: datetime, lag_ms: int, stopped: bool, now: datetime
) -> None:
    """Record that a worker has made a pass, or that it has left."""
    row = tx.session.get(WorkerSeen, worker_id)
    if row is None:
        row = WorkerSeen(worker_id=worker_id, started_at=started_at)
        tx.session.add(row)
    row.last_tick_at = now
    row.zone_version = ZONE_DATA_VERSION
    row.lag_ms = lag_ms
    row.stopped_at = now if stopped else None


@operation
def forget_old_workers(tx: Tx, *, now: datetime) -> int:
    """Remove what is known of workers that were last seen a day ago; returns how many."""
    old = delete(WorkerSeen).where(WorkerSeen.last_tick_at < now - timedelta(days=1))
    return len(tx.session.scalars(old.returning(WorkerSeen.worker_id)).all())
