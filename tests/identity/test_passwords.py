"""The work that a password costs: as much for everybody, and never too much at once."""

from __future__ import annotations

import statistics
import threading
import time

import pytest
from argon2 import PasswordHasher
from sqlalchemy import select

from tests.factories import PASSWORD, Cast
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.identity import passwords
from webapp.identity.models import User
from webapp.identity.sign_in import sign_in
from webapp.store import reading
from webapp.store.transaction import Tx, operation

HERE = "192.0.2.7"


def test_an_unknown_name_takes_as_long_as_a_wrong_password() -> None:
    known_hash = passwords.hash_password(PASSWORD)
    passwords.verify_password(None, "the first makes the dummy hash")

    def seconds(stored: str | None) -> float:
        began = time.thread_time()
        assert not passwords.verify_password(stored, "not the password at all")
        return time.thread_time() - began

    known = statistics.median(seconds(known_hash) for _ in range(3))
    unknown = statistics.median(seconds(None) for _ in range(3))
    assert unknown > known / 3, "an unknown name is answered without the work"
    assert known > unknown / 3


def test_a_hash_of_other_parameters_is_renewed_by_a_sign_in(cast: Cast, clock: FrozenClock) -> None:
    old = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1).hash(PASSWORD)

    @operation
    def weaken(tx: Tx) -> None:
        tx.session.get_one(User, cast.alice.id).password_hash = old

    weaken()
    sign_in("Alice", PASSWORD, HERE, now=clock.now())
    with reading() as session:
        fresh = session.scalars(select(User.password_hash).where(User.id == cast.alice.id)).one()
    assert fresh.startswith("$argon2id$v=19$m=65536,t=3,p=1$")
    sign_in("Alice", PASSWORD, HERE, now=clock.now())


def test_a_crowd_at_the_door_is_turned_away_instead_of_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_IN_LINE", threading.BoundedSemaphore(1))
    assert passwords._IN_LINE.acquire(blocking=False)
    with pytest.raises(AppError) as refused:
        passwords.hash_password(PASSWORD)
    assert refused.value.code == "rate_limited"
    assert refused.value.details["retry_after"] >= 1


def test_no_more_than_two_hashes_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, lock = 0, 0, threading.Lock()

    class Watched:
        def hash(self, _octets: bytes) -> str:
            nonlocal inside, most
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.02)
            with lock:
                inside -= 1
            return "$"

    monkeypatch.setattr(passwords, "_hasher", Watched())
    threads = [threading.Thread(target=passwords.hash_password, args=(PASSWORD,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2


def test_hash_parameters_are_those_of_the_design() -> None:
    assert passwords.hash_password(PASSWORD).startswith("$argon2id$v=19$m=65536,t=3,p=1$")
