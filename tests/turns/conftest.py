from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from flask import Flask

from tests.support.databases import config_for
from tests.support.doctor import assert_doctor_clean
from tests.support.model_server import Answer, ModelServer, model_server
from tests.turns.stage import KEY_VARIABLE, Stage, make_stage
from webapp.clock import FrozenClock
from webapp.config import ECHO_PROFILE, Config, ModelProfile

SECRET = "sk-only-in-this-test-4711"


@pytest.fixture(scope="session")
def http_server() -> Iterator[ModelServer]:
    """One server for all tests of a session, so that their app can be kept."""
    with model_server() as running:
        yield running


@pytest.fixture
def server(http_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A model's endpoint that answers "Done." until it is told otherwise."""
    monkeypatch.setenv(KEY_VARIABLE, SECRET)
    http_server.requests.clear()
    http_server.standing = Answer()
    yield http_server
    assert not http_server.left_over(), "the test told it what nobody asked for"


@pytest.fixture
def config(database_url: str, http_server: ModelServer) -> Config:
    """The settings of an operator who has set up one model, with narrow limits and a longer one beside it."""
    talker = ModelProfile(
        "talker",
        base_url=http_server.base_url,
        model="gpt-test",
        api_key_env=KEY_VARIABLE,
        timeout_seconds=600,
        request_timeout_seconds=2,
        max_tokens=50_000,
        max_output_tokens=1_000,
        max_requests=6,
    )
    other = replace(talker, name="other", max_requests=30)
    return replace(config_for(database_url), models=(talker, other, ECHO_PROFILE), default_model="talker")


@pytest.fixture
def stage(app: Flask, clock: FrozenClock, server: ModelServer) -> Iterator[Stage]:
    """Harbour with a node and a chat of Alice; the doctor looks at what is left."""
    with app.app_context():
        yield make_stage(clock, server)
    assert_doctor_clean(app)
