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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.databases import ROOT, DatabaseSource
from tests.support.processes import eventually
from tests.support.servers import answers, free_port, product_environment

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
def program(database_url: str, folder: Path, *arguments: str, wait: bool = True) -> Iterator[Program]:
    port = free_port()
    log = folder / f"program-{port}.log"
    environment = product_environment(database_url, {"CARILLON_TICK_SECONDS": "1"})
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "app.py"), "--port", str(port), *arguments],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Program(process, port, log)
    try:
        if wait:
            eventually(lambda: answers(port) or process.poll() is not None, PATIENCE, "it answers")
            assert process.poll() is None, running.words()
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ready(running: Program) -> bool:
    return running.get("/readyz")[0] == 200


@pytest.mark.parametrize(
    ("database_url", "number"),
    [("sqlite", signal.SIGTERM), ("sqlite", signal.SIGINT), ("postgresql", signal.SIGTERM)],
    indirect=["database_url"],
)
def test_web_and_worker_start_together_and_stop_together(
    database_url: str, tmp_path: Path, number: signal.Signals
) -> None:
    with program(database_url, tmp_path) as running:
        eventually(lambda: ready(running), PATIENCE, "a worker has been seen")
        children = running.children()
        assert len(children) == 2
        began = time.monotonic()
        if number == signal.SIGINT:
            # As a terminal does it: to every process of the group.
            os.killpg(running.process.pid, number)
        else:
            running.process.send_signal(number)
        assert running.process.wait(30) == 0, running.words()
        assert time.monotonic() - began < 20
        for pid in children:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        assert "Traceback" not in running.words()


def test_a_worker_that_dies_is_started_again(database_url: str, tmp_path: Path) -> None:
    with program(database_url, tmp_path) as running:
        eventually(lambda: ready(running), PATIENCE, "a worker has been seen")
        first = worker_pid(running)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        eventually(lambda: worker_pid(running) not in (None, first), PATIENCE, "another worker runs")
        running.process.terminate()
        assert running.process.wait(30) == 0


def worker_pid(running: Program) -> int | None:
    for pid in running.children():
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and b"scheduler_worker.py" in command.read_bytes():
            return pid
    return None


def test_the_first_start_prints_a_link_that_opens_and_is_replaced_by_the_next(
    database_url: str, tmp_path: Path
) -> None:
    links = []
    for _ in range(2):
        with program(database_url, tmp_path, "--no-worker") as running:
            found = re.search(r"/setup\?token=\S+", running.words())
            assert found, running.words()
            links.append(found[0])
            assert running.get(links[-1])[0] == 200
            assert running.get(links[0])[0] == (200 if len(links) == 1 else 403)
            assert running.words().count("token=") == 1, "said once, logged never"
            running.process.terminate()
            assert running.process.wait(30) == 0


def test_a_new_database_is_migrated_at_the_start(tmp_path: Path, database_url: str) -> None:
    with program(f"sqlite:///{tmp_path}/new.db", tmp_path, "--no-worker") as running:
        assert json.loads(running.get("/readyz")[1])["checks"]["migrations"] == {
            "ok": True,
            "detail": "current",
        }


def test_open_streams_do_not_keep_it_from_leaving(database_url: str, tmp_path: Path) -> None:
    flask(database_url, "create-user", "Alice", "--network", "harbour", "--password-stdin")
    token = flask(database_url, "create-token", "Alice").strip()
    with program(database_url, tmp_path, "--no-worker") as running:
        streams = [stream(running.port, token) for _ in range(3)]
        began = time.monotonic()
        running.process.terminate()
        assert running.process.wait(30) == 0
        assert time.monotonic() - began < 12, "it waited for the streams"
        for opened in streams:
            opened.close()


def flask(database_url: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "flask", "--app", "app", *arguments],
        input="correct horse battery\n",
        cwd=ROOT,
        env=product_environment(database_url),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


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
    database_url: str, tmp_path: Path, arguments: list[str], environment: dict[str, str], words: str
) -> None:
    result = start(database_url, tmp_path, *arguments, environment=environment)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_that_is_taken_is_said_at_once(database_url: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = start(database_url, tmp_path, "--port", str(port))
    assert result.returncode == 2
    assert f"Cannot listen on 127.0.0.1 port {port}" in result.stderr


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


def start(
    database_url: str, folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py"), *arguments],
        cwd=folder,
        env=product_environment(database_url, environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
