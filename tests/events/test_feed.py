"""The feed loses nothing: writers, slow readers, readers that come and go, a database that goes away."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import delete, text

from tests import factories
from tests.support.databases import START, dispose_engines
from webapp import create_app
from webapp.clock import FrozenClock
from webapp.config import Config
from webapp.errors import AppError
from webapp.events import feed as feed_module
from webapp.events import outbox
from webapp.events.feed import QUEUE_SIZE, EventFeed, Slots, Subscription
from webapp.events.models import Event
from webapp.events.queries import StoredEvent, check_resume, events_after, last_numbers
from webapp.store import engine, reading
from webapp.store.transaction import Tx, operation
from webapp.web.live import missed_events


@operation
def emit(tx: Tx, network_pk: int, count: int = 1, kind: str = "run", **data: Any) -> None:
    """Some events in one transaction, each with data of its own."""
    for place in range(count):
        outbox.emit(tx, network_pk, kind, {"n": place, **data}, now=START)


@pytest.fixture
def network_pk(app: Flask) -> int:
    with app.app_context():
        return factories.make_network().id


@pytest.fixture
def feed(app: Flask) -> Iterator[EventFeed]:
    with app.app_context():
        feed = EventFeed(engine())
        yield feed
        feed.close()


def take(subscription: Subscription, count: int, seconds: float = 20.0) -> list[StoredEvent]:
    end = time.monotonic() + seconds
    taken: list[StoredEvent] = []
    while len(taken) < count and time.monotonic() < end:
        event = subscription.take(0.2)
        if event is not None:
            taken.append(event)
    return taken


def eventually(what: Callable[[], bool], seconds: float = 15.0) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_a_listener_gets_everything_after_its_start_in_order(feed: EventFeed, network_pk: int) -> None:
    emit(network_pk, 3)
    with feed.listen(network_pk) as subscription:
        assert subscription.start == 3
        emit(network_pk, 5)
        emit(network_pk)
        assert [event.seq for event in take(subscription, 6)] == [4, 5, 6, 7, 8, 9]
        with feed.listen(network_pk) as second:
            assert second.start == 9
            emit(network_pk)
            assert [event.seq for event in take(second, 1)] == [10]
        assert [event.seq for event in take(subscription, 1)] == [10]


def test_listeners_hear_their_own_network_and_what_they_want(
    app: Flask, feed: EventFeed, network_pk: int
) -> None:
    other_pk = factories.make_network().id
    with (
        feed.listen(network_pk, lambda event: event.type == "task") as picky,
        feed.listen(other_pk) as other,
        feed.listen(network_pk) as all_of_it,
    ):
        emit(network_pk, kind="run")
        emit(network_pk, kind="task")
        emit(other_pk, kind="alert")
        assert [(event.network_pk, event.type) for event in take(picky, 1)] == [(network_pk, "task")]
        assert [(event.network_pk, event.type) for event in take(other, 1)] == [(other_pk, "alert")]
        assert [event.type for event in take(all_of_it, 2)] == ["run", "task"]
        assert picky.take(0.1) is None


def test_eight_writers_and_readers_that_reconnect_lose_nothing(
    app: Flask, config: Config, network_pk: int
) -> None:
    writers, each, readers = 8, 25, 4
    total = writers * each
    # Two apps on one database stand for two processes; readers change between them.
    second_app = create_app(config, FrozenClock(START))
    feeds = []
    for one in (app, second_app):
        with one.app_context():
            feeds.append(EventFeed(engine()))
    begin = threading.Barrier(writers + readers)

    def write(number: int) -> None:
        with app.app_context():
            begin.wait()
            for turn in range(each):
                emit(network_pk, writer=number, turn=turn)

    def read(number: int) -> list[StoredEvent]:
        chance = random.Random(number)
        seen: list[StoredEvent] = []
        begin.wait()
        end = time.monotonic() + 90
        while len(seen) < total and time.monotonic() < end:
            feed = chance.choice(feeds)
            after = seen[-1].seq if seen else 0
            with feed.listen(network_pk) as subscription:
                seen.extend(missed_events(feed, subscription, after))
                after = seen[-1].seq if seen else 0
                for _ in range(chance.randint(1, 30)):
                    event_or_none = subscription.take(0.3)
                    if event_or_none is not None and event_or_none.seq > after:
                        seen.append(event_or_none)
        return seen

    with ThreadPoolExecutor(writers + readers) as pool:
        written = [pool.submit(write, number) for number in range(writers)]
        results = [pool.submit(read, number) for number in range(readers)]
        for done in written:
            done.result()
        for result in results:
            seen = result.result()
            assert [event.seq for event in seen] == list(range(1, total + 1))
            assert {(event.data["writer"], event.data["turn"]) for event in seen} == {
                (number, turn) for number in range(writers) for turn in range(each)
            }
    for feed in feeds:
        feed.close()
    dispose_engines(second_app)


def test_a_listener_that_does_not_keep_up_is_closed_and_can_resume(feed: EventFeed, network_pk: int) -> None:
    with feed.listen(network_pk) as slow:
        for _ in range(3):
            emit(network_pk, QUEUE_SIZE // 2)
        assert eventually(lambda: slow.ended)
        assert slow.take(0.1) is None
    with feed.listen(network_pk) as again:
        missed = list(missed_events(feed, again, 0))
        assert [event.seq for event in missed] == list(range(1, 3 * (QUEUE_SIZE // 2) + 1))


def test_more_than_a_page_at_once_arrives_whole(
    feed: EventFeed, network_pk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "PAGE_SIZE", 500)
    seen: list[int] = []
    with feed.listen(network_pk, lambda event: seen.append(event.seq) is not None):
        emit(network_pk, 1200)
        assert eventually(lambda: len(seen) == 1200)
    assert seen == list(range(1, 1201))


def test_closing_ends_everybody_at_once(feed: EventFeed, network_pk: int) -> None:
    subscription = feed.subscribe(network_pk)
    heard: list[StoredEvent | None] = []
    listener = threading.Thread(target=lambda: heard.append(subscription.take(60)))
    listener.start()
    time.sleep(0.2)
    began = time.monotonic()
    feed.close()
    listener.join(5)
    assert heard == [None]
    assert time.monotonic() - began < 4
    assert subscription.ended
    assert feed.subscribe(network_pk).ended


def test_the_processs_own_stop_event_ends_everybody(app: Flask, network_pk: int) -> None:
    shutdown = threading.Event()
    with app.app_context():
        feed = EventFeed(engine(), shutdown=shutdown)
    subscription = feed.subscribe(network_pk)
    shutdown.set()
    assert eventually(lambda: subscription.ended, 5)
    feed.close()


def test_with_nobody_listening_the_feed_lets_go_of_its_connection_and_comes_back(
    app: Flask, feed: EventFeed, network_pk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "_IDLE_SECONDS", 0.5)
    pool: Any = engine().pool
    with feed.listen(network_pk):
        assert eventually(lambda: pool.checkedout() == 1)
    assert eventually(lambda: pool.checkedout() == 0)
    emit(network_pk)
    with feed.listen(network_pk) as again:
        assert again.start == 1
        emit(network_pk)
        assert [event.seq for event in take(again, 1)] == [2]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_the_feed_survives_the_loss_of_its_connections(feed: EventFeed, network_pk: int) -> None:
    with feed.listen(network_pk) as subscription:
        emit(network_pk)
        assert [event.seq for event in take(subscription, 1)] == [1]
        with engine().connect() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        emit(network_pk, 2)
        assert [event.seq for event in take(subscription, 2)] == [2, 3]


def test_resuming_needs_every_event_since(app: Flask, network_pk: int) -> None:
    def code(after: int) -> str | None:
        with reading() as session:
            try:
                check_resume(session, network_pk, after)
            except AppError as refused:
                return f"{refused.status} {refused.code}"
        return None

    gone = "410 events_expired"
    with app.app_context():
        assert [code(after) for after in (0, 1)] == [None, gone]
        emit(network_pk, 10)
        assert [code(after) for after in (0, 5, 10, 11)] == [None, None, None, gone]
        prune(network_pk, 4)
        assert [code(after) for after in (0, 3, 4, 10, 11)] == [gone, gone, None, None, gone]
        prune(network_pk, 10)
        assert [code(after) for after in (4, 9, 10, 11)] == [gone, gone, None, gone]
        with reading() as session:
            assert last_numbers(session, [network_pk, 999]) == {network_pk: 10, 999: 0}
            assert events_after(session, network_pk, 0) == []


@operation
def prune(tx: Tx, network_pk: int, until: int) -> None:
    tx.session.execute(delete(Event).where(Event.network_pk == network_pk, Event.seq <= until))


def test_places_are_bounded_and_come_back() -> None:
    slots = Slots(2)
    assert [slots.take(), slots.take(), slots.take()] == [True, True, False]
    slots.give()
    assert (slots.free, slots.take(), slots.take()) == (1, True, False)
