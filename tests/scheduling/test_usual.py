"""Many at once and row by row: a herd is dispatched by a few statements, and every row is as if it had been decided."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from flask import Flask
from sqlalchemy import JSON, Table, select, type_coerce, update

from tests.concurrency.planting import Ground, every, once_at, plant, prepare_ground
from tests.concurrency.scene import count, nothing_is_usual
from tests.doctor.hands import do
from tests.factories import make_member, make_user
from tests.support.databases import START
from webapp.clock import FrozenClock
from webapp.identity.models import Role, User
from webapp.mandates.models import Mandate
from webapp.mandates.policy import exactly
from webapp.nodes.models import Node, Task, TaskEvent
from webapp.scheduling import claim, usual
from webapp.scheduling.models import Run, Schedule, ScheduleDue
from webapp.store.base import Base
from webapp.store.transaction import Tx, operation
from webapp.worker import run_once

NOW = START.replace(hour=9, minute=0, second=3)
SLOT = NOW.replace(second=0)
_TIMETABLES: tuple[dict[str, Any], ...] = (
    {"type": "cron", "cron": "0 * * * *"},
    {"type": "cron", "cron": "0 9 * * mon"},
    {"type": "daily", "time": "09:00"},
    every(3600, SLOT),
    once_at(SLOT),
    every(60, START + timedelta(minutes=1)),
)
Quirk = Callable[[Ground, int, random.Random], None]


def _due(**values: Any) -> Quirk:
    return lambda _ground, key, _chance: do(
        update(ScheduleDue).where(ScheduleDue.schedule_pk == key).values(**values)
    )


def _schedule(**values: Any) -> Quirk:
    return lambda _ground, key, _chance: do(update(Schedule).where(Schedule.id == key).values(**values))


def _mandate(**values: Any) -> Quirk:
    return lambda _ground, key, _chance: do(
        update(Mandate)
        .where(Mandate.id == select(Schedule.mandate_pk).where(Schedule.id == key).scalar_subquery())
        .values(**values)
    )


def _change(kind: str, to: datetime | None) -> Quirk:
    slot = SLOT.strftime("%Y-%m-%dT%H:%M:%SZ")
    change = {"kind": kind, "slot": slot, "to": to and to.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return _schedule(next_change=change)


def _other_policy(ground: Ground, key: int, chance: random.Random) -> None:
    target = chance.choice([ground.node_id, "node_of_somebody_else"])
    operations = chance.choice([["nodes.send_task"], ["nodes.list", "nodes.send_task"], ["nodes.list"]])
    policy = exactly(operations, [f"node:{target}"]).to_json()
    _mandate(policy=policy)(ground, key, chance)


def _other_sponsor(role: Role | None, *, active: bool = True) -> Quirk:
    def quirk(ground: Ground, key: int, chance: random.Random) -> None:
        user = make_user()
        if role is not None:
            make_member(user, _Network(ground.network_pk), role)
        if not active:
            do(update(User).where(User.id == user.id).values(active=False))
        _schedule(sponsor_pk=user.id)(ground, key, chance)
        if chance.random() < 0.8:
            _mandate(subject_pk=user.id)(ground, key, chance)

    return quirk


class _Network:
    """As much of a network as a membership needs."""

    def __init__(self, key: int) -> None:
        self.id = key


def _other_node(**values: Any) -> Quirk:
    def quirk(ground: Ground, key: int, chance: random.Random) -> None:
        node_pk = _copy_of_node(ground.node_pk, f"{key}-{chance.random()}", values)
        _schedule(target_pk=node_pk)(ground, key, chance)

    return quirk


@operation
def _copy_of_node(tx: Tx, node_pk: int, name: str, values: dict[str, Any]) -> int:
    row = tx.session.get_one(Node, node_pk)
    fields = {"node_id": f"node_{name}", "network_pk": row.network_pk, "alias": name, "created_at": START}
    node = Node(**fields | values)
    tx.session.add(node)
    tx.session.flush()
    return node.id


QUIRKS: dict[str, Quirk] = {
    "skips its slot": _change("skip", None),
    "moved its slot": _change("move", NOW - timedelta(seconds=1)),
    "JSON null": _schedule(next_change=type_coerce(None, JSON(none_as_null=False))),
    "misfire skip": _schedule(misfire_policy="skip"),
    "misfire skip, late": _schedule(misfire_policy="skip", misfire_grace_seconds=2),
    "exactly in time": _schedule(misfire_policy="skip", misfire_grace_seconds=3),
    "catches up all": _schedule(misfire_policy="catch_up_all"),
    "catches up all, late": _schedule(misfire_policy="catch_up_all", misfire_grace_seconds=2),
    "late": _schedule(misfire_grace_seconds=1),
    "claimed before": _due(claimed_through=SLOT - timedelta(hours=1), last_run_at=SLOT - timedelta(hours=1)),
    "claimed later": _due(claimed_through=SLOT + timedelta(hours=3)),
    "run by hand later": _due(last_run_at=SLOT + timedelta(seconds=2)),
    "held back": _due(claim_failures=3, claim_not_before=NOW, due_at=NOW),
    "last run": _schedule(max_runs=1),
    "last but one": _schedule(max_runs=2),
    "two skips": _due(skips_in_a_row=2),
    "three skips": _due(skips_in_a_row=3),
    "ends today": _schedule(ends_at=SLOT + timedelta(minutes=1)),
    "allows overlap": _schedule(overlap_policy="allow"),
    "urgent": _schedule(priority_rank=0, ttl_seconds=600, max_run_seconds=90),
    "mandate of another": lambda ground, key, chance: _mandate(workload=f"schedule:{key}")(
        ground, key, chance
    ),
    "mandate revoked": _mandate(state="revoked"),
    "mandate paused": _mandate(state="paused"),
    "mandate unconfirmed": _mandate(confirmed_at=None),
    "mandate ends": _mandate(expires_at=NOW),
    "mandate lasts": _mandate(expires_at=NOW + timedelta(milliseconds=1)),
    "mandate changed": _mandate(revision=2),
    "mandate used up": _mandate(max_runs=3, used_runs=3),
    "mandate limited": _mandate(max_runs=3, used_runs=2),
    "mandate without tokens": _mandate(max_tokens=5, used_tokens=5),
    "no mandate": _schedule(mandate_pk=None),
    "another policy": _other_policy,
    "sponsor views": _other_sponsor(Role.VIEWER),
    "sponsor is admin": _other_sponsor(Role.ADMIN),
    "sponsor is nobody here": _other_sponsor(None),
    "sponsor is gone": _other_sponsor(Role.MEMBER, active=False),
    "node stops": _other_node(lifecycle_state="stopping"),
    "node is gone": _other_node(deleted_at=START),
    "node has another name": _other_node(),
}


class _Undo(Exception):
    """Takes a claim back, and what it had written with it."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.rows = rows


