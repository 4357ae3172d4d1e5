"""A schedule comes into being, with its mandate, in somebody else's transaction: made by a person, or proposed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select

from webapp.errors import AppError
from webapp.ids import new_id, new_short_id
from webapp.mandates.policy import Policy
from webapp.scheduling import authority, steps
from webapp.scheduling.edit import PRIORITY_RANK, check_bounds, read_timetable
from webapp.scheduling.fields import (
    DEFAULT_CATCH_UP_LIMIT,
    DEFAULT_CHAT_THRESHOLD,
    DEFAULT_GRACE_SECONDS,
    DEFAULT_NODE_THRESHOLD,
)
from webapp.scheduling.lifecycle import MisfirePolicy, OverlapPolicy, ScheduleStatus, TargetKind
from webapp.scheduling.models import Schedule, ScheduleDue
from webapp.scheduling.target import target_for
from webapp.store.texts import keep_text
from webapp.store.transaction import Tx
from webapp.timetable import ZONE_DATA_VERSION, Plan, Timetable, to_stored

_SETTINGS = (
    "priority",
    "starts_at",
    "ends_at",
    "max_runs",
    "misfire_policy",
    "misfire_grace_seconds",
    "catch_up_limit",
    "overlap_policy",
    "failure_threshold",
    "ttl_seconds",
    "max_run_seconds",
)


@dataclass(frozen=True)
class Settings:
    """Bounds and policies of a schedule, with what holds where nobody says anything. Durations in seconds."""

    priority: str = "normal"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_runs: int | None = None
    misfire_policy: MisfirePolicy = MisfirePolicy.CATCH_UP_ONCE
    misfire_grace_seconds: int = DEFAULT_GRACE_SECONDS
    catch_up_limit: int = DEFAULT_CATCH_UP_LIMIT
    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    failure_threshold: int | None = DEFAULT_NODE_THRESHOLD
    ttl_seconds: int | None = None
    max_run_seconds: int | None = None


def settings_of(fields: Any) -> Settings:
    """The settings among the fields that a person wrote (a `NewSchedule`)."""
    return Settings(**{name: getattr(fields, name) for name in _SETTINGS if hasattr(fields, name)})


@dataclass(frozen=True)
class Definition:
    """Everything that a new schedule is; `target_id` is the public id of the target, `model` that of a profile."""

    network_pk: int
    sponsor_pk: int
    target_kind: TargetKind
    target_pk: int
    target_id: str
    target_alias: str
    name: str
    text: str
    timetable: Timetable
    timezone: str
    settings: Settings = field(default_factory=Settings)
    model: str | None = None


def insert(
    tx: Tx,
    schedule_id: str,
    new: Definition,
    *,
    first: datetime | None,
    proposed: bool = False,
    policy: Policy | None = None,
    expires_at: datetime | None = None,
    actor: str,
    now: datetime,
) -> Schedule:
    """Write a schedule and the mandate that it acts under; returns it as `steps.load_locked` does.

    `first` is its first slot. `policy` (None: the usual one of its kind) and `expires_at` are the mandate's.
    `proposed` leaves both to be confirmed by the sponsor, and gives it no slot before.
    """
    settings = new.settings
    schedule = Schedule(
        schedule_id=schedule_id,
        short_id=_free_short_id(tx, new.network_pk),
        network_pk=new.network_pk,
        name=new.name,
        target_kind=new.target_kind,
        target_pk=new.target_pk,
        target_id=new.target_id,
        target_alias=new.target_alias,
        text_pk=keep_text(tx.session, new.text).id,
        priority_rank=PRIORITY_RANK[settings.priority],
        timetable=to_stored(new.timetable),
        timezone=new.timezone,
        zone_version=ZONE_DATA_VERSION,
        starts_at=settings.starts_at,
        ends_at=settings.ends_at,
        max_runs=settings.max_runs,
        misfire_policy=settings.misfire_policy,
        misfire_grace_seconds=settings.misfire_grace_seconds,
        catch_up_limit=settings.catch_up_limit,
        overlap_policy=settings.overlap_policy,
        failure_threshold=settings.failure_threshold,
        ttl_seconds=settings.ttl_seconds,
        max_run_seconds=settings.max_run_seconds,
        status=ScheduleStatus.PROPOSED if proposed else ScheduleStatus.ACTIVE,
        status_changed_at=now,
        sponsor_pk=new.sponsor_pk,
        model=new.model,
        created_at=now,
        updated_at=now,
    )
    tx.session.add(schedule)
    tx.session.flush()
    slot = None if proposed else first
    tx.session.add(
        ScheduleDue(schedule_pk=schedule.id, network_pk=new.network_pk, next_run_at=slot, due_at=slot)
    )
    authority.give_mandate(
        tx,
        schedule,
        policy or authority.usual_policy(schedule),
        expires_at=expires_at,
        confirmed=not proposed,
        actor=actor,
        now=now,
    )
    tx.session.flush()
    schedule = steps.load_locked(tx, schedule.id)
    definition = steps.definition_in_force(schedule)
    verb = "schedule.proposed" if proposed else "schedule.create"
    steps.record(tx, schedule, verb, definition, actor=actor, now=now)
    steps.tell(tx, schedule, now=now)
    return schedule


def propose(
    tx: Tx,
    *,
    network_pk: int,
    sponsor_pk: int,
    target_kind: TargetKind,
    target_id: str,
    name: str,
    text: str,
    schedule: Any,
    timezone: Any = "UTC",
    settings: Settings | None = None,
    model: str | None = None,
    policy: Policy | None = None,
    actor: str,
    now: datetime,
) -> Schedule:
    """What an agent asks for: a schedule in state `proposed`, which starts only when its sponsor confirms it.

    `schedule` and `timezone` are untrusted and read here; `name` (1 to 120 characters) and `text` (1 to 10 000)
    are the caller's to check. Raises AppError with the codes of the timetable, `target_node_not_found`,
    `chat_not_found`, `schedule_has_no_future_occurrence`.
    """
    settings = settings or Settings(
        failure_threshold=DEFAULT_NODE_THRESHOLD if target_kind is TargetKind.NODE else DEFAULT_CHAT_THRESHOLD
    )
    timetable, zone = read_timetable(schedule, timezone, previous=None, now=now)
    target = target_for(target_kind)
    target_pk = target.find(tx.session, network_pk, target_id)
    if target_pk is None:
        raise AppError(target.missing_code, status=404)
    check_bounds(settings.starts_at, settings.ends_at)
    if Plan(timetable, settings.starts_at, settings.ends_at).next_after(now) is None:
        raise AppError("schedule_has_no_future_occurrence", field="schedule", status=400)
    definition = Definition(
        network_pk=network_pk,
        sponsor_pk=sponsor_pk,
        target_kind=target_kind,
        target_pk=target_pk,
        target_id=target_id,
        target_alias=target.load(tx.session, [target_pk])[target_pk].alias,
        name=name,
        text=text,
        timetable=timetable,
        timezone=zone,
        settings=settings,
        model=model,
    )
    return insert(
        tx, new_id("sched"), definition, first=None, proposed=True, policy=policy, actor=actor, now=now
    )


def _free_short_id(tx: Tx, network_pk: int) -> str:
    while True:
        short_id = new_short_id()
        taken = select(Schedule.id).where(Schedule.network_pk == network_pk, Schedule.short_id == short_id)
        if tx.session.scalars(taken).first() is None:
            return short_id
