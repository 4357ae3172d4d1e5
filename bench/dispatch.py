"""How fast does due work become tasks? The product beside a script that wants nothing but speed, and beside an ORM.

`python bench/dispatch.py [--quick] [--engine sqlite|postgresql] [--schedules N] [--herd N]`

Of 1,000,000 schedules 100,000 fall due at once (`--quick`: 2,000 of 20,000). Each becomes a run and a task with its
event, a use of its mandate in the audit, its share of the outbox, and a next slot; overlap and admission are asked.
In one database, one after the other, each with a herd of its own:

- by hand: set-based SQL, 5,000 a batch (`bench/_by_hand.py`), which decides nothing;
- the product: the passes of a worker as it is shipped, in this process;
- ORM: objects and one transaction a slot (`bench/_by_orm.py`), a sample;
- PostgreSQL only: one to four workers, each a process.

Prints rates and ratios, CPU µs and (in a file) journal bytes a slot, and how much slower the last fifth of the batches
was than the first; writes JSON to `bench/results/dispatch.json`. `--check` leaves with status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from flask import Flask  # noqa: E402
from sqlalchemy import event, func, select  # noqa: E402

from bench._by_hand import ByHand  # noqa: E402
from bench._by_orm import dispatch_one  # noqa: E402
from bench._herd import HouseSize, build, fresh_database, settle, slot_of  # noqa: E402
from tests.support.databases import START, config_for, dispose_engines  # noqa: E402
from webapp import create_app  # noqa: E402
from webapp.audit import AuditEntry  # noqa: E402
from webapp.clock import FrozenClock  # noqa: E402
from webapp.identity.models import Network  # noqa: E402
from webapp.mandates.models import Mandate  # noqa: E402
from webapp.nodes.models import Task, TaskEvent  # noqa: E402
from webapp.scheduling import claim  # noqa: E402
from webapp.scheduling.models import Run, ScheduleDue  # noqa: E402
from webapp.scheduling.tick import Worker, tick  # noqa: E402
from webapp.store import dialect, engine, reading  # noqa: E402
from webapp.store.base import to_milliseconds  # noqa: E402
from webapp.worker import new_worker  # noqa: E402

ENGINES = ("sqlite", "postgresql")
LATE = timedelta(seconds=5)
BY_HAND, PRODUCT, ONE, TWO, THREE, FOUR, ORM = HERDS = range(7)
GOALS = {"of_by_hand": 0.5, "times_orm": 80.0, "two_workers": 1.4, "last_fifth": 1.2}


class HerdClock(FrozenClock):
    """The time of day stands still at the herd; seconds that only grow are real, for the size of the batches."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()


