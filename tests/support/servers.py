"""The real web and the real worker as processes of their own, started and stopped as an operator would."""

from __future__ import annotations

import http.client
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.databases import ROOT, SECRET_KEY

HOST = "127.0.0.1"
START_SECONDS = 30.0
STOP_SECONDS = 20.0
# Below the range that systems hand out for outgoing connections; each test process begins elsewhere in it.
_PORTS = itertools.count(10_000 + os.getpid() * 37 % 20_000)


@dataclass(frozen=True)
class Server:
    """A process of the product with the file that takes all its output."""

    process: subprocess.Popen[bytes]
    log: Path

    def words(self) -> str:
        """Everything it has written so far."""
        return self.log.read_text(errors="replace")


@dataclass(frozen=True)
class WebServer(Server):
    """A web process that answers."""

    port: int

    @property
    def url(self) -> str:
        """Its address without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    def set_up_link(self) -> str | None:
        """The link that lets the first person in, as the operator reads it; None where somebody exists."""
        return find_set_up_link(self.words())


@contextmanager
def web(
    database_url: str,
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
) -> Iterator[WebServer]:
    """Run `python app.py --no-worker` on a migrated database until the block ends.

    `folder` takes the log; `environment` adds `CARILLON_*` variables. At the end SIGTERM must lead to exit status
    0 within 20 s. A start costs seconds: a test that is not about it asks for `herd` (tests/support/processes.py).
    """
    port = free_port()
    command = _command("app.py", "--no-worker", "--host", HOST, "--port", str(port))
    with _running(command, database_url, folder / f"web-{port}.log", environment) as (process, log):
        server = WebServer(process, log, port)
        _wait_until(lambda: answers(port), server)
        yield server


@contextmanager
def worker(
    database_url: str,
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run `python scheduler_worker.py` on a migrated database until the block ends.

    As `web`; ready means that it has logged its start, from when on SIGTERM is obeyed.
    """
    command = _command("scheduler_worker.py")
    log_file = folder / f"worker-{next(_PORTS)}.log"
    with _running(command, database_url, log_file, environment) as (process, log):
        server = Server(process, log)
        _wait_until(lambda: "worker started" in server.words(), server)
        yield server


def find_set_up_link(words: str) -> str | None:
    """The set-up link in what a web process has written."""
    found = re.search(r"https?://\S+/setup\?token=\S+", words)
    return found.group() if found else None


def free_port() -> int:
    """A port on the loopback address that nobody listens on and no other test process will be given."""
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise AssertionError("a count does not end")


def answers(port: int) -> bool:
    """Whether a web process says on this port that it lives."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def product_environment(database_url: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with only the product's variables that the test names."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}
    return {
        **inherited,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT),
        "CARILLON_DATABASE_URL": database_url,
        "CARILLON_SECRET_KEY": SECRET_KEY,
        **(more or {}),
    }


def _command(program: str, *arguments: str) -> list[str]:
    return [str(ROOT / program), *arguments]


@contextmanager
def _running(
    arguments: list[str], database_url: str, log: Path, environment: Mapping[str, str] | None
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=product_environment(database_url, environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process, log
        process.send_signal(signal.SIGTERM)
        status = process.wait(STOP_SECONDS)
        assert status == 0, f"{arguments[0]} left with {status}:\n{log.read_text(errors='replace')[-4000:]}"
    finally:
        _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a process and its children, whatever happened before."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_until(ready: Callable[[], bool], server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        status = server.process.poll()
        assert status is None, f"it left with {status} before it was ready:\n{server.words()}"
        assert time.monotonic() < deadline, f"not ready after {START_SECONDS:g} s:\n{server.words()}"
        time.sleep(0.02)
