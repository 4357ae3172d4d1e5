"""One transaction around each change."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.orm import Session

from webapp.logs import get_logger
from webapp.store import db, dialect

K = TypeVar("K")
P = ParamSpec("P")
R = TypeVar("R")

_ATTEMPTS = 6
_FIRST_PAUSE_SECONDS = 0.01

_open: ContextVar[bool] = ContextVar("carillon_transaction_open", default=False)
_log = get_logger(__name__)


class Tx:
    """An open transaction: its session, what is to be written last, and what waits for the commit."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.notes: dict[str, Any] = {}
        self._last: dict[str, Callable[[Tx], None]] = {}
        self._after_commit: list[Callable[[], None]] = []

    def write_last(self, name: str, write: Callable[[Tx], None]) -> None:
        """Have `write` called once, just before the commit; names are served in alphabetical order.

        Counter rows are locked there, last of all, so that they are held for the shortest time.
        """
        self._last.setdefault(name, write)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the commit has succeeded; its failure changes nothing."""
        self._after_commit.append(callback)

    def finish(self) -> None:
        """Write what was kept for last, then commit."""
        self.session.flush()
        for name in sorted(self._last):
            self._last[name](self)
        self.session.flush()
        self.session.commit()

    def ring(self) -> None:
        """Run the callbacks of a transaction that has committed."""
        for callback in self._after_commit:
            try:
                callback()
            except Exception:  # noqa: BLE001 - whatever a bell does, the commit stands
                _log.exception("a bell failed after the commit; the change itself stands")


def operation(work: Callable[Concatenate[Tx, P], R]) -> Callable[P, R]:
    """Turn `work(tx, …)` into a call that owns one transaction, from its first read to its commit.

    The transaction takes the write lock before it reads. Deadlocks, serialization failures and a busy
    database are tried again a few times from the start; a commit whose answer is lost is not (read again by
    the derived id). Raises RuntimeError when called inside another operation.
    """

    @functools.wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _open.get():
            raise RuntimeError(f"{work.__name__} was called inside another transaction")
        token = _open.set(True)
        try:
            result, tx = _attempts(work, args, kwargs)
        finally:
            _open.reset(token)
        if db.session.registry.has():
            # What this request has read before the change must not be taken for the present state.
            db.session.expire_all()
        tx.ring()
        return result

    return call


def _attempts(work: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[R, Tx]:
    pause_seconds = _FIRST_PAUSE_SECONDS
    engine = dialect.write_engine(db.engine)
    for attempt in range(1, _ATTEMPTS + 1):
        with Session(engine, autoflush=True, expire_on_commit=False) as session:
            tx = Tx(session)
            try:
                result = work(tx, *args, **kwargs)
                tx.finish()
                return result, tx
            except DBAPIError as error:
                session.rollback()
                if attempt == _ATTEMPTS or not dialect.is_transient(error):
                    raise
        time.sleep(pause_seconds * (0.5 + random.random()))
        pause_seconds *= 3
    raise AssertionError("unreachable")


def each_alone(keys: Iterable[K], work: Callable[[K], int], what: str) -> int:
    """Call `work` for every key, each a transaction of its own; returns the sum of what they answer.

    One that raises is logged with `what` and costs only itself. A database that is away is raised: then none
    of the others would fare better.
    """
    total = 0
    for key in keys:
        try:
            total += work(key)
        except (OperationalError, InterfaceError):
            raise
        except Exception:  # noqa: BLE001 - whatever it was, the others must get their turn
            _log.exception("one of many failed; the others go on", what=what, key=key)
    return total
