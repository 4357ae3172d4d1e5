"""Nodes and people that go on calling while the servers behind them die: real HTTP, and what was promised to them."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_PATIENCE_SECONDS = 20.0


@dataclass
class Promised:
    """What servers have acknowledged (200): it must be in the database, whatever died since."""

    replied: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    answers: Counter[str] = field(default_factory=Counter)
    cut: int = 0


class Caller(threading.Thread):
    """One client with a token that calls one of several servers, until it is told to stop."""

    def __init__(
        self, urls: Sequence[str], token: str, act: Callable[[Caller], None], promised: Promised, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self.chance = random.Random(seed)
        self.promised = promised
        self.over = threading.Event()
        self.failure: BaseException | None = None
        self._urls, self._token, self._act = urls, token, act

    def run(self) -> None:
        """Act again and again; a connection that breaks is part of the scene."""
        try:
            while not self.over.is_set():
                self._act(self)
                self.over.wait(self.chance.random() * 0.2)
        except BaseException as error:  # noqa: BLE001 - the test asks for it at the end
            self.failure = error

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and answer; (0, None) where the connection broke, 503 where the database is away."""
        where = urlsplit(self.chance.choice(self._urls))
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=_PATIENCE_SECONDS)
        try:
            connection.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **headers},
            )
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self.promised.cut += 1
            return 0, None
        finally:
            connection.close()
        said = json.loads(text) if text else {}
        self.promised.answers[f"{answer.status} {said.get('error', '')}".strip()] += 1
        return answer.status, said


def serve_inbox(caller: Caller) -> None:
    """A node: fetch, take up, answer."""
    status, answer = caller.call("GET", "/api/node/inbox?limit=20")
    if status != 200:
        return
    for task in answer["items"]:
        path, attempt = f"/api/node/tasks/{task['task_id']}", {"attempt": task["attempt"]}
        caller.call("POST", f"{path}/ack", attempt)
        outcome = "failed" if caller.chance.random() < 0.05 else "replied"
        status, _ = caller.call("POST", f"{path}/reply", {"status": outcome, "result": "done", **attempt})
        if status == 200:
            caller.promised.replied.add(task["task_id"])
        if caller.over.is_set():
            return


def steer(schedule_ids: Sequence[str]) -> Callable[[Caller], None]:
    """A person: pauses one of these schedules, lets it go on, runs it now."""

    def act(caller: Caller) -> None:
        path = f"/api/scheduled-tasks/{caller.chance.choice(schedule_ids)}"
        deed = caller.chance.choice(("pause", "resume", "resume", "run-now", "run-now"))
        headers = {"Idempotency-Key": f"key-{caller.chance.randrange(10**9)}"} if deed == "run-now" else {}
        status, answer = caller.call("POST", f"{path}/{deed}", {}, **headers)
        if status in (0, 500, 503) and deed == "run-now":
            # Nobody knows whether it was done: the same key again does it once.
            status, answer = caller.call("POST", f"{path}/{deed}", {}, **headers)
        if status in (200, 201, 202) and deed == "run-now":
            caller.promised.runs.add(answer["run"]["run_id"])

    return act
