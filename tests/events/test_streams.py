"""The two streams over HTTP: what a page hears, what a node hears, and how both come back."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import factories
from tests.events.reader import Message, messages
from tests.events.test_feed import emit, eventually, prune
from tests.nodes.scene import Scene, make_scene
from tests.support.processes import Herd, forked_web
from webapp.clock import FrozenClock
from webapp.events import sse
from webapp.events.feed import EventFeed
from webapp.store import engine
from webapp.web.live import event_feed


@contextmanager
def stream(scene: Scene, who: str, path: str = "/api/events", **headers: str) -> Iterator[Iterator[Message]]:
    """An open stream of somebody, with its messages as they come."""
    token = scene.nodes[who][1] if who in scene.nodes else scene.tokens[who]
    sent = {**factories.bearer(token), **{name.replace("_", "-"): value for name, value in headers.items()}}
    response = scene.app.test_client().get(path, headers=sent, buffered=False)
    assert response.status_code == 200, response.get_data()
    assert response.content_type == "text/event-stream; charset=utf-8"
    assert response.headers["Cache-Control"] == "no-store"
    try:
        yield messages(response.response)  # type: ignore[arg-type]
    finally:
        response.close()


def feed_of(scene: Scene) -> EventFeed:
    with scene.app.app_context():
        return event_feed()


def harbour_emit(scene: Scene, count: int = 1, kind: str = "run", **data: Any) -> None:
    with scene.app.app_context():
        emit(scene.cast.network.id, count, kind, **data)


def test_a_page_hears_what_happens_and_resumes_without_loss(scene: Scene) -> None:
    with stream(scene, "vera") as heard:
        where = next(heard)
        assert (where.event, where.data) == ("", None)
        assert where.id is not None
        task_id = scene.send()
        first = next(heard)
        assert (first.id, first.event) == (where.id + 1, "new_task")
        assert first.data == {
            "nodes": [scene.node_id("atlas")],
            "count": 1,
            "priority": "normal",
            "from": "Alice",
        }
    scene.inbox()
    scene.report(task_id, "ack")
    with stream(scene, "vera", Last_Event_ID=str(first.id)) as heard:
        missed = [next(heard) for _ in range(4)]
        assert [message.id for message in missed] == [first.id + offset for offset in (1, 2, 3, 4)]
        # The node was heard for the first time, so its bell rang for what it holds; fetched; acknowledged.
        assert [message.event for message in missed] == ["node", "new_task", "task", "task"]
        here = next(heard)
        assert (here.event, here.id) == ("", missed[-1].id)
        scene.report(task_id, "reply", {"status": "replied"})
        assert next(heard).data == {"tasks": [task_id]}
    with stream(scene, "vera", f"/api/events?last_event_id={first.id}") as heard:
        assert next(heard).id == first.id + 1
    # What a browser sends by itself when it comes back is newer than the address it began with.
    with stream(scene, "vera", f"/api/events?last_event_id={where.id}", Last_Event_ID=str(first.id)) as heard:
        assert next(heard).id == first.id + 1


def test_what_cannot_be_resumed_is_gone(scene: Scene) -> None:
    harbour_emit(scene, 10)
    with scene.app.app_context():
        prune(scene.cast.network.id, 5)
    for last, code, error in (
        ("1", 410, "events_expired"),
        ("999999", 410, "events_expired"),
        ("x", 400, "invalid_last_event_id"),
        ("-1", 400, "invalid_last_event_id"),
        ("1.5", 400, "invalid_last_event_id"),
        ("9" * 40, 400, "invalid_last_event_id"),
        ("٣", 400, "invalid_last_event_id"),
    ):
        path = "/api/events"
        status, answer = scene.call("vera", "GET", path, query_string={"last_event_id": last})
        assert (status, answer["error"]) == (code, error), last
    assert feed_of(scene).streams.free == 40


def test_a_stream_is_of_one_network_of_ones_own(scene: Scene) -> None:
    elsewhere = scene.cast.elsewhere.network_id
    status, answer = scene.call("vera", "GET", f"/api/events?network_id={elsewhere}")
    assert (status, answer["error"]) == (404, "network_not_found")
    with scene.app.app_context():
        factories.make_member(scene.cast.vera, scene.cast.elsewhere, "viewer")
    status, answer = scene.call("vera", "GET", "/api/events")
    assert (status, answer["error"]) == (400, "network_id_required")
    with stream(scene, "vera", f"/api/events?network_id={elsewhere}") as heard:
        next(heard)
        scene.send()
        zephyrs = scene.send("zephyr", who="charlie")
        assert next(heard).data["nodes"] == [scene.node_id("zephyr")]
        scene.call("charlie", "POST", f"/api/tasks/{zephyrs}/cancel")
        assert next(heard).data == {"tasks": [zephyrs]}


def test_a_session_may_listen_too(scene: Scene) -> None:
    with scene.app.app_context():
        browser = factories.signed_in(scene.app, scene.cast.vera)
    response = browser.get("/api/events", buffered=False)
    assert response.status_code == 200
    heard = messages(response.response)  # type: ignore[arg-type]
    next(heard)
    scene.send()
    assert next(heard).event == "new_task"
    response.close()


def test_a_change_of_members_ends_the_stream_so_that_its_reader_is_asked_again(scene: Scene) -> None:
    with stream(scene, "vera") as heard:
        next(heard)
        harbour_emit(scene, kind="member")
        harbour_emit(scene, kind="run")
        assert [message.event for message in heard] == ["member"]


def test_over_the_cap_the_answer_is_204_and_places_come_back(scene: Scene) -> None:
    feed = feed_of(scene)
    while feed.streams.free > 1:
        assert feed.streams.take()
    with stream(scene, "vera") as heard:
        next(heard)
        for who, path in (("vera", "/api/events"), ("atlas", "/api/node/events")):
            token = scene.tokens.get(who) or scene.nodes[who][1]
            response = scene.app.test_client().get(path, headers=factories.bearer(token))
            assert (response.status_code, response.data) == (204, b"")
    assert feed.streams.free == 1
    with stream(scene, "vera"):
        # Closed before its first byte was read.
        assert feed.streams.free == 0
    assert feed.streams.free == 1


def test_streams_ping_and_have_a_greatest_age(scene: Scene) -> None:
    with scene.app.app_context():
        feed = EventFeed(engine())
    feed.streams.take()
    subscription = feed.subscribe(scene.cast.network.id)
    began = time.monotonic()
    parts = list(sse.Stream(feed, subscription, [], ping_seconds=0.1, max_age_seconds=0.55))
    assert parts[0] == sse.position(subscription.start)
    assert set(parts[1:]) == {b": ping\n\n"}
    assert 3 <= len(parts[1:]) <= 6
    assert 0.5 < time.monotonic() - began < 5
    assert feed.streams.free == 40
    feed.close()
    assert (sse.PING_SECONDS, sse.MAX_AGE_SECONDS) == (15, 300)


def test_a_stream_ends_at_once_when_the_process_leaves(scene: Scene) -> None:
    ended = threading.Event()

    def listen() -> None:
        with stream(scene, "vera") as heard:
            list(heard)
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    assert eventually(lambda: feed_of(scene).streams.free == 39)
    time.sleep(0.2)
    scene.close()
    assert ended.wait(5)
    assert feed_of(scene).streams.free == 40


def test_a_stream_ahead_of_its_own_feed_repeats_nothing(scene: Scene) -> None:
    """Another process may have shown a client more than this one's feed has read so far."""
    with scene.app.app_context():
        feed = EventFeed(engine())
        feed.streams.take()
        subscription = feed.subscribe(scene.cast.network.id)
        after = subscription.start + 2
        emit(scene.cast.network.id, 3)
        parts = sse.Stream(feed, subscription, [], after=after, ping_seconds=5, max_age_seconds=10)
        heard = messages(parts)
        assert next(heard).id == after
        assert next(heard).id == after + 1
        parts.close()
        feed.close()


