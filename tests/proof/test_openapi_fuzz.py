"""What schemathesis makes of the OpenAPI document is sent to the product, and every answer is one the document names.

Each case comes from the schemas, legal and illegal ones; half of the addresses lead to things that are there.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from jsonschema_rs import validator_for
from schemathesis.generation import GenerationMode

from tests.api import documented
from tests.proof.conftest import LONG
from tests.proof.doors import HARBOUR, Doors, open_doors
from tests.support.databases import START, DatabaseSource, config_for, dispose_engines
from webapp import create_app
from webapp.clock import FrozenClock

EXAMPLES = 10_000 if LONG else 2_000
# How often each of them is the caller.
PEOPLE = {"sponsor": 60, "owner": 25, "viewer": 10, "node": 5}
MACHINES = {"node": 90, "sponsor": 10}
STREAM = "text/event-stream"


@pytest.fixture
def doors(databases: DatabaseSource) -> Iterator[Doors]:
    """The furnished product, restored before each call of the API is attacked."""
    with databases.lend("sqlite") as url:
        clock = FrozenClock(START)
        app = create_app(config_for(url), clock)
        yield open_doors(app, clock)
        dispose_engines(app)


def test_no_case_brings_a_fault_or_an_answer_that_is_not_described(doors: Doors, seed: int) -> None:
    raw = (
        doors.app.test_client()
        .get("/api/openapi.json", headers=doors.principals["viewer"].headers)
        .get_json()
    )
    schema = schemathesis.openapi.from_dict(raw)
    found = [result.ok() for result in schema.get_all_operations()]
    seen: Counter[int] = Counter()
    each = EXAMPLES // len(found) + 1
    for operation in found:
        seen += _attack(doors, raw, operation, each, seed)
        doors.restore(doors.principals["sponsor"])
    print(f"{sum(seen.values())} cases over {len(found)} calls: {dict(sorted(seen.items()))}")
    assert sum(seen.values()) >= EXAMPLES
    assert {200, 400, 403, 404} <= set(seen)


@dataclass
class _Answers:
    """What the document promises of one call, read once."""

    document: dict[str, Any]
    described: dict[str, Any]
    _validators: dict[tuple[str, str], Any] = field(default_factory=dict)

    def media(self, status: str) -> dict[str, Any]:
        content: dict[str, Any] = self.described[status].get("content", {})
        return content

    def validator(self, status: str, media_type: str) -> Any:
        if (status, media_type) not in self._validators:
            schema = {**self.media(status)[media_type]["schema"], "components": self.document["components"]}
            self._validators[status, media_type] = validator_for(schema)
        return self._validators[status, media_type]


def _attack(doors: Doors, raw: dict[str, Any], operation: Any, examples: int, seed: int) -> Counter[int]:
    """That many cases of one call; returns how often each status came."""
    seen: Counter[int] = Counter()
    chance = random.Random(f"{seed} {operation.label}")
    modes = [operation.as_strategy(generation_mode=GenerationMode.POSITIVE)]
    if operation.body or operation.query:
        modes.append(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    answers = _Answers(raw, raw["paths"][operation.path][operation.method.lower()]["responses"])

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=st.one_of(modes))
    def send(case: Any) -> None:
        if sum(seen.values()) < examples:
            seen[_send(doors, answers, case, chance)] += 1

    while sum(seen.values()) < examples:
        before = sum(seen.values())
        send()
        if sum(seen.values()) == before:
            break
        # A call without anything to vary has fewer cases than are asked for: others make them again.
        if sum(seen.values()) < examples:
            chance = random.Random(f"{chance.random()}")
    return seen


def _send(doors: Doors, answers: _Answers, case: Any, chance: random.Random) -> int:
    callers = MACHINES if case.operation.path.startswith("/api/node/") else PEOPLE
    (name,) = chance.choices(list(callers), weights=list(callers.values()))
    who = doors.principals[name]
    parts = case.as_transport_kwargs(base_url="http://localhost")
    path = case.operation.path
    for name, value in (case.path_parameters or {}).items():
        real = doors.things[HARBOUR].ids.get(name, "x") if chance.random() < 0.7 else str(value)
        path = path.replace("{" + name + "}", _quoted(real))
    headers = {
        str(name): str(value)
        for name, value in (parts.get("headers") or {}).items()
        if str(name).lower() not in ("user-agent", "authorization") and _fits_a_header(str(value))
    }
    response = doors.app.test_client().open(
        path,
        method=case.method,
        headers={**headers, **who.headers},
        query_string={name: _flat(value) for name, value in (case.query or {}).items()},
        buffered=False,
        **_body(case),
    )
    try:
        _check(doors, answers, case.method, path, response)
    finally:
        response.close()
    return int(response.status_code)


def _check(doors: Doors, answers: _Answers, method: str, path: str, response: Any) -> None:
    status = str(response.status_code)
    assert response.status_code < 500, f"{method} {path}: {status}"
    if response.mimetype == STREAM:
        assert STREAM in answers.media(status)
        return
    answer = response.get_json(silent=True)
    told = f"{method} {path}: {status} {json.dumps(answer)[:400]}"
    if answer is not None and answer.get("error") == "not_found":
        return  # An address that holds what no address may: routing does not know it.
    assert status in answers.described, f"{told} is not described"
    if response.mimetype in answers.media(status) and answer is not None:
        faults = [str(fault) for fault in answers.validator(status, response.mimetype).iter_errors(answer)]
        assert not faults, f"{told}: {faults[:3]}"
    documented.check(doors.app, method, path, response)


def _body(case: Any) -> dict[str, Any]:
    if type(case.body).__name__ == "NotSet":
        return {}
    raw = case.body if isinstance(case.body, (bytes, str)) else json.dumps(case.body)
    return {"data": raw, "content_type": case.media_type or "application/json"}


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _flat(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, list)) else json.dumps(value)


def _fits_a_header(value: str) -> bool:
    return value.isprintable() and value.isascii()
