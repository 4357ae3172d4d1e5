"""A house with several herds: schedules that fall due at the same instant, one herd an hour.

A few schedules are made by the product's own operations and then copied inside the database, one INSERT … SELECT a
table, each copy with a mandate and a due row of its own. A million takes a minute or two.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flask import Flask
from sqlalchemy import Connection, text

from tests.scheduling.stage import set_stage
from tests.support.databases import migrate
from tests.support.postgres import throwaway_cluster
from webapp.clock import FrozenClock
from webapp.identity.models import Membership, Network
from webapp.mandates.models import Mandate
from webapp.nodes.models import Node
from webapp.scheduling.models import Schedule, ScheduleDue
from webapp.store import dialect, engine
from webapp.store.base import to_milliseconds

FIRST_SLOT = datetime(2026, 11, 30, 9, tzinfo=UTC)
NETWORKS, NODES = 4, 200
_BASE = 1000
_HOUR_MS, _WEEK_MS = 3_600_000, 604_800_000
_KINDS = 5
# As the real thing would be: what a commit has answered is on the disk.
_DURABLE = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
}


@dataclass(frozen=True)
class HouseSize:
    """`herds` herds of `herd` schedules each, one an hour; the rest falls due within the week after."""

    schedules: int
    herd: int
    herds: int


def slot_of(herd: int) -> datetime:
    """When the herd of this number (from 0) falls due."""
    return FIRST_SLOT + timedelta(hours=herd)


def _timetables(herd: int) -> tuple[dict[str, Any], ...]:
    """Five timetables with a slot at the hour of this herd, and none at another herd's."""
    hour = FIRST_SLOT.hour + herd
    return (
        {"type": "daily", "time": f"{hour:02}:00"},
        {"type": "cron", "cron": f"0 {hour} * * *"},
        {"type": "cron", "cron": f"0 {hour} * * mon-fri"},
        {"type": "weekly", "time": f"{hour + 1:02}:00", "weekdays": [1], "timezone": "Europe/Berlin"},
        {"type": "interval", "every_seconds": 86_400, "anchor_at": slot_of(herd).isoformat()},
    )


@contextmanager
def fresh_database(name: str, folder: Path) -> Iterator[str]:
    """The address of an empty, migrated database of this engine, on a real disk, with commits that last."""
    if name == "sqlite":
        url = f"sqlite:///{folder / 'herd.db'}"
        migrate(url)
        yield url
        return
    with throwaway_cluster(folder=Path(tempfile.gettempdir()), settings=_DURABLE) as cluster:
        url = cluster.create("herd")
        migrate(url)
        yield url


def build(app: Flask, clock: FrozenClock, size: HouseSize) -> None:
    """Fill the empty, migrated database of `app`."""
    assert size.herd * size.herds <= size.schedules
    with app.app_context():
        stage = next(set_stage(app, clock))
        for herd in range(size.herds):
            for timetable in _timetables(herd):
                zone = timetable.pop("timezone", "UTC")
                stage.pause(stage.create(name=f"Seed {herd}", schedule=timetable, timezone=zone))
        with engine().connect() as connection:
            _trust(connection)
            _copy_all(connection, size, stage.cast.network.id)
            settle(connection)
            # It is not to go back into the pool as it is now.
            connection.invalidate()


def settle(connection: Connection) -> None:
    """What a server does by itself some time after many rows came."""
    if not dialect.is_sqlite(connection):
        connection.exec_driver_sql("SET statement_timeout = 0")
        connection.exec_driver_sql("VACUUM ANALYZE")
        connection.exec_driver_sql("CHECKPOINT")


def _trust(connection: Connection) -> None:
    if dialect.is_sqlite(connection):
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        connection.exec_driver_sql("PRAGMA synchronous = OFF")
    else:
        connection.exec_driver_sql("SET session_replication_role = replica")
        connection.exec_driver_sql("SET statement_timeout = 0")


