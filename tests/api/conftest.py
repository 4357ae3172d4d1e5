from __future__ import annotations

import pytest
from flask import Flask

from tests.api.house import House, make_house
from webapp.clock import FrozenClock


@pytest.fixture
def house(app: Flask, clock: FrozenClock) -> House:
    """The cast and their tokens on a fresh database, on each engine."""
    return make_house(app, clock)
