"""What needs a person now, in words, with the way out of it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from webapp.errors import sentence_of
from webapp.html.filters import plural
from webapp.html.viewing import address
from webapp.html.ways import way_out
from webapp.identity.access import Actor, Facts, Verb, may
from webapp.nodes.lifecycle import NodeStatus
from webapp.nodes.queries import NodeView, count_silent_holders
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.scheduling.policy import SKIPS_BEFORE_ALERT
from webapp.scheduling.queries import Card, open_card_keys


@dataclass(frozen=True)
class Way:
    """One thing to do: a link, or with `fields` (hidden ones of its form) a button."""

    label: str
    href: str
    fields: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Need:
    """A card. `rest` goes on after the linked title; `code` is why, `words` say it, `todo` what helps."""

    tone: str
    icon: str
    word: str
    since: datetime | None
    title: str
    href: str | None
    rest: str
    words: str
    code: str | None
    todo: str | None
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class _Kind:
    tone: str
    icon: str
    word: str
    rest: str


_KINDS: Final = {
    "needs_attention": _Kind("bad", "attention", "Needs attention", "stopped"),
    "blocked": _Kind("warn", "skipped", f"Skipped {SKIPS_BEFORE_ALERT} times or more", "waits for itself"),
    "would_not_fire": _Kind("warn", "attention", "Would not fire", "will not run as it stands"),
    "resume_refused": _Kind("warn", "paused", "Not resumed", "stays paused"),
}
_OTHER: Final = _Kind("warn", "attention", "Needs a look", "")


def count_needs(session: Session, networks: Collection[int], *, now: datetime) -> int:
    """How many things need a person: as many as the overview has cards."""
    groups = {
        _group(pk, kind, code, target_id) for pk, kind, code, target_id in open_card_keys(session, networks)
    }
    return len(groups) + count_silent_holders(session, networks, now=now)


def _group(alert_pk: int, kind: str, code: str, target_id: str | None) -> Hashable:
    """What shares one card: schedules of one target that stopped for one reason. Others stand alone."""
    return (code, target_id) if kind == "needs_attention" and target_id else alert_pk


def group_of(card: Card) -> Hashable:
    """The group that a card belongs to."""
    target_id = card.schedule.target_id if card.schedule is not None else None
    return _group(card.alert.id, card.alert.kind, card.alert.code, target_id)


def needs_of_cards(cards: Iterable[Card], actor: Actor) -> list[Need]:
    """The open cards of the engine, as the viewer sees them; one for all that share a reason and a target."""
    groups: dict[Hashable, list[Card]] = {}
    for card in cards:
        groups.setdefault(group_of(card), []).append(card)
    return [
        _need(group[0], actor) if len(group) == 1 else _shared_need(group, actor) for group in groups.values()
    ]


def may_resume(schedule: Schedule, actor: Actor) -> bool:
    """Whether the viewer may resume a schedule that stands still."""
    facts = Facts(schedule.network_pk, schedule.sponsor_pk, schedule.paused_by_pk)
    stands_still = schedule.status in (ScheduleStatus.NEEDS_ATTENTION, ScheduleStatus.PAUSED)
    return stands_still and may(actor, Verb.RESUME_SCHEDULE, facts)


def _shared_need(group: list[Card], actor: Actor) -> Need:
    schedules = [card.schedule for card in group if card.schedule is not None]
    first, kind, code = schedules[0], _KINDS["needs_attention"], group[0].alert.code
    those = address("/schedules", status=ScheduleStatus.NEEDS_ATTENTION, q=first.target_alias)
    ways = [Way("See schedules", those), Way("See node", f"/nodes/{first.target_id}")]
    if any(may_resume(schedule, actor) for schedule in schedules):
        ways.insert(0, Way("Resume all", "/needs/resume", {"code": code, "target_node_id": first.target_id}))
    return Need(
        tone=kind.tone,
        icon=kind.icon,
        word=kind.word,
        since=min(card.alert.created_at for card in group),
        title=f"{plural(len(group), 'schedule')} of {first.target_alias}",
        href=those,
        rest=kind.rest,
        words=sentence_of(code),
        code=code,
        todo=way_out(code),
        ways=tuple(ways),
    )


def _need(card: Card, actor: Actor) -> Need:
    alert, schedule = card.alert, card.schedule
    kind = _KINDS.get(alert.kind, _OTHER)
    return Need(
        tone=kind.tone,
        icon=kind.icon,
        word=kind.word,
        since=alert.created_at,
        title=schedule.name if schedule is not None else alert.subject_id,
        href=f"/schedules/{schedule.schedule_id}" if schedule is not None else None,
        rest=kind.rest,
        words=sentence_of(alert.code),
        code=alert.code,
        todo=way_out(alert.code),
        ways=() if schedule is None else tuple(_ways(card, schedule, actor)),
    )


def _ways(card: Card, schedule: Schedule, actor: Actor) -> Iterable[Way]:
    own = f"/schedules/{schedule.schedule_id}"
    blocker = card.alert.detail.get("run_id") if card.alert.kind == "blocked" else None
    if blocker:
        yield Way("See the blocker", f"/runs/{blocker}")
    if card.alert.code == "target_not_active":
        yield Way("See the node", f"/nodes/{schedule.target_id}")
    if may_resume(schedule, actor):
        yield Way("Resume", f"{own}/resume", {})
    yield Way("See schedule", own)


def needs_of_nodes(nodes: Iterable[NodeView]) -> list[Need]:
    """Nodes that are silent while work waits for them."""
    return [
        Need(
            tone="warn",
            icon="offline",
            word="Node offline",
            since=view.last_seen_at,
            title=view.node.alias,
            href=f"/nodes/{view.node.node_id}",
            rest=f"holds {plural(view.unacknowledged, 'task')}",
            words="Nothing is fetched while it is silent; in the end the time runs out.",
            code=None,
            todo="Start the node, or cancel what waits.",
            ways=(Way("See node", f"/nodes/{view.node.node_id}"),),
        )
        for view in nodes
        if view.status is NodeStatus.OFFLINE and view.unacknowledged
    ]
