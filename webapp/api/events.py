"""`/api/events`: what changes in a network, as it changes."""

from __future__ import annotations

from flask import Blueprint, Response, request

from webapp.errors import AppError
from webapp.events import sse
from webapp.events.queries import check_resume
from webapp.identity.access import Verb
from webapp.store import db
from webapp.web.live import event_feed, events_seen, last_event_id, missed_events
from webapp.web.policy import UserApi, access
from webapp.web.requests import network_of_write

blueprint = Blueprint("api_events", __name__, url_prefix="/api/events")
# Who may read here has perhaps changed: the client comes back and is asked again.
_LAST_TYPES = frozenset({"member"})


@blueprint.get("")
@access(UserApi, verb=Verb.READ)
def stream_events() -> Response:
    """The events of one network as server-sent events, after `Last-Event-ID` where the client names one.

    A page names with `?seen=` what it knew when it was drawn; where that is too old, it begins with the present.
    Without a free stream the answer is 204, which tells a browser to stop trying; its page polls anyway.
    """
    network_pk = network_of_write(request.args.get("network_id")).network_pk
    after = _after(network_pk)
    feed = event_feed()
    if not feed.streams.take():
        return Response(status=204)
    try:
        subscription = feed.subscribe(network_pk)
    except BaseException:
        feed.streams.give()
        raise
    after = subscription.start if after is None else after
    missed = (part for event in missed_events(feed, subscription, after) for part in sse.plain(event))
    stream = sse.Stream(feed, subscription, missed, after=after, last_types=_LAST_TYPES)
    return Response(stream, headers=sse.HEADERS)


def _after(network_pk: int) -> int | None:
    """The event after which to go on; None to begin with the present."""
    after = last_event_id()
    if after is not None:
        check_resume(db.session(), network_pk, after)
        return after
    seen = events_seen()
    if seen is None:
        return None
    try:
        check_resume(db.session(), network_pk, seen)
    except AppError:
        # An old page in a browser's history; it fetches its regions again by itself.
        return None
    return seen
