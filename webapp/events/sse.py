"""Server-sent events: how a subscription becomes the bytes of a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from webapp.events.feed import EventFeed, Subscription
from webapp.events.queries import StoredEvent
from webapp.logs import get_logger

PING_SECONDS = 15.0
MAX_AGE_SECONDS = 300.0
# What a client waits before it comes back, milliseconds.
RETRY_MILLISECONDS = 1000

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    # Proxies that would collect the answer before they pass it on.
    "X-Accel-Buffering": "no",
}

_log = get_logger(__name__)


def message(event_type: str, data: dict[str, Any], seq: int | None = None) -> bytes:
    """One message; `seq` is what the client names in `Last-Event-ID` when it comes back."""
    place = "" if seq is None else f"id: {seq}\n"
    body = json.dumps(data, separators=(",", ":"), sort_keys=True)
    return f"{place}event: {event_type}\ndata: {body}\n\n".encode()


def position(seq: int) -> bytes:
    """Tells the client where it stands without being an event: a stream that breaks before one resumes there."""
    return f"retry: {RETRY_MILLISECONDS}\nid: {seq}\n\n".encode()


def plain(event: StoredEvent) -> Iterable[bytes]:
    """An event as it is."""
    yield message(event.type, event.data, event.seq)


class Stream:
    """The body of one answer: what was missed, then what comes, with pings, until its age or the shutdown.

    It takes over a subscription and a place among the process's streams, and gives both back when it ends or
    when the server closes it, also before the first byte. `missed` yields messages of events up to the start
    of the subscription; `render` turns a live event into messages; an event whose type is in `last_types`
    ends the stream after it, so that the client comes back and is asked again who it is. `after` is the last
    event that the client has seen; it may be ahead of this process's feed.
    """

    def __init__(
        self,
        feed: EventFeed,
        subscription: Subscription,
        missed: Iterable[bytes],
        render: Callable[[StoredEvent], Iterable[bytes]] = plain,
        *,
        after: int = 0,
        last_types: frozenset[str] = frozenset(),
        ping_seconds: float = PING_SECONDS,
        max_age_seconds: float = MAX_AGE_SECONDS,
    ) -> None:
        self._feed = feed
        self._subscription = subscription
        self._missed = missed
        self._render = render
        self._after = after
        self._last_types = last_types
        self._ping_seconds = ping_seconds
        self._max_age_seconds = max_age_seconds
        self._closed = False
        self._parts = self._generate()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._parts)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the feed and free the place; the server calls it, also when the client has gone."""
        if not self._closed:
            self._closed = True
            self._feed.unsubscribe(self._subscription)
            self._feed.streams.give()

    def _generate(self) -> Iterator[bytes]:
        end = time.monotonic() + self._max_age_seconds
        yield from self._missed
        yield position(max(self._subscription.start, self._after))
        while not self._subscription.ended and not self._feed.stopping:
            rest = end - time.monotonic()
            if rest <= 0:
                return
            event = self._subscription.take(min(self._ping_seconds, rest))
            if event is not None and event.seq <= self._after:
                continue
            if event is not None:
                yield from self._render(event)
                if event.type in self._last_types:
                    return
            elif not self._subscription.ended:
                yield b": ping\n\n"
