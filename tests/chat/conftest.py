from __future__ import annotations

import pytest
from flask import Flask

from tests.api.house import make_house
from tests.chat.scene import Scene
from webapp.clock import FrozenClock


@pytest.fixture
def scene(app: Flask, clock: FrozenClock) -> Scene:
    """The cast with tokens on a fresh database, on each engine."""
    return Scene(make_house(app, clock))
