"""What an agent asks of a person, in words: the call, its exact arguments, for whom, until when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from webapp.chat.lifecycle import ApprovalStatus
from webapp.chat.queries import ApprovalView
from webapp.html.authority import CallWords, call_words, exact_call, node_named, tokens
from webapp.nodes.queries import NodeView, nodes_named
from webapp.scheduling.models import Schedule
from webapp.scheduling.queries import schedules_by_id


@dataclass(frozen=True)
class Ask:
    """One approval as people see it. `percent_left` of its time, `node` the one that it is aimed at, if any."""

    view: ApprovalView
    words: CallWords
    exact: str
    schedule: Schedule | None
    node: NodeView | None
    percent_left: int
    tokens: str

    @property
    def approval_id(self) -> str:
        return self.view.approval.approval_id

    @property
    def base(self) -> str:
        """The address of its answers."""
        return f"/approvals/{self.approval_id}"

    @property
    def deadline_at(self) -> datetime:
        return self.view.approval.deadline_at

    @property
    def asked_at(self) -> datetime:
        return self.view.approval.created_at

    @property
    def status(self) -> ApprovalStatus:
        return self.view.approval.status

    @property
    def node_silent(self) -> bool:
        """Whether what is asked for would wait for a node that is not there."""
        return self.node is not None and self.node.status.value == "offline"


def asks_of(
    session: Session, networks: frozenset[int], views: Iterable[ApprovalView], now: datetime
) -> list[Ask]:
    """Approvals as pages show them; a few set loads however many there are."""
    views = list(views)
    if not views:
        return []
    schedule_ids = {view.approval.schedule_id for view in views if view.approval.schedule_id}
    schedules = schedules_by_id(session, networks, schedule_ids)
    named = {name for view in views if (name := node_named(view.approval.arguments))}
    found = nodes_named(session, networks, named, now=now)
    nodes = {view.node.node_id: view for view in found}
    aliases = {node_id: view.node.alias for node_id, view in nodes.items()}
    return [_ask(view, schedules, nodes, aliases, now) for view in views]


def _ask(
    view: ApprovalView,
    schedules: Mapping[str, Schedule],
    nodes: Mapping[str, NodeView],
    aliases: Mapping[str, str],
    now: datetime,
) -> Ask:
    approval = view.approval
    named = node_named(approval.arguments)
    by_alias = {
        found.node.alias: found for found in nodes.values() if found.node.network_pk == approval.network_pk
    }
    return Ask(
        view=view,
        words=call_words(approval.operation, approval.arguments, aliases),
        exact=exact_call(approval.operation, approval.arguments),
        schedule=schedules.get(approval.schedule_id or ""),
        node=(nodes.get(named) or by_alias.get(named)) if named else None,
        percent_left=_percent_left(approval.created_at, approval.deadline_at, now),
        tokens=tokens(approval.turn.input_tokens, approval.turn.output_tokens),
    )


def _percent_left(asked_at: datetime, deadline_at: datetime, now: datetime) -> int:
    whole = (deadline_at - asked_at).total_seconds()
    left = (deadline_at - now).total_seconds()
    return max(0, min(100, round(100 * left / whole))) if whole > 0 else 0
