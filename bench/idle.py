"""What does waiting cost, and how late is a wake-up? In a house of 1,000 schedules and in one of 1,000,000.

`python bench/idle.py [--quick] [--engine sqlite|postgresql] [--part ticks|asleep|lag] [--check]`

- ticks: a pass that finds nothing due, in houses of 1,000 to 1,000,000 schedules (`--quick`: to 10,000), and
  in the same houses how fast 200 are dispatched that fall due at one instant;
- asleep: CPU and memory of a worker process that has nothing to do for a minute (`--quick`: ten seconds), in the
  smallest and in the largest house; what it does at its start and once an hour is done before and reported apart;
- lag: 200 slots a second at random instants for 30 s (`--quick`: 5 s), from the slot to the commit of its task.

Prints tables and writes JSON to `bench/results/idle.json`; `--check` leaves with status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from flask import Flask  # noqa: E402
from sqlalchemy import Connection  # noqa: E402

from bench._herd import HouseSize, build, fresh_database, settle, slot_of  # noqa: E402
from bench._stand import (  # noqa: E402
    ENGINES,
    ahead_of,
    child,
    cpu_seconds,
    finish,
    house_time,
    percentile,
    retime,
    spread,
    used_while_idle,
    wait_until_calm,
    work_loop,
    write_results,
)
from bench.dispatch import LATE, HerdClock, _ready_worker, product  # noqa: E402
from tests.support.databases import START, config_for, dispose_engines  # noqa: E402
from webapp import create_app  # noqa: E402
from webapp.scheduling.tick import tick  # noqa: E402
from webapp.store import dialect, engine  # noqa: E402

PARTS = ("ticks", "asleep", "lag")
HERD, HERDS = 200, 5
SIZES, QUICK_SIZES = (1_000, 10_000, 100_000, 1_000_000), (1_000, 10_000)
PASSES = 300
A_SECOND = 200
POLL_P99_MS = 990.0
GOALS = {"tick_ratio": 1.5, "asleep_percent": 0.5, "lag_p99_ms": POLL_P99_MS / 100}


class House:
    """A filled database of one engine, with an app whose clock stands before the first slot."""

    def __init__(self, url: str, size: HouseSize) -> None:
        self.url, self.clock = url, HerdClock(START)
        self.app: Flask = create_app(config_for(url), self.clock)
        logging.getLogger().setLevel(logging.WARNING)
        build(self.app, self.clock, size)


def measure_house(name: str, schedules: int, parts: set[str], asleep_seconds: float) -> dict[str, Any]:
    """Passes and sleep in one house, then its herds."""
    with tempfile.TemporaryDirectory() as place, fresh_database(name, Path(place)) as url:
        house = House(url, HouseSize(schedules, HERD, HERDS))
        found: dict[str, Any] = {"schedules": schedules}
        with house.app.app_context():
            with engine().connect() as connection:
                found["storage"] = dialect.storage_summary(connection)
            if "asleep" in parts:
                found["asleep"] = asleep(url, asleep_seconds)
            if "ticks" in parts:
                found["tick"] = empty_passes(house)
                found["dispatched_per_second"] = round(median(_herd(house, herd) for herd in range(HERDS)))
        dispose_engines(house.app)
    return found


def empty_passes(house: House) -> dict[str, float]:
    """Microseconds of a pass that finds nothing: by the clock, and of CPU in this process."""
    worker = _ready_worker(house.app, house.clock)
    for _ in range(20):
        assert not tick(worker, house.clock)["schedules"]
    walls, processor = [], time.process_time()
    for _ in range(PASSES):
        began = time.perf_counter()
        tick(worker, house.clock)
        walls.append(1e6 * (time.perf_counter() - began))
    used = 1e6 * (time.process_time() - processor) / PASSES
    return {"wall_us": round(median(walls)), "cpu_us": round(used)}


def _herd(house: House, herd: int) -> float:
    house.clock.set(slot_of(herd) + LATE)
    watch = product(house.clock, _ready_worker(house.app, house.clock))
    assert watch.slots == HERD, watch.slots
    return watch.slots / watch.seconds


def asleep(url: str, seconds: float) -> dict[str, float]:
    """A real worker at half past eight, with nothing due before nine."""
    with child(work_loop, url, ahead_of(START)) as worker:
        began = time.monotonic()
        wait_until_calm()
        start_cpu, start_seconds = cpu_seconds(worker.pid), time.monotonic() - began
        return {
            **used_while_idle(worker.pid, seconds),
            "start_cpu_seconds": round(start_cpu, 2),
            "start_seconds": round(start_seconds, 1),
        }


def lag(name: str, seconds: float) -> dict[str, Any]:
    """Slots at random instants; milliseconds from each to the commit of the transaction that claimed it."""
    count = round(A_SECOND * seconds)
    with tempfile.TemporaryDirectory() as place, fresh_database(name, Path(place)) as url:
        house = House(url, HouseSize(count, count, 1))
        chance, ahead = random.Random(5), ahead_of(START)
        with house.app.app_context(), child(work_loop, url, ahead) as worker:
            wait_until_calm()
            with engine().connect() as connection:
                first = time.time() + 40.0 + count / 200
                due_at = {key: round(first + chance.random() * seconds, 3) for key in _keys_of(connection)}
                retime(connection, {key: house_time(at, ahead) for key, at in due_at.items()})
                settle(connection)
                connection.invalidate()
            assert time.time() < first, (
                "The machine is too busy: the first slot had passed before all was there."
            )
            time.sleep(first - time.time())
            before = cpu_seconds(worker.pid)
            time.sleep(seconds + 1.0)
            batches = _all_batches(worker, count)
            used = cpu_seconds(worker.pid) - before
        dispose_engines(house.app)
    late = [1000 * (done - due_at[key]) for keys, _, done in batches for key in keys if key in due_at]
    assert len(late) == count, f"{len(late)} of {count}"
    return {
        **spread(late),
        "p90": round(percentile(late, 90), 1),
        "batches": len(batches),
        "longest_batch_ms": round(1000 * max(done - began for _, began, done in batches), 1),
        "cpu_us_per_slot": round(1e6 * used / count),
    }


def _keys_of(connection: Connection) -> list[int]:
    statement = "SELECT schedule_pk FROM schedule_due WHERE next_run_at IS NOT NULL AND schedule_pk > 1000"
    return [row[0] for row in connection.exec_driver_sql(statement)]


def _all_batches(worker: Any, count: int) -> list[tuple[tuple[int, ...], float, float]]:
    deadline = time.monotonic() + 60
    while True:
        worker.pipe.send("batches")
        batches: list[tuple[tuple[int, ...], float, float]] = worker.hear(10)
        if sum(len(keys) for keys, _, _ in batches) >= count or time.monotonic() > deadline:
            return batches
        time.sleep(0.5)


def measure(name: str, parts: set[str], sizes: tuple[int, ...], *, quick: bool) -> dict[str, Any]:
    """What was asked for on one engine."""
    found: dict[str, Any] = {"houses": []}
    for schedules in sizes:
        # A minute of sleep in the smallest and in the largest house.
        here = parts if schedules in (sizes[0], sizes[-1]) else parts - {"asleep"}
        if here & {"ticks", "asleep"}:
            found["houses"].append(measure_house(name, schedules, here, 10.0 if quick else 60.0))
            print(f"  {name}: house of {schedules:,} measured", flush=True)
    if "lag" in parts:
        found["lag"] = lag(name, 5.0 if quick else 30.0)
    return found


def ratios_of(found: dict[str, Any]) -> dict[str, float]:
    """What the goals are about."""
    ratios: dict[str, float] = {}
    ticks = [house["tick"]["wall_us"] for house in found["houses"] if "tick" in house]
    if len(ticks) > 1:
        ratios["tick_ratio"] = round(ticks[-1] / ticks[0], 2)
    slept = [house["asleep"]["cpu_percent"] for house in found["houses"] if "asleep" in house]
    if slept:
        ratios["asleep_percent"] = max(slept)
    if "lag" in found:
        ratios["lag_p99_ms"] = found["lag"]["p99"]
    return ratios


def show(name: str, found: dict[str, Any]) -> None:
    """Print the tables of one engine."""
    print(f"\n{name}")
    print(
        f"{'schedules':>11}{'tick µs':>9}{'CPU µs':>8}{'200 due: /s':>13}{'asleep %':>10}{'MiB':>6}"
        f"{'start CPU s':>13}"
    )
    for house in found["houses"]:
        tick_, slept = house.get("tick", {}), house.get("asleep", {})
        print(
            f"{house['schedules']:>11,}{tick_.get('wall_us', ''):>9}{tick_.get('cpu_us', ''):>8}"
            f"{house.get('dispatched_per_second', ''):>13}{slept.get('cpu_percent', ''):>10}"
            f"{slept.get('memory_mib', ''):>6}{slept.get('start_cpu_seconds', ''):>13}"
        )
    if "lag" in found:
        late = found["lag"]
        print(
            f"{A_SECOND} due a second: half within {late['p50']} ms, 99 % within {late['p99']} ms,"
            f" worst {late['worst']} ms; {late['batches']} batches, {late['cpu_us_per_slot']} CPU µs a slot."
            f" A look each second: 500 ms and {POLL_P99_MS:.0f} ms by arithmetic."
        )
    for key, ratio in found["goals"].items():
        print(
            f"  {key}: {ratio} (goal at most {GOALS[key]:g}){'' if ratio <= GOALS[key] else '  not reached'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--check", action="store_true")
    asked, _ = parser.parse_known_args()
    parts, results = set(asked.part or PARTS), {}
    for name in asked.engine or ENGINES:
        results[name] = measure(name, parts, QUICK_SIZES if asked.quick else SIZES, quick=asked.quick)
        results[name]["goals"] = ratios_of(results[name])
        show(name, results[name])
    write_results("idle", quick=asked.quick, results=results)
    missed = [
        f"{name}: {key}"
        for name, found in results.items()
        for key, ratio in found["goals"].items()
        if ratio > GOALS[key]
    ]
    finish(missed, check=asked.check)


if __name__ == "__main__":
    main()
