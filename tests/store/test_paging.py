"""Keyset pages: nothing twice, nothing left out, also among equal instants; a foreign cursor is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from flask import Flask

from webapp.errors import AppError
from webapp.identity.models import Network
from webapp.store import reading
from webapp.store.paging import Page, PageRequest, newest_first, parse_limit
from webapp.store.transaction import Tx, operation

NOW = datetime(2026, 11, 30, 8, 12, tzinfo=UTC)


@operation
def _fill(tx: Tx) -> None:
    for place in range(25):
        at = NOW - timedelta(minutes=place // 5)
        tx.session.add(
            Network(network_id=f"net_{place:08d}", slug=f"n{place}", name=f"N {place}", created_at=at)
        )


def _page(request: PageRequest) -> Page[Network]:
    with reading() as session:
        return newest_first(
            session,
            sa.select(Network),
            Network.created_at,
            Network.id,
            request,
            lambda row: (row.created_at, row.id),
        )


@pytest.mark.parametrize("limit", [1, 4, 5, 24, 25, 26])
def test_pages_join_to_the_whole(app: Flask, limit: int) -> None:
    with app.app_context():
        _fill()
        seen: list[tuple[datetime, int]] = []
        cursor = None
        while True:
            page = _page(PageRequest(limit, cursor))
            assert len(page.rows) <= limit
            seen += [(row.created_at, row.id) for row in page.rows]
            cursor = page.next_cursor
            if cursor is None:
                break
    assert len(seen) == 25
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "AAAA", "W10", "WzEsMl0K" * 20, "é", "bnVsbA", "WyIxIiwyXQ", "WzEsLTFd", "WzFlNDAwLDFd"],
)
def test_another_cursor_is_refused(app: Flask, cursor: str) -> None:
    with app.app_context(), pytest.raises(AppError) as refused:
        _page(PageRequest(5, cursor))
    assert refused.value.code == "invalid_cursor"


@pytest.mark.parametrize(
    ("text", "limit"), [(None, 50), ("1", 1), ("0", 1), ("-5", 1), ("200", 200), ("9999", 200)]
)
def test_a_limit_is_clamped(text: str | None, limit: int) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["", "a", "1.5", "1e3", "١", "--1", "9" * 30, " 1"])
def test_a_limit_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(AppError) as refused:
        parse_limit(text)
    assert refused.value.code == "invalid_limit"
