"""The declarative base and the column types that every model shares."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, BigInteger, Enum, Index, MetaData, TextClause
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, registry
from sqlalchemy.types import TypeDecorator

from webapp.store.dialect import BIG_KEY

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_milliseconds(instant: datetime) -> int:
    """Milliseconds since 1970, the stored form of an instant. Raises ValueError for a naive value."""
    if instant.tzinfo is None:
        raise ValueError("a naive datetime cannot be stored")
    return (instant - _EPOCH) // _MILLISECOND


def from_milliseconds(value: int) -> datetime:
    """The instant (aware, UTC) that `value` milliseconds since 1970 stand for."""
    return _EPOCH + value * _MILLISECOND


class UtcDateTime(TypeDecorator[datetime]):
    """An instant, kept as whole milliseconds since 1970: the same order and precision on every engine."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> int | None:
        return None if value is None else to_milliseconds(value)

    def process_result_value(self, value: int | None, _dialect: Dialect) -> datetime | None:
        return None if value is None else from_milliseconds(value)


def enum_type(enum: type[StrEnum]) -> Enum:
    """A text column that takes the values of `enum` alone, with a check constraint on both engines."""
    return Enum(
        enum,
        native_enum=False,
        create_constraint=True,
        length=24,
        validate_strings=True,
        values_callable=lambda members: [member.value for member in members],
        name=enum.__name__.lower(),
    )


def partial_index(name: str, *columns: str, where: TextClause, unique: bool = False) -> Index:
    """An index over the rows that meet `where` alone, on both engines; `unique` holds among those rows."""
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


class Base(DeclarativeBase):
    """The base of all models."""

    registry = registry(
        metadata=MetaData(
            naming_convention={
                "ix": "ix_%(column_0_N_label)s",
                "uq": "uq_%(table_name)s_%(column_0_N_name)s",
                "ck": "ck_%(table_name)s_%(constraint_name)s",
                "fk": "fk_%(table_name)s_%(column_0_N_name)s",
                "pk": "pk_%(table_name)s",
            }
        ),
        type_annotation_map={
            datetime: UtcDateTime(),
            int: BIG_KEY,
            dict[str, Any]: JSON(),
            list[Any]: JSON(),
        },
    )