def _copy(connection: Connection, model: type[Any], count: int, seed: str, **values: object) -> None:
    """`count` copies of the seed row `s`, the i-th with these expressions of `i` in place of its values."""
    table = model.__table__
    columns = [column.name for column in table.columns if column.name != "id" or "id" in values]
    chosen = [str(values.get(name, f"s.{name}")) for name in columns]
    connection.execute(
        text(
            f"INSERT INTO {table.name} ({', '.join(columns)}) "
            "WITH RECURSIVE numbers(i) AS (SELECT CAST(1 AS bigint) UNION ALL "
            f"SELECT i + 1 FROM numbers WHERE i < {count}) "
            f"SELECT {', '.join(chosen)} FROM numbers JOIN {table.name} AS s ON {seed}"
        )
    )


def _public(prefix: str, key: str) -> str:
    """An id as wide as a real one."""
    return f"'{prefix}_0' || (1000000000000000000 + {key})"


def _copy_all(connection: Connection, size: HouseSize, network_pk: int) -> None:
    key, network = f"{_BASE} + i", f"{_BASE} + 1 + i % {NETWORKS}"
    slug = f"'house-' || ({key})"
    _copy(
        connection,
        Network,
        NETWORKS,
        f"s.id = {network_pk}",
        id=key,
        network_id=_public("net", key),
        slug=slug,
        name=slug,
    )
    sponsor = "(SELECT min(sponsor_pk) FROM schedules)"
    _copy(
        connection,
        Membership,
        NETWORKS,
        f"s.network_pk = {network_pk} AND s.user_pk = {sponsor}",
        network_pk=key,
    )
    _copy(
        connection,
        Node,
        NODES,
        "s.id = 1",
        id=key,
        node_id=_public("node", key),
        network_pk=network,
        alias="'node-' || i",
    )
    # A node of the same network, as NODES is a multiple of NETWORKS.
    place = f"(i % {NODES} + CASE WHEN i % {NODES} = 0 THEN {NODES} ELSE 0 END)"
    node = f"({_BASE} + {place})"
    policy = (
        """'{"version": 1, "apps": ["nodes"], "operations": ["nodes.send_task"], "actions": "preapproved", '"""
        f""" || '"targets": ["node:' || {_public("node", node)} || '"]}}'"""
    )
    _copy(
        connection,
        Mandate,
        size.schedules,
        "s.id = 1",
        id=key,
        mandate_id=_public("mand", key),
        network_pk=network,
        workload=f"'schedule:' || {_public('sched', key)}",
        policy=f"CAST({policy} AS {'text' if dialect.is_sqlite(connection) else 'json'})",
        state="'active'",
    )
    groups = size.schedules // size.herd
    herd = f"CASE WHEN i % {groups} < {size.herds} THEN i % {groups} ELSE 0 END"
    seed = f"1 + {_KINDS} * ({herd}) + (i / {groups}) % {_KINDS}"
    _copy(
        connection,
        Schedule,
        size.schedules,
        f"s.id = {seed}",
        id=key,
        schedule_id=_public("sched", key),
        short_id="'x' || i",
        network_pk=network,
        name="'Nightly sweep ' || i",
        target_pk=node,
        target_id=_public("node", node),
        target_alias=f"'node-' || {place}",
        status="'active'",
        status_reason="NULL",
        paused_by_pk="NULL",
        mandate_pk=key,
        mandate_id=_public("mand", key),
        mandate_revision="(SELECT revision FROM mandates WHERE id = 1)",
    )
    first, last = to_milliseconds(FIRST_SLOT), to_milliseconds(slot_of(size.herds))
    slot = (
        f"CASE WHEN i % {groups} < {size.herds} THEN {first} + (i % {groups}) * {_HOUR_MS}"
        f" ELSE {last + 24 * _HOUR_MS} + (i * 7919) % {_WEEK_MS} END"
    )
    _copy(
        connection,
        ScheduleDue,
        size.schedules,
        "s.schedule_pk = 1",
        schedule_pk=key,
        network_pk=network,
        next_run_at=slot,
        due_at=slot,
    )
