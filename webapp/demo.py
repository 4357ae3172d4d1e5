"""A sample network at work: its owner, two nodes, and orders of every kind.

Everything goes through the operations that a person uses, so what the demo shows is what anybody gets.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import func, select

from webapp.chat import operations as chats
from webapp.chat.models import Chat
from webapp.errors import AppError
from webapp.identity import operations as people
from webapp.identity import queries
from webapp.identity.access import Actor
from webapp.identity.models import Network, Role
from webapp.nodes import operations as nodes
from webapp.nodes.models import Node
from webapp.scheduling import operations as schedules
from webapp.scheduling.fields import NewChatSchedule, NewSchedule, PauseRequest
from webapp.scheduling.lifecycle import OverlapPolicy, TargetKind
from webapp.scheduling.models import Schedule
from webapp.store import reading

NETWORK_NAME: Final = "Northwind Lab"
NETWORK_SLUG: Final = "northwind-lab"
OWNER: Final = "Alice"
# A node at work, and one that nobody has started: its orders wait, and the pages say so.
WORKING_NODE: Final = "atlas"
SLEEPING_NODE: Final = "quill"
CHAT_TITLE: Final = "Morning round"
_MANDATE_LASTS: Final = timedelta(days=90)
_PASSWORD_OCTETS: Final = 12


class NotADemo(Exception):
    """The database belongs to somebody else; its text says so in one sentence."""


@dataclass(frozen=True)
class Demo:
    """How to get in, and what the sample node needs. The password and the token are new at each start."""

    owner: str
    password: str
    node_token: str


@dataclass(frozen=True)
class _Order:
    """A schedule of the demo; `fields` are those of `NewSchedule` beside name, task and node."""

    name: str
    task: str
    node: str
    fields: dict[str, Any]
    paused_because: str | None = None


def furnish(*, now: datetime) -> Demo:
    """Make what is missing of the sample network, and a new password and node token.

    Needs an app context and a migrated database. Raises NotADemo where people live that the demo has not
    made.
    """
    password = secrets.token_urlsafe(_PASSWORD_OCTETS)
    owner = _owner(password, now)
    network_pk = _network(owner, now)
    owner = _as_actor(owner.user_id)
    node_ids = {alias: _node(owner, network_pk, alias, now) for alias in (WORKING_NODE, SLEEPING_NODE)}
    _, token = nodes.rotate_token(owner, node_ids[WORKING_NODE], now=now)
    assert token is not None, "a call without a request key is no replay"
    _write_orders(owner, network_pk, node_ids, now)
    _open_chat(owner, network_pk, now)
    return Demo(owner.name, password, token)


def _owner(password: str, now: datetime) -> Actor:
    with reading() as session:
        somebody = queries.any_user(session)
        known = queries.user_by_name(session, OWNER)
        network = queries.network_by_slug(session, NETWORK_SLUG)
    if not somebody:
        new = people.NewUser(OWNER, password, is_admin=True)
        user, _, _ = people.create_user_at_command_line(new, network_slug=None, role=None, now=now)
        return _as_actor(user.user_id)
    if known is None or not known.active or not _is_demos(known.user_id, network):
        raise NotADemo("This database is in use: the demo wants one of its own (CARILLON_DATABASE_URL).")
    people.set_password(None, known.user_id, password, now=now)
    return _as_actor(known.user_id)


def _is_demos(user_id: str, network: Network | None) -> bool:
    """Whether this person owns the sample network, or was made by a first start that got no further."""
    person = _as_actor(user_id)
    if network is None:
        return person.is_admin and not person.roles and _is_alone()
    return person.roles.get(network.id) is Role.OWNER


def _is_alone() -> bool:
    with reading() as session:
        return len(queries.everybody(session)) == 1


def _as_actor(user_id: str) -> Actor:
    with reading() as session:
        person = queries.person_of(session, user_id=user_id)
    if person is None:
        raise AppError("user_not_found")
    return person.actor


def _network(owner: Actor, now: datetime) -> int:
    with reading() as session:
        network = queries.network_by_slug(session, NETWORK_SLUG)
    return (network or people.create_network(owner, NETWORK_NAME, NETWORK_SLUG, now=now)).id


def _node(owner: Actor, network_pk: int, alias: str, now: datetime) -> str:
    with reading() as session:
        known = session.scalar(
            select(Node.node_id).where(
                Node.network_pk == network_pk, Node.alias == alias, Node.deleted_at.is_(None)
            )
        )
    return known or nodes.create_node(owner, network_pk, alias, now=now)[0].node_id


def _write_orders(owner: Actor, network_pk: int, node_ids: dict[str, str], now: datetime) -> None:
    orders = _orders(now)
    with reading() as session:
        written = select(func.count()).where(
            Schedule.network_pk == network_pk, Schedule.target_kind == TargetKind.NODE
        )
        count = session.scalar(written) or 0
    # Once they are all there they are the person's to change: nothing is written a second time.
    if count >= len(orders):
        return
    made = [_write_order(owner, network_pk, node_ids[order.node], order, now) for order in orders]
    if made[0] is not None:
        # Something to see at once: the first slot is a minute away.
        schedules.run_now(owner, made[0], now=now)


def _open_chat(owner: Actor, network_pk: int, now: datetime) -> None:
    """A chat with a prompt for every morning; its first turn asks at once whether it may send a task.

    The built-in model answers it, so that the whole chain is there to see without a key.
    """
    with reading() as session:
        known = session.scalar(select(Chat.id).where(Chat.network_pk == network_pk).limit(1))
    if known is not None:
        return
    chat = chats.create_chat(owner, network_pk, CHAT_TITLE, now=now)
    prompt = NewChatSchedule(
        chat_id=chat.chat_id,
        name="Morning round",
        prompt=(
            "Have the night's bells counted and tell me how many there were.\n"
            f"/send-task {WORKING_NODE}: Count them: one at ten, two at midnight, five at dawn."
        ),
        schedule={"type": "daily", "time": "08:00"},
        timezone="Europe/Berlin",
        expires_at=now + _MANDATE_LASTS,
    )
    made = schedules.create_for_chat(owner, chat.chat_id, lambda: prompt, now=now).schedule
    schedules.run_now(owner, made.schedule_id, now=now)


def _write_order(owner: Actor, network_pk: int, node_id: str, order: _Order, now: datetime) -> str | None:
    """Make a schedule and return its id; None where one of its name stands already."""
    new = NewSchedule(name=order.name, task=order.task, target_node_id=node_id, **order.fields)
    with reading() as session:
        known = session.scalar(
            select(Schedule.id).where(Schedule.network_pk == network_pk, Schedule.name == order.name)
        )
    if known is not None:
        return None
    made = schedules.create(owner, network_pk, lambda: new, now=now).schedule
    if order.paused_because is not None:
        wish = PauseRequest(reason=order.paused_because)
        schedules.pause(owner, made.schedule_id, lambda: wish, now=now)
    return made.schedule_id


def _orders(now: datetime) -> list[_Order]:
    soon = now + timedelta(minutes=3)
    return [
        _Order(
            "Count the words of the minute",
            "The bells are rung from a written drum: nobody has to be awake for it.",
            WORKING_NODE,
            {"schedule": {"type": "interval", "every_seconds": 60}},
        ),
        _Order(
            "Morning briefing",
            "Read the night's mail and say in five sentences what needs a person today.",
            WORKING_NODE,
            {
                "schedule": {"type": "weekly", "time": "09:00", "weekdays": [1, 2, 3, 4, 5]},
                "timezone": "Europe/Berlin",
                "priority": "high",
            },
        ),
        _Order(
            "Check of the nightly backup",
            "Open the newest backup, restore one table from it, and say whether the rows are there.",
            WORKING_NODE,
            {"schedule": {"type": "daily", "time": "02:30"}, "timezone": "Europe/Berlin"},
        ),
        _Order(
            "Support inbox sweep",
            "Sort what came in since the last sweep; answer what the handbook answers, flag the rest.",
            SLEEPING_NODE,
            {
                "schedule": {"type": "cron", "cron": "*/15 * * * *"},
                "timezone": "America/New_York",
                "overlap_policy": OverlapPolicy.QUEUE_ONE,
                "priority": "low",
            },
        ),
        _Order(
            "Close of the month",
            "Compare the ledger with the bank's statement and list every difference.",
            WORKING_NODE,
            {"schedule": {"type": "cron", "cron": "0 17 L * *"}, "timezone": "Asia/Tokyo"},
        ),
        _Order(
            "Welcome note",
            "Write one sentence that welcomes a new colleague to the lab.",
            WORKING_NODE,
            {"schedule": {"type": "once", "run_at": soon.isoformat(timespec="seconds")}},
        ),
        _Order(
            "Competitor watch",
            "Read the three pages on the list and say what is new since last week.",
            WORKING_NODE,
            {
                "schedule": {"type": "weekly", "time": "11:00", "weekdays": [2]},
                "timezone": "America/New_York",
            },
            paused_because="The list of pages is being written anew.",
        ),
    ]
