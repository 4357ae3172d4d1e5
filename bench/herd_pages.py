"""Do people feel it when a herd is dispatched? The overview and the list of schedules, asked for all the time.

`python bench/herd_pages.py [--quick] [--engine sqlite|postgresql] [--check]`

Of 100,000 schedules (`--quick`: 5,000) 10,000 (`--quick`: 500) fall due at one instant, five times, 20 s apart. The web
and the worker are processes as they are shipped; one person asks for one page after the other. Requests that touch
the time from a slot to the commit of its last batch are compared with those in which nothing was due.

Prints a table and writes JSON to `bench/results/herd_pages.json`; `--check` leaves with status 1 where the 99 % of a
page during a herd is more than 1.5 x that of an idle one on PostgreSQL, or more than idle and twice the longest
batch in a file.
"""

from __future__ import annotations

import argparse
import http.client
import logging
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sqlalchemy import Connection  # noqa: E402

from bench._herd import HouseSize, build, fresh_database, settle, slot_of  # noqa: E402
from bench._stand import (  # noqa: E402
    ENGINES,
    Child,
    ahead_of,
    child,
    finish,
    house_time,
    retime,
    spread,
    wait_until_calm,
    web,
    work_loop,
    write_results,
)
from tests.factories import signed_in  # noqa: E402
from tests.support.databases import START, config_for, dispose_engines  # noqa: E402
from tests.support.servers import HOST  # noqa: E402
from webapp import create_app  # noqa: E402
from webapp.clock import FrozenClock  # noqa: E402
from webapp.identity.models import User  # noqa: E402
from webapp.store import dialect, engine, reading  # noqa: E402

PAGES = {"overview": "/", "schedules": "/schedules"}
HERDS = 5
PERCENT_OF_IDLE = 1.5
LONGEST_BATCHES = 2


@dataclass(frozen=True)
class Asked:
    """One request: which page, seconds since 1970 when it began, and how long it took in milliseconds."""

    page: str
    began: float
    ms: float


