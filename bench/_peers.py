"""The peers of `bench/peers.py`, each as its own documentation has it run, with commits that last.

Each function is the work of a process: it makes the schedules, says `("ready", slot)` through its pipe (seconds since
1970) and then waits for the slot like any other day. Whatever is dispatched is a row that a worker somewhere else
could take; nobody takes any.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Any

from sqlalchemy import create_engine, event, text

INBOX = (
    "CREATE TABLE IF NOT EXISTS inbox (id INTEGER PRIMARY KEY {}, job text NOT NULL, made_at text NOT NULL)"
)
INSERT = "INSERT INTO inbox (job, made_at) VALUES ({0}, {0})"
# Between the last preparation and the slot there is the time in which the idle process is watched.
_MARGIN_SECONDS = 3.0


def slot_after(idle_seconds: float) -> float:
    """A whole second, so many seconds from now and a little."""
    return float(int(time.time() + idle_seconds + _MARGIN_SECONDS) + 1)


# --- APScheduler 3 ---


class _Inbox(threading.local):
    """Where the jobs of this process put their rows; each thread has a connection of its own."""

    connect: Callable[[], Any]
    insert = ""
    connection: Any = None


_inbox = _Inbox()


def deliver(number: int) -> None:
    """The job: one durable row. What APScheduler is for is calling this; the row makes it the same errand."""
    if _inbox.connection is None:
        _inbox.connection = _Inbox.connect()
    _inbox.connection.execute(_Inbox.insert, (f"job {number}", datetime.now(UTC).isoformat()))


def _deliver_into(url: str, inbox: str) -> None:
    if url.startswith("sqlite"):
        _Inbox.connect, _Inbox.insert = partial(_open_file, inbox), INSERT.format("?")
    else:
        import psycopg

        _Inbox.connect, _Inbox.insert = partial(psycopg.connect, inbox, autocommit=True), INSERT.format("%s")


def _open_file(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def apscheduler(pipe: Pipe, url: str, inbox: str, count: int, idle_seconds: float, defaults: bool) -> None:
    """APScheduler 3 with its SQLAlchemy store: a job each day, its function writes the row.

    Not the defaults: a job that is late for whatever reason still runs (`misfire_grace_time=None`), as one run
    (`coalesce=True`); the log in WAL, synced at each commit; one thread where the file has one writer.
    """
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.interval import IntervalTrigger

    logging.disable(logging.WARNING)
    is_file = url.startswith("sqlite")
    _deliver_into(url, inbox)
    pool = create_engine(url)
    if is_file:

        @event.listens_for(pool, "connect")
        def _last(connection: Any, _record: Any) -> None:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")

    threads = 10 if defaults or not is_file else 1
    ways = {} if defaults else {"coalesce": True, "misfire_grace_time": None, "max_instances": 1}
    scheduler = BackgroundScheduler(
        jobstores={"default": SQLAlchemyJobStore(engine=pool)},
        executors={"default": ThreadPoolExecutor(threads)},
        job_defaults=ways,
        timezone=UTC,
    )
    scheduler.start(paused=True)
    first = datetime.fromtimestamp(slot_after(3600), UTC)
    for number in range(count):
        scheduler.add_job(
            deliver,
            IntervalTrigger(days=1, start_date=first, timezone=UTC),
            args=(number,),
            id=f"job-{number}",
        )
    slot = slot_after(idle_seconds)
    _bring_forward(pool, first.timestamp() - slot)
    scheduler.resume()
    pipe.send(("ready", slot))
    threading.Event().wait()


def _bring_forward(pool: Any, seconds: float) -> None:
    """Registering takes a minute; the slot comes after it. The store keeps it in a column and in the job itself."""
    by = timedelta(seconds=seconds)
    with pool.begin() as connection:
        rows = connection.exec_driver_sql("SELECT id, job_state FROM apscheduler_jobs").all()
        changed = []
        for key, stored in rows:
            state = pickle.loads(stored)
            state["next_run_time"] -= by
            state["trigger"].start_date -= by
            changed.append(
                {"key": key, "at": state["next_run_time"].timestamp(), "state": pickle.dumps(state, 5)}
            )
        connection.execute(
            text("UPDATE apscheduler_jobs SET next_run_time = :at, job_state = :state WHERE id = :key"),
            changed,
        )


# --- Huey ---


def huey(pipe: Pipe, path: str, count: int, idle_seconds: float) -> None:
    """Huey's scheduler with SQLite and `fsync=True`: periodic tasks, looked at once a minute.

    Its look is put onto the slot; by itself it comes up to a minute later.
    """
    from huey import SqliteHuey, crontab
    from huey.consumer import Scheduler

    logging.disable(logging.WARNING)
    queue = SqliteHuey("peers", filename=path, fsync=True, results=False)
    slot = slot_after(idle_seconds + count / 2000)
    at = datetime.fromtimestamp(slot, UTC)
    for number in range(count):
        queue.periodic_task(crontab(minute=str(at.minute), hour=str(at.hour)), name=f"job_{number}")(_nothing)
    stop = threading.Event()
    scheduler = Scheduler(queue, stop, interval=1, periodic=True)
    ahead = slot - time.time()
    scheduler._next_loop = time.monotonic() + ahead - int(ahead)
    scheduler._next_periodic = time.monotonic() + ahead - 0.01
    time.sleep(max(0.0, scheduler._next_loop - time.monotonic()))
    pipe.send(("ready", slot))
    while True:
        scheduler.loop()


def _nothing() -> None:
    """A task that is never carried out here."""


# --- Procrastinate ---


def procrastinate(pipe: Pipe, conninfo: str, count: int, idle_seconds: float) -> None:
    """Procrastinate's periodic deferrer on PostgreSQL, in the loop in which its worker runs it."""
    asyncio.run(_procrastinate(pipe, conninfo, count, idle_seconds))


async def _procrastinate(pipe: Pipe, conninfo: str, count: int, idle_seconds: float) -> None:
    from procrastinate import App, PsycopgConnector
    from procrastinate.periodic import PeriodicDeferrer

    logging.disable(logging.WARNING)
    app = App(connector=PsycopgConnector(conninfo=conninfo))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()

        @app.task(name="job")
        def job(timestamp: int, number: int) -> None:
            """A task that is never carried out here."""

        # It asks croniter about each task before its first sleep.
        slot = slot_after(idle_seconds + count / 1000)
        at = datetime.fromtimestamp(slot, UTC)
        cron = f"{at.minute} {at.hour} * * * {at.second}"
        for number in range(count):
            app.periodic(cron=cron, periodic_id=f"job-{number}")(job)
            # Each has arguments of its own.
        for number, task in enumerate(app.periodic_registry.periodic_tasks.values()):
            task.configure_kwargs["task_kwargs"] = {"number": number}
        pipe.send(("ready", slot))
        await PeriodicDeferrer(app.periodic_registry).worker()
