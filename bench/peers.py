"""The same errand for everybody: so many schedules fall due at one instant, each becomes one durable row of work.

`python bench/peers.py [--quick] [--engine sqlite|postgresql] [--count N] [--check]`

10,000 (`--quick`: 500), one scheduler after the other, each in a process of its own that has been waiting for the
slot: Carillon's worker, APScheduler 3 with the SQLAlchemy store, Huey on SQLite with fsync, Procrastinate on
PostgreSQL; how each is set up says `bench/_peers.py`. A look at the database every 20 ms tells when the first and the
last row were there. Nobody carries anything out. Celery and RQ are not among them: each needs a broker besides, a
server that keeps its queue in memory unless told otherwise.

Prints a table and writes JSON to `bench/results/peers.json`; `--check` leaves with status 1 where a peer is ahead.
"""

from __future__ import annotations

import argparse
import logging
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import psycopg  # noqa: E402

from bench import _peers  # noqa: E402
from bench._herd import _DURABLE, HouseSize, build, settle  # noqa: E402
from bench._stand import (  # noqa: E402
    ENGINES,
    Child,
    ahead_of,
    child,
    cpu_seconds,
    finish,
    house_time,
    retime,
    used_while_idle,
    wait_until_calm,
    work_loop,
    write_results,
)
from tests.support.databases import START, config_for, dispose_engines, migrate  # noqa: E402
from tests.support.postgres import Cluster, throwaway_cluster  # noqa: E402
from webapp import create_app  # noqa: E402
from webapp.clock import FrozenClock  # noqa: E402
from webapp.store import engine  # noqa: E402

LOOK_EVERY_SECONDS = 0.02
STALLED_SECONDS = 15.0
PER_SLOT = {
    "Carillon": "run with history, task with its event, use of the mandate, audit, overlap, admission, "
    "events for pages and nodes, next slot; one transaction for many",
    "APScheduler": "row written by the job, next slot; no record of the run",
    "APScheduler, defaults": "the same; what is over a second late is dropped",
    "Huey": "row in the queue; next slots are not stored",
    "Procrastinate": "job with its event, unique key of task and slot; next slots are not stored",
}


@dataclass(frozen=True)
class Watched:
    """How to count what one scheduler has dispatched, and (on a server) what its backends have used."""

    rows: Callable[[], int]
    server_cpu: Callable[[], float] = lambda: 0.0


@contextmanager
def watch_file(path: Path, table: str) -> Iterator[Watched]:
    """Rows of a table in a file that may not be there yet."""
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)

    def rows() -> int:
        try:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    try:
        yield Watched(rows)
    finally:
        connection.close()


@contextmanager
def watch_server(cluster: Cluster, database: str, table: str) -> Iterator[Watched]:
    """Rows of a table, and CPU seconds of the backends of everybody else in this database."""
    where = f"host={cluster.socket_dir} user=postgres dbname={database}"
    with psycopg.connect(where, autocommit=True) as connection:

        def rows() -> int:
            try:
                found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            except psycopg.errors.UndefinedTable:
                return 0
            return int(found[0]) if found else 0

        def server_cpu() -> float:
            pids = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
            return sum(cpu_seconds(pid) for (pid,) in pids)

        yield Watched(rows, server_cpu)


def observe(peer: Child, slot: float, watched: Watched, count: int, idle_seconds: float) -> dict[str, Any]:
    """The idle time before the slot, then the herd: when its first and its last row were there."""
    idle = used_while_idle(peer.pid, min(idle_seconds, slot - time.time() - 0.5))
    assert slot > time.time(), "The machine is too busy: the slot had passed before everything was there."
    before = watched.rows()
    time.sleep(max(0.0, slot - time.time() - 0.05))
    processor, server = cpu_seconds(peer.pid), watched.server_cpu()
    first = last = 0.0
    seen = 0
    changed = time.time()
    while seen < count and time.time() - changed < STALLED_SECONDS:
        rows, now = watched.rows() - before, time.time()
        if rows > seen:
            first = first or now
            seen, last, changed = rows, now, now
        time.sleep(LOOK_EVERY_SECONDS)
    # What it does for the herd may go on after the last row: its own next slots.
    time.sleep(0.5)
    used, server_used = cpu_seconds(peer.pid) - processor, watched.server_cpu() - server
    return {
        "dispatched": seen,
        "dropped": count - seen,
        "per_second": round(seen / max(last - slot, LOOK_EVERY_SECONDS)) if seen else 0,
        "per_second_once_begun": round(seen / max(last - first, LOOK_EVERY_SECONDS)) if seen else 0,
        "first_lag_s": round(first - slot, 2),
        "last_lag_s": round(last - slot, 2),
        "cpu_us_per_slot": round(1e6 * used / max(seen, 1)),
        "server_cpu_us_per_slot": round(1e6 * server_used / max(seen, 1)),
        "idle_cpu_percent": idle["cpu_percent"],
        "memory_mib": idle["memory_mib"],
    }


