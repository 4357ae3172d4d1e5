"""Schedules, the narrow rows that the engine claims, runs, and what is raised for a person to see."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Date, ForeignKey, Index, Integer, String, bindparam, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from webapp.identity.models import Network, User
from webapp.scheduling.lifecycle import (
    MisfirePolicy,
    OverlapPolicy,
    RunStatus,
    ScheduleStatus,
    TargetKind,
    Trigger,
    WaitReason,
)
from webapp.store.base import Base, enum_type, partial_index
from webapp.store.texts import WorkText

_DUE = text("due_at IS NOT NULL")
_OPEN_RUN = text("status IN ('queued', 'delivered', 'running')")
_SCHEDULED_RUN = text("trigger = 'scheduled'")
_OPEN_ALERT = text("resolved_at IS NULL")
_AMISS = text("status IN ('failed', 'cancelled', 'expired', 'skipped')")
_RESUMING = text("resume_at IS NOT NULL")
_STANDS_FOR_OTHERS = text("missed_count > 0")
_RUNNING = text("status = 'running'")


class Schedule(Base):
    """The standing definition. What the engine moves with every slot stands in `ScheduleDue`."""

    __tablename__ = "schedules"
    __table_args__ = (
        Index("ix_schedules_network_pk_updated_at", "network_pk", "updated_at"),
        Index("ix_schedules_state", "network_pk", "status", "updated_at"),
        Index("ix_schedules_name", "network_pk", text("lower(name)"), "id"),
        Index("ix_schedules_target", "target_kind", "target_pk"),
        Index("ix_schedules_sponsor_pk", "sponsor_pk"),
        partial_index("ix_schedules_resume_at", "resume_at", where=_RESUMING),
        Index("uq_schedules_short_id", "network_pk", "short_id", unique=True),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    schedule_id: Mapped[str] = mapped_column(String(64), unique=True)
    short_id: Mapped[str] = mapped_column(String(12))
    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"))
    name: Mapped[str] = mapped_column(String(120))
    target_kind: Mapped[TargetKind] = mapped_column(enum_type(TargetKind))
    # The key of the target's row in its own table; which table, the kind says.
    target_pk: Mapped[int]
    target_id: Mapped[str] = mapped_column(String(200))
    target_alias: Mapped[str] = mapped_column(String(200))
    text_pk: Mapped[int] = mapped_column(ForeignKey("work_texts.id"), index=True)
    priority_rank: Mapped[int]
    timetable: Mapped[dict[str, Any]]
    timezone: Mapped[str] = mapped_column(String(64))
    zone_version: Mapped[str] = mapped_column(String(16))
    # Rises when timetable, zone or `starts_at` really change: a run of an older one is stale by timetable.
    timetable_version: Mapped[int] = mapped_column(default=1)
    starts_at: Mapped[datetime | None]
    ends_at: Mapped[datetime | None]
    max_runs: Mapped[int | None]
    misfire_policy: Mapped[MisfirePolicy] = mapped_column(enum_type(MisfirePolicy))
    misfire_grace_seconds: Mapped[int]
    catch_up_limit: Mapped[int]
    overlap_policy: Mapped[OverlapPolicy] = mapped_column(enum_type(OverlapPolicy))
    failure_threshold: Mapped[int | None]
    ttl_seconds: Mapped[int | None]
    max_run_seconds: Mapped[int | None]
    status: Mapped[ScheduleStatus] = mapped_column(enum_type(ScheduleStatus))
    status_reason: Mapped[str | None] = mapped_column(String(500))
    status_changed_at: Mapped[datetime]
    paused_by_pk: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    resume_at: Mapped[datetime | None]
    resume_by_pk: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    next_change: Mapped[dict[str, Any] | None]
    revision: Mapped[int] = mapped_column(default=1)
    sponsor_pk: Mapped[int] = mapped_column(ForeignKey("users.id"))
    # The key of the live mandate (no foreign key: it would have every old file rebuilt), and the revision of it
    # that this schedule knows.
    mandate_pk: Mapped[int | None]
    mandate_id: Mapped[str | None] = mapped_column(String(64))
    mandate_revision: Mapped[int | None]
    # The profile of the model for chats; None = the chat's default.
    model: Mapped[str | None] = mapped_column(String(80))
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]

    due: Mapped[ScheduleDue] = relationship(lazy="raise", uselist=False, back_populates="schedule")
    text: Mapped[WorkText] = relationship(lazy="raise")
    sponsor: Mapped[User] = relationship(lazy="raise", foreign_keys=[sponsor_pk])
    network: Mapped[Network] = relationship(lazy="raise")

    def is_private_to(self, user_pk: int) -> bool:
        """Whether it speaks into a chat that is not this person's own: then its words are not for them."""
        return self.target_kind is TargetKind.CHAT and self.sponsor_pk != user_pk

    def name_for(self, user_pk: int) -> str:
        """What to call it before a person. The name of a prompt is its beginning, and as private as the prompt."""
        return f"Prompt {self.short_id}" if self.is_private_to(user_pk) else self.name


