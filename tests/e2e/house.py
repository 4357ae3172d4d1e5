"""The network that every page is looked at in: orders, runs, chats and approvals of all kinds, and all sorts of people.

The words of its chats are hostile, so that whoever looks at a page also sees that none of them acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from tests.e2e import chat_scene, scene
from tests.e2e.chat_scene import Talk
from tests.e2e.conftest import Site
from tests.e2e.scene import Scene
from webapp.chat import operations as chats
from webapp.identity import operations as people
from webapp.identity import queries
from webapp.identity.access import Actor
from webapp.identity.models import Network, Role
from webapp.nodes import operations as nodes
from webapp.nodes.bodies import NodeChanges
from webapp.nodes.lifecycle import TaskStatus
from webapp.nodes.models import Task
from webapp.scheduling import operations as schedules
from webapp.scheduling.fields import NewSchedule
from webapp.scheduling.lifecycle import OverlapPolicy, RunStatus
from webapp.scheduling.models import Run
from webapp.store import reading

PASSWORD = "staple horse battery"
VIEWER = "Vera"
MEMBER = "Bert"
STRANGER = "Nora"
DEACTIVATED = "Dora"


@dataclass(frozen=True)
class House:
    """Addresses by what stands there; `places` is what the addresses of the views are filled from."""

    owner: str
    password: str
    places: dict[str, str]

    def password_of(self, who: str) -> str:
        """The password of one of the people here."""
        return self.password if who == self.owner else PASSWORD


def furnish(site: Site) -> House:
    """Write it into the site's database and let its worker claim and answer."""
    with scene.product(site):
        made = scene.furnish_orders(site)
        talk = chat_scene.write(site, made.owner, made.password)
        return _complete(site, made, talk)


def _complete(site: Site, made: Scene, talk: Talk) -> House:
    owner = _actor(made.owner)
    network_pk = min(owner.networks)
    ids = _people(owner, network_pk, site.clock.now())
    held_up, waiting, stopped_node = _held_up(site, owner, network_pk)
    now = site.clock.now()
    scene.remember(made.schedule.removeprefix("/schedules/"), now.date())
    places = {
        "schedule": made.schedule,
        "paused": made.paused_schedule,
        "run": made.run,
        "failed_run": made.failed_run,
        "skipped_run": made.skipped_run,
        "node": made.node,
        "task": made.task,
        "held_up": held_up,
        "waiting_run": waiting,
        "stopped_node": stopped_node,
        "open_task": _open_task(),
        "chat": talk.chat,
        "quiet_chat": talk.quiet_chat,
        "archived_chat": _archived_chat(owner, network_pk, now),
        "foreign_chat": _foreign_chat(network_pk, now),
        "chat_schedule": talk.schedule,
        "broken": talk.stopped_schedule,
        "proposed": talk.proposed,
        "chat_run": talk.run,
        "mandate": talk.mandate,
        "revoked_mandate": talk.revoked_mandate,
        "briefing": _address("Morning briefing"),
        "close": _address("Close of the month"),
        **ids,
    }
    for name in ("schedule", "paused", "broken", "chat"):
        places[f"{name}_id"] = places[name].rsplit("/", 1)[1]
    return House(made.owner, made.password, places)


def _address(name: str) -> str:
    return f"/schedules/{scene.public_id(scene.schedule_named(name))}"


def _actor(name: str) -> Actor:
    with reading() as session:
        user = queries.user_by_name(session, name)
        person = queries.person_of(session, user_pk=user.id) if user else None
    assert person is not None
    return person.actor


def _people(owner: Actor, network_pk: int, now: datetime) -> dict[str, str]:
    with reading() as session:
        network_id = session.scalars(select(Network.network_id).where(Network.id == network_pk)).one()
    ids = {}
    for name, place, role in (
        (VIEWER, network_id, Role.VIEWER),
        (MEMBER, network_id, Role.MEMBER),
        (STRANGER, None, Role.MEMBER),
        (DEACTIVATED, network_id, Role.MEMBER),
    ):
        user = people.create_user(owner, people.NewUser(name, PASSWORD), network_id=place, role=role, now=now)
        ids[name.lower()] = user.user_id
    people.deactivate_user(owner, ids[DEACTIVATED.lower()], now=now)
    # With a second network there is a way to switch, and tokens say what they reach.
    people.create_network(owner, "South Tower", "south-tower", now=now)
    people.create_user_token(owner, "nightly export", network_id=network_id, expires_days=30, now=now)
    old = people.create_user_token(owner, "an old script", now=now)
    people.revoke_token(owner, old.token.token_id, now=now)
    return ids


def _held_up(site: Site, owner: Actor, network_pk: int) -> tuple[str, str, str]:
    """A schedule whose run waits for the one before it, that run, and their node, which takes no new work."""
    hermes, _ = nodes.create_node(owner, network_pk, "hermes", now=site.clock.now())
    patient = NewSchedule(
        name="Ledger",
        task="Add up the ledger.",
        target_node_id=hermes.node_id,
        schedule={"type": "interval", "every_seconds": 60},
        overlap_policy=OverlapPolicy.QUEUE_ONE,
    )
    made = schedules.create(owner, network_pk, lambda: patient, now=site.clock.now()).schedule
    scene.ring(site, made.id)
    waiting = scene.ring(site, made.id)
    with reading() as session:
        status = session.scalar(select(Run.status).where(Run.run_id == waiting))
    assert status is RunStatus.QUEUED, status
    nodes.update_node(owner, hermes.node_id, NodeChanges(lifecycle_state="stopped"), now=site.clock.now())
    return f"/schedules/{made.schedule_id}", f"/runs/{waiting}", f"/nodes/{hermes.node_id}"


def _archived_chat(owner: Actor, network_pk: int, now: datetime) -> str:
    chat = chats.create_chat(owner, network_pk, "Put away", now=now)
    chats.archive_chat(owner, chat.chat_id, now=now)
    return f"/chats/{chat.chat_id}"


def _foreign_chat(network_pk: int, now: datetime) -> str:
    chat = chats.create_chat(_actor(MEMBER), network_pk, "Secret plans", now=now)
    return f"/chats/{chat.chat_id}"


def _open_task() -> str:
    with reading() as session:
        found = select(Task.task_id).where(Task.status == TaskStatus.CREATED)
        return f"/tasks/{session.scalars(found.limit(1)).one()}"
