"""Events under fire: eight write, twenty listen and are cut at random, the web process is killed and started again.

Each listener resumes by the number that it heard last, and in the end has heard every event once, in its order.
"""

from __future__ import annotations

import http.client
import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.concurrency.planting import prepare_ground
from tests.concurrency.scene import app_beside_processes
from tests.events.reader import messages
from tests.events.test_feed import emit
from tests.factories import bearer, make_token
from tests.proof.conftest import LONG
from tests.support.file_clock import FileClock
from tests.support.processes import Herd
from tests.support.servers import HOST, answers, free_port
from webapp.events.models import EventCounter
from webapp.identity.models import User
from webapp.store import reading

pytestmark = pytest.mark.processes

WRITERS, LISTENERS, KILLS = 8, 20, 2
EVENTS_A_WRITER = 2_000 if LONG else 40
_PATIENCE_SECONDS = 240.0


@dataclass
class Listener:
    """One reader of the stream: what it heard, and how often it was cut off."""

    port: int
    token: str
    first: int
    chance: random.Random
    heard: list[int] = field(default_factory=list)
    cuts: int = 0

    @property
    def position(self) -> int:
        return self.heard[-1] if self.heard else self.first

    def listen(self, last: int) -> None:
        """Read until the event of that number was heard; come back whenever the line is lost or cut."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.position < last:
            assert time.monotonic() < deadline, f"stuck at {self.position} after {self.cuts} cuts"
            try:
                self._once(last)
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
            self.cuts += 1

    def _once(self, last: int) -> None:
        most = self.chance.randint(1, 120)
        line = http.client.HTTPConnection(HOST, self.port, timeout=3)
        try:
            headers = {**bearer(self.token), "Last-Event-ID": str(self.position)}
            line.request("GET", "/api/events", headers=headers)
            answer = line.getresponse()
            if answer.status != 200:
                assert answer.status in (204, 429, 503), answer.read()
                time.sleep(0.1)
                return
            for number, message in enumerate(messages(iter(lambda: answer.read1(4096), b""))):
                if message.event:
                    assert message.id is not None
                    self.heard.append(message.id)
                if self.position >= last or number >= most:
                    return
        finally:
            line.close()


def test_no_event_is_lost_doubled_or_out_of_order(
    database_url: str, tmp_path: Path, herd: Herd, seed: int
) -> None:
    chance, port = random.Random(seed), free_port()
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        ground = prepare_ground(clock.now())
        with reading() as session:
            sponsor = session.get_one(User, ground.sponsor_pk)
        token = make_token(sponsor)
        first = _last(ground.network_pk)
        every_one = list(range(first + 1, first + WRITERS * EVENTS_A_WRITER + 1))

        def in_app(act: Callable[[], None]) -> None:
            with app.app_context():
                act()

        def write(own: random.Random) -> None:
            left = EVENTS_A_WRITER
            while left:
                some = min(left, own.choice((1, 1, 1, 2, 5)))
                emit(ground.network_pk, some)
                left -= some
                time.sleep(own.random() * 0.05)

        listeners = [Listener(port, token, first, random.Random(f"{seed} {n}")) for n in range(LISTENERS)]
        pid = _start(herd, clock, database_url, port)
        with ThreadPoolExecutor(WRITERS + LISTENERS) as pool:
            writing = [
                pool.submit(in_app, lambda n=n: write(random.Random(f"{seed} w{n}"))) for n in range(WRITERS)
            ]
            hearing = [pool.submit(one.listen, every_one[-1]) for one in listeners]
            for _ in range(KILLS):
                time.sleep(0.5 + chance.random())
                _kill(herd, pid)
                pid = _start(herd, clock, database_url, port)
            for future in writing:
                future.result(_PATIENCE_SECONDS)
            for future in hearing:
                future.result(_PATIENCE_SECONDS)
        _kill(herd, pid)
        assert _last(ground.network_pk) == every_one[-1]
        for listener in listeners:
            assert listener.heard == every_one
        cuts = sum(listener.cuts for listener in listeners)
        print(f"{len(every_one)} events heard by each of {LISTENERS}, {cuts} cuts, {KILLS} kills")
        assert cuts > LISTENERS * 2


def _start(herd: Herd, clock: FileClock, database_url: str, port: int) -> int:
    pid = herd.start_program(
        clock,
        "app.py",
        *("--no-worker", "--host", HOST, "--port", str(port)),
        environment={"CARILLON_DATABASE_URL": database_url},
    )
    herd.until(pid, lambda: answers(port), 60)
    return pid


def _kill(herd: Herd, pid: int) -> None:
    """`kill -9` to the program and to all that it started: an orphan would go on answering at the port."""
    os.killpg(pid, signal.SIGKILL)
    herd.wait(pid)


def _last(network_pk: int) -> int:
    with reading() as session:
        statement = select(EventCounter.seq).where(EventCounter.network_pk == network_pk)
        return session.scalars(statement).one_or_none() or 0
