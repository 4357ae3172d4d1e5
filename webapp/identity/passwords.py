"""Passwords: argon2id, at most two at once in a process, and the same work whether a name exists or not."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type

from webapp.errors import AppError

MIN_LENGTH, MAX_LENGTH = 12, 200

_hasher = PasswordHasher(time_cost=3, memory_cost=64 * 1024, parallelism=1, type=Type.ID)
# Each hash takes 64 MiB and a fifth of a second of one core: a crowd at the door must not take the machine.
_AT_ONCE = threading.BoundedSemaphore(2)
_IN_LINE = threading.BoundedSemaphore(12)
_BUSY_RETRY_SECONDS = 2


@contextmanager
def _a_turn() -> Iterator[None]:
    if not _IN_LINE.acquire(blocking=False):
        raise AppError("rate_limited", retry_after=_BUSY_RETRY_SECONDS)
    try:
        with _AT_ONCE:
            yield
    finally:
        _IN_LINE.release()


def _octets(password: str) -> bytes:
    # Keyboards write the same letter in different ways; to a person it is the same password.
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")


def check_password(password: object, *, field: str = "password") -> str:
    """The password if it may be chosen: 12 to 200 characters. Raises AppError `invalid_password`."""
    if not isinstance(password, str) or not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise AppError("invalid_password", field=field)
    return password


def hash_password(password: str) -> str:
    """The argon2id hash (64 MiB, 3 passes, 1 lane) of a password, with its salt and parameters.

    Takes about 0.2 s: call it before a transaction, never inside one. Raises AppError `rate_limited` when
    too many wait already.
    """
    with _a_turn():
        return _hasher.hash(_octets(password))


def verify_password(stored_hash: str | None, password: str) -> bool:
    """Whether the password belongs to the hash. None (there is no such person) takes the same time and fails.

    Raises AppError `rate_limited` when too many wait already.
    """
    known = stored_hash is not None
    reference = stored_hash if stored_hash is not None else _nobodys_hash()
    with _a_turn():
        try:
            # A text longer than any password is wrong without being hashed at length.
            fits = _hasher.verify(reference, _octets(password[: MAX_LENGTH + 1]))
        except (VerificationError, InvalidHashError):
            return False
    return fits and known


def needs_new_hash(stored_hash: str) -> bool:
    """Whether a hash was made with other parameters than today's."""
    return _hasher.check_needs_rehash(stored_hash)


@cache
def _nobodys_hash() -> str:
    return hash_password("the password of somebody who does not exist")