@dataclass
class Watch:
    """What a way of dispatching cost. A batch is (slots, seconds)."""

    slots: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    journal_bytes: int = 0
    written_bytes: int = 0
    batches: list[tuple[int, float]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Rates, and costs a slot."""
        return {
            "slots": self.slots,
            "seconds": round(self.seconds, 2),
            "per_second": round(self.slots / self.seconds),
            "cpu_us_per_slot": round(1e6 * self.cpu_seconds / self.slots),
            "server_cpu_us_per_slot": round(1e6 * self.server_cpu_seconds / self.slots),
            "journal_bytes_per_slot": round(self.journal_bytes / self.slots),
            "written_bytes_per_slot": round(self.written_bytes / self.slots),
            "batches": len(self.batches),
            "largest_batch": max((slots for slots, _ in self.batches), default=0),
            "last_fifth": self.last_fifth(),
        }

    def last_fifth(self) -> float | None:
        """Seconds a slot in the last fifth of the batches, against the first."""
        fifth = len(self.batches) // 5
        if fifth == 0:
            return None

        def cost(batches: list[tuple[int, float]]) -> float:
            return sum(seconds for _, seconds in batches) / sum(slots for slots, _ in batches)

        return round(cost(self.batches[-fifth:]) / cost(self.batches[:fifth]), 2)


@contextmanager
def watching() -> Iterator[Watch]:
    """Measure what happens in the block: this process, the server's backends for it, the journal of a file."""
    watch, pool = Watch(), engine()
    journal = Path(str(pool.url.database) + "-journal")

    def note_journal(_connection: Any) -> None:
        if journal.exists():
            watch.journal_bytes += journal.stat().st_size

    event.listen(pool, "commit", note_journal)
    written, server = _written_bytes(), _server_cpu()
    processor, began = time.process_time(), time.perf_counter()
    try:
        yield watch
    finally:
        watch.seconds = time.perf_counter() - began
        watch.cpu_seconds = time.process_time() - processor
        watch.server_cpu_seconds = _server_cpu() - server
        watch.written_bytes = _written_bytes() - written
        event.remove(pool, "commit", note_journal)


def _written_bytes() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def _server_cpu() -> float:
    """CPU seconds of the backends that are connected to this database."""
    with engine().connect() as connection:
        if dialect.is_sqlite(connection):
            return 0.0
        statement = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        pids = [row[0] for row in connection.exec_driver_sql(statement)]
    ticks = 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


# --- The ways ---


def by_hand(now: datetime) -> Watch:
    """The script, network after network."""
    networks = _networks()
    with dialect.write_engine(engine()).connect() as connection:
        if not dialect.is_sqlite(connection):
            connection.exec_driver_sql("SET statement_timeout = 0")
            connection.commit()
        script = ByHand(connection)
        with watching() as watch:
            for network_pk in networks:
                while amount := _timed(
                    watch, lambda network_pk=network_pk: script.batch(network_pk, to_milliseconds(now))
                ):
                    watch.slots += amount
        connection.invalidate()
    return watch


def _networks() -> list[int]:
    with reading() as session:
        return list(session.scalars(select(Network.id).order_by(Network.id)))


def _timed(watch: Watch, batch: Callable[[], int]) -> int:
    began = time.perf_counter()
    amount = batch()
    if amount:
        watch.batches.append((amount, time.perf_counter() - began))
    return amount


def product(clock: HerdClock, worker: Worker) -> Watch:
    """Passes of a worker until nothing is due."""
    claim_batch = claim.claim_batch
    with watching() as watch:

        def noted(**how: Any) -> claim.Claimed:
            began = time.perf_counter()
            claimed = claim_batch(**how)
            if claimed.schedules:
                watch.batches.append((claimed.schedules, time.perf_counter() - began))
            return claimed

        claim.claim_batch = noted
        try:
            while True:
                counts = tick(worker, clock)
                watch.slots += counts["dispatched"]
                if not counts["more"]:
                    break
        finally:
            claim.claim_batch = claim_batch
    return watch


def by_orm(now: datetime, sample: int) -> Watch:
    """A sample of the herd, slot by slot."""
    pool = dialect.write_engine(engine())
    with watching() as watch:
        for network_pk in _networks():
            while watch.slots < sample and dispatch_one(pool, network_pk, now):
                watch.slots += 1
    return watch


def workers(url: str, herd: int, count: int) -> Watch:
    """The product again, in `count` processes that start together."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(count + 1), context.Queue()
    processes = [
        context.Process(target=_work, args=(url, herd, barrier, results), daemon=True) for _ in range(count)
    ]
    for process in processes:
        process.start()
    barrier.wait(timeout=120)
    began, watch = time.perf_counter(), Watch()
    for _ in processes:
        slots, cpu_seconds = results.get(timeout=3600)
        watch.slots += slots
        watch.cpu_seconds += cpu_seconds
    watch.seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    return watch


def _work(url: str, herd: int, barrier: Any, results: Any) -> None:
    clock = HerdClock(slot_of(herd) + LATE)
    app = create_app(config_for(url), clock)
    logging.getLogger().setLevel(logging.WARNING)
    with app.app_context():
        worker = _ready_worker(app, clock)
        barrier.wait(timeout=120)
        processor = time.process_time()
        watch = product(clock, worker)
        results.put((watch.slots, time.process_time() - processor))
    dispose_engines(app)


def _ready_worker(app: Flask, clock: HerdClock) -> Worker:
    """A worker that runs already: what it does each minute and each hour is done."""
    worker = new_worker(app)
    worker.zone_checked = True
    worker.minute_done_at = worker.hour_done_at = clock.now()
    with engine().connect():
        return worker


# --- All of it on one engine ---


def measure(name: str, size: HouseSize, sample: int, folder: Path) -> dict[str, Any]:
    """Every way on one engine, in one database."""
    with fresh_database(name, folder) as url:
        clock = HerdClock(START)
        app = create_app(config_for(url), clock)
        logging.getLogger().setLevel(logging.WARNING)
        began = time.monotonic()
        build(app, clock, size)
        built_seconds = time.monotonic() - began
        with app.app_context():
            with engine().connect() as connection:
                storage = dialect.storage_summary(connection)
            print(f"{storage}: {size.schedules:,} schedules made in {built_seconds:.0f} s", flush=True)
            ways = _all_ways(app, url, clock, size, sample, with_processes=name != "sqlite")
        dispose_engines(app)
    ratios = {
        "of_by_hand": ways["product"]["per_second"] / ways["by_hand"]["per_second"],
        "times_orm": ways["product"]["per_second"] / ways["orm"]["per_second"],
        "last_fifth": ways["product"]["last_fifth"],
    }
    if "two_workers" in ways:
        ratios["two_workers"] = ways["two_workers"]["per_second"] / ways["one_worker"]["per_second"]
    return {
        "storage": storage,
        "built_seconds": round(built_seconds, 1),
        "ways": ways,
        "ratios": {key: round(value, 2) for key, value in ratios.items() if value is not None},
    }


def _all_ways(
    app: Flask, url: str, clock: HerdClock, size: HouseSize, sample: int, *, with_processes: bool
) -> dict[str, Any]:
    ways: dict[str, Any] = {}

    def take(name: str, herd: int, way: Callable[[], Watch], expected: int = size.herd) -> None:
        clock.set(slot_of(herd) + LATE)
        with engine().connect() as connection:
            settle(connection)
            connection.invalidate()
        before = _rows()
        watch = way()
        ways[name] = watch.summary()
        print(f"  {name:<12}{ways[name]['per_second']:>9,} a second", flush=True)
        assert watch.slots == expected, f"{name}: {watch.slots} of {expected}"
        assert {key: count - before[key] for key, count in _rows().items()} == dict.fromkeys(before, expected)

    take("by_hand", BY_HAND, lambda: by_hand(clock.now()))
    take("product", PRODUCT, lambda: product(clock, _ready_worker(app, clock)))
    if with_processes:
        take("one_worker", ONE, lambda: workers(url, ONE, 1))
        take("two_workers", TWO, lambda: workers(url, TWO, 2))
        take("three_workers", THREE, lambda: workers(url, THREE, 3))
        take("four_workers", FOUR, lambda: workers(url, FOUR, 4))
    # Last: it leaves the rest of its herd behind.
    take("orm", ORM, lambda: by_orm(clock.now(), sample), sample)
    return ways


def _rows() -> dict[str, int]:
    with reading() as session:
        counts = {
            model.__tablename__: session.scalar(select(func.count()).select_from(model)) or 0
            for model in (Run, Task, TaskEvent)
        }
        counts["uses"] = (
            session.scalar(
                select(func.count()).select_from(AuditEntry).where(AuditEntry.verb == "mandate.use")
            )
            or 0
        )
        counts["used_runs"] = int(session.scalar(select(func.sum(Mandate.used_runs))) or 0)
        counts["dispatched"] = int(session.scalar(select(func.sum(ScheduleDue.dispatched_count))) or 0)
    return counts


def show(found: dict[str, Any]) -> None:
    """Print the table of one engine."""
    print(f"\n{found['storage']}")
    print(
        f"{'':<14}{'a second':>10}{'CPU µs':>9}{'server µs':>11}{'journal B':>11}{'written B':>11}"
        f"{'batches':>9}{'largest':>9}{'last fifth':>12}"
    )
    for name, way in found["ways"].items():
        print(
            f"{name:<14}{way['per_second']:>10,}{way['cpu_us_per_slot']:>9}{way['server_cpu_us_per_slot']:>11}"
            f"{way['journal_bytes_per_slot']:>11,}{way['written_bytes_per_slot']:>11,}{way['batches']:>9}"
            f"{way['largest_batch']:>9}{way['last_fifth'] or '':>12}"
        )
    for key, ratio in found["ratios"].items():
        print(f"  {key}: {ratio} (goal {GOALS[key]}){'' if _reached(key, ratio) else '  not reached'}")


def _reached(key: str, ratio: float) -> bool:
    return ratio <= GOALS[key] if key == "last_fifth" else ratio >= GOALS[key]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--schedules", type=int)
    parser.add_argument("--herd", type=int)
    parser.add_argument("--check", action="store_true")
    asked, _ = parser.parse_known_args()
    herd = asked.herd or (2_000 if asked.quick else 100_000)
    size = HouseSize(asked.schedules or 10 * herd, herd, herds=len(HERDS))
    sample = min(200 if asked.quick else 1_000, herd)
    results = {}
    for name in asked.engine or ENGINES:
        with tempfile.TemporaryDirectory() as place:
            results[name] = measure(name, size, sample, Path(place))
    for found in results.values():
        show(found)
    document = {"python": platform.python_version(), "size": vars(size), "results": results}
    path = ROOT / "bench" / "results" / "dispatch.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
    missed = [
        f"{name}: {key}"
        for name, found in results.items()
        for key, ratio in found["ratios"].items()
        if not _reached(key, ratio)
    ]
    if missed and asked.check:
        raise SystemExit(f"Not reached: {', '.join(missed)}. Is the machine idle?")


if __name__ == "__main__":
    main()
