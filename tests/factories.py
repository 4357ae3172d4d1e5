"""Things to test with: plain functions with defaults, called inside an app context.

People: `make_cast()` gives Alice (owner), Bob (member) and Vera (viewer) of one network and Charlie, who owns
another one; `actor_of(user)` is the person as operations know them; `signed_in(app, user)` is their browser.
Work: `make_node(user)` is a node of their network with its token, `make_schedule(user, node)` an order to it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from argon2 import PasswordHasher

from tests.support.databases import START
from webapp.identity import operations, queries, steps
from webapp.identity.access import Actor
from webapp.identity.models import Membership, Network, Role, User
from webapp.identity.names import name_key
from webapp.ids import new_id
from webapp.nodes import operations as node_operations
from webapp.nodes.models import Node
from webapp.scheduling import operations as schedule_operations
from webapp.scheduling.fields import NewSchedule
from webapp.scheduling.models import Schedule
from webapp.store import reading
from webapp.store.transaction import Tx, operation

if TYPE_CHECKING:
    from flask import Flask
    from flask.testing import FlaskClient

PASSWORD = "correct horse battery"
CSRF = "the token of a test's session"
_numbers = itertools.count(1)


@cache
def _hash(password: str) -> str:
    # The real algorithm with next to no work; whoever signs in with it gets a real one by that.
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(password)


@operation
def make_user(
    tx: Tx,
    name: str | None = None,
    *,
    password: str = PASSWORD,
    is_admin: bool = False,
    active: bool = True,
    timezone: str = "UTC",
    now: datetime = START,
) -> User:
    """A person who belongs to no network yet."""
    name = name or f"Person {next(_numbers)}"
    user = User(
        user_id=new_id("user"),
        name=name,
        name_key=name_key(name),
        password_hash=_hash(password),
        is_admin=is_admin,
        active=active,
        timezone=timezone,
        created_at=now,
    )
    tx.session.add(user)
    tx.session.flush()
    return user


@operation
def make_network(
    tx: Tx, name: str | None = None, *, slug: str | None = None, now: datetime = START
) -> Network:
    """A network without people."""
    number = next(_numbers)
    network = Network(
        network_id=new_id("net"),
        slug=slug or f"network-{number}",
        name=name or f"Network {number}",
        created_at=now,
    )
    tx.session.add(network)
    tx.session.flush()
    return network


@operation
def make_member(
    tx: Tx, user: User, network: Network, role: Role | str = Role.MEMBER, *, now: datetime = START
) -> Membership:
    """A place of a person in a network."""
    place = Membership(user_pk=user.id, network_pk=network.id, role=Role(role), created_at=now)
    tx.session.add(place)
    tx.session.flush()
    return place


def make_token(
    user: User,
    *,
    network: Network | None = None,
    expires_days: int | None = None,
    label: str = "",
    now: datetime = START,
) -> str:
    """The text of a new token of a person, bound to `network` if one is named."""
    issued = operations.create_user_token(
        actor_of(user),
        label,
        network_id=None if network is None else network.network_id,
        expires_days=expires_days,
        now=now,
    )
    assert issued.text is not None
    return issued.text


@operation
def make_node_token(tx: Tx, node_pk: int, network_pk: int, *, now: datetime = START) -> str:
    """The text of a new token of a node that exists."""
    return steps.issue_node_token(tx, node_pk, network_pk, now)


def actor_of(user: User) -> Actor:
    """The person as they are at this moment, with their roles."""
    with reading() as session:
        person = queries.person_of(session, user_pk=user.id)
    assert person is not None, f"{user.name} is deactivated"
    return person.actor


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


def signed_in(app: Flask, user: User) -> FlaskClient:
    """The browser of somebody who has signed in; it sends the session's token against forged forms."""
    client = app.test_client()
    with client.session_transaction() as session:
        session.permanent = True
        session.update(
            user=user.user_id,
            epoch=user.session_epoch,
            sid=new_id("session"),
            renewed=int(app.extensions["carillon_clock"].now().timestamp()),
            csrf=CSRF,
        )
    client.environ_base["HTTP_X_CSRF_TOKEN"] = CSRF
    return client


@dataclass(frozen=True)
class Cast:
    """The people of most tests: three of one network, and a stranger with a network of his own."""

    network: Network
    elsewhere: Network
    alice: User
    bob: User
    vera: User
    charlie: User


def make_cast() -> Cast:
    """Alice owner, Bob member and Vera viewer of "Harbour"; Charlie owner of "Elsewhere". No one is admin."""
    harbour = make_network("Harbour", slug="harbour")
    elsewhere = make_network("Elsewhere", slug="elsewhere")
    people = {name: make_user(name) for name in ("Alice", "Bob", "Vera", "Charlie")}
    make_member(people["Alice"], harbour, Role.OWNER)
    make_member(people["Bob"], harbour, Role.MEMBER)
    make_member(people["Vera"], harbour, Role.VIEWER)
    make_member(people["Charlie"], elsewhere, Role.OWNER)
    return Cast(harbour, elsewhere, people["Alice"], people["Bob"], people["Vera"], people["Charlie"])


def make_node(user: User, alias: str | None = None, *, now: datetime = START) -> tuple[Node, str]:
    """A node of the person's only network, and the text of its token."""
    actor = actor_of(user)
    (network_pk,) = actor.networks
    node, token = node_operations.create_node(actor, network_pk, alias or f"node-{next(_numbers)}", now=now)
    assert token is not None
    return node, token


def make_schedule(user: User, node: Node, *, now: datetime = START, **fields: Any) -> Schedule:
    """A schedule of that person for that node, hourly where `fields` say nothing else."""
    values = {
        "name": f"Order {next(_numbers)}",
        "task": "Sweep the inbox.",
        "target_node_id": node.node_id,
        "schedule": {"type": "cron", "cron": "0 * * * *"},
        **fields,
    }
    return schedule_operations.create(
        actor_of(user), node.network_pk, lambda: NewSchedule(**values), now=now
    ).schedule
