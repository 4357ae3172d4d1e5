"""How long does the server think about a page, in a house of ten rows and in one of a million runs?

`python bench/pages.py [--quick] [--engine sqlite|postgresql] [--rounds N]`

Every page of the URL map that shows data is asked for in this process by the test client, the same house twice: ten
of everything, then 100,000 schedules and 1,000,000 runs with their mandates, tasks, audit, chats and cards (`--quick`:
2,000 and 20,000). Prints median and 95 % in ms, the CPU time, the number of statements and how the large house
compares with the small one, and writes JSON to `bench/results/pages.json`. Leaves with status 1 where a page needs
more statements in the large house than in the small one.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from flask import Flask  # noqa: E402

from tests.factories import signed_in  # noqa: E402
from tests.support.databases import START, config_for, dispose_engines, migrate  # noqa: E402
from tests.support.large_house import LargeHouse, Size, build, pages_of  # noqa: E402
from tests.support.postgres import throwaway_cluster  # noqa: E402
from tests.support.statements import statements_of  # noqa: E402
from webapp import create_app  # noqa: E402
from webapp.clock import FrozenClock  # noqa: E402
from webapp.store import dialect, engine  # noqa: E402

ENGINES = ("sqlite", "postgresql")
SMALL = Size.of_all(10)
LARGE = Size(schedules=100_000, runs=1_000_000, nodes=200, chats=400)
QUICK = Size(schedules=2_000, runs=20_000, nodes=50, chats=50)
GOAL_MS = 30


@dataclass(frozen=True)
class Asked:
    """What one page cost, in milliseconds."""

    median_ms: float
    p95_ms: float
    cpu_ms: float
    statements: int
    kib: float


@contextmanager
def fresh_database(name: str, folder: Path) -> Iterator[str]:
    """The address of an empty, migrated database of this engine."""
    if name == "sqlite":
        url = f"sqlite:///{folder / 'pages.db'}"
        migrate(url)
        yield url
        return
    with throwaway_cluster() as cluster:
        url = cluster.create("pages")
        migrate(url)
        yield url


def settle() -> None:
    """What a server does by itself some time after many rows came."""
    with engine().connect() as connection:
        if not dialect.is_sqlite(connection):
            connection.exec_driver_sql("SET statement_timeout = 0")
            connection.exec_driver_sql("VACUUM ANALYZE")
            connection.invalidate()


def ask_all(app: Flask, house: LargeHouse, rounds: int) -> dict[str, Asked]:
    """Every page, `rounds` times after one that warms up."""
    with app.app_context():
        pages, pool = pages_of(house), engine()
    client = signed_in(app, house.viewer)
    return {name: _ask(client, pool, path, rounds) for name, path in pages.items()}


def _ask(client: Any, pool: Any, path: str, rounds: int) -> Asked:
    with statements_of(pool) as sent:
        answer = client.get(path)
    assert answer.status_code == 200, f"{path}: {answer.status_code}"
    walls, processor = [], time.process_time()
    for _ in range(rounds):
        began = time.perf_counter()
        client.get(path)
        walls.append((time.perf_counter() - began) * 1000)
    used = (time.process_time() - processor) * 1000 / rounds
    return Asked(
        median_ms=round(median(walls), 2),
        p95_ms=round(quantiles(walls, n=20)[-1], 2),
        cpu_ms=round(used, 2),
        statements=len(sent),
        kib=round(len(answer.data) / 1024, 1),
    )


def measure(name: str, size: Size, rounds: int, folder: Path) -> dict[str, Any]:
    """The pages of a house of this size on one engine."""
    with fresh_database(name, folder) as url:
        clock = FrozenClock(START)
        app = create_app(config_for(url), clock)
        logging.getLogger().setLevel(logging.WARNING)
        began = time.monotonic()
        house = build(app, clock, size)
        with app.app_context():
            settle()
            with engine().connect() as connection:
                storage = dialect.storage_summary(connection)
        built = time.monotonic() - began
        pages = ask_all(app, house, rounds)
        dispose_engines(app)
    return {"storage": storage, "built_seconds": round(built, 1), "pages": pages}


def compare(name: str, size: Size, rounds: int) -> dict[str, Any]:
    """Both houses on one engine."""
    found = {}
    for house, rows in (("small", SMALL), ("large", size)):
        with tempfile.TemporaryDirectory() as place:
            found[house] = measure(name, rows, rounds, Path(place))
    return found


def show(found: dict[str, Any]) -> list[str]:
    """Print a table; returns the pages that need more statements in the large house."""
    print(f"\n{found['large']['storage']}, filled in {found['large']['built_seconds']} s")
    print(
        f"{'page':<28}{'median':>9}{'95 %':>9}{'CPU':>9}{'of ten':>9}{'ratio':>7}{'statements':>12}{'KiB':>8}"
    )
    grown = []
    for page, large in found["large"]["pages"].items():
        small = found["small"]["pages"][page]
        more = large.statements > small.statements
        if more:
            grown.append(f"{page} ({small.statements} -> {large.statements})")
        print(
            f"{page:<28}{large.median_ms:>9.1f}{large.p95_ms:>9.1f}{large.cpu_ms:>9.1f}{small.median_ms:>9.1f}"
            f"{large.median_ms / small.median_ms:>7.2f}{large.statements:>12}{large.kib:>8}"
            f"{' more statements' if more else ''}{' slow' if large.median_ms > GOAL_MS else ''}"
        )
    return grown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--rounds", type=int, default=20)
    asked, _ = parser.parse_known_args()
    size = QUICK if asked.quick else LARGE
    results = {name: compare(name, size, asked.rounds) for name in asked.engine or ENGINES}
    grown = {name: show(found) for name, found in results.items()}
    peak_mib = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(f"\nPeak memory of the process that answered: {peak_mib} MiB")
    document = {
        "python": platform.python_version(),
        "size": vars(size),
        "rounds": asked.rounds,
        "peak_memory_mib": peak_mib,
        "results": results,
    }
    path = ROOT / "bench" / "results" / "pages.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=2, default=vars) + "\n")
    if any(grown.values()):
        print(f"More statements in the large house: {grown}")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
