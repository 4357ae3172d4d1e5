"""What is planted for a proof: schedules of every kind and policy; and a worker that lives."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.concurrency.planting import Ground, every, plant
from tests.support.file_clock import FileClock
from tests.support.processes import Herd
from webapp.scheduling.lifecycle import MisfirePolicy, OverlapPolicy

# Slots of each minute and less often, by clocks that differ; of those with a clock the zone stands beside.
_TIMETABLES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"type": "cron", "cron": "* * * * *"}, "UTC"),
    ({"type": "cron", "cron": "*/5 * * * MON-SAT"}, "UTC"),
    ({"type": "cron", "cron": "1-59/2 8,9,10 * * *"}, "UTC"),
    ({"type": "daily", "time": "08:20"}, "UTC"),
    ({"type": "weekly", "time": "08:15", "weekdays": [1, 3]}, "UTC"),
)
_POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"overlap_policy": OverlapPolicy.QUEUE_ONE},
    {"overlap_policy": OverlapPolicy.ALLOW},
    {"misfire_policy": MisfirePolicy.SKIP, "misfire_grace_seconds": 30},
    {
        "misfire_policy": MisfirePolicy.CATCH_UP_ALL,
        "catch_up_limit": 5,
        "overlap_policy": OverlapPolicy.QUEUE_ONE,
    },
    {"ttl_seconds": 120},
    {"max_run_seconds": 180, "failure_threshold": 3},
)


def plant_variety(ground: Ground, count: int, *, now: datetime) -> list[int]:
    """About `count` schedules: four of five each minute, the others rarely; every policy among them."""
    keys: list[int] = []
    share = max(1, count // 20)
    first = now.replace(second=0) + timedelta(minutes=1)
    for policy in _POLICIES:
        keys += plant(ground, max(1, count // 10), every(60, first), now=now, **policy)
    for place, (spec, zone) in enumerate(_TIMETABLES):
        policy = _POLICIES[place % len(_POLICIES)]
        keys += plant(ground, share, spec, now=now, timezone=zone, **policy)
    keys += plant(ground, share, every(60, first), now=now, max_runs=3)
    ends = first + timedelta(minutes=6)
    keys += plant(ground, share, every(120, first), now=now, ends_at=ends)
    return keys


def start_calm(herd: Herd, database_url: str, clock: FileClock) -> int:
    """A worker that nothing kills; returns its process id once it can be asked to leave."""
    begun = Path(f"{clock.path}.{uuid4().hex}")
    pid = herd.start(
        "tests.proof.storm:calm",
        None,
        database_url=database_url,
        clock_file=str(clock.path),
        begun=str(begun),
    )
    herd.until(pid, begun.exists, 60)
    return pid
