"""Rows that a program has made, inside statements: thousands of them at once, and the statement stays the same.

On a server they are arrays, unnested; in a file a temporary table, filled once for all statements of a transaction.
The planner there knows nothing of such a table and might walk through another one and look here: so `look_up` says
which comes first, and `key_of` the same for an UPDATE.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    CursorResult,
    Executable,
    FromClause,
    Join,
    MetaData,
    Table,
    Text,
    bindparam,
    column,
    delete,
    func,
    insert,
    literal_column,
    select,
    type_coerce,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql import coercions, roles
from sqlalchemy.sql.functions import GenericFunction

from webapp.store import dialect
from webapp.store.base import UtcDateTime

_TYPES: dict[type, Any] = {int: BigInteger(), str: Text()}
Kinds = tuple[tuple[str, type], ...]


class Given:
    """Rows as a statement sees them, before there are any: what a statement is built with, once for all its uses."""

    def __init__(self, name: str, kinds: Kinds, *, as_table: bool) -> None:
        self._name, self._kinds = name, dict(kinds)
        self._table = _temporary(name, kinds)[0] if as_table else None
        self.arrays: list[str] = []

    def table(self, *names: str) -> FromClause:
        """The rows with these columns, to be named once in a statement."""
        if self._table is not None:
            return self._table
        self.arrays += names
        types = {name: _TYPES[self._kinds[name]] for name in names}
        arrays = [bindparam(f"{self._name}_{name}", type_=ARRAY(type(kind))) for name, kind in types.items()]
        typed = [column(name, kind) for name, kind in types.items()]
        return func.unnest(*arrays).table_valued(*typed, name=self._name).render_derived()


class GivenRows:
    """Rows for the statements of one transaction; `columns` are lists of one length, ints or strings, by name.

    `kinds` says which of the two each is. At most one set of each `name` is in use at a time.
    """

    def __init__(
        self, session: Session, name: str, kinds: Kinds, columns: Mapping[str, Sequence[Any]]
    ) -> None:
        self._name, self._kinds, self._columns = name, kinds, columns
        self._connection = session.connection()
        self._as_table = dialect.is_sqlite(self._connection)
        self.count = len(next(iter(columns.values())))
        if self._as_table:
            self._fill()

    def execute(self, build: Callable[..., Executable], *about: Any, **values: Any) -> CursorResult[Any]:
        """Execute the statement `build(given, *about)`, which is built once for each `about` (hashable values).

        `values` are its bound values.
        """
        statement, arrays = _built(build, about, self._name, self._kinds, self._as_table)
        given = {f"{self._name}_{name}": list(self._columns[name]) for name in arrays}
        return self._connection.execute(statement, values | given)

    def _fill(self) -> None:
        table, create, fill = _temporary(self._name, self._kinds)
        self._connection.exec_driver_sql(create)
        self._connection.execute(delete(table))
        rows = list(zip(*(self._columns[name] for name, _ in self._kinds), strict=True))
        # As they are: what the layer above would do for each value is most of the cost.
        self._connection.exec_driver_sql(fill, rows)


@cache
def _built(
    build: Callable[..., Executable], about: tuple[Hashable, ...], name: str, kinds: Kinds, as_table: bool
) -> tuple[Executable, tuple[str, ...]]:
    given = Given(name, kinds, as_table=as_table)
    statement = build(given, *about)
    return statement, tuple(dict.fromkeys(given.arrays))


@cache
def _temporary(name: str, kinds: Kinds) -> tuple[Table, str, str]:
    table = Table(
        name, MetaData(), *(Column(column, _TYPES[kind]) for column, kind in kinds), prefixes=["TEMPORARY"]
    )
    fill = insert(table).compile(dialect=sqlite.dialect())
    return table, str(CreateTable(table, if_not_exists=True)), str(fill)


def bound_now() -> ColumnElement[datetime]:
    """The present instant of a statement that is built once: its bound value `now`, an aware datetime."""
    return bindparam("now", type_=UtcDateTime())


def key_of(given: ColumnElement[int]) -> ColumnElement[int]:
    """A column of given rows as that which finds a row of another table, and never the other way round."""
    return given + literal_column("0")


class _LookUp(Join):
    inherit_cache = True


def look_up(first: FromClause, *tables: tuple[Any, ColumnElement[bool]]) -> FromClause:
    """`first` joined with each of the tables (or models) by its condition, looked up in this order."""
    joined = first
    for table, condition in tables:
        joined = _LookUp(joined, coercions.expect(roles.FromClauseRole, table), condition)
    return joined


@compiles(_LookUp)
def _join(element: Any, compiler: Any, **how: Any) -> str:
    return str(compiler.visit_join(element, **how))


@compiles(_LookUp, "sqlite")
def _join_in_this_order(element: Any, compiler: Any, asfrom: bool = False, **how: Any) -> str:  # noqa: ARG001
    how["from_linter"] = None
    left, right = (compiler.process(side, asfrom=True, **how) for side in (element.left, element.right))
    return f"{left} CROSS JOIN {right} ON {compiler.process(element.onclause, **how)}"


def take_keys(session: Session, table: Table, count: int) -> Sequence[int]:
    """The next `count` numbers for the column `id` of a table, so that rows can refer to each other before they exist.

    The caller holds the write lock where there is one for all, and writes the rows in this transaction.
    """
    if dialect.is_sqlite(session.get_bind()):
        last = session.execute(select(func.max(table.c.id))).scalar_one() or 0
        return range(last + 1, last + count + 1)
    sequence = func.pg_get_serial_sequence(table.name, "id")
    numbers = select(func.nextval(sequence)).select_from(func.generate_series(1, count))
    return session.scalars(numbers).all()


# --- JSON as text, as it is stored ---


class json_text(GenericFunction[str]):  # noqa: N801 - it is called like a function
    """The text of a JSON column, as it was written."""

    type = Text()
    inherit_cache = True


class text_as_json(GenericFunction[Any]):  # noqa: N801
    """A text that is JSON, as a value for a JSON column."""

    inherit_cache = True


@compiles(json_text, "sqlite")
@compiles(text_as_json, "sqlite")
def _as_it_is(element: Any, compiler: Any, **how: Any) -> str:
    # JSON columns hold text there; a cast would make a number of it.
    return str(compiler.process(element.clauses, **how))


@compiles(json_text, "postgresql")
def _to_text(element: Any, compiler: Any, **how: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **how)} AS text)"


@compiles(text_as_json, "postgresql")
def _to_json(element: Any, compiler: Any, **how: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **how)} AS json)"


def raw(column: Any) -> ColumnElement[int]:
    """A column that holds an instant, as the number that is stored: thousands of them are cheaper so."""
    return type_coerce(column, BigInteger)
