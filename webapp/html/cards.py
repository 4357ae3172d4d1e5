"""What needs a person now, in words, with the way out of it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Final

from sqlalchemy.orm import Session

from webapp.chat.queries import count_pending, soonest_deadline
from webapp.errors import sentence_of
from webapp.html.filters import plural, relative, wall
from webapp.html.privacy import aim, called, facts_of, is_chat
from webapp.html.viewing import address
from webapp.html.ways import way_out
from webapp.identity.access import Actor, Verb, may
from webapp.mandates.models import Mandate
from webapp.mandates.queries import expiring
from webapp.nodes.lifecycle import NodeStatus
from webapp.nodes.queries import NodeView
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.scheduling.policy import SKIPS_BEFORE_ALERT
from webapp.scheduling.queries import (
    Card,
    open_card_keys,
    open_cards,
    proposals_to,
    schedules_by_id,
)

# More of one kind than these share one card.
MOST_ALIKE: Final = 5
# More cards than these are counted, not shown.
MOST_SHOWN: Final = 30
_MOST_READ: Final = 300
MOST_GROUPED: Final = 1000


@dataclass(frozen=True)
class Way:
    """One thing to do, as a link to where it is done, or to what it would do."""

    label: str
    href: str


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
    "unanswered": _Kind("warn", "waiting", "Nobody answered", "asked twice in vain"),
}
_OTHER: Final = _Kind("warn", "attention", "Needs a look", "")


def _groups(session: Session, networks: Collection[int]) -> dict[Hashable, list[int]]:
    """The keys of the open cards by what shares one card, newest first."""
    groups: dict[Hashable, list[int]] = {}
    for pk, kind, code, target_id in open_card_keys(session, networks, limit=MOST_GROUPED):
        groups.setdefault(_group(pk, kind, code, target_id), []).append(pk)
    return groups


def needs_of_engine(session: Session, networks: Collection[int], actor: Actor) -> tuple[list[Need], int]:
    """The open cards of the engine, as the viewer sees them, and how many there are beyond those shown.

    One card for all that share a reason and a target.
    """
    groups = _groups(session, networks)
    shown = list(groups.values())[:MOST_SHOWN]
    # The first of each group before the second of any, so that no card is without its words.
    keys = [pk for place in zip_longest(*shown) for pk in place if pk is not None][:_MOST_READ]
    found = open_cards(session, networks, limit=_MOST_READ, alert_pks=keys)
    sizes = {group: len(pks) for group, pks in groups.items()}
    return needs_of_cards(found, actor, sizes), len(groups) - len(shown)


def _group(alert_pk: int, kind: str, code: str, target_id: str | None) -> Hashable:
    """What shares one card: schedules of one target that stopped for one reason. Others stand alone."""
    return (code, target_id) if kind == "needs_attention" and target_id else alert_pk


def group_of(card: Card) -> Hashable:
    """The group that a card belongs to."""
    target_id = card.schedule.target_id if card.schedule is not None else None
    return _group(card.alert.id, card.alert.kind, card.alert.code, target_id)


def needs_of_cards(cards: Iterable[Card], actor: Actor, sizes: Mapping[Hashable, int]) -> list[Need]:
    """Cards as the viewer sees them; `sizes` are how many each group really has."""
    groups: dict[Hashable, list[Card]] = {}
    for card in cards:
        groups.setdefault(group_of(card), []).append(card)
    return [
        _need(group[0], actor) if sizes.get(key, 1) == 1 else _shared_need(group, sizes[key], actor)
        for key, group in groups.items()
    ]


def may_resume(schedule: Schedule, actor: Actor) -> bool:
    """Whether the viewer may resume a schedule that stands still."""
    facts = facts_of(schedule)
    stands_still = schedule.status in (ScheduleStatus.NEEDS_ATTENTION, ScheduleStatus.PAUSED)
    return stands_still and may(actor, Verb.RESUME_SCHEDULE, facts)


def _shared_need(group: list[Card], size: int, actor: Actor) -> Need:
    schedules = [card.schedule for card in group if card.schedule is not None]
    first, kind, code = schedules[0], _KINDS["needs_attention"], group[0].alert.code
    chat = is_chat(first)
    # A chat's title is its owner's alone; its schedules are found on its page.
    those = (
        f"/chats/{first.target_id}"
        if chat
        else address("/schedules", status=ScheduleStatus.NEEDS_ATTENTION, q=first.target_alias)
    )
    ways = [Way("See schedules", those)] + ([] if chat else [Way("See node", f"/nodes/{first.target_id}")])
    if any(may_resume(schedule, actor) for schedule in schedules):
        ways.insert(0, Way("Resume all…", address("/needs/resume", code=code, target=first.target_id)))
    return Need(
        tone=kind.tone,
        icon=kind.icon,
        word=kind.word,
        since=min(card.alert.created_at for card in group),
        title=f"{plural(size, 'schedule')} of {aim(first)}",
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
        title=called(schedule) if schedule is not None else alert.subject_id,
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
    yield from _ways_of_authority(card, schedule, actor)
    if card.alert.code == "target_not_active":
        yield Way("See the node", f"/nodes/{schedule.target_id}")
    if may_resume(schedule, actor):
        yield Way("Resume…", f"{own}/resume")
    yield Way("See schedule", own)


# What is mended in the mandate, and what in the chat.
_OF_MANDATE: Final = frozenset(
    {
        "mandate_paused",
        "mandate_exhausted",
        "mandate_expired",
        "mandate_changed",
        "mandate_denies",
        "mandate_unconfirmed",
    }
)
_OF_CHAT: Final = frozenset({"chat_archived", "chat_not_owned"})


def _ways_of_authority(card: Card, schedule: Schedule, actor: Actor) -> Iterable[Way]:
    """Where a fault of authority is mended."""
    code, mandate = card.alert.code, f"/mandates/{schedule.mandate_id}"
    own = actor.user_pk == schedule.sponsor_pk
    if card.alert.kind == "unanswered" and own and schedule.mandate_id:
        yield Way("Allow exactly this", f"{mandate}/change")
    elif code == "mandate_expired" and own and schedule.mandate_id:
        yield Way("Renew", f"{mandate}/renew")
    elif code in _OF_MANDATE and schedule.mandate_id:
        yield Way("See its mandate", mandate)
    elif code in _OF_CHAT and is_chat(schedule):
        yield Way("See the chat", f"/chats/{schedule.target_id}")


@dataclass(frozen=True)
class Waiting:
    """What waits for the viewer beside the engine's cards: of proposals and mandates at most `MOST_ALIKE` + 1."""

    proposals: Sequence[Schedule]
    approvals: int
    soonest_deadline: datetime | None
    expiring: Sequence[tuple[Mandate, Schedule | None]]


