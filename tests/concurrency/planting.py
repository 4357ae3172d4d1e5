"""Thousands of schedules at once, written as the product would have: through its tables, with their audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import String, Table, and_, func, insert, join, literal, select, update
from sqlalchemy import cast as sql_cast

from tests.factories import make_member, make_network, make_user
from webapp.audit import AuditCounter, AuditEntry
from webapp.identity.models import Role
from webapp.ids import derived_id, new_id
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import Mandate
from webapp.mandates.policy import node_policy
from webapp.nodes.lifecycle import NodeStatus
from webapp.nodes.models import Node, NodePresence
from webapp.scheduling.lifecycle import (
    MisfirePolicy,
    OverlapPolicy,
    RunStatus,
    ScheduleStatus,
    TargetKind,
    Trigger,
)
from webapp.scheduling.models import Run, Schedule, ScheduleDue
from webapp.store import dialect
from webapp.store.texts import WorkText
from webapp.store.transaction import Tx, operation
from webapp.timetable import ZONE_DATA_VERSION, Plan, parse_timetable, to_stored

HOURLY = {"type": "cron", "cron": "0 * * * *"}
_A_STATEMENT = 500


@dataclass(frozen=True)
class Ground:
    """A network with a sponsor and a node: where schedules are planted. Primary keys, and the node's id."""

    network_pk: int
    sponsor_pk: int
    node_pk: int
    node_id: str


def prepare_ground(now: datetime) -> Ground:
    """A fresh network with its owner and one node; needs an app context."""
    network, sponsor = make_network(now=now), make_user(now=now)
    make_member(sponsor, network, Role.OWNER, now=now)
    node_pk, node_id = add_node(network.id, now=now)
    return Ground(network.id, sponsor.id, node_pk, node_id)


@operation
def add_node(tx: Tx, network_pk: int, alias: str = "atlas", *, now: datetime) -> tuple[int, str]:
    """A node; returns its key and its public id."""
    node = Node(node_id=new_id("node"), network_pk=network_pk, alias=alias, created_at=now)
    tx.session.add(node)
    tx.session.flush()
    tx.session.add(NodePresence(node_pk=node.id, status=NodeStatus.OFFLINE))
    return node.id, node.node_id


@operation
def plant(
    tx: Tx, ground: Ground, count: int, spec: dict[str, Any], *, now: datetime, **fields: Any
) -> list[int]:
    """Write `count` active schedules with this timetable (UTC), created at `now`; returns their keys.

    `fields` are columns of `Schedule` that differ from a form's defaults.
    """
    timetable = parse_timetable(spec, now=now)
    first = Plan(timetable, fields.get("starts_at"), fields.get("ends_at")).next_after(now)
    assert first is not None
    base = tx.session.scalar(select(func.coalesce(func.max(Schedule.id), 0))) or 0
    base_text = tx.session.scalar(select(func.coalesce(func.max(WorkText.id), 0))) or 0
    keys = list(range(base + 1, base + count + 1))
    texts = [{"id": base_text + place, "body": f"Order {place}"} for place in range(1, count + 1)]
    base_mandate = tx.session.scalar(select(func.coalesce(func.max(Mandate.id), 0))) or 0
    mandates = [_mandate(ground, base_mandate + place, key, now) for place, key in enumerate(keys, 1)]
    schedules = [
        {
            "id": key,
            "mandate_pk": mandate["id"],
            "mandate_id": mandate["mandate_id"],
            "mandate_revision": 1,
            "schedule_id": derived_id("sched", str(ground.network_pk), str(key)),
            "short_id": f"{key:06d}",
            "network_pk": ground.network_pk,
            "name": f"Order {key}",
            "target_kind": TargetKind.NODE,
            "target_pk": ground.node_pk,
            "target_id": ground.node_id,
            "target_alias": "atlas",
            "text_pk": text["id"],
            "priority_rank": 1,
            "timetable": to_stored(timetable),
            "timezone": "UTC",
            "zone_version": ZONE_DATA_VERSION,
            "timetable_version": 1,
            "misfire_policy": MisfirePolicy.CATCH_UP_ONCE,
            "misfire_grace_seconds": 60,
            "catch_up_limit": 100,
            "overlap_policy": OverlapPolicy.SKIP,
            "failure_threshold": 5,
            "status": ScheduleStatus.ACTIVE,
            "status_changed_at": now,
            "revision": 1,
            "sponsor_pk": ground.sponsor_pk,
            "created_at": now,
            "updated_at": now,
            "next_change": None,
            "starts_at": None,
            "ends_at": None,
            "max_runs": None,
            **fields,
        }
        for key, text, mandate in zip(keys, texts, mandates, strict=True)
    ]
    due = [
        {"schedule_pk": key, "network_pk": ground.network_pk, "next_run_at": first, "due_at": first}
        for key in keys
    ]
    planted = ((WorkText, texts), (Mandate, mandates), (Schedule, schedules), (ScheduleDue, due))
    for table, rows in planted:
        for part in _parts(rows):
            tx.session.execute(insert(cast(Table, table.__table__)), part)
    _renumber(tx, Schedule, base + count)
    _renumber(tx, WorkText, base_text + count)
    _renumber(tx, Mandate, base_mandate + count)
    _audit(tx, ground, schedules, first, now)
    return keys


