"""The engine's stage, with mandates in view, and the doctor as the last step of every scenario."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask

from tests.mandates.scene import MandateScene
from tests.scheduling.stage import set_stage
from webapp.clock import FrozenClock


@pytest.fixture
def app(engine_app: Flask) -> Flask:
    """The engine needs no web."""
    return engine_app


@pytest.fixture
def scene(app: Flask, clock: FrozenClock, doctor_clean: None) -> Iterator[MandateScene]:
    for stage in set_stage(app, clock):
        yield MandateScene(stage)