def waiting_for(session: Session, networks: Collection[int], actor: Actor, *, now: datetime) -> Waiting:
    """What is asked of the viewer, is to be confirmed, or ends within 14 days on their authority."""
    ending = _ending(session, networks, actor, now)
    schedules = schedules_by_id(session, networks, [workload_id(mandate) for mandate in ending])
    return Waiting(
        proposals_to(session, networks, actor.user_pk, limit=MOST_ALIKE + 1),
        count_pending(session, actor),
        soonest_deadline(session, actor),
        [(mandate, schedules.get(workload_id(mandate))) for mandate in ending],
    )


def _ending(session: Session, networks: Collection[int], actor: Actor, now: datetime) -> list[Mandate]:
    """The viewer's own mandates that end soon, one more than are shown each by itself."""
    return expiring(
        session, networks, subject_pk=actor.user_pk, ended_too=False, limit=MOST_ALIKE + 1, now=now
    )


def workload_id(mandate: Mandate) -> str:
    """The public id of the schedule that a mandate is for."""
    return mandate.workload.partition(":")[2]


def needs_of_waiting(waiting: Waiting, zone: str, now: datetime) -> list[Need]:
    """The cards of what waits for the viewer: the nearest deadline first."""
    proposals: Iterable[Need] = map(_of_proposal, waiting.proposals)
    if len(waiting.proposals) > MOST_ALIKE:
        proposals = [_of_many_proposals()]
    ending: Iterable[Need] = _of_expiring(waiting, zone)
    if len(waiting.expiring) > MOST_ALIKE:
        ending = [_of_many_expiring(waiting, zone)]
    return [*_of_approvals(waiting, now), *proposals, *ending]


