"""What the benchmarks share that watch processes: a clock that is ahead, the real worker and web, what they use."""

from __future__ import annotations

import json
import logging
import math
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event
from typing import Any

from sqlalchemy import Connection, text

from tests.support.databases import config_for
from tests.support.servers import HOST, answers, free_port
from webapp import create_app
from webapp.clock import SystemClock, to_millisecond
from webapp.scheduling import claim
from webapp.store import dialect, engine
from webapp.store.base import to_milliseconds
from webapp.timetable import Interval, to_stored
from webapp.web.server import serve
from webapp.worker import run

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ("sqlite", "postgresql")
_TICKS = os.sysconf("SC_CLK_TCK")
# The worker's first pass looks at every schedule of the week to come; after it comes what is done once a day.
_FIRST_PASS_SECONDS, _CALM_SECONDS = 900, 3.0
_SPAWN = multiprocessing.get_context("spawn")


class AheadClock(SystemClock):
    """The machine's clock, `ahead_seconds` further on (negative: behind): a house built for one day lives now."""

    def __init__(self, ahead_seconds: float) -> None:
        self._ahead = timedelta(seconds=ahead_seconds)

    def now(self) -> datetime:
        """The present instant of the house, UTC."""
        return super().now() + self._ahead


def ahead_of(instant: datetime) -> float:
    """How far ahead, in seconds, a clock is that shows `instant` now."""
    return (instant - datetime.now(UTC)).total_seconds()


# --- Processes ---


@dataclass(frozen=True)
class Child:
    """A process that was started here, and the pipe through which it speaks."""

    process: BaseProcess
    pipe: Pipe

    @property
    def pid(self) -> int:
        """Its number."""
        assert self.process.pid is not None
        return self.process.pid

    def hear(self, seconds: float) -> Any:
        """What it says next. Raises TimeoutError after `seconds`, EOFError when it has ended."""
        if not self.pipe.poll(seconds):
            raise TimeoutError(f"nothing from a process within {seconds:g} s")
        return self.pipe.recv()


@contextmanager
def child(work: Callable[..., None], *arguments: object) -> Iterator[Child]:
    """Run `work(pipe, *arguments)` in a fresh process until the block ends."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=work, args=(there, *arguments))
    process.start()
    there.close()
    try:
        yield Child(process, here)
    finally:
        process.terminate()
        process.join(20)
        if process.is_alive():
            process.kill()
            process.join()


def work_loop(pipe: Pipe, url: str, ahead_seconds: float) -> None:
    """The worker as it is shipped, for `child`; asked for "batches" it answers with what it has claimed.

    A batch is (keys of schedules, began, committed): seconds since 1970 by the machine's clock.
    """
    clock = AheadClock(ahead_seconds)
    app = create_app(config_for(url), clock)
    logging.getLogger().setLevel(logging.WARNING)
    claim_batch, batches = claim.claim_batch, []

    def noted(**how: Any) -> claim.Claimed:
        began = time.time()
        claimed = claim_batch(**how)
        if claimed.schedules:
            batches.append((claimed.schedule_pks, began, time.time()))
        return claimed

    claim.claim_batch = noted
    stop = Event()
    threading_answer(pipe, lambda: batches)
    run(app, stop)


def threading_answer(pipe: Pipe, what: Callable[[], Any]) -> None:
    """Answer whatever comes through the pipe with `what()`, beside the work of this process."""
    import threading

    def answer() -> None:
        with suppress(EOFError, OSError):
            while True:
                pipe.recv()
                pipe.send(what())

    threading.Thread(target=answer, daemon=True).start()


def serve_pages(_pipe: Pipe, url: str, ahead_seconds: float, port: int, processes: int) -> None:
    """The web as it is shipped, for `child`."""
    logging.getLogger().setLevel(logging.WARNING)

    def make() -> Any:
        app = create_app(config_for(url), AheadClock(ahead_seconds))
        logging.getLogger().setLevel(logging.WARNING)
        return app

    serve(make, HOST, port, processes=processes)


@contextmanager
def web(url: str, ahead_seconds: float, *, processes: int) -> Iterator[tuple[Child, int]]:
    """The web in processes of its own; yields it with its port."""
    port = free_port()
    with child(serve_pages, url, ahead_seconds, port, processes) as server:
        wait_until(lambda: answers(port), 60, "the web answers")
        yield server, port


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Look again every 50 ms. Raises TimeoutError when the condition does not hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)


# --- What a process uses ---


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process so far, to 10 ms."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def memory_mib(pid: int) -> float:
    """Resident memory of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has ended")


def used_while_idle(pid: int, seconds: float) -> dict[str, float]:
    """What a process uses for `seconds` in which nothing happens: per cent of one core, and MiB."""
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(max(0.0, seconds))
    used, passed = cpu_seconds(pid) - before, time.monotonic() - began
    return {
        "seconds": round(passed, 1),
        "cpu_percent": round(100 * used / passed, 2),
        "memory_mib": round(memory_mib(pid)),
    }


# --- Houses ---


def retime(connection: Connection, slots: dict[int, datetime]) -> None:
    """Give schedules (by key) a slot at an instant of their own, and one each day after it."""
    as_json = "CAST(:timetable AS {})".format("text" if dialect.is_sqlite(connection) else "json")
    rows = [
        {
            "key": key,
            "slot": to_milliseconds(slot),
            "timetable": json.dumps(to_stored(Interval(86_400, slot))),
        }
        for key, slot in slots.items()
    ]
    connection.execute(
        text(f"UPDATE schedules SET timetable = {as_json}, timezone = 'UTC' WHERE id = :key"), rows
    )
    connection.execute(
        text("UPDATE schedule_due SET next_run_at = :slot, due_at = :slot WHERE schedule_pk = :key"), rows
    )
    connection.commit()


def wait_until_calm() -> None:
    """Return when a worker has made its first pass, with what it does once an hour, and some seconds have gone by."""
    wait_until(_marked, _FIRST_PASS_SECONDS, "the worker's first pass")
    time.sleep(_CALM_SECONDS)


def _marked() -> bool:
    with engine().connect() as connection:
        return bool(connection.exec_driver_sql("SELECT count(*) FROM workers").scalar_one())


def house_time(at: float, ahead_seconds: float) -> datetime:
    """What the house's clock shows, to the millisecond, `at` so many seconds since 1970."""
    return to_millisecond(datetime.fromtimestamp(at + ahead_seconds, UTC))


# --- Figures ---


def percentile(values: Sequence[float], per_cent: float) -> float:
    """The smallest value that at least so many per cent of the values do not exceed. Raises IndexError for none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * per_cent / 100) - 1)]


def spread(values: Sequence[float], digits: int = 1) -> dict[str, float]:
    """Median, 99 % and the worst."""
    return {
        "count": len(values),
        "p50": round(percentile(values, 50), digits),
        "p99": round(percentile(values, 99), digits),
        "worst": round(max(values), digits),
    }


def write_results(name: str, **document: Any) -> None:
    """Keep figures in `bench/results/`."""
    path = ROOT / "bench" / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    machine = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }
    path.write_text(json.dumps(machine | document, indent=2, default=vars) + "\n")


def finish(missed: Sequence[str], *, check: bool) -> None:
    """Say which goals were missed; with `check` leave with status 1 then."""
    if missed:
        print(f"Not reached: {', '.join(missed)}. Is the machine idle?")
    if missed and check:
        raise SystemExit(1)