class ScheduleDue(Base):
    """What the engine reads and moves for every slot: narrow, so that many fit on a page of the disk.

    `due_at` is when the engine looks at it next: `next_run_at`, or later after a failure to handle it.
    `claim_seq` is compared and set by every claim and by settling; `claimed_through` is the newest slot that
    was ever claimed and never goes back, so that a clock set back fires nothing twice.
    """

    __tablename__ = "schedule_due"
    __table_args__ = (
        partial_index(
            "ix_schedule_due_due_at",
            "network_pk",
            "due_at",
            where=_DUE,
        ),
    )

    schedule_pk: Mapped[int] = mapped_column(
        ForeignKey("schedules.id"), primary_key=True, autoincrement=False
    )
    network_pk: Mapped[int]
    next_run_at: Mapped[datetime | None]
    claimed_through: Mapped[datetime | None]
    claim_seq: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[datetime | None]
    claim_not_before: Mapped[datetime | None]
    claim_failures: Mapped[int] = mapped_column(Integer, default=0)
    last_run_at: Mapped[datetime | None]
    dispatched_count: Mapped[int] = mapped_column(default=0)
    consecutive_failures: Mapped[int] = mapped_column(Integer, default=0)
    first_failure_at: Mapped[datetime | None]
    skips_in_a_row: Mapped[int] = mapped_column(Integer, default=0)

    schedule: Mapped[Schedule] = relationship(lazy="raise", back_populates="due")


