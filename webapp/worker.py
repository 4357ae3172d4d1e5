"""The worker's loop: a pass when something is due, sleep until the next slot, wake when something changes.

Beside the loop run the turns of chats, in threads of their own: a model that takes its time holds up no slot. A
single pass (`--once`, `flask tick`) asks no model; it only mends what another worker left behind.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import cast

from flask import Flask

from webapp import retention
from webapp.chat.runner import Runner
from webapp.clock import Clock
from webapp.config import Config
from webapp.logs import bound, get_logger
from webapp.scheduling import claim
from webapp.scheduling.tick import BatchSize, Counts, Worker, mark, single_pass, tick
from webapp.store import dialect, engine, reading

_SLICE_SECONDS = 0.25
_DAY = timedelta(days=1)
_IN_OTHER_HANDS_SECONDS = 0.02
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.5, 10.0
_SEEN_AT_MOST_EVERY_SECONDS = 1.0
# While one slot follows the other, what is not about slots is looked at this often.
_WHOLE_PASS_EVERY_SECONDS = 1.0
_log = get_logger(__name__)


def new_worker(app: Flask) -> Worker:
    """A worker that remembers nothing yet."""
    config = cast(Config, app.extensions["carillon_config"])
    clock = cast(Clock, app.extensions["carillon_clock"])
    return Worker(BatchSize(config.batch_size, config.batch_fixed), started_at=clock.now())


def run_once(app: Flask) -> Counts:
    """One pass, and the worker's mark; returns what was done."""
    with app.app_context():
        return single_pass(new_worker(app), cast(Clock, app.extensions["carillon_clock"]))


def run(app: Flask, stop: threading.Event) -> None:
    """Make passes until `stop` is set; the batch in hand is finished first.

    Sleeps until the next due instant, at most a tick, measured by a clock that only moves forward: a wall
    clock that jumps costs at most one tick. Errors are logged and tried again with growing pauses.
    """
    config = cast(Config, app.extensions["carillon_config"])
    clock = cast(Clock, app.extensions["carillon_clock"])
    with app.app_context():
        worker = new_worker(app)
        worker.is_stopping = stop.is_set
        runner = Runner(app.app_context, clock)
        with bound(worker_id=worker.worker_id):
            _log.info("worker started", tick_seconds=config.tick_seconds, batch_size=config.batch_size)
            runner.start()
            try:
                _loop(worker, runner, clock, config.tick_seconds, stop)
            finally:
                runner.stop()
            mark(worker, clock, stopped=True)
            _log.info("worker stopped")


def _loop(worker: Worker, runner: Runner, clock: Clock, tick_seconds: float, stop: threading.Event) -> None:
    waiter = dialect.change_waiter(engine())
    housekeeping = _Housekeeping()
    pause_seconds = _FIRST_PAUSE_SECONDS
    marked_at = whole_pass_at = float("-inf")
    slot_came = False
    try:
        while not stop.is_set():
            try:
                claims_only = slot_came and clock.monotonic() - whole_pass_at < _WHOLE_PASS_EVERY_SECONDS
                slot_came = False
                counts = tick(worker, clock, claims_only=claims_only)
                whole_pass_at = whole_pass_at if claims_only else clock.monotonic()
                runner.wake()
                if clock.monotonic() - marked_at >= _SEEN_AT_MOST_EVERY_SECONDS or counts["schedules"] == 0:
                    mark(worker, clock, stopped=False)
                    marked_at = clock.monotonic()
                pause_seconds = _FIRST_PAUSE_SECONDS
                if counts["more"] or housekeeping.step(clock.now()):
                    continue
                slot_came = _sleep(worker, runner, waiter, clock, tick_seconds, stop)
            except Exception:  # noqa: BLE001 - a worker outlives a database that is away
                _log.exception("a pass failed; trying again", pause_seconds=pause_seconds)
                stop.wait(pause_seconds)
                pause_seconds = min(pause_seconds * 2, _LAST_PAUSE_SECONDS)
    finally:
        waiter.close()


class _Housekeeping:
    """History is pruned once a day, one short transaction at a time, each only when nothing is due."""

    def __init__(self) -> None:
        self._begun_at: datetime | None = None
        self._batches: Iterator[retention.Forgotten] = iter(())
        self._forgotten: retention.Forgotten = Counter()

    def step(self, now: datetime) -> bool:
        """Do the next transaction, if there is one; returns whether there was."""
        if self._begun_at is None or not timedelta(0) <= now - self._begun_at < _DAY:
            self._begun_at = now
            self._batches = retention.batches(now=now)
            self._forgotten = Counter()
        try:
            self._forgotten += next(self._batches)
        except StopIteration:
            if self._forgotten:
                _log.info("history pruned", **self._forgotten)
                self._forgotten = Counter()
            return False
        return True


def _sleep(
    worker: Worker,
    runner: Runner,
    waiter: dialect.ChangeWaiter,
    clock: Clock,
    tick_seconds: float,
    stop: threading.Event,
) -> bool:
    """Return when something is due, when a tick has passed, or when the worker is to stop; whether it was a slot."""
    until = clock.monotonic() + tick_seconds
    # What the pass itself has changed is no reason to ask again.
    if waiter.wait(0):
        runner.wake()
    next_due = _next_due(worker)
    if next_due is not None and worker.looked_at is not None and next_due <= worker.looked_at:
        # The pass before this has left it, so it is in the hands of another worker: do not spin over it.
        stop.wait(_IN_OTHER_HANDS_SECONDS)
    while not stop.is_set():
        now = clock.now()
        if next_due is not None and next_due <= now:
            return True
        rest = until - clock.monotonic()
        if next_due is not None:
            rest = min(rest, (next_due - now).total_seconds())
        if rest <= 0:
            return False
        if waiter.wait(min(rest, _SLICE_SECONDS)):
            runner.wake()
            next_due = _next_due(worker)
    return False


def _next_due(worker: Worker) -> datetime | None:
    """The next instant at which this worker has something to claim."""
    if not worker.may_claim:
        return None
    with reading() as session:
        return claim.next_due_at(session)