def ask(port: int, cookie: str, until: float) -> list[Asked]:
    """One page after the other, over one connection."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    found: list[Asked] = []
    while time.time() < until:
        for page, path in PAGES.items():
            began, clock = time.time(), time.perf_counter()
            connection.request("GET", path, headers={"Cookie": cookie, "Host": f"{HOST}:{port}"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, f"{path}: {answer.status}"
            found.append(Asked(page, began, 1000 * (time.perf_counter() - clock)))
    connection.close()
    return found


def cookie_of(app: Any) -> str:
    """What the browser of a member of every network sends."""
    with app.app_context(), reading() as session:
        user = session.query(User).filter_by(name="Alice").one()
    browser = signed_in(app, user)
    name = app.config["SESSION_COOKIE_NAME"]
    cookie = browser.get_cookie(name)
    assert cookie is not None
    return f"{name}={cookie.value}"


def measure(name: str, size: HouseSize, apart_seconds: float) -> dict[str, Any]:
    """Pages with and without a herd on one engine."""
    with tempfile.TemporaryDirectory() as place, fresh_database(name, Path(place)) as url:
        clock = FrozenClock(START)
        app = create_app(config_for(url), clock)
        logging.getLogger().setLevel(logging.WARNING)
        build(app, clock, size)
        with app.app_context():
            cookie, ahead = cookie_of(app), ahead_of(START)
            processes = config_for(url).web_processes
            with web(url, ahead, processes=processes) as (_, port), child(work_loop, url, ahead) as worker:
                wait_until_calm()
                with engine().connect() as connection:
                    storage = dialect.storage_summary(connection)
                    first = time.time() + apart_seconds + size.herd * HERDS / 500 + 40.0
                    herds = _bring_together(connection, house_time(first, ahead), apart_seconds)
                    settle(connection)
                    connection.invalidate()
                ask(port, cookie, time.time() + 2)
                assert time.time() + apart_seconds / 2 < first, "The machine is too busy for its idle time."
                asked = ask(port, cookie, first + apart_seconds * HERDS)
                batches = _batches(worker)
        dispose_engines(app)
    spans = _spans(first, apart_seconds, herds, batches)
    return {
        "storage": storage,
        "longest_batch_ms": round(1000 * max(done - began for _, began, done in batches), 1),
        "herd_seconds": [round(end - begin, 2) for begin, end in spans],
        "pages": {page: _compare([one for one in asked if one.page == page], spans, first) for page in PAGES},
    }


def _bring_together(connection: Connection, first: datetime, apart_seconds: float) -> list[set[int]]:
    """The herds lie an hour apart; have them some seconds apart. Returns the keys of each."""
    herds = []
    for herd in range(HERDS):
        slot = slot_of(herd)
        rows = connection.exec_driver_sql(
            f"SELECT schedule_pk FROM schedule_due WHERE next_run_at = {round(slot.timestamp() * 1000)}"
        )
        keys = {row[0] for row in rows}
        retime(connection, dict.fromkeys(keys, first + timedelta(seconds=herd * apart_seconds)))
        herds.append(keys)
    return herds


def _batches(worker: Child) -> list[tuple[tuple[int, ...], float, float]]:
    worker.pipe.send("batches")
    batches: list[tuple[tuple[int, ...], float, float]] = worker.hear(30)
    return batches


def _spans(
    first: float,
    apart_seconds: float,
    herds: list[set[int]],
    batches: list[tuple[tuple[int, ...], float, float]],
) -> list[tuple[float, float]]:
    """From each slot to the commit of the last batch of its herd."""
    ends = []
    for herd in herds:
        claimed = [(len(herd.intersection(keys)), done) for keys, _, done in batches]
        assert sum(amount for amount, _ in claimed) == len(herd), "a herd was not dispatched in time"
        ends.append(max(done for amount, done in claimed if amount))
    return [(first + place * apart_seconds, end) for place, end in enumerate(ends)]


def _compare(asked: list[Asked], spans: list[tuple[float, float]], first: float) -> dict[str, Any]:
    def during(one: Asked) -> bool:
        return any(one.began <= end and one.began + one.ms / 1000 >= begin for begin, end in spans)

    return {
        "idle": spread([one.ms for one in asked if one.began + one.ms / 1000 < first]),
        "herd": spread([one.ms for one in asked if during(one)]),
    }


def missed_of(name: str, found: dict[str, Any]) -> list[str]:
    """The pages that are too slow during a herd."""
    missed = []
    for page, way in found["pages"].items():
        idle, herd = way["idle"]["p99"], way["herd"]["p99"]
        limit = (
            idle + LONGEST_BATCHES * found["longest_batch_ms"] if name == "sqlite" else PERCENT_OF_IDLE * idle
        )
        print(f"  {page}: 99 % {herd} ms, goal {limit:.1f} ms{'' if herd <= limit else '  not reached'}")
        if herd > limit:
            missed.append(f"{name}: {page}")
    return missed


def show(found: dict[str, Any]) -> None:
    """Print the table of one engine."""
    print(
        f"\n{found['storage']}; longest batch {found['longest_batch_ms']} ms; herds took {found['herd_seconds']} s"
    )
    print(f"{'page':<12}{'':>8}{'asked':>8}{'half':>9}{'99 %':>9}{'worst':>9}")
    for page, way in found["pages"].items():
        for when, times in way.items():
            print(
                f"{page:<12}{when:>8}{times['count']:>8}{times['p50']:>9.1f}{times['p99']:>9.1f}{times['worst']:>9.1f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--check", action="store_true")
    asked, _ = parser.parse_known_args()
    size = HouseSize(5_000, 500, HERDS) if asked.quick else HouseSize(100_000, 10_000, HERDS)
    results, missed = {}, []
    for name in asked.engine or ENGINES:
        results[name] = measure(name, size, 8.0 if asked.quick else 20.0)
        show(results[name])
        missed += missed_of(name, results[name])
    write_results("herd_pages", size=size, results=results)
    finish(missed, check=asked.check)


if __name__ == "__main__":
    main()
