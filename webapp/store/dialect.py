"""Every difference between the two database engines. Nothing else in the product asks which one it is."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Protocol, cast

from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    Executable,
    FromClause,
    Integer,
    Table,
    bindparam,
    column,
    event,
    func,
    select,
    text,
)
from sqlalchemy import cast as cast_as
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

# SQLite numbers its rows by itself only in a column declared INTEGER.
BIG_KEY = BigInteger().with_variant(Integer(), "sqlite")

BUSY_TIMEOUT_SECONDS = 15.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRITE = "carillon_write"
_CHANNEL = "carillon"
# Libraries before this one can corrupt a WAL database when two connections reset the log at once.
_FIRST_SOUND_WAL = (3, 51, 3)
_SQLITE_BUSY_OR_LOCKED = (5, 6)
_RETRYABLE_STATES = ("40001", "40P01", "55P03")
_SQLITE_POLL_SECONDS = 0.02


def is_sqlite(bind: Engine | Connection) -> bool:
    """Whether the database is a file of ours rather than a server."""
    return bind.dialect.name == "sqlite"


def engine_options(database_url: str) -> dict[str, Any]:
    """What `create_engine` needs for this database.

    Reading sessions run in autocommit on both engines: each statement sees one state, no lock and no open
    transaction outlives it. Only `write_engine` opens transactions.
    """
    if database_url.startswith("sqlite"):
        return {
            # An error's text goes to the log; what people typed does not.
            "hide_parameters": True,
            "json_deserializer": _read_json,
            "connect_args": {"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
            "pool_size": 20,
            "max_overflow": 120,
        }
    return {
        "hide_parameters": True,
        "isolation_level": "AUTOCOMMIT",
        "pool_pre_ping": True,
        "pool_size": 10,
        "max_overflow": 120,
        "connect_args": {
            "connect_timeout": 10,
            # A server that is gone without a word is noticed within a minute, not after a quarter of an hour.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
            "application_name": "carillon",
            "options": "-c statement_timeout=60000 -c idle_in_transaction_session_timeout=60000 -c timezone=UTC",
        },
    }


def _read_json(text: str) -> Any:
    """What a JSON column of a file holds, where nothing but our own care keeps other text out.

    One damaged value must not make every statement fail that reads its row among others.
    """
    try:
        return json.loads(text)
    except ValueError:
        return {"unreadable": text[:200]}


def prepare(engine: Engine) -> None:
    """Attach what each new connection and each new transaction needs."""
    if not is_sqlite(engine):
        return

    @event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _record: object) -> None:
        # The driver opens no transactions of its own: we say BEGIN, and say which kind.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A deferred BEGIN that reads first and writes later fails at once when another writer was quicker.
        if connection.get_execution_options().get(_WRITE):
            connection.exec_driver_sql("BEGIN IMMEDIATE")


def write_engine(engine: Engine) -> Engine:
    """The same pool, but each transaction may write: BEGIN IMMEDIATE, or READ COMMITTED."""
    if is_sqlite(engine):
        return engine.execution_options(**{_WRITE: True})
    return engine.execution_options(isolation_level="READ COMMITTED")


def set_journal_mode(connection: Connection) -> None:
    """Choose the journal once, at migration: WAL where the library is sound, else DELETE."""
    if is_sqlite(connection):
        connection.exec_driver_sql(f"PRAGMA journal_mode={'WAL' if wal_is_sound() else 'DELETE'}")


def wal_is_sound() -> bool:
    """Whether this machine's library may be trusted with a write-ahead log."""
    return sqlite3.sqlite_version_info >= _FIRST_SOUND_WAL


def storage_summary(connection: Connection) -> str:
    """One phrase for the log and `/readyz`, such as `SQLite 3.40.1, DELETE journal`."""
    if is_sqlite(connection):
        mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
        return f"SQLite {sqlite3.sqlite_version}, {str(mode).upper()} journal"
    version = connection.exec_driver_sql("SHOW server_version").scalar_one()
    return f"PostgreSQL {str(version).split(' ')[0]}"


def is_transient(error: DBAPIError) -> bool:
    """Whether the same unit of work may simply be tried again: deadlock, serialization, busy."""
    original = error.orig
    if isinstance(original, sqlite3.Error):
        return getattr(original, "sqlite_errorcode", 0) & 0xFF in _SQLITE_BUSY_OR_LOCKED
    return getattr(original, "sqlstate", None) in _RETRYABLE_STATES


def insert_new(
    session: Session,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    returning: Sequence[ColumnElement[Any]] = (),
) -> list[Any]:
    """Insert `rows` but those whose unique key is taken; returns the `returning` columns of the inserted.

    A row that does not come back lost its race: the caller reads no error text to learn it.
    """
    if not rows:
        return []
    module = sqlite if is_sqlite(_bind(session)) else postgresql
    statement = module.insert(table).on_conflict_do_nothing()
    if returning:
        statement = statement.returning(*returning)
    # Executed with a list, so that the statement is compiled once and sent in pages of many rows.
    result = session.connection().execute(statement, [dict(row) for row in rows])
    return list(result.all()) if returning else []