def _of_approvals(waiting: Waiting, now: datetime) -> Iterable[Need]:
    if not waiting.approvals:
        return
    left = (
        f" The nearest deadline is {relative(waiting.soonest_deadline, now)}."
        if waiting.soonest_deadline
        else ""
    )
    yield Need(
        tone="warn",
        icon="waiting",
        word="Waits for your answer",
        since=None,
        title=plural(waiting.approvals, "approval"),
        href="/approvals",
        rest="stopped in the middle of a turn"
        if waiting.approvals == 1
        else "stopped in the middle of turns",
        words=f"No answer counts as no.{left}",
        code=None,
        todo="Approve or deny.",
        ways=(Way("See what is asked", "/approvals"),),
    )


def _of_proposal(schedule: Schedule) -> Need:
    own = f"/schedules/{schedule.schedule_id}"
    return Need(
        tone="warn",
        icon="proposed",
        word="Proposed",
        since=schedule.created_at,
        title=called(schedule),
        href=own,
        rest="waits for your confirmation",
        words="An agent proposed it. It runs only if you stand behind it, and lapses after 7 days.",
        code=None,
        todo="Confirm or reject it.",
        ways=(Way("Confirm…", f"{own}/confirm"), Way("Reject…", f"{own}/reject")),
    )


def _of_many_proposals() -> Need:
    listed = address("/schedules", status=ScheduleStatus.PROPOSED)
    return Need(
        tone="warn",
        icon="proposed",
        word="Proposed",
        since=None,
        title=f"More than {MOST_ALIKE} schedules",
        href=listed,
        rest="wait for your confirmation",
        words="Agents proposed them. Each runs only if you stand behind it, and lapses after 7 days.",
        code=None,
        todo="Confirm or reject each.",
        ways=(Way("See proposals", listed),),
    )


def _of_many_expiring(waiting: Waiting, zone: str) -> Need:
    first = waiting.expiring[0][0]
    return Need(
        tone="warn",
        icon="expired",
        word="Mandates end soon",
        since=None,
        title=f"More than {MOST_ALIKE} of your mandates",
        href="/mandates",
        rest=f"end within 14 days, the first on {wall(first.expires_at, zone, 'long')}",
        words="After that nothing starts under them, and their schedules stop.",
        code=None,
        todo="Renew those that are still wanted.",
        ways=(Way("See mandates", "/mandates"),),
    )


def _of_expiring(waiting: Waiting, zone: str) -> Iterable[Need]:
    for mandate, schedule in waiting.expiring:
        own = f"/mandates/{mandate.mandate_id}"
        yield Need(
            tone="warn",
            icon="expired",
            word="Mandate ends soon",
            since=None,
            title=called(schedule) if schedule is not None else mandate.workload,
            href=own,
            rest=f"may act until {wall(mandate.expires_at, zone, 'long')}",
            words="After that nothing starts under it, and its schedule stops.",
            code=None,
            todo="Renew it, if it is still wanted.",
            ways=(Way("Renew", f"{own}/renew"), Way("See its mandate", own)),
        )


def needs_of_nodes(nodes: Sequence[NodeView]) -> list[Need]:
    """Nodes that are silent while work waits for them; of many, `MOST_ALIKE` + 1 of them are enough to say so."""
    if len(nodes) > MOST_ALIKE:
        return [_of_many_silent()]
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


def _of_many_silent() -> Need:
    return Need(
        tone="warn",
        icon="offline",
        word="Nodes offline",
        since=None,
        title=f"More than {MOST_ALIKE} nodes",
        href="/nodes",
        rest="are silent, and hold tasks",
        words="Nothing is fetched while a node is silent; in the end the time of its tasks runs out.",
        code=None,
        todo="Start them, or cancel what waits.",
        ways=(Way("See nodes", "/nodes"),),
    )
