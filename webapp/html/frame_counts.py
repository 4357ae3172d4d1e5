"""What the frame of every page counts, in one statement that is built once: building it costs more than its answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Select, String, and_, bindparam, case, cast, func, select
from sqlalchemy.orm import Session

from webapp.chat.queries import pending_of
from webapp.html.cards import MOST_ALIKE, MOST_GROUPED
from webapp.identity.access import Actor
from webapp.mandates.queries import EXPIRES_SOON, ending_of
from webapp.nodes.lifecycle import OFFLINE_AFTER_SECONDS
from webapp.nodes.queries import silent_holding
from webapp.scheduling.models import Alert, Schedule
from webapp.scheduling.queries import due_unclaimed, open_alerts, proposed_to
from webapp.store.base import UtcDateTime
from webapp.store.counting import MOST_COUNTED, AtLeast


@dataclass(frozen=True)
class FrameCounts:
    """`needs`: as many as the overview has cards; `approvals` wait for the viewer; `due`: up to a bound (`AtLeast`)."""

    needs: int
    approvals: int
    due: int


def frame_counts(session: Session, actor: Actor, networks: Iterable[int], *, now: datetime) -> FrameCounts:
    """The numbers beside the menu for one who looks at these networks, and how many schedules are due."""
    found = session.execute(
        _statement(),
        {
            "shown": list(networks),
            "reached": list(actor.networks),
            "viewer": actor.user_pk,
            "now": now,
            "soon": now + EXPIRES_SOON,
            "seen_since": now - timedelta(seconds=OFFLINE_AFTER_SECONDS),
        },
    ).one()
    # More of one kind than a few share one card.
    needs = sum(
        count if count <= MOST_ALIKE else 1 for count in (found.proposals, found.ending, found.silent)
    )
    return FrameCounts(
        needs=found.groups + needs + bool(found.approvals),
        approvals=found.approvals,
        due=found.due if found.due <= MOST_COUNTED else AtLeast(MOST_COUNTED),
    )


@cache
def _statement() -> Select[Any]:
    shown: Any = bindparam("shown", expanding=True)
    reached: Any = bindparam("reached", expanding=True)
    viewer: Any = bindparam("viewer")
    now, soon, seen_since = (_instant(name) for name in ("now", "soon", "seen_since"))
    few = MOST_ALIKE + 1
    counts = {
        "groups": _groups(shown),
        "approvals": pending_of(reached, viewer),
        "proposals": proposed_to(shown, viewer).with_only_columns(Schedule.id).limit(few),
        "ending": ending_of(shown, soon, subject_pk=viewer, since=now).limit(few),
        "silent": silent_holding(shown, seen_since).limit(few),
        "due": due_unclaimed(now).limit(MOST_COUNTED + 1),
    }
    return select(
        *(
            select(func.count()).select_from(each.subquery()).scalar_subquery().label(name)
            for name, each in counts.items()
        )
    )


def _instant(name: str) -> Any:
    return bindparam(name, type_=UtcDateTime())


def _groups(networks: Any) -> Select[Any]:
    """What shares a card, each once: the same rule as `cards.group_of`."""
    newest = (
        open_alerts(networks)
        .outerjoin(Schedule, Schedule.id == Alert.schedule_pk)
        .with_only_columns(Alert.id, Alert.kind, Alert.code, Schedule.target_id)
        .limit(MOST_GROUPED)
        .subquery()
    )
    alike = and_(newest.c.kind == "needs_attention", newest.c.target_id.is_not(None))
    key = case((alike, newest.c.code + " " + newest.c.target_id), else_=cast(newest.c.id, String))
    return select(key.label("shared")).distinct()
