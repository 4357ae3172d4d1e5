"""The overview: does anything need me, what will happen, what has just happened, does the worker tick?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final
from urllib.parse import urlencode

from flask import Blueprint, Response, current_app, g
from sqlalchemy.orm import Session

from webapp.html import cards, stave
from webapp.html.filters import number, plural
from webapp.html.privacy import aim, called, is_chat
from webapp.html.respond import flash, page, redirect_to
from webapp.html.runs import RunRow, run_rows
from webapp.html.viewing import asked, shown_networks
from webapp.identity.access import Actor, Facts, Verb, may
from webapp.nodes.queries import NodeView, holders, nodes_by_alias, nodes_by_id, silent_holders
from webapp.scheduling import queries
from webapp.scheduling.fields import MAX_IN_BULK
from webapp.scheduling.lifecycle import RunStatus, WaitReason
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.next_change import change_of
from webapp.scheduling.outlook import Act
from webapp.store import db
from webapp.store.counting import AtLeast
from webapp.store.paging import PageRequest
from webapp.web.auth import current_actor, viewer_zone
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("overview_pages", __name__)

_REGIONS: Final = {
    "needs": "overview/_needs.html",
    "day": "overview/_day.html",
    "last-hour": "overview/_last_hour.html",
    "worker": "overview/_worker.html",
}
_MOST_EXPANDED: Final = 50
_MOST_LISTED: Final = 80
_MOST_LINKED: Final = 240
_HOUR: Final = timedelta(hours=1)
_LAST_RUNS: Final = 12
_MOST_OF_AN_HOUR: Final = 1000
_MOST_CARDS: Final = 300
_NUMBERS: Final = ("Nothing", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


@blueprint.get("/")
@access(SignedIn, verb=Verb.READ)
def overview() -> Response:
    """The page that answers in its first second whether anything needs a person."""
    view = _view()
    return page("overview/overview.html", _REGIONS, view=view, zone=view.zone, now=view.now)


@blueprint.get("/needs/resume")
@access(SignedIn, verb=Verb.RESUME_SCHEDULE)
def resume_all() -> Response:
    """Lead to what resuming would do to each schedule of one target that stopped for one reason."""
    wanted = (asked("code"), asked("target"))
    stopped = [
        card.schedule
        for card in queries.open_cards(db.session(), shown_networks(), limit=_MOST_CARDS)
        if card.schedule is not None and cards.group_of(card) == wanted
    ]
    able = [schedule for schedule in stopped if cards.may_resume(schedule, current_actor())]
    if not able:
        flash("None of them stands still any more.", "info")
        return redirect_to("/")
    picked = [("pick", schedule.schedule_id) for schedule in able[:MAX_IN_BULK]]
    return redirect_to(f"/schedules/bulk?{urlencode([('act', Act.RESUME.value), *picked])}")


def _view() -> Overview:
    return Overview(
        db.session(),
        shown_networks(),
        current_actor(),
        viewer_zone(),
        g.now,
        current_app.extensions["carillon_config"].tick_seconds,
    )


@dataclass(frozen=True)
class LaneOf:
    """A lane with the node that it belongs to (None for one that is gone, and for a chat)."""

    lane: stave.Lane
    name: str
    node: NodeView | None
    chat: bool = False

    @property
    def held(self) -> bool:
        """Whether what rings here will wait: the node is silent or takes no work."""
        return not self.chat and (
            self.node is None or self.node.status == "offline" or self.node.node.lifecycle_state != "active"
        )


@dataclass(frozen=True)
class Step:
    """One of the steps to the first schedule, as `ui.empty_steps` takes them."""

    title: str
    text: str
    done: bool = False
    next: bool = False
    href: str | None = None
    label: str = ""


class Overview:
    """Everything the page can show; each part is read when a template asks for it, as a region needs only its own."""

    def __init__(
        self,
        session: Session,
        networks: frozenset[int],
        actor: Actor,
        zone: str,
        now: datetime,
        tick_seconds: float,
    ) -> None:
        self._session, self._networks, self._actor = session, networks, actor
        self.zone, self.now, self._tick_seconds = zone, now, tick_seconds

    @cached_property
    def belongs(self) -> bool:
        """Whether the viewer belongs to any network."""
        return bool(self._networks)

    @cached_property
    def is_empty(self) -> bool:
        """Whether no schedule was ever written here."""
        return not queries.any_schedule(self._session, self._networks)

    @cached_property
    def nodes(self) -> list[NodeView]:
        """The nodes of the network, for the first steps: of a house that has none or few."""
        return nodes_by_alias(self._session, self._networks, now=self.now)

    @cached_property
    def pulse(self) -> queries.Pulse:
        """The workers."""
        return queries.pulse(self._session, tick_seconds=self._tick_seconds, now=self.now)

    # --- What needs a person ---

    @cached_property
    def needs(self) -> list[cards.Need]:
        """What needs a person now."""
        waiting = cards.waiting_for(self._session, self._networks, self._actor, now=self.now)
        return (
            cards.needs_of_waiting(waiting, self.zone, self.now)
            + self._engine_needs[0]
            + cards.needs_of_nodes(self._silent)
        )

    @cached_property
    def _silent(self) -> list[NodeView]:
        return silent_holders(self._session, self._networks, limit=cards.MOST_ALIKE + 1, now=self.now)

    @cached_property
    def _engine_needs(self) -> tuple[list[cards.Need], int]:
        return cards.needs_of_engine(self._session, self._networks, self._actor)

    @property
    def more_needs(self) -> int:
        """How many cards there are beyond those shown."""
        return self._engine_needs[1]

    @property
    def headline(self) -> str:
        """The answer in two sentences with their numbers."""
        many = len(self.needs) + self.more_needs
        word = _NUMBERS[many] if many < len(_NUMBERS) else number(many)
        needs = (
            f"{word} {'thing needs' if many == 1 else 'things need'} you." if many else "Nothing needs you."
        )
        return f"{needs} {self._rings()}"

    def _rings(self) -> str:
        count = self.day.count
        if not count:
            return "Nothing rings by this time tomorrow."
        verb = "rings" if count == 1 and not self.day.more else "ring"
        return f"{'More than ' if self.day.more else ''}{plural(count, 'run')} {verb} by this time tomorrow."

    @property
    def steps(self) -> list[Step]:
        """The way to the first schedule."""
        may_node = self._may(Verb.CREATE_NODE)
        ran = any(view.last_seen_at is not None for view in self.nodes)
        first = Step(
            "Register a node",
            f"{plural(len(self.nodes), 'node')} registered."
            if self.nodes
            else "An agent that pulls work, with a token of its own.",
            done=bool(self.nodes),
            next=not self.nodes,
            href="/nodes" if may_node and not self.nodes else None,
            label="Register a node",
        )
        second = Step(
            "Run it",
            "It was seen." if ran else "Start it with its token; it says hello by itself.",
            done=ran,
            next=bool(self.nodes) and not ran,
            href="/nodes" if self.nodes and not ran else None,
            label="See the nodes",
        )
        third = Step(
            "Write a schedule",
            "What, when, on whose word. You see the next five runs before you save.",
            next=ran,
            href="/schedules/new" if self.nodes and self._may(Verb.CREATE_SCHEDULE) else None,
            label="Write the first schedule",
        )
        return [first, second, third]

    def _may(self, verb: Verb) -> bool:
        return any(may(self._actor, verb, Facts(network_pk=pk)) for pk in self._networks)

    # --- What will happen ---

    @cached_property
    def _coming(self) -> list[Schedule]:
        until = self.now + stave.DAY
        return list(
            queries.upcoming_schedules(self._session, self._networks, until=until, limit=_MOST_EXPANDED)
        )

    @cached_property
    def day(self) -> stave.Stave:
        """The next 24 hours."""
        ringing = [
            stave.Ringing(
                called(schedule),
                schedule.schedule_id,
                schedule.target_id,
                plan,
                schedule.due.next_run_at,
                _left(schedule),
                change_of(schedule.next_change, schedule.due.next_run_at),
            )
            for schedule in self._coming
            if schedule.due.next_run_at is not None and (plan := queries.plan_for(schedule)) is not None
        ]
        return stave.draw(ringing, now=self.now, zone=self.zone, more=self._not_drawn)

    @property
    def _not_drawn(self) -> int:
        """How many schedules ring beyond those that are expanded."""
        until = self.now + stave.DAY
        due = queries.count_upcoming(self._session, self._networks, until=until)
        left = max(0, due - _MOST_EXPANDED)
        return AtLeast(left) if isinstance(due, AtLeast) else left

    @property
    def rings(self) -> list[stave.Ring]:
        """The lines of the table beside the drawing, as many as a page can bear."""
        return self.day.rings[:_MOST_LISTED]

    @property
    def linked(self) -> bool:
        """Whether each mark is a link: so many that none could be hit would only make the page heavy."""
        return len(self.day.rings) <= _MOST_LINKED

    def lane_name(self, key: str) -> str:
        """What the target of a lane is called."""
        return self._lane_names[key]

    @cached_property
    def _lane_names(self) -> dict[str, str]:
        return {lane.lane.key: lane.name for lane in self.lanes}

    @cached_property
    def lanes(self) -> list[LaneOf]:
        """The lanes with their nodes, by alias."""
        keys = {lane.key for lane in self.day.lanes}
        nodes = nodes_by_id(self._session, self._networks, keys, now=self.now)
        aliases = {schedule.target_id: aim(schedule) for schedule in self._coming}
        chats = {schedule.target_id for schedule in self._coming if is_chat(schedule)}
        found = [
            LaneOf(
                lane,
                nodes[lane.key].node.alias if lane.key in nodes else aliases[lane.key],
                nodes.get(lane.key),
                lane.key in chats,
            )
            for lane in self.day.lanes
            if lane.count
        ]
        return sorted(found, key=lambda lane: lane.name)

    # --- What has happened ---

    @cached_property
    def last_runs(self) -> list[RunRow]:
        """The newest runs of the last hour."""
        wanted = queries.RunFilter(since=self.now - _HOUR)
        found = queries.list_runs(self._session, self._networks, wanted, PageRequest(limit=_LAST_RUNS))
        return run_rows(found.rows, now=self.now)

    @property
    def last_hour_words(self) -> str:
        """How many runs the hour had, and how they stand."""
        since = self.now - _HOUR
        counts = queries.count_runs_since(self._session, self._networks, since, most=_MOST_OF_AN_HOUR)
        parts = ", ".join(
            f"{number(counts[status])} {status.value}" for status in RunStatus if counts.get(status)
        )
        total = sum(counts.values())
        if total > _MOST_OF_AN_HOUR:
            return f"More than {plural(_MOST_OF_AN_HOUR, 'run')}; of the newest: {parts}."
        return f"{plural(total, 'run')}: {parts}." if counts else "No run."

    # --- The worker ---

    @cached_property
    def open_counts(self) -> dict[RunStatus, int]:
        """Open runs by state."""
        queued = sum(self._waiting.values())
        more = queued >= queries.MOST_OPEN_COUNTED
        return {
            RunStatus.QUEUED: AtLeast(queued) if more else queued,
            **queries.count_open(self._session, self._networks),
        }

    @cached_property
    def _waiting(self) -> dict[WaitReason | None, int]:
        return queries.count_waiting(self._session, self._networks)

    @property
    def queued_words(self) -> str:
        """What the queued runs wait for."""
        waiting = self._waiting
        behind = waiting.get(WaitReason.PREVIOUS_RUN_ACTIVE, 0) + waiting.get(WaitReason.CATCH_UP, 0)
        if sum(waiting.values()) >= queries.MOST_OPEN_COUNTED:
            behind = AtLeast(behind)
        found = holders(self._session, self._networks, limit=4, now=self.now)
        told = [f"{number(view.unacknowledged)} for {view.node.alias}" for view in found[:3]]
        told += ["and others"] if len(found) > 3 else []
        if behind:
            told.append(f"{number(behind)} behind an earlier run")
        return f"{', '.join(told)}." if told else "Nothing waits."

    @cached_property
    def longest(self) -> Run | None:
        """The run that has been at work the longest."""
        return queries.longest_running(self._session, self._networks)

    @property
    def tick_seconds(self) -> float:
        """The longest sleep of a worker."""
        return self._tick_seconds


def _left(schedule: Schedule) -> int | None:
    return None if schedule.max_runs is None else schedule.max_runs - schedule.due.dispatched_count
