"""What needs a person now, in words, with the way out of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from webapp.errors import sentence_of
from webapp.html.filters import plural
from webapp.html.ways import way_out
from webapp.identity.access import Actor, Facts, Verb, may
from webapp.nodes.lifecycle import NodeStatus
from webapp.nodes.queries import NodeView
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.scheduling.policy import SKIPS_BEFORE_ALERT
from webapp.scheduling.queries import Card


@dataclass(frozen=True)
class Way:
    """One thing to do: a link, or with `posts` a button."""

    label: str
    href: str
    posts: bool = False


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


def needs_of_cards(cards: Iterable[Card], actor: Actor) -> list[Need]:
    """The open cards of the engine, as the viewer sees them."""
    return [_need(card, actor) for card in cards]


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
    facts = Facts(schedule.network_pk, schedule.sponsor_pk, schedule.paused_by_pk)
    own = f"/schedules/{schedule.schedule_id}"
    stands_still = schedule.status in (ScheduleStatus.NEEDS_ATTENTION, ScheduleStatus.PAUSED)
    blocker = card.alert.detail.get("run_id") if card.alert.kind == "blocked" else None
    if blocker:
        yield Way("See the blocker", f"/runs/{blocker}")
    if card.alert.code == "target_not_active":
        yield Way("See the node", f"/nodes/{schedule.target_id}")
    if stands_still and may(actor, Verb.RESUME_SCHEDULE, facts):
        yield Way("Resume", f"{own}/resume", posts=True)
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
            words="They wait until it fetches them or their time runs out.",
            code=None,
            todo="Start the node, or cancel them.",
            ways=(Way("See node", f"/nodes/{view.node.node_id}"),),
        )
        for view in nodes
        if view.status is NodeStatus.OFFLINE and view.unacknowledged
    ]
