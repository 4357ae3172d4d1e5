"""Random lives of a chat's schedules, step by step against the rules said plainly: by operations, and over HTTP.

The rules are those of `tests/targets/plain_rules.py`; here they are lived longer, by a seed of the day, and with what
people do sent to the API by their own tokens. A wish that the rules refuse is refused with the same code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from datetime import datetime
from typing import Any, ClassVar

import hypothesis
import pytest
from flask import Flask
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.api import documented
from tests.factories import bearer, make_token
from tests.proof import ledger
from tests.proof.conftest import LONG, kept_seeds
from tests.targets.parlour import Parlour, open_parlour
from tests.targets.test_interleavings import Life
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.identity.access import Actor
from webapp.mandates.models import Mandate
from webapp.scheduling.models import Schedule

STEPS = int(os.environ.get("CARILLON_PROOF_STEPS", "10000" if LONG else "150"))
# Longer ones come to what the plain rules leave out: a blocker that is given up after hours.
STEPS_A_LIFE = 15


class HttpParlour(Parlour):
    """The parlour whose people speak HTTP; what is refused is raised by its code, as an operation would."""

    tokens: dict[int, str]

    def let_in(self) -> None:
        """Give Alice and Bob their tokens."""
        self.tokens = {user.id: make_token(user) for user in (self.cast.alice, self.cast.bob)}
        self.client = self.app.test_client()

    def call(self, actor: Actor, method: str, path: str, body: Any = None) -> Any:
        """One documented call. Raises AppError with the code of a refusal."""
        headers = bearer(self.tokens[actor.user_pk])
        sent = {} if body is None else {"json": body}
        # In a context of its own: within the test's, every request would share what the first one remembers.
        response = Context().run(self.client.open, path, method=method, headers=headers, **sent)
        answer = documented.check(self.app, method, path, response)
        if response.status_code >= 400:
            assert response.status_code < 500, answer
            raise AppError(answer["error"])
        return answer

    def _at(self, schedule: Schedule, what: str = "") -> str:
        return f"/api/scheduled-tasks/{schedule.schedule_id}{what}"

    def pause(self, schedule: Schedule, actor: Actor | None = None, **fields: Any) -> Any:
        return self.call(actor or self.alice, "POST", self._at(schedule, "/pause"), fields)

    def resume(self, schedule: Schedule, actor: Actor | None = None) -> Any:
        return self.call(actor or self.bob, "POST", self._at(schedule, "/resume"), {})

    def change(self, schedule: Schedule, actor: Actor | None = None, /, **fields: Any) -> Any:
        body = {"revision": self.schedule(schedule).revision, **fields}
        return self.call(actor or self.bob, "PATCH", self._at(schedule), body)

    def run_now(self, schedule: Schedule, actor: Actor | None = None, *, key: str | None = None) -> Any:
        return self.call(actor or self.bob, "POST", self._at(schedule, "/run-now"), {})

    def say(self, text: str = "Hello.", chat: Any = None) -> Any:
        path = f"/api/chats/{(chat or self.chat).chat_id}/messages"
        return self.call(self.bob, "POST", path, {"text": text})

    def archive(self, chat: Any = None) -> Any:
        return self.call(self.bob, "POST", f"/api/chats/{(chat or self.chat).chat_id}/archive", {})

    def unarchive(self, chat: Any = None) -> Any:
        return self.call(self.bob, "POST", f"/api/chats/{(chat or self.chat).chat_id}/unarchive", {})

    def expire_mandate(self, schedule: Schedule, at: datetime) -> Any:
        mandate: Mandate = self.mandate(schedule)
        body = {"revision": mandate.revision, "expires_at": at.isoformat()}
        return self.call(self.bob, "PATCH", f"/api/mandates/{mandate.mandate_id}", body)


class Counted(Life):
    """A life whose steps are counted."""

    steps: ClassVar[int]

    def check_invariants(self, settings: Any, output: Any, runtimes: Any) -> None:
        """Called by hypothesis after each step."""
        type(self).steps += 1
        super().check_invariants(settings, output, runtimes)


@pytest.fixture
def parlour(app: Flask, clock: FrozenClock) -> Iterator[Parlour]:
    yield from open_parlour(app, clock)


@contextmanager
def _over_http(parlour: Parlour) -> Iterator[HttpParlour]:
    spoken = HttpParlour(**{name: getattr(parlour, name) for name in parlour.__dataclass_fields__})
    spoken.let_in()
    yield spoken


@pytest.mark.parametrize("way", ["operations", "http"])
def test_no_step_of_any_life_differs_from_the_plain_rules(parlour: Parlour, way: str, seed: int) -> None:
    began, total = time.monotonic(), 0
    with _over_http(parlour) as spoken:
        for number in [*kept_seeds(), seed]:
            total += _live(spoken if way == "http" else parlour, number, STEPS)
    audited = ledger.assert_clean(parlour.app)
    print(f"{total} steps over {way} in {time.monotonic() - began:.0f} s; {audited.slots} slots looked at")
    assert total >= STEPS


def _live(parlour: Parlour, seed: int, steps: int) -> int:
    kind = type(
        "LifeHere", (Counted,), {"parlour": parlour, "alice": parlour.alice, "bob": parlour.bob, "steps": 0}
    )
    lives = 0
    while kind.steps < steps:
        lives += 1
        machine = hypothesis.seed(seed + lives * 7919)(kind)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=max(1, (steps - kind.steps) // STEPS_A_LIFE + 1),
                stateful_step_count=STEPS_A_LIFE,
                deadline=None,
                database=None,
                phases=[Phase.generate] if not LONG else list(Phase),
                suppress_health_check=list(HealthCheck),
            ),
        )
    return int(kind.steps)
