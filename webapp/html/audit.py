"""The page of the audit: who changed what, newest first, narrowed by who, what and when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from flask import Blueprint, Response, g

from webapp.audit import AuditEntry
from webapp.audit.queries import AuditFilter, list_entries
from webapp.clock import parse_instant
from webapp.html.forms.schedule import instant_of_local
from webapp.html.respond import page
from webapp.html.viewing import address, asked
from webapp.identity.access import Verb
from webapp.store import db
from webapp.store.paging import Page, PageRequest
from webapp.web.auth import viewer_place, viewer_zone
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("audit_pages", __name__, url_prefix="/audit")

_LIST: Final = {"audit-list": "audit/_audit_list.html"}
_PER_PAGE: Final = 50
# What a detail says at most on the list; the API has all of it.
_MOST_LETTERS: Final = 300
_LABELS: Final = {"from": "From", "to": "Before"}

_HOMES: Final = {
    "schedule": "/schedules/",
    "node": "/nodes/",
    "task": "/tasks/",
    "mandate": "/mandates/",
    "chat": "/chats/",
}
_DONE: Final = {
    "schedule.create": "created",
    "schedule.edit": "edited",
    "schedule.active": "set active",
    "schedule.paused": "paused",
    "schedule.needs_attention": "stopped: needs attention",
    "schedule.completed": "completed",
    "schedule.cancelled": "cancelled",
    "schedule.proposed": "proposed",
    "schedule.run_now": "run by hand",
    "schedule.run_now_refused": "refused to run by hand",
    "schedule.cancel_run": "had a run that waited cancelled",
    "schedule.resume_refused": "refused to resume",
    "schedule.next_change": "had its next slot skipped, moved or put back",
    "schedule.zone_data": "recomputed with newer zone data",
    "node.create": "registered",
    "node.update": "changed",
    "node.delete": "deleted",
    "node.rotate_token": "given a new token",
    "schedule.confirm": "confirmed",
    "schedule.reject": "rejected",
    "schedule.propose": "proposed by an agent",
    "mandate.create": "created",
    "mandate.change": "changed",
    "mandate.confirm": "confirmed",
    "mandate.pause": "paused",
    "mandate.resume": "resumed",
    "mandate.revoke": "revoked",
    "mandate.use": "used",
    "mandate.deny": "refused to permit it",
    "mandate.ask": "asked a person",
    "chat.create": "begun",
    "chat.rename": "renamed",
    "chat.archive": "archived",
    "chat.unarchive": "taken up again",
    "turn.abort": "aborted",
    "turn.act": "acted",
    "member.add": "added to the network",
    "member.change_role": "given another role",
    "member.remove": "removed from the network",
    "network.create": "created",
    "token.create": "issued",
    "token.revoke": "revoked",
    "user.create": "created",
    "user.deactivate": "deactivated",
    "user.reactivate": "reactivated",
    "user.set_password": "given a new password",
    "user.set_timezone": "moved to another zone",
    "user.set_keys": "switched single keys",
    "approval.approve": "approved",
    "approval.deny": "denied",
    "approval.expire": "ran out unanswered",
    "task.create": "sent",
    "task.cancel": "cancelled",
    "task.retry": "sent again",
}


@dataclass(frozen=True)
class EntryRow:
    """An entry in words. `facts` are the names and values of its detail, as text."""

    seq: int
    at: datetime
    actor: str
    done: str
    verb: str
    kind: str
    subject_id: str
    href: str | None
    facts: tuple[tuple[str, str], ...]


def entry_rows(entries: list[AuditEntry]) -> list[EntryRow]:
    """Entries as tables show them."""
    return [_row(entry) for entry in entries]


def _row(entry: AuditEntry) -> EntryRow:
    home = _HOMES.get(entry.subject_kind)
    return EntryRow(
        seq=entry.seq,
        at=entry.at,
        actor=entry.actor,
        done=done_words(entry.verb),
        verb=entry.verb,
        kind=entry.subject_kind,
        subject_id=entry.subject_id,
        href=f"{home}{entry.subject_id}" if home else None,
        facts=_facts(entry.detail),
    )


def done_words(verb: str) -> str:
    """What was done, from `<kind>.<what>`: "paused", "given a new token"."""
    return _DONE.get(verb) or verb.partition(".")[2].replace("_", " ") or verb


def _facts(detail: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name.replace("_", " "), _text(value)) for name, value in detail.items())


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]} …"


@blueprint.get("")
@access(SignedIn, verb=Verb.READ_AUDIT)
def list_audit() -> Response:
    """The audit of the network, by `?actor=`, `?subject=`, `?from=` and `?to=`."""
    place = viewer_place()
    wrong: list[str] = []
    wanted = AuditFilter(
        actor=asked("actor"),
        subject_id=asked("subject"),
        since=_instant("from", wrong),
        until=_instant("to", wrong),
    )
    found: Page[AuditEntry] = Page([], None)
    if place is not None and not wrong:
        request = PageRequest(_PER_PAGE, asked("cursor"))
        found = list_entries(db.session(), place.network_pk, wanted, request)
    return page(
        "audit/list.html",
        _LIST,
        status=400 if wrong else 200,
        refused=bool(wrong),
        rows=entry_rows(list(found.rows)),
        wrong=wrong,
        typed={name: asked(name) or "" for name in ("actor", "subject", "from", "to")},
        zone=viewer_zone(),
        now=g.now,
        **_addresses(found.next_cursor),
    )


def _instant(name: str, wrong: list[str]) -> datetime | None:
    """`?name=` as an instant: with an offset, or on the viewer's clock; a wrong one is named in `wrong`."""
    text = asked(name)
    if text is None:
        return None
    for candidate in (text, instant_of_local(text, viewer_zone()) or ""):
        try:
            return parse_instant(candidate)
        except ValueError:
            continue
    wrong.append(f"“{_LABELS[name]}” must be a date and a time.")
    return None


def _addresses(following: str | None) -> dict[str, Any]:
    narrowed = {name: asked(name) for name in ("actor", "subject", "from", "to")}
    cursor = asked("cursor")
    return {
        "narrowed": any(narrowed.values()),
        "address": address(**narrowed, cursor=cursor),
        "next_url": address(**narrowed, cursor=following) if following else None,
        "first_url": address(**narrowed) if cursor else None,
        "only_actor": lambda actor: address(**(narrowed | {"actor": actor})),
        "only_subject": lambda subject: address(**(narrowed | {"subject": subject})),
    }
