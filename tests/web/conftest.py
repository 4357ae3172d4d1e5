"""People and their browsers."""

from __future__ import annotations

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
