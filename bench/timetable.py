"""What one "when is the next slot?" costs, beside three libraries: `python bench/timetable.py [--rounds N]`.

Every contestant is given its best case: the expression is parsed beforehand, one object is kept, and each answer is
asked for from the one before it. Rounds are interleaved, so that a busy moment of the machine hits all alike, and the
median counts. Prints microseconds a call and how many times dearer than ours each is; writes JSON to
`bench/results/timetable.json`. A library that lacks a shape is left out of that row.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from apscheduler.triggers.cron import CronTrigger  # noqa: E402
from apscheduler.triggers.interval import IntervalTrigger  # noqa: E402
from croniter import croniter  # noqa: E402
from cronsim import CronSim  # noqa: E402

from webapp.timetable import ZONE_DATA_VERSION, Timetable, parse_timetable, zone  # noqa: E402

ZONE = "Europe/Berlin"
START = datetime(2026, 1, 5, 12, 3, 30, tzinfo=UTC)
Chain = Callable[[int], datetime]
"""Asks for so many slots in a row and returns the last one."""


@dataclass(frozen=True)
class Shape:
    """One row: our timetable, the same as cron, as arguments of an APScheduler trigger, and slots a round."""

    name: str
    spec: dict[str, Any]
    cron: str | None
    apscheduler: dict[str, Any]
    slots: int


SHAPES = (
    Shape("daily", {"type": "daily", "time": "09:00"}, "0 9 * * *", {"hour": 9, "minute": 0}, 200),
    Shape(
        "weekly",
        {"type": "weekly", "time": "02:30", "weekdays": [0]},
        "30 2 * * 0",
        {"day_of_week": "sun", "hour": 2, "minute": 30},
        100,
    ),
    Shape("*/5", {"type": "cron", "cron": "*/5 * * * *"}, "*/5 * * * *", {"minute": "*/5"}, 400),
    Shape(
        "29 February",
        {"type": "cron", "cron": "0 9 29 2 *"},
        "0 9 29 2 *",
        {"month": 2, "day": 29, "hour": 9, "minute": 0},
        12,
    ),
    Shape(
        "weekdays",
        {"type": "weekly", "time": "09:00", "weekdays": [1, 2, 3, 4, 5]},
        "0 9 * * 1-5",
        {"day_of_week": "mon-fri", "hour": 9, "minute": 0},
        200,
    ),
    Shape("interval", {"type": "interval", "every_seconds": 1000}, None, {"seconds": 1000}, 400),
)


def ours(timetable: Timetable) -> Chain:
    def run(slots: int) -> datetime:
        slot = START
        for _ in range(slots):
            following = timetable.next_after(slot)
            assert following is not None
            slot = following
        return slot

    return run


def with_cronsim(expression: str) -> Chain:
    local = START.astimezone(zone(ZONE))

    def run(slots: int) -> datetime:
        iterator = CronSim(expression, local)
        for _ in range(slots):
            slot = next(iterator)
        return slot

    return run


def with_croniter(expression: str) -> Chain:
    local = START.astimezone(zone(ZONE))

    def run(slots: int) -> datetime:
        iterator = croniter(expression, local)
        for _ in range(slots):
            slot: datetime = iterator.get_next(datetime)
        return slot

    return run


def with_apscheduler(shape: Shape) -> Chain:
    info = zone(ZONE)
    trigger = (
        CronTrigger(timezone=info, **shape.apscheduler)
        if shape.cron
        else IntervalTrigger(start_date=START, timezone=info, **shape.apscheduler)
    )
    local = START.astimezone(info)

    def run(slots: int) -> datetime:
        previous, now = None, local
        for _ in range(slots):
            now = trigger.get_next_fire_time(previous, now)
            previous = now
        return now

    return run


def contestants(shape: Shape) -> dict[str, Chain]:
    found = {"ours": ours(parse_timetable(shape.spec, ZONE, now=START))}
    if shape.cron:
        found["cronsim"] = with_cronsim(shape.cron)
        found["croniter"] = with_croniter(shape.cron)
    found["apscheduler"] = with_apscheduler(shape)
    return found


def measure(shape: Shape, rounds: int) -> dict[str, float]:
    """Name -> median microseconds a call."""
    chains = contestants(shape)
    for chain in chains.values():
        chain(shape.slots)
    taken: dict[str, list[float]] = {name: [] for name in chains}
    for _ in range(rounds):
        for name, chain in chains.items():
            begun = perf_counter_ns()
            chain(shape.slots)
            taken[name].append((perf_counter_ns() - begun) / shape.slots / 1000)
    return {name: median(values) for name, values in taken.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args().rounds
    rivals = ("cronsim", "croniter", "apscheduler")
    print(f"{'shape':<12} {'ours µs':>8} " + "".join(f"{name + ' µs':>16} {'ratio':>7}" for name in rivals))
    rows, cheapest = {}, True
    for shape in SHAPES:
        cost = measure(shape, rounds)
        ratios = {name: cost[name] / cost["ours"] for name in rivals if name in cost}
        cheapest = cheapest and min(ratios.values()) > 1
        cells = "".join(
            f"{cost[name]:>16.2f} {ratios[name]:>6.1f}x" if name in cost else f"{'–':>16} {'–':>7}"
            for name in rivals
        )
        print(f"{shape.name:<12} {cost['ours']:>8.2f} {cells}")
        rows[shape.name] = {
            "microseconds": {name: round(value, 3) for name, value in cost.items()},
            "times_ours": {name: round(value, 2) for name, value in ratios.items()},
        }
    result = {
        "what": "median microseconds for one next slot, and each library as a multiple of ours",
        "python": platform.python_version(),
        "zone_data": ZONE_DATA_VERSION,
        "versions": {name: version(name) for name in rivals},
        "rounds": rounds,
        "shapes": rows,
        "ours_is_cheapest_in_each": cheapest,
    }
    target = ROOT / "bench" / "results" / "timetable.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if cheapest else 1


if __name__ == "__main__":
    sys.exit(main())