def upsert(
    session: Session, table: Table, row: Mapping[str, Any], key: Sequence[str], update: Mapping[str, Any]
) -> None:
    """Insert `row`, or set `update` on the row that has the same `key` columns."""
    module = sqlite if is_sqlite(_bind(session)) else postgresql
    statement = module.insert(table).values(dict(row))
    session.execute(statement.on_conflict_do_update(index_elements=list(key), set_=dict(update)))


def raise_counter(session: Session, table: Table, key: str, value: int, amount: int) -> int:
    """Raise the counter `seq` of the row with `key` = `value` by `amount`; returns its new height.

    The row stays locked until the transaction ends, so numbers become visible in their order.
    """
    statement = _raising(table, key, in_file=is_sqlite(_bind(session)))
    return int(session.connection().execute(statement, {"owner": value, "amount": amount}).scalar_one())


@cache
def _raising(table: Table, key: str, *, in_file: bool) -> Executable:
    """Built once: every transaction has two of them."""
    module = sqlite if in_file else postgresql
    amount = bindparam("amount", type_=table.c.seq.type)
    statement = module.insert(table).values({key: bindparam("owner", type_=table.c[key].type), "seq": amount})
    raising: Executable = statement.on_conflict_do_update(
        index_elements=[key], set_={"seq": table.c.seq + amount}
    ).returning(table.c.seq)
    return raising


def database_now(session: Session) -> datetime:
    """The instant on the database's own clock (aware, UTC), which all machines that share it see alike: for leases."""
    if is_sqlite(_bind(session)):
        read = "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
    else:
        read = "SELECT CAST(extract(epoch from clock_timestamp()) * 1000 AS bigint)"
    return _EPOCH + timedelta(milliseconds=int(session.execute(text(read)).scalar_one()))


def number_pairs(session: Session, pairs: Sequence[tuple[int, int]]) -> FromClause:
    """Pairs of whole numbers as a table with the columns `low` and `high`; however many, it is the same statement."""
    if is_sqlite(_bind(session)):
        given = func.json_each(json.dumps(pairs)).table_valued("value", name="given")
        low, high = (func.json_extract(given.c.value, path, type_=BigInteger) for path in ("$[0]", "$[1]"))
        return select(low.label("low"), high.label("high")).subquery("pairs")
    lists = [cast_as(list(numbers), postgresql.ARRAY(BigInteger)) for numbers in zip(*pairs, strict=True)]
    names = (column("low", BigInteger), column("high", BigInteger))
    return func.unnest(*lists).table_valued(*names, name="pairs").render_derived()


def announce(session: Session) -> None:
    """Wake every process that waits for changes, when this transaction commits."""
    if not is_sqlite(_bind(session)):
        session.execute(text(f"SELECT pg_notify('{_CHANNEL}', '')"))


class ChangeWaiter(Protocol):
    """Waits until something was committed by any process, or the time is up."""

    def wait(self, timeout_seconds: float) -> bool:
        """True when there was a change (or there may have been one), False when the time is up."""

    def close(self) -> None: ...


def change_waiter(engine: Engine) -> ChangeWaiter:
    """A waiter with a connection of its own; use it from one thread."""
    return _FileWaiter(engine) if is_sqlite(engine) else _ListenWaiter(engine)


class _FileWaiter:
    """Looks at the file's change counter, by the driver itself: an idle worker does so fifty times a second."""

    def __init__(self, engine: Engine) -> None:
        self._connection = engine.connect()
        self._driver: Any = self._connection.connection.driver_connection
        self._seen = self._version()

    def _version(self) -> int:
        return int(self._driver.execute("PRAGMA data_version").fetchone()[0])

    def wait(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while (version := self._version()) == self._seen:
            rest = deadline - time.monotonic()
            if rest <= 0:
                return False
            time.sleep(min(_SQLITE_POLL_SECONDS, rest))
        self._seen = version
        return True

    def close(self) -> None:
        self._connection.close()


class _ListenWaiter:
    """Listens on a channel; when the connection breaks, says "maybe" and listens anew."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def _driver(self) -> Any:
        if self._connection is None:
            self._connection = self._engine.connect()
            self._connection.exec_driver_sql(f"LISTEN {_CHANNEL}")
        return cast(Any, self._connection.connection.driver_connection)

    def wait(self, timeout_seconds: float) -> bool:
        fresh = self._connection is None
        try:
            driver = self._driver()
            if fresh:
                return True
            heard = list(driver.notifies(timeout=0))
            if not heard and timeout_seconds > 0:
                heard = list(driver.notifies(timeout=timeout_seconds, stop_after=1))
        except Exception as error:
            if not _is_lost_connection(error):
                raise
            self._drop()
            return True
        return bool(heard)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        # A listening connection must not go back to the pool: it would hear for somebody else.
        self._drop()


def _is_lost_connection(error: Exception) -> bool:
    import psycopg

    return isinstance(error, psycopg.OperationalError | DBAPIError)


def _bind(session: Session) -> Engine | Connection:
    return session.get_bind()
