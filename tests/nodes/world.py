"""A small world for tests of nodes: a network, people, nodes, and tasks written by the product's own steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from webapp.identity.access import Actor
from webapp.identity.models import Membership, Network, Role, User
from webapp.ids import new_id
from webapp.nodes import steps
from webapp.nodes.lifecycle import (
    DEFAULT_MAX_RUN_SECONDS,
    DEFAULT_TTL_SECONDS,
    PRIORITY_RANK,
    NodeLifecycle,
    NodeStatus,
    Priority,
)
from webapp.nodes.models import Node, NodePresence
from webapp.store.texts import keep_text
from webapp.store.transaction import Tx, operation


@dataclass
class World:
    """Primary keys and actors of what `build` wrote."""

    network_pk: int
    network_id: str
    people: dict[str, Actor] = field(default_factory=dict)
    nodes: dict[str, tuple[int, str]] = field(default_factory=dict)

    def actor(self, name: str) -> Actor:
        return self.people[name]

    def node_pk(self, alias: str) -> int:
        return self.nodes[alias][0]

    def node_id(self, alias: str) -> str:
        return self.nodes[alias][1]


@operation
def build(tx: Tx, aliases: tuple[str, ...] = ("atlas",), *, now: datetime) -> World:
    """Alice (owner), Bob (member), Vera (viewer), Charlie (another network), and a node per alias."""
    session = tx.session
    home = Network(network_id=new_id("net"), slug="home", name="Home", created_at=now)
    other = Network(network_id=new_id("net"), slug="other", name="Other", created_at=now)
    session.add_all([home, other])
    session.flush()
    world = World(home.id, home.network_id)
    for name, network, role in (
        ("alice", home, Role.OWNER),
        ("bob", home, Role.MEMBER),
        ("vera", home, Role.VIEWER),
        ("charlie", other, Role.OWNER),
    ):
        user = User(user_id=new_id("user"), name=name, name_key=name, password_hash="-", created_at=now)
        session.add(user)
        session.flush()
        session.add(Membership(user_pk=user.id, network_pk=network.id, role=role, created_at=now))
        world.people[name] = Actor(user.id, user.user_id, name, roles={network.id: role})
    for alias in aliases:
        node = Node(
            node_id=new_id("node"),
            network_pk=home.id,
            alias=alias,
            lifecycle_state=NodeLifecycle.ACTIVE,
            created_at=now,
        )
        session.add(node)
        session.flush()
        session.add(NodePresence(node_pk=node.id, status=NodeStatus.OFFLINE))
        world.nodes[alias] = (node.id, node.node_id)
    return world


@operation
def give(
    tx: Tx,
    world: World,
    *,
    alias: str = "atlas",
    task_id: str | None = None,
    priority: Priority = Priority.NORMAL,
    ttl_seconds: int = DEFAULT_TTL_SECONDS,
    text: str = "Read the news",
    now: datetime,
) -> str:
    """Put one task into a node's inbox; returns its public id."""
    task_id = task_id or new_id("task")
    new = steps.NewTask(
        task_id=task_id,
        network_pk=world.network_pk,
        node_pk=world.node_pk(alias),
        run_pk=None,
        text_pk=keep_text(tx.session, text).id,
        priority_rank=PRIORITY_RANK[priority],
        ttl_seconds=ttl_seconds,
        max_run_seconds=DEFAULT_MAX_RUN_SECONDS,
        created_by_pk=world.actor("alice").user_pk,
    )
    steps.write_tasks(tx, [new], actor="alice", sender="alice", now=now)
    return task_id
