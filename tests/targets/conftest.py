"""The stage with a chat on it, and the doctor as the last step of every scenario."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask

from tests.targets.parlour import Parlour, open_parlour
from webapp.clock import FrozenClock


@pytest.fixture
def app(engine_app: Flask) -> Flask:
    """The engine needs no web."""
    return engine_app


@pytest.fixture
def parlour(app: Flask, clock: FrozenClock, doctor_clean: None) -> Iterator[Parlour]:
    yield from open_parlour(app, clock)