def carillon(url: str, watching: Any, count: int, idle_seconds: float) -> dict[str, Any]:
    """The worker as it is shipped, in a house of as many schedules as fall due."""
    migrate(url)
    clock = FrozenClock(START)
    app = create_app(config_for(url), clock)
    logging.getLogger().setLevel(logging.WARNING)
    build(app, clock, HouseSize(count, count, 1))
    ahead = ahead_of(START)
    with app.app_context(), child(work_loop, url, ahead) as worker, watching as watched:
        wait_until_calm()
        with engine().connect() as connection:
            slot = _peers.slot_after(idle_seconds + 30.0 + count / 200)
            rows = connection.exec_driver_sql("SELECT schedule_pk FROM schedule_due WHERE schedule_pk > 1000")
            retime(connection, {row[0]: house_time(slot, ahead) for row in rows})
            settle(connection)
            connection.invalidate()
        found = observe(worker, slot, watched, count, idle_seconds)
    dispose_engines(app)
    return found


def peer(
    work: Any, arguments: tuple[Any, ...], watching: Any, count: int, idle_seconds: float
) -> dict[str, Any]:
    """One of the others."""
    with child(work, *arguments) as process, watching as watched:
        word, slot = process.hear(1200)
        assert word == "ready"
        return observe(process, slot, watched, count, idle_seconds)


def on_files(folder: Path, count: int, idle_seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everybody who can do with a file."""
    ours = folder / "carillon.db"
    yield "Carillon", carillon(f"sqlite:///{ours}", watch_file(ours, "tasks"), count, idle_seconds)
    for name, defaults in (("APScheduler", False), ("APScheduler, defaults", True)):
        jobs, inbox = folder / f"jobs-{defaults}.db", folder / f"inbox-{defaults}.db"
        with sqlite3.connect(inbox) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(_peers.INBOX.format(""))
        arguments = (f"sqlite:///{jobs}", str(inbox), count, idle_seconds, defaults)
        yield name, peer(_peers.apscheduler, arguments, watch_file(inbox, "inbox"), count, idle_seconds)
    path = folder / "huey.db"
    arguments_of_huey = (str(path), count, idle_seconds)
    yield "Huey", peer(_peers.huey, arguments_of_huey, watch_file(path, "task"), count, idle_seconds)


def on_server(cluster: Cluster, count: int, idle_seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everybody who can do with a server."""
    url = cluster.create("carillon")
    yield "Carillon", carillon(url, watch_server(cluster, "carillon", "tasks"), count, idle_seconds)
    for number, (name, defaults) in enumerate((("APScheduler", False), ("APScheduler, defaults", True))):
        database = f"jobs{number}"
        url, inbox = cluster.create(database), f"host={cluster.socket_dir} user=postgres dbname={database}"
        with psycopg.connect(inbox) as connection:
            connection.execute(_peers.INBOX.format("GENERATED ALWAYS AS IDENTITY"))
        arguments = (url, inbox, count, idle_seconds, defaults)
        watching = watch_server(cluster, database, "inbox")
        yield name, peer(_peers.apscheduler, arguments, watching, count, idle_seconds)
    cluster.create("procrastinate")
    conninfo = f"host={cluster.socket_dir} user=postgres dbname=procrastinate"
    watching = watch_server(cluster, "procrastinate", "procrastinate_jobs")
    yield (
        "Procrastinate",
        peer(_peers.procrastinate, (conninfo, count, idle_seconds), watching, count, idle_seconds),
    )


def show(name: str, found: dict[str, dict[str, Any]]) -> None:
    """Print the table of one engine."""
    print(f"\n{name}")
    print(
        f"{'':<23}{'a second':>10}{'once begun':>12}{'first s':>9}{'last s':>9}{'dropped':>9}{'CPU µs':>8}"
        f"{'server µs':>11}{'idle %':>8}{'MiB':>6}"
    )
    for who, way in found.items():
        print(
            f"{who:<23}{way['per_second']:>10,}{way['per_second_once_begun']:>12,}{way['first_lag_s']:>9}"
            f"{way['last_lag_s']:>9}{way['dropped']:>9,}{way['cpu_us_per_slot']:>8,}"
            f"{way['server_cpu_us_per_slot']:>11,}{way['idle_cpu_percent']:>8}{way['memory_mib']:>6}"
        )


def missed_of(name: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """Peers that were not left behind in throughput and in the lag of the last one."""
    ours = found["Carillon"]
    return [
        f"{name}: {who} is ahead"
        for who, way in found.items()
        if who != "Carillon"
        and (
            way["per_second_once_begun"] >= ours["per_second_once_begun"]
            or way["last_lag_s"] <= ours["last_lag_s"]
        )
        and not way["dropped"]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--count", type=int)
    parser.add_argument("--check", action="store_true")
    asked, _ = parser.parse_known_args()
    count = asked.count or (500 if asked.quick else 10_000)
    idle_seconds = 3.0 if asked.quick else 20.0
    results: dict[str, dict[str, dict[str, Any]]] = {}
    missed = []
    for name in asked.engine or ENGINES:
        results[name] = {}
        with tempfile.TemporaryDirectory() as place:
            if name == "sqlite":
                measured = on_files(Path(place), count, idle_seconds)
                _collect(results[name], measured)
            else:
                with throwaway_cluster(folder=Path(tempfile.gettempdir()), settings=_DURABLE) as cluster:
                    _collect(results[name], on_server(cluster, count, idle_seconds))
        show(name, results[name])
        missed += missed_of(name, results[name])
    write_results("peers", count=count, per_slot=PER_SLOT, results=results)
    finish(missed, check=asked.check)


def _collect(found: dict[str, dict[str, Any]], measured: Iterator[tuple[str, dict[str, Any]]]) -> None:
    for who, way in measured:
        found[who] = way
        print(f"  {who}: {way['per_second']:,} a second", flush=True)


if __name__ == "__main__":
    main()
