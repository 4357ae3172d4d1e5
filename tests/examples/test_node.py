"""The sample node as a real process against a real server: works, repeats, stops, waits, owns up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.nodes.scene import Scene, make_scene
from tests.support import servers
from tests.support.databases import ROOT, DatabaseSource, config_for, dispose_engines
from tests.support.processes import Herd, forked_web
from webapp import create_app
from webapp.clock import SystemClock
from webapp.store import engine

pytestmark = pytest.mark.processes

NODE = ROOT / "examples" / "node.py"
ECHO = "import sys, os; sys.stdout.write(sys.stdin.read().upper() + os.environ['CARILLON_ATTEMPT'])"
SECONDS = 60.0


@dataclass
class Hub:
    """A running server and the people and nodes of its database."""

    scene: Scene
    url: str
    folder: Path

    def command(self, *command: str, once: bool = False, state: str = "answers.json") -> list[str]:
        token = self.scene.nodes["atlas"][1]
        options = ["--once"] if once else []
        where = ["--state", str(self.folder / state), "--name", "atlas"]
        return [
            sys.executable, str(NODE), "--url", self.url, "--token", token, *options, *where, "--", *command
        ]  # fmt: skip

    def once(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Let the node work until its inbox is empty."""
        done = subprocess.run(
            self.command(*command, once=True, **options),
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done

    @contextmanager
    def node(self, *command: str, once: bool = False) -> Iterator[subprocess.Popen[str]]:
        """The node, serving until the block ends."""
        process = subprocess.Popen(self.command(*command, once=once), stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def status(self, task_id: str) -> str:
        return str(self.scene.task(task_id)["status"])

    def until(self, task_id: str, *statuses: str) -> dict[str, Any]:
        eventually(lambda: self.status(task_id) in statuses, f"{task_id} never became {statuses}")
        return self.scene.task(task_id)


def eventually(what: Callable[[], bool], else_say: str) -> None:
    end = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < end, else_say
        time.sleep(0.05)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(
    request: pytest.FixtureRequest, databases: DatabaseSource, herd: Herd
) -> Iterator[tuple[Any, str]]:
    """One server and app per engine; every test brings a node of its own."""
    with databases.lend(request.param) as url:
        app = create_app(config_for(url), SystemClock())
        with forked_web(herd, url) as web:
            yield make_scene(app), web.url
        dispose_engines(app)


@pytest.fixture
def hub(server: tuple[Scene, str], tmp_path: Path) -> Hub:
    scene, url = server
    name = f"node-{time.monotonic_ns()}"
    scene.add_node(name)
    scene.nodes["atlas"], scene.node_pks["atlas"] = scene.nodes[name], scene.node_pks[name]
    return Hub(scene, url, tmp_path)


def test_it_works_on_what_is_in_the_inbox_and_answers(hub: Hub) -> None:
    first, second = hub.scene.send(task="grüße"), hub.scene.send(task="two", priority="high")
    done = hub.once(sys.executable, "-c", ECHO)
    assert done.stderr.index(second) < done.stderr.index(first)
    for task_id, result in ((first, "GRÜSSE1"), (second, "TWO1")):
        task = hub.scene.task(task_id)
        assert (task["status"], task["result"]) == ("replied", result)
        kinds = [event["kind"] for event in task["events"]]
        assert kinds == ["created", "delivered", "acked", "running", "replied"]
    code, answer = hub.scene.call("alice", "GET", f"/api/nodes/{hub.scene.node_id('atlas')}")
    assert (code, answer["node"]["status"]) == (200, "offline")


def test_a_command_that_fails_or_cannot_run_is_a_failed_task(hub: Hub) -> None:
    failing, missing = hub.scene.send(), hub.scene.send()
    hub.scene.call("alice", "POST", f"/api/tasks/{missing}/cancel")
    hub.once(sys.executable, "-c", "import sys; print('half done'); sys.stderr.write('broke'); sys.exit(3)")
    task = hub.scene.task(failing)
    assert (task["status"], task["error_code"]) == ("failed", "task_failed")
    assert "half done" in task["result"]
    assert "broke" in task["result"]
    assert "exit status 3" in task["result"]
    hub.scene.call("alice", "POST", f"/api/tasks/{missing}/retry")
    hub.once("/no/such/command")
    assert "cannot be run" in hub.scene.task(missing)["result"]


def test_output_without_end_is_cut_and_still_an_answer(hub: Hub) -> None:
    plenty, escapes = hub.scene.send(), hub.scene.send()
    hub.once(sys.executable, "-c", "import sys; sys.stdout.write('\\x1b\\0' * 500_000)")
    for task_id in (plenty, escapes):
        task = hub.scene.task(task_id)
        assert task["status"] == "replied"
        assert task["result"].startswith("\x1b\ufffd\x1b\ufffd")
        assert len(task["result"]) > 10_000


def test_an_attempt_that_comes_again_gets_its_stored_answer_and_no_second_run(hub: Hub) -> None:
    marks = hub.folder / "runs"
    command = (sys.executable, "-c", f"open({str(marks)!r}, 'a').write('x'); print('once')")
    task_id = hub.scene.send()
    hub.once(*command)
    assert hub.scene.task(task_id)["result"] == "once\n"
    # What a restored backup does: the hub knows nothing of the acknowledgement any more.
    with hub.scene.app.app_context(), engine().begin() as connection:
        names = {"task_id": task_id}
        connection.execute(
            text(
                "UPDATE tasks SET status = 'created', result = NULL, delivered_at = NULL, acked_at = NULL,"
                " started_at = NULL, completed_at = NULL, deadline_at = created_at + 3600000"
                " WHERE task_id = :task_id"
            ),
            names,
        )
        connection.execute(
            text(
                "DELETE FROM task_events WHERE seq > 1"
                " AND task_pk = (SELECT id FROM tasks WHERE task_id = :task_id)"
            ),
            names,
        )
    assert "repeated" in hub.once(*command).stderr
    task = hub.scene.task(task_id)
    assert (task["status"], task["result"]) == ("replied", "once\n")
    assert marks.read_text() == "x"
    # A retry is another attempt, and new work.
    failing = (sys.executable, "-c", f"open({str(marks)!r}, 'a').write('y'); raise SystemExit(1)")
    other = hub.scene.send()
    hub.once(*failing)
    hub.scene.call("alice", "POST", f"/api/tasks/{other}/retry")
    hub.once(*failing)
    assert marks.read_text() == "xyy"


def test_cancelling_stops_the_command(hub: Hub) -> None:
    mark = hub.folder / "pid"
    source = (
        f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); print('going', flush=True);"
        " time.sleep(300)"
    )
    with hub.node(sys.executable, "-c", source):
        task_id = hub.scene.send()
        hub.until(task_id, "running")
        eventually(lambda: mark.exists() and bool(mark.read_text()), "the command never ran")
        pid = int(mark.read_text())
        hub.scene.call("alice", "POST", f"/api/tasks/{task_id}/cancel")
        eventually(lambda: not _lives(pid), "the command was not stopped")
        assert hub.status(task_id) == "cancelled"
        # And it goes on with the next one.
        mark.unlink()
        after = hub.scene.send()
        hub.until(after, "running")
        hub.scene.call("alice", "POST", f"/api/tasks/{after}/cancel")


def test_sigterm_finishes_the_task_in_hand(hub: Hub) -> None:
    with hub.node(sys.executable, "-c", "import time; time.sleep(2); print('done')") as process:
        task_id, waiting = hub.scene.send(), hub.scene.send(priority="low")
        hub.until(task_id, "running")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
        task = hub.scene.task(task_id)
        assert (task["status"], task["result"]) == ("replied", "done\n")
        assert hub.status(waiting) in ("created", "delivered")


def test_sigterm_ends_an_idle_node_at_once(hub: Hub) -> None:
    with hub.node("cat") as process:
        task_id = hub.scene.send()
        hub.until(task_id, "replied")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    node = hub.scene.call("alice", "GET", f"/api/nodes/{hub.scene.node_id('atlas')}")[1]["node"]
    assert node["status"] == "offline"


def test_it_waits_for_a_hub_that_is_away(hub: Hub) -> None:
    task_id = hub.scene.send()
    port = servers.free_port()
    here = Hub(hub.scene, f"http://{servers.HOST}:{port}", hub.folder)
    with here.node("cat", once=True) as process:
        assert process.stderr is not None
        # The first heartbeat is lost, then the first pull.
        assert "away" in process.stderr.readline() + process.stderr.readline()
        with _relay(port, hub.url):
            assert process.wait(SECONDS) == 0
    assert hub.status(task_id) == "replied"


def test_a_node_that_was_killed_owns_up_at_its_next_start(hub: Hub) -> None:
    while_its_parent_lives = "import os, time; p = os.getppid()\nwhile os.getppid() == p: time.sleep(0.1)"
    with hub.node(sys.executable, "-c", while_its_parent_lives) as process:
        task_id = hub.scene.send()
        hub.until(task_id, "running")
        process.kill()
        process.wait()
    assert hub.status(task_id) == "running"
    hub.once("cat")
    task = hub.scene.task(task_id)
    assert (task["status"], task["error_code"]) == ("failed", "task_failed")
    assert "stopped in the middle" in task["result"]
    # Begun on paper but never acknowledged: it comes again and is done.
    fresh = hub.scene.send()
    (hub.folder / "answers.json").write_text(json.dumps({f"{fresh} 1": None}))
    hub.once("cat")
    assert hub.status(fresh) == "replied"
    # Ended but never sent.
    unsent = hub.scene.send()
    hub.scene.inbox()
    hub.scene.report(unsent, "ack")
    reply = {"status": "replied", "result": "kept", "attempt": 1}
    (hub.folder / "answers.json").write_text(json.dumps({f"{unsent} 1": {"reply": reply, "sent": False}}))
    hub.once("cat")
    assert hub.scene.task(unsent)["result"] == "kept"


def test_a_token_that_is_not_valid_ends_it(hub: Hub) -> None:
    command = hub.command("cat", once=True)
    command[command.index("--token") + 1] = "ntok_" + "x" * 43
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "does not take this token" in done.stderr


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def _relay(port: int, url: str) -> Iterator[None]:
    """Makes a hub answer on `port`, as if it had just come up there."""
    source = (
        "import socket, sys, threading\n"
        "def pump(a, b):\n"
        "    while part := a.recv(65536): b.sendall(part)\n"
        "    b.shutdown(socket.SHUT_WR)\n"
        "with socket.create_server((sys.argv[1], int(sys.argv[2]))) as door:\n"
        "    while True:\n"
        "        a, _ = door.accept()\n"
        "        b = socket.create_connection((sys.argv[1], int(sys.argv[3])))\n"
        "        for pair in ((a, b), (b, a)): threading.Thread(target=pump, args=pair, daemon=True).start()\n"
    )
    there = url.rsplit(":", 1)[1]
    process = subprocess.Popen(
        [sys.executable, "-c", source, servers.HOST, str(port), there], stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
