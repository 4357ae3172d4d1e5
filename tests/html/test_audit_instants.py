"""Between two instants the audit finds what it would find by looking at every entry."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from flask import Flask

from tests.factories import make_network
from tests.support.databases import START
from webapp.audit import AuditEntry
from webapp.audit.queries import AuditFilter, list_entries
from webapp.store import reading
from webapp.store.paging import PageRequest
from webapp.store.transaction import Tx, operation


@operation
def _write(tx: Tx, network_pk: int, entries: dict[int, datetime]) -> None:
    tx.session.add_all(
        AuditEntry(
            network_pk=network_pk,
            seq=seq,
            at=at,
            actor="worker",
            verb="mandate.use",
            subject_kind="mandate",
            subject_id="mand_1",
            detail={},
        )
        for seq, at in entries.items()
    )


def test_instants_find_what_every_entry_would_say(app: Flask) -> None:
    chance = random.Random(7)
    with app.app_context():
        network_pk, other = make_network().id, make_network().id
        # Gaps in the numbers, herds of one instant, and instants that go back a little.
        entries, at = {}, START
        for seq in range(3, 400):
            at += timedelta(seconds=chance.choice((0, 0, 1, 60, 3600)))
            if chance.random() < 0.9:
                entries[seq] = at - timedelta(seconds=chance.randrange(120))
        _write(network_pk, entries)
        _write(other, {1: START})
        for _ in range(60):
            since = START + timedelta(seconds=chance.randrange(-7200, 400 * 900))
            until = since + timedelta(seconds=chance.choice((1, 600, 86_400, 900_000)))
            wanted = AuditFilter(since=since, until=until)
            with reading() as session:
                found = list_entries(session, network_pk, wanted, PageRequest(limit=200))
            told = [seq for seq, at in sorted(entries.items(), reverse=True) if since <= at < until]
            assert [entry.seq for entry in found.rows] == told[:200]
        with reading() as session:
            nothing = list_entries(session, make_network().id, wanted, PageRequest())
        assert not nothing.rows
