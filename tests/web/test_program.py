"""`python app.py` as an operator starts and stops it: real processes, real signals, open streams."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.factories import make_member, make_network, make_token, make_user
from tests.support.databases import ROOT, DatabaseSource, config_for, dispose_engines
from tests.support.processes import Herd, eventually
from tests.support.servers import answers, free_port, product_environment
from webapp import create_app
from webapp.clock import SystemClock

pytestmark = pytest.mark.processes
PATIENCE = 60.0


@pytest.fixture(params=["sqlite"])
def database_url(request: pytest.FixtureRequest, databases: DatabaseSource) -> Iterator[str]:
    """A migrated, empty database; on one engine unless the test asks for another."""
    with databases.lend(request.param) as url:
        yield url


@dataclass
class Program:
    """A started program, its port and its output."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def words(self) -> str:
        return self.log.read_text(errors="replace")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def children(self) -> list[int]:
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [int(line) for line in found.stdout.split()]


@contextmanager
def program(database_url: str, folder: Path) -> Iterator[Program]:
    port = free_port()
    log = folder / f"program-{port}.log"
    environment = product_environment(database_url, {"CARILLON_TICK_SECONDS": "1"})
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "app.py"), "--port", str(port)],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Program(process, port, log)
    try:
        eventually(lambda: answers(port) or process.poll() is not None, PATIENCE, "it answers")
        assert process.poll() is None, running.words()
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ready(running: Program) -> bool:
    return running.get("/readyz")[0] == 200


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_it_starts_on_a_new_database_stops_and_starts_again(
    fresh_database: Callable[[str], str], engine: str, tmp_path: Path
) -> None:
    """Two whole lives of the program, each of which costs seconds: everything that needs one is asked here."""
    new = f"sqlite:///{tmp_path}/new.db" if engine == "sqlite" else fresh_database("postgresql")
    first = _a_first_life_that_ends_at_the_terminal(new, tmp_path)
    _a_second_life_that_is_told_to_end(new, tmp_path, first)


def _a_first_life_that_ends_at_the_terminal(database_url: str, folder: Path) -> str:
    with program(database_url, folder) as running:
        eventually(lambda: ready(running), PATIENCE, "a worker has been seen")
        migrations = json.loads(running.get("/readyz")[1])["checks"]["migrations"]
        assert migrations == {"ok": True, "detail": "current"}
        link = link_in(running)
        assert running.get(link)[0] == 200
        assert len(running.children()) == 2
        started_again_when_killed(running)
        # As a terminal does it: to every process of the group.
        ends_in_time(running, lambda: os.killpg(running.process.pid, signal.SIGINT))
    return link


def _a_second_life_that_is_told_to_end(database_url: str, folder: Path, link_before: str) -> None:
    with program(database_url, folder) as running:
        link = link_in(running)
        assert running.get(link)[0] == 200
        assert running.get(link_before)[0] == 403, "each start replaces the link of the one before"
        eventually(lambda: worker_pid(running) is not None, PATIENCE, "a worker runs")
        assert len(running.children()) == 2
        streams = [stream(running.port, token_of_somebody(database_url)) for _ in range(3)]
        took = ends_in_time(running, running.process.terminate)
        assert took < 12, "it waited for the streams"
        for opened in streams:
            opened.close()


def link_in(running: Program) -> str:
    found = re.search(r"/setup\?token=\S+", running.words())
    assert found, running.words()
    assert running.words().count("token=") == 1, "said once, logged never"
    return found[0]


def started_again_when_killed(running: Program) -> None:
    first = worker_pid(running)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    eventually(lambda: worker_pid(running) not in (None, first), PATIENCE, "another worker runs")
    eventually(
        lambda: running.words().count("worker started") == 2, PATIENCE, "it has come as far as its work"
    )


def ends_in_time(running: Program, tell: Callable[[], object]) -> float:
    """It ends with status 0 and takes both children with it; returns the seconds."""
    children = running.children()
    began = time.monotonic()
    tell()
    assert running.process.wait(30) == 0, running.words()
    took = time.monotonic() - began
    assert took < 20
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert "Traceback" not in running.words()
    return took


def worker_pid(running: Program) -> int | None:
    for pid in running.children():
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and b"scheduler_worker.py" in command.read_bytes():
            return pid
    return None


def token_of_somebody(database_url: str) -> str:
    app = create_app(config_for(database_url), SystemClock())
    with app.app_context():
        now = SystemClock().now()
        person = make_user(now=now)
        make_member(person, make_network(now=now), now=now)
        token = make_token(person, now=now)
    dispose_engines(app)
    return token


def stream(port: int, token: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(
        f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    assert b"200 OK" in connection.recv(4096)
    return connection


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["--port", "70000"], {}, "a port is a number from 1 to 65535"),
        ([], {"CARILLON_TICK_SECONDS": "never"}, "CARILLON_TICK_SECONDS must be a number"),
        ([], {"CARILLON_DATABASE_URL": "mysql://x"}, "CARILLON_DATABASE_URL must start with"),
        ([], {"CARILLON_PUBLIC_URL": "carillon.example"}, "CARILLON_PUBLIC_URL must be"),
    ],
)
def test_what_it_cannot_use_is_said_in_one_sentence(
    herd: Herd, database_url: str, arguments: list[str], environment: dict[str, str], words: str
) -> None:
    said = refused(herd, *arguments, environment={"CARILLON_DATABASE_URL": database_url, **environment})
    assert words in said
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_said_at_once(herd: Herd, database_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(herd, "--port", str(port), environment={"CARILLON_DATABASE_URL": database_url})
    assert f"Cannot listen on 127.0.0.1 port {port}" in said


def refused(herd: Herd, *arguments: str, environment: dict[str, str]) -> str:
    """The program leaves with status 2; returns all that it said."""
    pid = herd.start_program(None, "app.py", *arguments, environment=environment)
    assert herd.wait(pid, PATIENCE) == 2, herd.words(pid)
    return herd.words(pid)


def test_a_bad_setting_stops_flask_in_the_same_words(database_url: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "flask", "--app", "app", "doctor"],
        cwd=ROOT,
        env=product_environment(database_url, {"CARILLON_BATCH_SIZE": "0"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.strip() == "CARILLON_BATCH_SIZE must be a whole number from 1 to 5000, not '0'."
