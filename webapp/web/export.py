"""What is listed, as one JSON document for taking away: read page by page, sent as it is read, bounded."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Final

from flask import Response, stream_with_context

from webapp.scheduling.queries import Order, ScheduleFilter, list_ordered
from webapp.store import reading
from webapp.store.paging import MAX_LIMIT, PageRequest
from webapp.web import present

MAX_EXPORTED: Final = 10_000
_FILE: Final = 'attachment; filename="schedules.json"'


def answer(
    networks: Collection[int],
    wanted: ScheduleFilter,
    order: Order,
    viewer_pk: int,
    *,
    most: int = MAX_EXPORTED,
) -> Response:
    """The schedules of a list as a download, as the person `viewer_pk` may see them.

    `{"ok": true, "schedules": […], "count": n, "truncated": whether there are more}`. Filters are the caller's to
    check: nothing can be refused any more when the answer has begun.
    """
    chunks = stream_with_context(schedules_document(networks, wanted, order, viewer_pk, most=most))
    response = Response(chunks, mimetype="application/json")
    response.headers["Content-Disposition"] = _FILE
    return response


def schedules_document(
    networks: Collection[int], wanted: ScheduleFilter, order: Order, viewer_pk: int, *, most: int
) -> Iterator[str]:
    """The document in pieces, one for each page. No session is held between two of them."""
    yield '{"ok": true, "schedules": ['
    count, cursor, between = 0, None, "\n"
    while count < most:
        with reading() as session:
            request = PageRequest(min(MAX_LIMIT, most - count), cursor)
            page = list_ordered(session, networks, wanted, order, request)
            rows = [
                json.dumps(present.schedule_json(row, viewer_pk), ensure_ascii=False) for row in page.rows
            ]
        if rows:
            yield between + ",\n".join(rows)
            between = ",\n"
        count, cursor = count + len(rows), page.next_cursor
        if cursor is None:
            break
    yield f'\n], "count": {count}, "truncated": {json.dumps(cursor is not None)}}}\n'
