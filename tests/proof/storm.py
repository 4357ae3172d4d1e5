"""A storm: workers that die all the time while slots fall due each second; run in a herd's child.

Half of the deaths come from outside, at a moment by chance; half from inside, between two statements or at a COMMIT.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

from tests.proof.hurt import stumble
from tests.proof.nursery import Nursery, leave_report
from webapp.scheduling.tick import tick
from webapp.store import engine
from webapp.worker import new_worker, run

# So much of the scene's time passes in one real second: each schedule of every minute is due each second.
SCENE_SECONDS_A_SECOND = 60
_MEAN_LIFE_SECONDS, _BATCH = 0.7, 25
# How much longer a busy machine may take, and how often its clock goes on then.
_MOST_PATIENCE, _GO_ON = 4.0, 0.02
_DEATH_A_STEP, _SLEEP_A_STEP, _LONGEST_SLEEP_SECONDS = 0.01, 0.03, 0.02


def storm(
    database_url: str,
    clock_file: str,
    report: str,
    seconds: float,
    workers: int,
    seed: int,
    least_deaths: int,
) -> None:
    """Keep so many workers alive and kill them until the time is over; leaves how many died, and how.

    A busy machine is given up to four times as long to come to its deaths; the scene goes on more slowly then.
    """
    # Small batches: a worker that dies leaves others something to do.
    nursery = Nursery(database_url, clock_file, batch_size=_BATCH, batch_fixed=True)
    _warm_up(nursery)
    Path(f"{report}.begun").touch()
    chance = random.Random(seed)
    start, began = nursery.clock.now(), time.monotonic()
    ends: dict[int, float] = {}
    from_outside = from_inside = born = 0
    while (elapsed := time.monotonic() - began) < seconds or (
        from_outside + from_inside < least_deaths and elapsed < _MOST_PATIENCE * seconds
    ):
        if elapsed < seconds:
            nursery.clock.set(start + timedelta(seconds=elapsed * SCENE_SECONDS_A_SECOND))
        elif chance.random() < _GO_ON:
            # Whatever is due by now is claimed; something must be there to die over.
            nursery.clock.advance(minutes=1)
        while len(ends) < workers:
            own = random.Random(chance.randrange(2**31))
            pid = nursery.fork(partial(_live, nursery, own))
            ends[pid] = time.monotonic() + chance.expovariate(1 / _MEAN_LIFE_SECONDS)
            born += 1
        for pid, end in list(ends.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                if code != -signal.SIGKILL:
                    raise RuntimeError(f"a worker left with {code}")
                from_inside += 1
                del ends[pid]
            elif time.monotonic() >= end:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                from_outside += 1
                del ends[pid]
        time.sleep(0.01)
    for pid in ends:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        from_outside += 1
    leave_report(
        report,
        {
            "storage": nursery.storage(),
            "born": born,
            "deaths": from_outside + from_inside,
            "from_inside": from_inside,
            "seconds": round(time.monotonic() - began, 1),
            "scene_minutes": round((nursery.clock.now() - start).total_seconds() / 60),
        },
    )


def _warm_up(nursery: Nursery) -> None:
    """Let the first minutes pass in peace: what was compiled for them, no child compiles again."""
    worker = new_worker(nursery.app)
    for _ in range(2):
        nursery.clock.advance(minutes=1)
        while tick(worker, nursery.clock)["more"]:
            pass


def _live(nursery: Nursery, chance: random.Random) -> None:
    with suppress(OSError):
        os.nice(1)
    stumble(engine(), chance, dies=_DEATH_A_STEP, sleeps=_SLEEP_A_STEP, longest=_LONGEST_SLEEP_SECONDS)
    run(nursery.app, threading.Event())


def calm(database_url: str, clock_file: str, begun: str) -> None:
    """A worker that lives, until it is killed or asked to leave; it works off what the storm has left.

    From the moment that the file `begun` is there it can be asked to leave.
    """
    nursery = Nursery(database_url, clock_file)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    Path(begun).touch()
    run(nursery.app, stop)
