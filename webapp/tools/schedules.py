"""Tools about schedules: which there are, and a proposal of another one, for a person to confirm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session, joinedload

from webapp.chat.actions import Action, NotDone, Origin, Scene
from webapp.errors import AppError
from webapp.scheduling import edit, making
from webapp.scheduling.fields import name_from
from webapp.scheduling.lifecycle import ScheduleStatus, TargetKind, Trigger
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.queries import plan_for
from webapp.store.transaction import Tx
from webapp.timetable import TimetableError, from_stored, sentence
from webapp.tools.arguments import NoArguments, ProposeSchedule, read, schema
from webapp.tools.nodes import node_named

_MAX_LISTED = 50


class ListSchedules:
    """`schedules.list`: what stands in the network, but for the chats of others."""

    name = "list_schedules"
    description = (
        "The schedules of this network that are not cancelled: name, target, state, when, the next slot."
    )
    operation = "schedules.list"
    changes = False
    parameters = schema(NoArguments)

    def prepare(self, tx: Tx, scene: Scene, arguments: Mapping[str, Any]) -> Action:
        """Read that nothing is asked for. Raises NotDone."""
        read(NoArguments, arguments)

        def act() -> str:
            statement = (
                select(Schedule)
                .options(joinedload(Schedule.due, innerjoin=True))
                .where(
                    Schedule.network_pk == scene.network_pk,
                    Schedule.status != ScheduleStatus.CANCELLED,
                    # What is said in somebody's chat is theirs alone, names and titles included.
                    or_(Schedule.target_kind == TargetKind.NODE, Schedule.sponsor_pk == scene.owner_pk),
                )
                .order_by(Schedule.updated_at.desc(), Schedule.id.desc())
                .limit(_MAX_LISTED)
            )
            rows = [_told(schedule) for schedule in tx.session.scalars(statement)]
            return json.dumps({"schedules": rows}, ensure_ascii=False)

        return Action(self.operation, None, {}, act)


def _told(schedule: Schedule) -> dict[str, Any]:
    try:
        when = sentence(from_stored(schedule.timetable, schedule.timezone), schedule.timezone)
    except TimetableError as error:
        when = error.message
    slot = schedule.due.next_run_at
    return {
        "id": schedule.short_id,
        "name": schedule.name,
        "target": schedule.target_alias,
        "status": schedule.status.value,
        "when": when,
        "next_run_at": None if slot is None else slot.isoformat(),
    }


class ProposeScheduleTool:
    """`schedules.propose`: a schedule that waits for its sponsor, the owner of the chat, to confirm it."""

    name = "propose_schedule"
    description = (
        "Propose a standing order, to a node or as a prompt in this chat. A person confirms it or not."
    )
    operation = "schedules.propose"
    changes = True
    parameters = schema(ProposeSchedule)

    def prepare(self, tx: Tx, scene: Scene, arguments: Mapping[str, Any]) -> Action:
        """Find who would do it, and that the timetable can be read. Raises NotDone."""
        wanted = read(ProposeSchedule, arguments)
        kind, target_id, alias, target = TargetKind.CHAT, scene.chat_id, "this chat", None
        if wanted.node is not None:
            node = node_named(tx, scene, wanted.node)
            kind, target_id, alias, target = TargetKind.NODE, node.node_id, node.alias, f"node:{node.node_id}"
        name = wanted.name or name_from(wanted.task)
        when = _sentence(wanted, scene.now)
        exact = {
            "name": name,
            "target": alias,
            "target_id": target_id,
            "task": wanted.task,
            "schedule": wanted.schedule,
            "timezone": wanted.timezone,
            "in_words": when,
        }

        def act() -> str:
            try:
                schedule = making.propose(
                    tx,
                    network_pk=scene.network_pk,
                    sponsor_pk=scene.owner_pk,
                    target_kind=kind,
                    target_id=target_id,
                    name=name,
                    text=wanted.task,
                    schedule=wanted.schedule,
                    timezone=wanted.timezone,
                    actor=scene.actor,
                    now=scene.now,
                )
            except AppError as error:
                # It refuses before it writes.
                raise NotDone(f"{error.message} ({error.code}) Nothing was done.") from None
            answer = {"schedule_id": schedule.schedule_id, "status": schedule.status.value, "when": when}
            return json.dumps(
                answer | {"note": "It starts only when a person confirms it."}, ensure_ascii=False
            )

        return Action(self.operation, target, exact, act)


def _sentence(wanted: ProposeSchedule, now: datetime) -> str:
    try:
        timetable, zone = edit.read_timetable(wanted.schedule, wanted.timezone, previous=None, now=now)
    except AppError as error:
        raise NotDone(f"{error.message} ({error.code}) Nothing was done.") from None
    return sentence(timetable, zone)


def origin_of(session: Session, run_pk: int, _now: datetime) -> Origin | None:
    """The schedule behind a run, and the time from its slot to the one after it; None when the run is not kept."""
    found = session.execute(
        select(Run.scheduled_for, Run.trigger, Schedule)
        .join(Schedule, Schedule.id == Run.schedule_pk)
        .where(Run.id == run_pk)
    ).one_or_none()
    if found is None:
        return None
    slot, trigger, schedule = found
    return Origin(schedule.schedule_id, _period(schedule, slot, trigger))


def _period(schedule: Schedule, slot: datetime, trigger: Trigger) -> timedelta | None:
    plan = plan_for(schedule)
    if plan is None:
        return None
    first = slot if trigger is Trigger.SCHEDULED else plan.next_after(slot)
    following = None if first is None else plan.next_after(first)
    return None if first is None or following is None else following - first
