#!/usr/bin/env python3
"""A node for Carillon: pulls tasks, runs a command on each, answers. Needs nothing but Python 3.11.

    python examples/node.py --url http://127.0.0.1:8000 --token ntok_… -- COMMAND ARGUMENT…

The command gets the text of the task on its standard input; what it writes, on standard output and error, is
the answer. Exit status 0 means done, any other one failed. In its environment it finds CARILLON_TASK_ID,
CARILLON_ATTEMPT and CARILLON_META (JSON: which schedule and slot the task stands for).


The protocol, for those who write their own node
================================================
A node speaks to the hub only by calls that it makes itself: it needs no address and no open port. Every call
carries `Authorization: Bearer ntok_…`; bodies and answers are JSON objects; an error is
`{"ok": false, "error": "<code>", "message": "<a sentence>"}`.

1. Pull: `GET /api/node/inbox?limit=1&wait=50`. The hub answers as soon as there is work, else after at most
   `wait` seconds (0 to 60) with `{"items": []}`. It may also answer at once when too many nodes wait: be polite
   and pause a little. Each item has `task_id`, `attempt`, `content` (the text), `priority`, `from`,
   `expires_at`, `delivery_id` and `meta`. Items come most urgent first, then oldest first.

   Fetching is not taking up: what was fetched and not acknowledged is handed out again. So the same item may
   come twice (delivery is at least once); `(task_id, attempt)` is the key by which to know it. This node writes
   each answer to a small file before it sends it: when an attempt comes again that it has answered already
   (the hub's database was restored, say), it repeats the stored answer and does not work twice.

2. Acknowledge: `POST /api/node/tasks/{task_id}/ack` `{"attempt": n}`. Now the task is out of the inbox and its
   running time counts. Only then begin: 409 means do not. `task_withdrawn`: it was cancelled;
   `task_already_final`: it has ended, or its time is up; `task_attempt_superseded`: somebody has retried it,
   the new attempt comes through the inbox. Acknowledging twice is fine.

3. Start (optional): `POST /api/node/tasks/{task_id}/start` `{"attempt": n}`, or a heartbeat that names the task.

4. Heartbeat: `POST /api/node/heartbeat` `{"status": "working", "task_id": "…"}` every 15 seconds or so.
   Statuses: `working idle blocked error waiting_input offline`. Whoever is silent for ten minutes is shown as
   offline. The answer's `cancel` lists tasks to stop.

5. Doorbell (optional): `GET /api/node/events` is a stream of server-sent events: `new_task` with `inbox_count`,
   `priority` and `from`, and `cancel` with `task_id`; a comment line every 15 seconds shows that it lives. It
   ends after five minutes: come back with the last `id` in `Last-Event-ID`. Status 204 means that all places
   are taken: do without, heartbeats tell the same a little later.

6. Reply: `POST /api/node/tasks/{task_id}/reply` `{"status": "replied", "result": "…", "attempt": n}`, or
   `failed`, or `cancelled`. The hub keeps up to 64 KiB of the result and cuts the rest; the whole body may
   have 256 KiB. When no answer arrives (the network, the hub restarting), send the same again until one does:
   a repeated identical reply is answered with 200, as often as it comes. 409 means that nobody wants it any
   more.

7. When the hub is away or says 429 or 5xx, wait and try again, longer each time (here 1 s to 60 s, with some
   chance in it, so that many nodes do not come back in step). 401 means that the token is not valid any more.

SIGTERM and SIGINT: this node finishes the task in hand, answers, says `offline` and leaves with status 0.
A node that was killed in the middle of a task says so at its next start: it answers `failed` for what it had
begun, as nobody knows how far that came.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

WAIT_SECONDS = 50
HEARTBEAT_SECONDS = 15.0
POLITE_SECONDS = 2.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
KILL_AFTER_SECONDS = 10.0
MAX_RESULT_BYTES = 64 * 1024
MAX_BODY_BYTES = 250 * 1024
KEPT_ANSWERS = 500


class Away(Exception):
    """The hub cannot be reached or asks to come back later; `pause_seconds` if it says when."""

    def __init__(self, reason: str, pause_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.pause_seconds = pause_seconds


class Unwelcome(Exception):
    """The hub does not take this token."""


class Leave(Exception):
    """A signal came while there was nothing in hand."""


class Hub:
    """The calls of a node."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_seconds: float = 30
    ) -> tuple[int, dict[str, Any]]:
        """One call: its status and its JSON. Raises Away and Unwelcome; other 4xx are for the caller."""
        try:
            with self._open(method, path, body, timeout_seconds) as response:
                return response.status, json.loads(response.read() or b"{}")
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Away(str(error) or type(error).__name__) from None

    def patiently(
        self, path: str, body: dict[str, Any], give_up: Callable[[], bool]
    ) -> tuple[int, dict[str, Any]]:
        """One POST, sent again until the hub has answered it. Raises Away once `give_up` says so."""
        for pause in pauses():
            try:
                return self.call("POST", path, body)
            except Away as away:
                if give_up():
                    raise
                wait_for_hub(away, pause)
        raise AssertionError("pauses do not end")

    def events(self, last_id: str) -> Iterator[tuple[str, str, str]]:
        """The doorbell as (id, event, data); ends with the stream. Raises Away."""
        headers = {"Last-Event-ID": last_id} if last_id else {}
        try:
            with self._open("GET", "/api/node/events", None, 60, headers) as response:
                if response.status == 204:
                    raise Away("every stream is taken", LONGEST_PAUSE_SECONDS)
                yield from _messages(response, last_id)
        except (OSError, http.client.HTTPException) as error:
            raise Away(str(error)) from None

    def _open(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        timeout_seconds: float,
        headers: dict[str, str] | None = None,
    ) -> Any:
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        request = urllib.request.Request(self._url + path, data=data, method=method, headers=headers or {})
        request.add_header("Authorization", f"Bearer {self._token}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        return urllib.request.urlopen(request, timeout=timeout_seconds)

    @staticmethod
    def _refused(error: urllib.error.HTTPError) -> tuple[int, dict[str, Any]]:
        if error.code == 401:
            raise Unwelcome("the hub does not take this token")
        if error.code == 429 or error.code >= 500:
            after = error.headers.get("Retry-After", "")
            raise Away(f"status {error.code}", float(after) if after.isdigit() else None)
        try:
            answer = json.loads(error.read())
        except ValueError:
            answer = {}
        return error.code, answer if isinstance(answer, dict) else {}


class Answers:
    """What this node has begun and answered, by task and attempt, in a file that outlives it.

    An entry is null while the work goes on, then `{"reply": …, "sent": …}`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, dict[str, Any] | None] = {}
        if path.exists():
            self._entries = json.loads(path.read_text(encoding="utf-8"))

    def get(self, task_id: str, attempt: int) -> dict[str, Any] | None:
        """The reply that was given to this attempt, None for one that was not answered."""
        entry = self._entries.get(f"{task_id} {attempt}")
        return None if entry is None else entry["reply"]

    def begin(self, task_id: str, attempt: int) -> None:
        """Remember that work on this attempt has begun."""
        self._keep(task_id, attempt, None)

    def keep(self, task_id: str, attempt: int, reply: dict[str, Any], *, sent: bool) -> None:
        """Remember a reply: before it is sent, and once the hub has it."""
        self._keep(task_id, attempt, {"reply": reply, "sent": sent})

    def forget(self, task_id: str, attempt: int) -> None:
        """This attempt was not ours after all."""
        self._entries.pop(f"{task_id} {attempt}", None)
        self._write()

    def unfinished(self) -> list[tuple[str, int]]:
        """What had begun when this node was last killed."""
        keys = [key.split(" ") for key, entry in self._entries.items() if entry is None]
        return [(task_id, int(attempt)) for task_id, attempt in keys]

    def unsent(self) -> list[tuple[str, dict[str, Any]]]:
        """Replies that the hub may not have, by task."""
        entries = self._entries.items()
        return [(key.split(" ")[0], entry["reply"]) for key, entry in entries if entry and not entry["sent"]]

    def _keep(self, task_id: str, attempt: int, entry: dict[str, Any] | None) -> None:
        self._entries[f"{task_id} {attempt}"] = entry
        for key in list(self._entries)[:-KEPT_ANSWERS]:
            del self._entries[key]
        self._write()

    def _write(self) -> None:
        # The new file takes the place of the old one whole: a crash leaves either, never half of one.
        beside = self._path.with_name(self._path.name + ".new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(self._entries, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


class Doorbell(threading.Thread):
    """Listens for cancelled tasks, beside the work."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(name="doorbell", daemon=True)
        self._hub = hub
        self._cancelled: set[str] = set()
        self._rang = threading.Condition()

    def run(self) -> None:
        """Come back whenever the stream ends; do without it when the hub does not take this node."""
        last_id = ""
        attempts = pauses()
        while True:
            try:
                for seen_id, event, data in self._hub.events(last_id):
                    last_id, attempts = seen_id, pauses()
                    if event == "cancel":
                        self.cancel(json.loads(data)["task_id"])
                time.sleep(FIRST_PAUSE_SECONDS)
            except Away as away:
                time.sleep(away.pause_seconds or next(attempts))

    def cancel(self, task_id: str) -> None:
        """Have the work on this task stopped."""
        with self._rang:
            self._cancelled.add(task_id)
            self._rang.notify_all()

    def wait(self, task_id: str, seconds: float) -> bool:
        """Wait for a while; True when the task was cancelled."""
        with self._rang:
            return self._rang.wait_for(lambda: task_id in self._cancelled, seconds)


class Command:
    """One run of the command. It leads a process group of its own, so that all of it can be stopped."""

    def __init__(self, command: Sequence[str], item: dict[str, Any]) -> None:
        environment = {
            **os.environ,
            "CARILLON_TASK_ID": item["task_id"],
            "CARILLON_ATTEMPT": str(item["attempt"]),
            "CARILLON_META": json.dumps(item["meta"]),
        }
        self._output = bytearray()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        threading.Thread(
            target=self._write, args=(self._process.stdin, item["content"].encode()), daemon=True
        ).start()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> bool:
        """Wait for its end for a while; True when it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """Ask it to end, then make it end."""
        for number, seconds in ((signal.SIGTERM, KILL_AFTER_SECONDS), (signal.SIGKILL, KILL_AFTER_SECONDS)):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return
            if self.wait(seconds):
                return

    def outcome(self) -> tuple[int, str]:
        """Its exit status and the first 64 KiB of what it wrote. Waits for its end."""
        status = self._process.wait()
        # A grandchild that lives on may keep the pipe open for ever; what it writes later is not the answer.
        self._reader.join(5)
        return status, self._output.decode("utf-8", "replace").replace("\x00", "\ufffd")

    def _read(self, stream: BinaryIO) -> None:
        # Read on to the end although only the beginning is kept, else the command would wait for us.
        while part := stream.read1(65_536):  # type: ignore[attr-defined]
            self._output += part[: MAX_RESULT_BYTES - len(self._output)]

    @staticmethod
    def _write(stream: BinaryIO, text: bytes) -> None:
        try:
            with stream:
                stream.write(text)
        except BrokenPipeError:
            return


class Node:
    """Pulls, works, answers, one task at a time."""

    def __init__(self, hub: Hub, answers: Answers, command: Sequence[str], name: str) -> None:
        self._hub = hub
        self._answers = answers
        self._command = command
        self._name = name
        self._doorbell = Doorbell(hub)
        self._in_hand = False
        self._leaving = False

    def leave(self, _number: int, _frame: FrameType | None) -> None:
        """A signal: leave now, or when the task in hand is answered."""
        self._leaving = True
        if not self._in_hand:
            raise Leave

    def run(self, *, once: bool) -> None:
        """Serve until told to leave, or (`once`) until the inbox is empty."""
        try:
            self._own_up()
            self._doorbell.start()
            self._say("idle")
            while not self._leaving and (self._serve(0 if once else WAIT_SECONDS) or not once):
                pass
        except Leave:
            self._tell("leaves")
        # From here on a second signal changes nothing.
        self._in_hand = True
        self._say("offline")

    def _own_up(self) -> None:
        """Answer for what was begun and never ended, or ended and never sent, because this node was stopped."""
        for task_id, reply in self._answers.unsent():
            self._answer(task_id, reply)
        unfinished = self._answers.unfinished()
        waiting = {(item["task_id"], item["attempt"]) for item in self._pull(200, 0)} if unfinished else set()
        for task_id, attempt in unfinished:
            if (task_id, attempt) in waiting:
                # It was never acknowledged, so the work had not begun: it comes again.
                self._answers.forget(task_id, attempt)
                continue
            result = "The node was stopped in the middle of this task."
            self._answer(task_id, {"status": "failed", "result": result, "attempt": attempt})

    def _pull(self, limit: int, wait_seconds: int) -> Collection[dict[str, Any]]:
        """What the inbox holds, at most `limit`; waits for the first, and for the hub if it is away."""
        for pause in pauses():
            try:
                path = f"/api/node/inbox?limit={limit}&wait={wait_seconds}"
                status, answer = self._hub.call("GET", path, timeout_seconds=wait_seconds + 20)
            except Away as away:
                wait_for_hub(away, pause)
                continue
            if status != 200:
                raise Unwelcome(f"{status} {answer.get('error')}")
            items: list[dict[str, Any]] = answer["items"]
            return items
        raise AssertionError("pauses do not end")

    def _serve(self, wait_seconds: int) -> bool:
        """Pull once and work on what comes; False when nothing came."""
        began = time.monotonic()
        items = self._pull(1, wait_seconds)
        if not items and wait_seconds and time.monotonic() - began < POLITE_SECONDS:
            time.sleep(POLITE_SECONDS)
        for item in items:
            self._in_hand = True
            self._handle(item)
            self._say("idle")
            self._in_hand = False
        return bool(items)

    def _handle(self, item: dict[str, Any]) -> None:
        task_id, attempt = item["task_id"], item["attempt"]
        stored = self._answers.get(task_id, attempt)
        if stored is None:
            # Written before the hub is told: whatever happens from here on, this node will answer for it.
            self._answers.begin(task_id, attempt)
        try:
            path = f"/api/node/tasks/{task_id}/ack"
            status, refusal = self._hub.patiently(path, {"attempt": attempt}, lambda: self._leaving)
        except Away:
            # Whether the hub has heard us shows at the next start: then the task is in the inbox, or not.
            return
        if status != 200:
            self._tell(f"{task_id}: not taken up ({refusal.get('error')})")
            if stored is None:
                self._answers.forget(task_id, attempt)
            return
        if stored is not None:
            self._tell(f"{task_id}: came again, its answer is repeated")
            self._answer(task_id, stored)
            return
        self._tell(f"{task_id}: begins")
        reply = {**self._work(item), "attempt": attempt}
        self._tell(f"{task_id}: {reply['status']}")
        self._answer(task_id, reply)

    def _work(self, item: dict[str, Any]) -> dict[str, Any]:
        """Run the command to its end, or until the task is cancelled; the reply."""
        try:
            command = Command(self._command, item)
        except OSError as error:
            return {"status": "failed", "result": f"The command cannot be run: {error}"}
        cancelled = False
        next_beat = time.monotonic()
        while command.running and not cancelled:
            if time.monotonic() >= next_beat:
                self._say("working", item["task_id"])
                next_beat = time.monotonic() + HEARTBEAT_SECONDS
            # Both ends are looked for: the command's twice a second at least, a cancel's at once.
            cancelled = self._doorbell.wait(item["task_id"], 0.05) or (
                not command.wait(0.45) and self._doorbell.wait(item["task_id"], 0)
            )
        if cancelled:
            command.stop()
        exit_status, output = command.outcome()
        if cancelled:
            return {"status": "cancelled", "result": output}
        if exit_status == 0:
            return {"status": "replied", "result": output}
        return {"status": "failed", "result": f"{output}\n(exit status {exit_status})".lstrip()}

    def _answer(self, task_id: str, reply: dict[str, Any]) -> None:
        reply = fitting(reply)
        self._answers.keep(task_id, reply["attempt"], reply, sent=False)
        try:
            path = f"/api/node/tasks/{task_id}/reply"
            status, answer = self._hub.patiently(path, reply, lambda: self._leaving)
        except Away:
            self._tell(f"{task_id}: the hub is away, its answer is sent at the next start")
            return
        self._answers.keep(task_id, reply["attempt"], reply, sent=True)
        if status != 200:
            self._tell(f"{task_id}: the answer was not wanted ({answer.get('error')})")

    def _say(self, status: str, task_id: str | None = None) -> None:
        """A heartbeat. One that gets lost does no harm: the next one says the same."""
        body = {"status": status} if task_id is None else {"status": status, "task_id": task_id}
        try:
            _, answer = self._hub.call("POST", "/api/node/heartbeat", body, timeout_seconds=10)
        except Away as away:
            self._tell(f"a heartbeat was lost: {away}")
            return
        for cancelled in answer.get("cancel", ()):
            self._doorbell.cancel(cancelled)

    def _tell(self, line: str) -> None:
        print(f"{self._name}: {line}", file=sys.stderr, flush=True)


def fitting(reply: dict[str, Any]) -> dict[str, Any]:
    """The reply with its result shortened until the whole body is small enough to be taken."""
    while len(json.dumps(reply, ensure_ascii=False).encode()) > MAX_BODY_BYTES:
        reply = {**reply, "result": reply["result"][: len(reply["result"]) // 2]}
    return reply


def pauses() -> Iterator[float]:
    """Longer and longer pauses, seconds, with some chance in them; without end."""
    longest = FIRST_PAUSE_SECONDS
    while True:
        yield longest * random.uniform(0.5, 1.0)
        longest = min(LONGEST_PAUSE_SECONDS, longest * 2)


def wait_for_hub(away: Away, pause_seconds: float) -> None:
    """Pause before the next try, as long as the hub asks or as `pause_seconds` says."""
    seconds = away.pause_seconds or pause_seconds
    print(f"the hub is away ({away}), next try in {seconds:.0f} s", file=sys.stderr, flush=True)
    time.sleep(seconds)


def _messages(response: Any, last_id: str) -> Iterator[tuple[str, str, str]]:
    event, data = "", ""
    for raw in response:
        name, _, value = raw.decode("utf-8", "replace").rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            last_id = value
        elif name == "event":
            event = value
        elif name == "data":
            data = value
        elif not name and not value:
            yield last_id, event, data
            event, data = "", ""


def main() -> int:
    """Read the arguments and serve; returns the exit status: 2 when the hub does not take the token."""
    parser = argparse.ArgumentParser(description="A node for Carillon: runs a command on each task.")
    parser.add_argument("--url", required=True, help="where Carillon is, such as http://127.0.0.1:8000")
    parser.add_argument("--token", default=os.environ.get("CARILLON_NODE_TOKEN"), help="ntok_…")
    parser.add_argument("--once", action="store_true", help="work on what is in the inbox now, then leave")
    parser.add_argument("--name", default="node", help="how it calls itself in its own log")
    parser.add_argument("--state", type=Path, help="where to keep its answers (default: beside you)")
    parser.add_argument("command", nargs="+", help="what to run; put -- before it")
    asked = parser.parse_args()
    if not asked.token:
        parser.error("--token or CARILLON_NODE_TOKEN is needed")
    # By token, so that two nodes in one folder do not take each other's answers for their own.
    mark = hashlib.sha256(asked.token.encode()).hexdigest()[:8]
    state = asked.state or Path(f"carillon-node-{asked.name}-{mark}.json")
    node = Node(Hub(asked.url, asked.token), Answers(state), asked.command, asked.name)
    signal.signal(signal.SIGTERM, node.leave)
    signal.signal(signal.SIGINT, node.leave)
    try:
        node.run(once=asked.once)
    except Unwelcome as refused:
        print(f"{asked.name}: {refused}", file=sys.stderr)
        return 2
    except Leave:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
