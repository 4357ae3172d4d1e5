"""The store needs no web."""

from __future__ import annotations

import pytest
from flask import Flask


@pytest.fixture
def app(engine_app: Flask) -> Flask:
    return engine_app