@operation
def _tried(tx: Tx, schedule_pks: Sequence[int], *, now: datetime) -> None:
    def undo(tx: Tx) -> None:
        raise _Undo(_everything(tx))

    # Names are served in their order: after the counters.
    tx.write_last("zzz", undo)
    claim._claim(tx, schedule_pks, now=now)


def _everything(tx: Tx) -> dict[str, Any]:
    """Every row of every table, with public ids where keys differ from one try to the next."""
    tables = {name: _rows(tx, table) for name, table in Base.metadata.tables.items()}
    runs = {row["id"]: row["run_id"] for row in tables["runs"]}
    tasks = {row["id"]: row["task_id"] for row in tables["tasks"]}
    for row in tables["tasks"]:
        row["run_pk"] = runs[row["run_pk"]]
    for row in tables["task_events"]:
        row["task_pk"] = tasks[row["task_pk"]]
    for name in ("runs", "tasks", "task_events", "alerts"):
        for row in tables[name]:
            del row["id"]
    for name in ("audit_entries", "events"):
        seqs: dict[int, list[int]] = defaultdict(list)
        for row in tables[name]:
            seqs[row["network_pk"]].append(row.pop("seq"))
        assert all(sorted(found) == list(range(1, len(found) + 1)) for found in seqs.values())
    # How ids are shared out among bells is nobody's business.
    rung = _rung(tables.pop("events"))
    del tables["event_counters"]
    written = {name: sorted(json.dumps(row, default=str) for row in rows) for name, rows in tables.items()}
    return {**written, "rung": rung}


def _rows(tx: Tx, table: Table) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in tx.session.execute(select(table))]


