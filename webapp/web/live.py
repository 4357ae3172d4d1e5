"""The feed of events of this process, for the routes that stream or wait."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

from flask import Flask, current_app, request

from webapp.errors import AppError
from webapp.events.feed import EventFeed, Subscription
from webapp.events.queries import StoredEvent, events_after
from webapp.store import engine
from webapp.web.shutdown import stopping

_NAME = "carillon_feed"
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


def init_live(app: Flask) -> None:
    """Give the app its feed. Nothing runs until somebody listens, so the process may still fork."""
    with app.app_context():
        app.extensions[_NAME] = EventFeed(engine(), shutdown=stopping)


def event_feed() -> EventFeed:
    """The feed of the current app."""
    return cast(EventFeed, current_app.extensions[_NAME])


def last_event_id() -> int | None:
    """The number of the last event that the client has seen, None for a client that begins.

    The header, which a browser sends when it comes back by itself, goes before the query. Raises AppError
    `invalid_last_event_id`.
    """
    text = request.headers.get("Last-Event-ID") or request.args.get("last_event_id")
    if text is None or text == "":
        return None
    if _NUMBER.fullmatch(text) is None:
        raise AppError("invalid_last_event_id", field="last_event_id")
    return int(text)


def events_seen() -> int | None:
    """The last event that was in the database when the page that now listens was drawn (`?seen=`), if it says so.

    Between the drawing of a page and the beginning of its stream something may happen; this closes the gap.
    """
    text = request.args.get("seen", "")
    return int(text) if _NUMBER.fullmatch(text) else None


def missed_events(feed: EventFeed, subscription: Subscription, after: int) -> Iterator[StoredEvent]:
    """What was committed after `after` and before the subscription began, page by page."""
    while after < subscription.start and not feed.stopping:
        with feed.reading() as session:
            page = events_after(session, subscription.network_pk, after, subscription.start)
        if not page:
            return
        yield from page
        after = page[-1].seq
