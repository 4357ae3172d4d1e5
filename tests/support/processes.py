"""Many processes at once, for races and kills: forked from one that has done the imports already."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.databases import ROOT
from tests.support.file_clock import FileClock
from tests.support.servers import (
    HOST,
    START_SECONDS,
    STOP_SECONDS,
    answers,
    find_set_up_link,
    free_port,
    product_environment,
)

RUN_PROGRAM = "tests.support.run_program:run"


@dataclass(frozen=True)
class ForkedWeb:
    """A web process that answers at `url`, a child of a herd."""

    pid: int
    url: str
    herd: Herd

    def set_up_link(self) -> str | None:
        """The link that lets the first person in, as the operator reads it; None where somebody exists."""
        return find_set_up_link(self.herd.words(self.pid))


class Herd:
    """The children of one herd process, by process id."""

    def __init__(self, parent: subprocess.Popen[str], folder: Path) -> None:
        self._parent = parent
        self._folder = folder
        self._numbers = itertools.count()
        self._started: queue.Queue[int] = queue.Queue()
        self._logs: dict[int, Path] = {}
        self._statuses: dict[int, int] = {}
        self._change = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, entry: str, environment: Mapping[str, str] | None = None, /, **arguments: Any) -> int:
        """Fork a child that calls `module:function` with these (JSON) arguments; returns its process id.

        `environment` is laid over the herd's own before the call.
        """
        log = self._folder / f"child-{next(self._numbers)}.log"
        order = {
            "start": entry,
            "arguments": arguments,
            "environment": dict(environment or {}),
            "log": str(log),
        }
        assert self._parent.stdin is not None
        self._parent.stdin.write(json.dumps(order) + "\n")
        self._parent.stdin.flush()
        pid = self._started.get(timeout=30)
        self._logs[pid] = log
        return pid

    def start_program(
        self,
        clock: FileClock | None,
        program: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Fork a child that is `app.py` or `scheduler_worker.py`; returns its process id.

        Its clock is a file, or the system's where `clock` is None.
        """
        clock_file = str(clock.path) if clock else None
        return self.start(
            RUN_PROGRAM, environment, program=program, arguments=arguments, clock_file=clock_file
        )

    def living(self) -> list[int]:
        """The children that have not ended, oldest first."""
        with self._change:
            return [pid for pid in self._logs if pid not in self._statuses]

    def kill(self, pid: int) -> None:
        """`kill -9`, and wait until it is gone: whatever it had not committed is lost."""
        os.kill(pid, signal.SIGKILL)
        assert self.wait(pid) == -signal.SIGKILL, f"it ended before it was killed:\n{self.words(pid)}"

    def wait(self, pid: int, seconds: float = STOP_SECONDS) -> int:
        """Wait for a child to end; returns its exit status, negative for a signal.

        Raises AssertionError with its output when it has not ended by then.
        """
        with self._change:
            ended = self._change.wait_for(lambda: pid in self._statuses, seconds)
        assert ended, f"process {pid} still runs after {seconds:g} s:\n{self.words(pid)}"
        return self._statuses[pid]

    def until(self, pid: int, ready: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Wait until a child is ready. Raises AssertionError with its output when it ends or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            assert pid in self.living(), f"process {pid} left with {self.wait(pid)}:\n{self.words(pid)}"
            assert time.monotonic() < deadline, f"not ready after {seconds:g} s:\n{self.words(pid)}"
            time.sleep(0.01)

    def words(self, pid: int) -> str:
        """Everything a child has written so far."""
        log = self._logs[pid]
        return log.read_text(errors="replace") if log.exists() else ""

    def stop(self) -> None:
        """SIGTERM to all that live; each must end by itself with status 0."""
        self.end(*self.living())

    def end(self, *pids: int) -> None:
        """SIGTERM to these, all at once; each must end by itself with status 0."""
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        for pid in pids:
            status = self.wait(pid)
            assert status == 0, f"process {pid} left with {status}:\n{self.words(pid)[-4000:]}"

    def disband(self) -> None:
        """Let the herd kill what still lives, and wait until it has."""
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(STOP_SECONDS)
        self._reader.join(STOP_SECONDS)

    def _read(self) -> None:
        assert self._parent.stdout is not None
        for line in self._parent.stdout:
            words = json.loads(line)
            with self._change:
                if "started" in words:
                    # The system may give a number out again.
                    self._statuses.pop(words["started"], None)
                    self._started.put(words["started"])
                else:
                    self._statuses[words["ended"]] = words["status"]
                    self._change.notify_all()


@contextmanager
def herd(
    database_url: str,
    folder: Path,
    *,
    modules: Sequence[str] = ("tests.support.run_program", "tests.support.whole_product"),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Herd]:
    """A herd whose children see this database; `modules` are imported before any fork. Logs go to `folder`.

    Children that live at the end of the block are killed: call `stop` first where a clean end matters.
    The herd dies with the test process, however that ends.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.herd", *modules],
        cwd=ROOT,
        env=product_environment(database_url, environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        children = Herd(parent, folder)
        try:
            yield children
        finally:
            children.disband()


@contextmanager
def forked_web(
    running: Herd,
    database_url: str,
    clock: FileClock | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    port: int | None = None,
) -> Iterator[ForkedWeb]:
    """`python app.py --no-worker`, forked from a herd, until the block ends; it must leave with status 0."""
    port = port or free_port()
    pid = running.start_program(
        clock,
        "app.py",
        *("--no-worker", "--host", HOST, "--port", str(port)),
        environment={"CARILLON_DATABASE_URL": database_url, **(environment or {})},
    )
    try:
        running.until(pid, lambda: answers(port))
        yield ForkedWeb(pid, f"http://{HOST}:{port}", running)
        running.end(pid)
    finally:
        if pid in running.living():
            running.kill(pid)


def eventually(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Look again every 10 ms until the condition holds; fails with `what` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)
