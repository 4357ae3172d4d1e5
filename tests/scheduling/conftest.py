"""The stage, and the doctor as the last step of every scenario."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask

from tests.scheduling.stage import Stage, set_stage
from webapp.clock import FrozenClock


@pytest.fixture
def app(engine_app: Flask) -> Flask:
    """The engine needs no web."""
    return engine_app


@pytest.fixture
def stage(app: Flask, clock: FrozenClock, doctor_clean: None) -> Iterator[Stage]:
    yield from set_stage(app, clock)