class Run(Base):
    """What became of one slot, or of one manual trigger. `(schedule, slot)` is unique among scheduled runs."""

    __tablename__ = "runs"
    __table_args__ = (
        partial_index(
            "uq_runs_slot",
            "schedule_pk",
            "scheduled_for",
            unique=True,
            where=_SCHEDULED_RUN,
        ),
        Index("ix_runs_history", "schedule_pk", "scheduled_for", "id"),
        Index("ix_runs_network", "network_pk", "scheduled_for", "id"),
        # The columns of the history: an order that this index could not give would make one of the whole
        # history the better choice.
        partial_index("ix_runs_open", "schedule_pk", "scheduled_for", "id", where=_OPEN_RUN),
        # Among many that went well, those of one other state are few and far between.
        partial_index("ix_runs_amiss", "schedule_pk", "status", "scheduled_for", "id", where=_AMISS),
        partial_index("ix_runs_amiss_network", "network_pk", "status", "scheduled_for", "id", where=_AMISS),
        partial_index(
            "ix_runs_stand_for", "schedule_pk", "scheduled_for", "missed_count", where=_STANDS_FOR_OTHERS
        ),
        # Of all that is open the fewest: listed in the order of the history, and asked who is at work the longest.
        partial_index("ix_runs_running", "network_pk", "scheduled_for", "id", "started_at", where=_RUNNING),
        Index("ix_runs_created_at", "created_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(String(64), unique=True)
    schedule_pk: Mapped[int] = mapped_column(ForeignKey("schedules.id"))
    network_pk: Mapped[int]
    scheduled_for: Mapped[datetime]
    trigger: Mapped[Trigger] = mapped_column(enum_type(Trigger))
    actor: Mapped[str] = mapped_column(String(120))
    missed_count: Mapped[int] = mapped_column(default=0)
    missed_since: Mapped[datetime | None]
    status: Mapped[RunStatus] = mapped_column(enum_type(RunStatus))
    wait_reason: Mapped[WaitReason | None] = mapped_column(enum_type(WaitReason))
    # Belongs to a backlog of `catch_up_all`, which is worked off one by one.
    backlog: Mapped[bool] = mapped_column(default=False)
    error_code: Mapped[str | None] = mapped_column(String(60))
    error_message: Mapped[str | None] = mapped_column(String(500))
    blocked_by: Mapped[str | None] = mapped_column(String(64))
    blocker_received: Mapped[bool | None]
    task_id: Mapped[str | None] = mapped_column(String(64))
    turn_id: Mapped[str | None] = mapped_column(String(64))
    attempt: Mapped[int] = mapped_column(Integer, default=1)
    schedule_revision: Mapped[int]
    timetable_version: Mapped[int]
    # Every reference to a text is indexed: forgetting one asks who still refers to it.
    text_pk: Mapped[int] = mapped_column(ForeignKey("work_texts.id"), index=True)
    target_pk: Mapped[int]
    target_id: Mapped[str] = mapped_column(String(200))
    target_alias: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime]
    delivered_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    result: Mapped[str | None] = mapped_column(String(500))

    schedule: Mapped[Schedule] = relationship(lazy="raise")
    text: Mapped[WorkText] = relationship(lazy="raise")


def is_open(run: type[Run]) -> ColumnElement[bool]:
    """The condition of an open run, for `Run` or an alias of it.

    Written out as in the condition of the partial index: bound values would keep that unused, and a claim would
    look at the whole history of each schedule.
    """
    written_out: BindParameter[Any] = bindparam(
        "still_open",
        [RunStatus.QUEUED, RunStatus.DELIVERED, RunStatus.RUNNING],
        expanding=True,
        literal_execute=True,
    )
    return run.status.in_(written_out)


STILL_OPEN = is_open(Run)
# Written out for the same reason; of `Run` itself.
ENDED_AMISS = text("runs.status IN ('failed', 'cancelled', 'expired', 'skipped')")
STANDS_FOR_OTHERS = text("runs.missed_count > 0")
AT_WORK = text("runs.status = 'running'")


class Alert(Base):
    """A card for a person to see; at most one open card per network, kind and subject."""

    __tablename__ = "alerts"
    __table_args__ = (
        partial_index(
            "uq_alerts_open",
            "network_pk",
            "kind",
            "subject_id",
            unique=True,
            where=_OPEN_ALERT,
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    network_pk: Mapped[int] = mapped_column(ForeignKey("networks.id"))
    kind: Mapped[str] = mapped_column(String(40))
    subject_id: Mapped[str] = mapped_column(String(200))
    schedule_pk: Mapped[int | None] = mapped_column(ForeignKey("schedules.id"))
    code: Mapped[str] = mapped_column(String(60))
    detail: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    resolved_at: Mapped[datetime | None]


class DailyCount(Base):
    """How a schedule's pruned runs of one UTC day ended; the year's calendar is drawn from these."""

    __tablename__ = "daily_counts"

    schedule_pk: Mapped[int] = mapped_column(
        ForeignKey("schedules.id"), primary_key=True, autoincrement=False
    )
    day: Mapped[date] = mapped_column(Date, primary_key=True)
    status: Mapped[RunStatus] = mapped_column(enum_type(RunStatus), primary_key=True)
    count: Mapped[int]


class WorkerSeen(Base):
    """A worker process and its last pass; `/readyz` and the page's pulse read it."""

    __tablename__ = "workers"

    worker_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    started_at: Mapped[datetime]
    last_tick_at: Mapped[datetime]
    zone_version: Mapped[str] = mapped_column(String(16))
    lag_ms: Mapped[int]
    stopped_at: Mapped[datetime | None]


class ZoneData(Base):
    """The newest version of the zone data that any worker has run with; one row."""

    __tablename__ = "zone_data"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[str] = mapped_column(String(16))
    changed_at: Mapped[datetime]
