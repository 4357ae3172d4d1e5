"""People in an app context, and what reaches the hook when their authority changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cache

import pytest
from argon2 import PasswordHasher
from flask import Flask

from tests.factories import Cast, make_cast
from webapp.identity import hooks, passwords
from webapp.store.transaction import Tx


@pytest.fixture
def context(app: Flask) -> Iterator[Flask]:
    """The app with a context pushed."""
    with app.app_context():
        yield app


@pytest.fixture
def cast(context: Flask) -> Cast:
    """Alice, Bob, Vera and Charlie."""
    return make_cast()


@pytest.fixture
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real algorithm with little work, for tests that count tries and not milliseconds."""
    monkeypatch.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    monkeypatch.setattr(passwords, "_nobodys_hash", cache(passwords._nobodys_hash.__wrapped__))


@pytest.fixture
def told(context: Flask) -> Iterator[list[tuple[int, int | None]]]:
    """Each (user, network) that the hook was told of, while the product's own step is taken out."""
    heard: list[tuple[int, int | None]] = []

    def step(_tx: Tx, user_pk: int, network_pk: int | None, _now: datetime) -> None:
        heard.append((user_pk, network_pk))

    before = hooks.register_authority_changed(step)
    yield heard
    hooks.register_authority_changed(before)
