"""People and their browsers."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from functools import cache

import pytest
from argon2 import PasswordHasher
from flask import Flask

from tests.factories import Cast, make_cast
from webapp.identity import passwords


@pytest.fixture
def cast(app: Flask) -> Cast:
    """Alice, Bob, Vera and Charlie."""
    with app.app_context():
        return make_cast()


@pytest.fixture
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real algorithm with little work."""
    monkeypatch.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    monkeypatch.setattr(passwords, "_nobodys_hash", cache(passwords._nobodys_hash.__wrapped__))


@pytest.fixture
def log(app: Flask) -> Iterator[io.StringIO]:
    """Everything the product logs from here on, as an operator would read it."""
    words = io.StringIO()
    handler = next(one for one in logging.getLogger().handlers if type(one) is logging.StreamHandler)
    before = handler.setStream(words)
    yield words
    handler.setStream(before or sys.stderr)