def _rung(events: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Whom a bell names. Its runs are at most a hundred, and equal bells of one transaction ring once."""
    found: dict[str, set[str]] = defaultdict(set)
    for event in events:
        data, about = event["data"], f"{event['network_pk']} {event['type']} {event['data'].get('priority')}"
        for name in ("schedules", "nodes", "mandates", "tasks"):
            found[f"{about} {name}"].update(data.get(name, ()))
    return found


def _plant_mixed(seed: int, quirky: int) -> list[int]:
    chance = random.Random(seed)
    grounds = [prepare_ground(START), prepare_ground(START)]

    def planted(number: int, timetable: dict[str, Any]) -> list[tuple[Ground, int]]:
        ground = chance.choice(grounds)
        return [(ground, key) for key in plant(ground, number, timetable, now=START)]

    # Each quirk once with a timetable that has nothing of its own, then any with any, then none.
    plain = planted(len(QUIRKS), _TIMETABLES[0])
    mixed = [place for timetable in _TIMETABLES for place in planted(quirky, timetable)]
    chance.shuffle(mixed)
    for (ground, key), quirk in zip(plain, QUIRKS.values(), strict=True):
        quirk(ground, key, chance)
    for ground, key in mixed[: 4 * quirky]:
        for quirk in chance.choices(list(QUIRKS.values()), k=chance.choice([1, 1, 2])):
            quirk(ground, key, chance)
    keys = [key for _, key in (*plain, *mixed)]
    chance.shuffle(keys)
    return keys


def test_a_herd_is_dispatched_as_if_each_had_been_decided(
    app: Flask, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    with app.app_context():
        keys = _plant_mixed(seed, 6)
        clock.set(SLOT - timedelta(hours=1))
        # Some have an open run, and one the very run of its slot.
        _leave_open_runs(keys[:8])
        written = []
        for together in (True, False):
            if not together:
                monkeypatch.setattr(usual, "dispatch", nothing_is_usual)
            with pytest.raises(_Undo) as undone:
                _tried(keys, now=NOW)
            written.append(undone.value.rows)
        together, one_by_one = written
        for name, rows in one_by_one.items():
            assert together[name] == rows, name
        assert count(Run, Run.scheduled_for == SLOT) == 1, "and all of it was taken back"


@operation
def _leave_open_runs(tx: Tx, keys: Sequence[int]) -> None:
    table = cast(Table, Run.__table__)
    for place, definition in enumerate(claim.load_definitions(tx.session, keys)):
        slot = SLOT if place == 0 else SLOT - timedelta(hours=1)
        run = claim._scheduled_run(definition, claim.Slots(slot), now=START)
        if place == 0:
            run |= {"status": "skipped", "error_code": "skipped_by_person", "completed_at": START}
        tx.session.execute(table.insert(), run)


def test_which_of_the_quirks_are_as_usual(app: Flask) -> None:
    """Else the two ways would be alike because nothing ever takes the short one."""
    with app.app_context():
        ground, keys = prepare_ground(START), {}
        for name, quirk in QUIRKS.items():
            (keys[name],) = plant(ground, 1, _TIMETABLES[0], now=START)
            quirk(ground, keys[name], random.Random(1))
        found: list[int] = []

        @operation
        def look(tx: Tx) -> None:
            found.extend(usual.dispatch(tx, list(keys.values()), now=NOW).schedule_pks)

        look()
        assert {name for name, key in keys.items() if key in found} == {
            "JSON null",
            "misfire skip",
            "exactly in time",
            "catches up all",
            "late",
            "claimed before",
            "run by hand later",
            "held back",
            "last but one",
            "two skips",
            "ends today",
            "allows overlap",
            "urgent",
            "mandate lasts",
            "sponsor is admin",
        }


def test_what_breaks_in_the_middle_of_a_herd_leaves_nothing_and_costs_only_itself(
    app: Flask, clock: FrozenClock
) -> None:
    with app.app_context():
        ground = prepare_ground(START)
        keys = plant(ground, 30, _TIMETABLES[0], now=START)
        clock.set(NOW)
        # Somebody else's task has the id that the work of one of them will have.
        thief = keys[20]
        _steal_task_id(thief, now=START)
        with pytest.raises(Exception, match=r"UNIQUE|unique"):
            claim.claim_batch(limit=500, after_network_pk=0, now=NOW)
        assert (count(Run), count(Task), count(TaskEvent)) == (0, 1, 0)
        assert count(Mandate, Mandate.used_runs > 0) == 0
        counts = run_once(app)
        assert (counts["dispatched"], count(Run)) == (30, 30)
        assert count(ScheduleDue, ScheduleDue.due_at <= NOW) == 0


@operation
def _steal_task_id(tx: Tx, schedule_pk: int, *, now: datetime) -> None:
    from webapp.ids import scheduled_run_id, task_id_of_run

    schedule = tx.session.get_one(Schedule, schedule_pk)
    tx.session.add(
        Task(
            task_id=task_id_of_run(scheduled_run_id(schedule.schedule_id, SLOT)),
            network_pk=schedule.network_pk,
            node_pk=schedule.target_pk,
            text_pk=schedule.text_pk,
            priority_rank=1,
            status="replied",
            ttl_seconds=60,
            max_run_seconds=60,
            deadline_at=now,
            created_at=now,
            completed_at=now,
        )
    )
