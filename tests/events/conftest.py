from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask

from tests.nodes.scene import Scene, make_scene


@pytest.fixture
def scene(app: Flask) -> Iterator[Scene]:
    scene = make_scene(app)
    yield scene
    scene.close()