def _mandate(ground: Ground, key: int, schedule_key: int, now: datetime) -> dict[str, Any]:
    schedule_id = derived_id("sched", str(ground.network_pk), str(schedule_key))
    return {
        "id": key,
        "mandate_id": derived_id("mand", str(ground.network_pk), str(key)),
        "network_pk": ground.network_pk,
        "subject_pk": ground.sponsor_pk,
        "workload": f"schedule:{schedule_id}",
        "policy": node_policy(ground.node_id).to_json(),
        "state": MandateState.ACTIVE,
        "revision": 1,
        "confirmed_at": now,
        "confirmed_by_pk": ground.sponsor_pk,
        "used_runs": 0,
        "used_tokens": 0,
        "reserved_tokens": 0,
        "created_at": now,
        "updated_at": now,
    }


def _audit(tx: Tx, ground: Ground, schedules: list[dict[str, Any]], first: datetime, now: datetime) -> None:
    counters = cast(Table, AuditCounter.__table__)
    last = dialect.raise_counter(tx.session, counters, "network_pk", ground.network_pk, len(schedules))
    entries = [
        {
            "network_pk": ground.network_pk,
            "seq": last - len(schedules) + place,
            "at": now,
            "actor": "planting",
            "verb": "schedule.create",
            "subject_kind": "schedule",
            "subject_id": schedule["schedule_id"],
            "detail": {
                "timetable": schedule["timetable"],
                "timezone": schedule["timezone"],
                "zone_version": schedule["zone_version"],
                "starts_at": _iso(schedule["starts_at"]),
                "ends_at": _iso(schedule["ends_at"]),
                "max_runs": schedule["max_runs"],
                "status": "active",
                "next_change": None,
                "next_run_at": _iso(first),
                "revision": 1,
            },
        }
        for place, schedule in enumerate(schedules, 1)
    ]
    for part in _parts(entries):
        tx.session.execute(insert(AuditEntry), part)


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parts(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for begin in range(0, len(rows), _A_STATEMENT):
        yield rows[begin : begin + _A_STATEMENT]


def _renumber(tx: Tx, model: type[Any], highest: int) -> None:
    """Where a sequence gives out keys, let it go on behind those that were given here."""
    if not dialect.is_sqlite(tx.session.get_bind()):
        sequence = func.pg_get_serial_sequence(model.__tablename__, "id")
        tx.session.execute(select(func.setval(sequence, highest)))


def once_at(instant: datetime) -> dict[str, Any]:
    """A timetable of one slot."""
    return {"type": "once", "run_at": _iso(instant)}


def every(seconds: int, anchor: datetime) -> dict[str, Any]:
    """An interval whose slots are the same for everybody who uses it."""
    return {"type": "interval", "every_seconds": seconds, "anchor_at": _iso(anchor)}


@operation
def fill_history(tx: Tx, keys: Sequence[int], first: datetime, count: int) -> None:
    """The history of minutely schedules that were never late: every slot skipped, which needs no task."""
    minute = timedelta(minutes=1)
    runs = cast(Table, Run.__table__)
    pattern = tx.session.get_one(Schedule, keys[0])
    rows = [
        {
            "run_id": f"srun_{pattern.id:06d}{place:06d}",
            "schedule_pk": pattern.id,
            "network_pk": pattern.network_pk,
            "scheduled_for": first + place * minute,
            "trigger": Trigger.SCHEDULED,
            "actor": "worker",
            "missed_count": 0,
            "status": RunStatus.SKIPPED,
            "backlog": False,
            "error_code": "previous_run_active",
            "attempt": 1,
            "schedule_revision": 1,
            "timetable_version": 1,
            "text_pk": pattern.text_pk,
            "target_pk": pattern.target_pk,
            "target_id": pattern.target_id,
            "target_alias": "atlas",
            "created_at": first + place * minute,
            "completed_at": first + place * minute,
        }
        for place in range(count)
    ]
    tx.session.connection().execute(insert(runs), rows)
    # The others have the same history, copied inside the database.
    own: dict[str, Any] = {
        "run_id": literal("srun_") + sql_cast(Schedule.id, String) + "_" + sql_cast(Run.id, String),
        "schedule_pk": Schedule.id,
        "text_pk": Schedule.text_pk,
    }
    columns = {name: own.get(name, runs.c[name]) for name in rows[0]}
    each_with_each = join(runs, Schedule, and_(Schedule.id.in_(keys), Schedule.id != keys[0]))
    copies = select(*columns.values()).select_from(each_with_each).where(runs.c.schedule_pk == keys[0])
    tx.session.execute(insert(runs).from_select(list(columns), copies))
    following = first + count * minute
    tx.session.execute(
        update(ScheduleDue)
        .where(ScheduleDue.schedule_pk.in_(keys))
        .values(next_run_at=following, due_at=following, claimed_through=following - minute)
    )
