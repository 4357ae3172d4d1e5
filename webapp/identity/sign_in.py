"""Names and passwords at the door, and what makes guessing them slow."""

from __future__ import annotations

import hashlib
import ipaddress
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import Table, delete, select, update

from webapp.errors import AppError
from webapp.identity import names, passwords
from webapp.identity.models import SignInThrottle, User
from webapp.logs import get_logger
from webapp.store import dialect, reading
from webapp.store.transaction import Tx, operation

_FIRST_WAIT_SECONDS = 30
_FORGOTTEN_AFTER = timedelta(hours=1)
_log = get_logger(__name__)


@dataclass(frozen=True)
class Throttle:
    """What is counted: after `free` failures each further one doubles the wait, up to `longest_seconds`."""

    key: str
    free: int
    longest_seconds: int


@dataclass(frozen=True)
class SignedIn:
    """Who came in; the session holds these two."""

    user_pk: int
    user_id: str
    session_epoch: int


def sign_in(name: str, password: str, address: str | None, *, now: datetime) -> SignedIn:
    """Who this name and password belong to.

    `address` is the caller's network address. Each try is counted against the name and the address before it
    is looked at, so that many at once gain nothing; a right one takes its count back. Raises AppError
    `wrong_credentials` (the same, after the same work, for an unknown name, a wrong password and a deactivated
    person) and `rate_limited` with `retry_after` in seconds.
    """
    by_name, by_address = _of_name(name), _of_address(address)
    _count([by_name, by_address], now=now)
    with reading() as session:
        user = (
            session.scalars(
                select(User).where(User.name_key == names.name_key(name), User.active)
            ).one_or_none()
            if _could_be_a_name(name)
            else None
        )
    if not passwords.verify_password(None if user is None else user.password_hash, password) or user is None:
        _log.warning("sign-in refused", address=address)
        raise AppError("wrong_credentials")
    _forgive(by_name.key, by_address, now=now)
    if passwords.needs_new_hash(user.password_hash):
        _renew_hash(user.id, user.password_hash, passwords.hash_password(password))
    _log.info("signed in", user_id=user.user_id, address=address)
    return SignedIn(user.id, user.user_id, user.session_epoch)


def confirm_password(user_pk: int, password: str, *, now: datetime) -> None:
    """Check a signed-in person's present password, counted like a sign-in by that name.

    Raises AppError `wrong_password` and `rate_limited`.
    """
    with reading() as session:
        user = session.get_one(User, user_pk)
    by_name = _of_name(user.name)
    _count([by_name], now=now)
    if not passwords.verify_password(user.password_hash, password):
        raise AppError("wrong_password", field="current_password")
    _forgive(by_name.key, None, now=now)


def _could_be_a_name(name: str) -> bool:
    try:
        names.user_name(name)
    except AppError:
        return False
    return True


def _of_name(name: str) -> Throttle:
    # Hashed: whatever somebody types by mistake, a password even, is not kept.
    key = names.name_key(name[:400]).encode("utf-8", "surrogatepass")
    return Throttle(f"name:{hashlib.sha256(key).hexdigest()}", free=5, longest_seconds=300)


def _of_address(address: str | None) -> Throttle:
    # More than a name's: an office shares one address, and a person mistypes their own name.
    return Throttle(f"address:{_household(address)}", free=20, longest_seconds=900)


def _household(address: str | None) -> str:
    """The address, or for IPv6 the /64 that one line of one customer is given whole."""
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return "unknown"
    if parsed.version == 6:
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed.packed[:8] + bytes(8), 64)))
    return str(parsed)


@operation
def _count(tx: Tx, throttles: Sequence[Throttle], *, now: datetime) -> None:
    rows = []
    for throttle in sorted(throttles, key=lambda throttle: throttle.key):
        row = _row(tx, throttle.key, now)
        if row.blocked_until is not None and row.blocked_until > now:
            wait = math.ceil((row.blocked_until - now).total_seconds())
            raise AppError("rate_limited", retry_after=wait)
        rows.append((throttle, row))
    for throttle, row in rows:
        last = max(row.first_failure_at, row.blocked_until or row.first_failure_at)
        if now - last > _FORGOTTEN_AFTER:
            row.failures, row.first_failure_at, row.blocked_until = 0, now, None
        row.failures += 1
        if row.failures >= throttle.free:
            doubled = _FIRST_WAIT_SECONDS * 2 ** min(20, row.failures - throttle.free)
            row.blocked_until = now + timedelta(seconds=min(throttle.longest_seconds, doubled))


def _row(tx: Tx, key: str, now: datetime) -> SignInThrottle:
    fresh = {"key": key, "failures": 0, "first_failure_at": now, "blocked_until": None}
    dialect.insert_new(tx.session, cast(Table, SignInThrottle.__table__), [fresh])
    return tx.session.scalars(select(SignInThrottle).where(SignInThrottle.key == key).with_for_update()).one()


@operation
def _forgive(tx: Tx, name_key: str, by_address: Throttle | None, *, now: datetime) -> None:
    """Forget the failures of the name; take back only this one try of the address.

    Were all of the address forgotten, one good account would buy unlimited guesses at the others.
    """
    tx.session.execute(delete(SignInThrottle).where(SignInThrottle.key == name_key))
    if by_address is None:
        return
    row = _row(tx, by_address.key, now)
    row.failures = max(0, row.failures - 1)
    if row.failures < by_address.free:
        row.blocked_until = None


@operation
def _renew_hash(tx: Tx, user_pk: int, old_hash: str, new_hash: str) -> None:
    # Only if nobody changed the password in between.
    tx.session.execute(
        update(User).where(User.id == user_pk, User.password_hash == old_hash).values(password_hash=new_hash)
    )
