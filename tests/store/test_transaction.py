"""One transaction around each change: all or nothing, tried again when the database says so, never nested."""

from __future__ import annotations

import sqlite3
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from flask import Flask
from sqlalchemy.exc import OperationalError

from tests.factories import make_network
from webapp.audit import AuditEntry, record
from webapp.events import outbox
from webapp.events.models import Event
from webapp.identity.models import Network
from webapp.store import base, db, reading
from webapp.store.transaction import Tx, operation

NOW = datetime(2026, 11, 30, 8, 12, tzinfo=UTC)


def _slugs() -> list[str]:
    with reading() as session:
        return list(session.scalars(sa.select(Network.slug).order_by(Network.slug)))


@operation
def _add(tx: Tx, slug: str, *, fail: bool = False) -> None:
    tx.session.add(Network(network_id=f"net_{slug}2345678", slug=slug, name=slug, created_at=NOW))
    tx.session.flush()
    if fail:
        raise ValueError("after the write")


def test_a_failure_after_the_write_leaves_nothing(app: Flask) -> None:
    with app.app_context():
        with pytest.raises(ValueError, match="after the write"):
            _add("one", fail=True)
        assert _slugs() == []
        _add("one")
        assert _slugs() == ["one"]


def test_an_operation_inside_another_is_refused(app: Flask) -> None:
    @operation
    def outer(tx: Tx) -> None:
        _add("inner")

    with app.app_context():
        with pytest.raises(RuntimeError, match="inside another transaction"):
            outer()
        assert _slugs() == []


def test_a_bell_rings_after_the_commit_and_its_failure_changes_nothing(app: Flask) -> None:
    heard: list[list[str]] = []

    @operation
    def with_bells(tx: Tx) -> None:
        tx.session.add(Network(network_id="net_bell2345", slug="bell", name="Bell", created_at=NOW))
        tx.after_commit(lambda: heard.append(_slugs()))
        tx.after_commit(lambda: 1 / 0)
        tx.after_commit(lambda: heard.append(["again"]))

    with app.app_context():
        with_bells()
        assert heard == [["bell"], ["again"]]


def test_two_writers_that_read_first_both_get_through(app: Flask) -> None:
    """Read, then write what was read plus one: a deferred transaction would lose one or fail."""
    with app.app_context():
        make_network("Count", slug="count0")
    barrier = threading.Barrier(4)

    @operation
    def raise_by_one(tx: Tx) -> None:
        row = tx.session.scalars(sa.select(Network).with_for_update()).one()
        row.slug = f"count{int(row.slug.removeprefix('count')) + 1}"

    def work() -> None:
        with app.app_context():
            barrier.wait()
            for _ in range(10):
                raise_by_one()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with app.app_context():
        assert _slugs() == ["count40"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_deadlock_is_tried_again(app: Flask) -> None:
    with app.app_context():
        make_network("A", slug="aaa")
        make_network("B", slug="bbb")
    first_lock = threading.Barrier(2)
    tries: list[str] = []

    @operation
    def cross(tx: Tx, first: str, second: str) -> None:
        tries.append(first)
        for place, slug in enumerate((first, second)):
            statement = sa.update(Network).where(Network.slug == slug).values(name=f"by {first}")
            tx.session.execute(statement)
            if place == 0 and len(tries) <= 2:
                first_lock.wait(timeout=10)

    def work(first: str, second: str) -> None:
        with app.app_context():
            cross(first, second)

    threads = [threading.Thread(target=work, args=pair) for pair in (("aaa", "bbb"), ("bbb", "aaa"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tries) == 3


def _hurry(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA busy_timeout=50")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_database_that_stays_locked_is_an_error_not_a_hang(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.store import transaction

    monkeypatch.setattr(transaction, "_ATTEMPTS", 2)
    with app.app_context():
        holder = db.engine.raw_connection()
        holder.execute("BEGIN IMMEDIATE")  # type: ignore[attr-defined]
        # The app serves other tests too: what is changed for this one is put back.
        sa.event.listen(db.engine, "connect", _hurry)
        try:
            with pytest.raises(OperationalError):
                _add("late")
        finally:
            sa.event.remove(db.engine, "connect", _hurry)
            holder.rollback()
            holder.close()
            db.engine.dispose()
        assert _slugs() == []


def test_what_a_request_read_before_a_change_is_not_taken_for_the_present(app: Flask) -> None:
    with app.app_context():
        make_network("Old", slug="old")
        row = db.session.scalars(sa.select(Network)).one()

        @operation
        def rename(tx: Tx) -> None:
            tx.session.execute(sa.update(Network).values(name="New"))

        rename()
        assert row.name == "New"


# --- Sequences ---


def test_events_and_audit_are_gapless_under_concurrent_writers_and_rollbacks(app: Flask) -> None:
    with app.app_context():
        networks = [make_network(name).id for name in ("One", "Two")]

    @operation
    def tell(tx: Tx, place: int) -> None:
        for network_pk in networks if place % 2 else reversed(networks):
            outbox.emit(tx, network_pk, "task", {"tasks": [str(place)]}, now=NOW)
            record(tx, network_pk, actor="Alice", verb="x.y", subject_kind="x", subject_id="x", now=NOW)
        if place % 5 == 0:
            raise ValueError

    def work(start: int) -> None:
        with app.app_context():
            for place in range(start, start + 20):
                try:
                    tell(place)
                except ValueError:
                    continue

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 120, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with app.app_context(), reading() as session:
        for network_pk in networks:
            for model in (Event, AuditEntry):
                numbers = session.scalars(
                    sa.select(model.seq).where(model.network_pk == network_pk).order_by(model.seq)
                ).all()
                assert list(numbers) == list(range(1, 97))


# --- Types ---


def test_instants_keep_their_millisecond_and_refuse_to_be_naive() -> None:
    instant = datetime(2026, 3, 29, 3, 0, 0, 123_000, tzinfo=timezone(timedelta(hours=2)))
    assert base.from_milliseconds(base.to_milliseconds(instant)) == instant
    assert base.to_milliseconds(datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)) == -1
    with pytest.raises(ValueError, match="naive"):
        base.to_milliseconds(datetime(2026, 1, 1))  # noqa: DTZ001 - the point of the test