def test_a_node_hears_its_own_doorbell_alone(scene: Scene) -> None:
    scene.add_node("borg")
    with stream(scene, "atlas", "/api/node/events") as heard:
        assert next(heard).event == ""
        scene.send("borg")
        first = scene.send(priority="high")
        ring = next(heard)
        assert (ring.event, ring.data) == (
            "new_task",
            {"inbox_count": 1, "priority": "high", "from": "Alice"},
        )
        scene.send(priority="low", who="bob")
        assert next(heard).data == {"inbox_count": 2, "priority": "low", "from": "Bob"}
        scene.inbox()
        scene.report(first, "ack")
        scene.call("alice", "POST", f"/api/tasks/{first}/cancel")
        stop = next(heard)
        assert (stop.event, stop.data) == ("cancel", {"task_id": first})


def test_a_node_that_comes_back_hears_what_it_would_have_heard(scene: Scene) -> None:
    first = scene.send()
    scene.inbox()
    scene.report(first, "ack")
    with stream(scene, "atlas", "/api/node/events") as heard:
        where = next(heard)
        assert where.event == ""
    scene.send(priority="low", who="bob")
    scene.send(priority="high")
    scene.call("alice", "POST", f"/api/tasks/{first}/cancel")
    with stream(scene, "atlas", "/api/node/events", Last_Event_ID=str(where.id)) as heard:
        ring, stop, here = next(heard), next(heard), next(heard)
        assert (ring.event, ring.id) == ("new_task", None)
        assert ring.data == {"inbox_count": 2, "priority": "high", "from": "Alice"}
        assert (stop.event, stop.data) == ("cancel", {"task_id": first})
        assert here.event == ""
    # A number from another life of the database does not silence the bell.
    with stream(scene, "atlas", "/api/node/events", Last_Event_ID="999999") as heard:
        assert next(heard).event == "new_task"
        assert next(heard).event == ""
        scene.send()
        assert next(heard).data["inbox_count"] == 3


@pytest.mark.processes
def test_a_real_server_streams_and_leaves_quickly_with_streams_open(
    database_url: str, herd: Herd, app: Any, clock: FrozenClock
) -> None:
    scene = make_scene(app)
    answers: list[Any] = []
    with forked_web(herd, database_url) as server:

        def open_at(path: str, token: str) -> Any:
            request = urllib.request.Request(server.url + path, headers=factories.bearer(token))
            return urllib.request.urlopen(request, timeout=60)

        streams = [open_at("/api/events", scene.tokens["vera"]) for _ in range(5)]
        streams.append(open_at("/api/node/events", scene.nodes["atlas"][1]))
        heard = messages(iter(streams[0].readline, b""))
        next(heard)
        poll = threading.Thread(
            target=lambda: answers.append(open_at("/api/node/inbox?wait=60", scene.nodes["zephyr"][1]).read())
        )
        poll.start()
        scene.send()
        assert "new_task" in (message.event for message in heard)
        time.sleep(0.3)
    # A worker that had to be killed would have cut them off within a chunk, which reading tells.
    for one in streams:
        one.read()
        one.close()
    poll.join(10)
    assert [json.loads(answer) for answer in answers] == [{"ok": True, "items": []}]
    scene.close()
