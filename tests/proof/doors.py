"""Two networks, furnished alike, everybody who may knock, and what the one table says about each of them.

The addresses come from the URL map, the rights from `identity/access.py`. A route that is added is tried by itself;
one with a placeholder that nobody knows yet fails until `Things.at` says what it stands for.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import update
from werkzeug.test import TestResponse

from tests.api.house import House, make_house
from tests.chat.scene import Scene
from tests.factories import actor_of, bearer, make_member, make_token, make_user, signed_in
from webapp.chat.rules import knows_of
from webapp.clock import FrozenClock
from webapp.identity import operations
from webapp.identity.access import Actor, Facts, Verb, may
from webapp.identity.models import Network, User
from webapp.nodes.models import Node
from webapp.store.transaction import Tx, operation
from webapp.web.policy import Door, Route, routes

HARBOUR: Final = "harbour"
ELSEWHERE: Final = "elsewhere"
MISSING: Final = "missing"
# Stands in every text of a network; nobody who does not belong to it may ever read it.
CANARY: Final = {HARBOUR: "canaryharbourzq", ELSEWHERE: "canaryelsewherezq"}
# In the names of people, whom a system administrator may see wherever they are.
NAME_CANARY: Final = {HARBOUR: "Nameharbourzq", ELSEWHERE: "Nameelsewherezq"}
_PLACEHOLDER: Final = re.compile(r"<(?:[^<>:]+:)?([a-z_]+)>")
# Whose words only their owner reads; others learn that they exist where they may stop what is done in them.
_PRIVATE: Final = frozenset({"chat_id", "turn_id", "approval_id"})
# The owner's alone: nobody else finds it at that address.
_OWN: Final = frozenset({"short_id"})
# They answer for each of the schedules that are named, in one answer for all: looked at by a test of their own.
FOR_EACH: Final = frozenset(
    {
        "api_schedules.change_many",
        "api_schedules.preview_many",
        "schedule_bulk.ask_many",
        "schedule_bulk.do_many",
        "overview_pages.resume_all",
    }
)
# A page that is not there is the same to everybody, and dear to draw: these two look at all of them.
_AT_EVERY_PAGE: Final = frozenset({"sponsor", "owner of the other"})
# Bodies that name things; whatever is not here is sent nothing, and is judged before its fields are looked at.
_BODIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "api_schedules.create_schedule": {
        "name": "x",
        "task": "x",
        "target_node_id": "{node_id}",
        "schedule": {"type": "daily", "time": "09:00"},
    },
    "api_tasks.create_task": {"node_id": "{node_id}", "task": "x"},
    "api_chat_tasks.create_task": {
        "chat_id": "{chat_id}",
        "prompt": "x",
        "schedule": {"kind": "daily", "time": "09:00"},
    },
    "people_api.add_member": {"user_id": "{user_id}", "role": "viewer"},
    "people_api.change_member": {"role": "viewer"},
    "schedule_forms.create_schedule": {"target": "node:{node_id}", "name": "x", "task": "x"},
    "shell.switch_network": {"network_id": "{network_id}"},
    "settings.create_token": {"label": "x", "network_id": "{network_id}"},
    "chat_pages.abort_turn": {"turn_id": "{turn_id}"},
}


@dataclass(frozen=True)
class Things:
    """One thing of every kind in a network, by the name of its placeholder; all are of one sponsor."""

    world: str
    network_pk: int | None
    sponsor_pk: int | None
    ids: Mapping[str, str]

    def missing(self) -> Things:
        """Ids of the same looks that stand for nothing."""
        gone = {
            name: re.sub(r"(?<=_).*|^[^_]+$", lambda found: "0" * len(found.group()), of)
            for name, of in self.ids.items()
        }
        return Things(MISSING, None, None, gone)


@dataclass(frozen=True)
class Principal:
    """Somebody at the door: a person as `access.py` knows them, a node of a network, or nobody (both None)."""

    name: str
    client: FlaskClient
    headers: Mapping[str, str]
    actor: Actor | None = None
    node_of: int | None = None
    worlds: frozenset[str] = frozenset()
    has_session: bool = True
    cookie: str | None = None

    def knock(self, method: str, path: str, body: Mapping[str, Any]) -> TestResponse:
        """One request: with the token at `/api`, with the session elsewhere. A stream is left unread."""
        is_api = path.startswith("/api/")
        sent: dict[str, Any] = {"json": body} if is_api else {"data": body}
        if method == "GET":
            sent = {}
        headers = dict(self.headers) if is_api else {}
        if is_api:
            headers["Idempotency-Key"] = "one-of-a-kind"
        return self.client.open(path, method=method, headers=headers, buffered=False, **sent)


@dataclass(frozen=True)
class Knock:
    """One request that is to be made, and the answers that the table allows for it."""

    route: Route
    method: str
    path: str
    body: Mapping[str, Any]
    things: Things
    verdict: str

    def __str__(self) -> str:
        return f"{self.method} {self.route.rule} [{self.things.world}]"


@dataclass
class Doors:
    """The product with two furnished networks and everybody who may knock."""

    app: Flask
    house: House
    things: Mapping[str, Things]
    principals: Mapping[str, Principal]
    _saved: sqlite3.Connection = field(
        default_factory=lambda: sqlite3.connect(":memory:", check_same_thread=False)
    )

    def knocks(self, who: Principal) -> Iterator[Knock]:
        """Every route and method, with the things of each network and with none."""
        for route in routes(self.app):
            if route.endpoint in FOR_EACH or route.access.door is Door.PUBLIC:
                continue
            body = _BODIES.get(route.endpoint, {})
            for things in self.things.values():
                verdict = verdict_on(route, who, things, named=bool(_named(body)))
                if things.world != HARBOUR and verdict in ("nobody", "wrong kind"):
                    continue  # Turned away before any address is looked at: once is enough.
                if things.world != HARBOUR and "<" not in route.rule and not _named(body):
                    continue
                is_page = not route.rule.startswith("/api/")
                not_there = who.worlds and things.world not in who.worlds
                if is_page and not_there and who.name not in _AT_EVERY_PAGE:
                    continue
                path = _filled(_PLACEHOLDER.sub(r"{\1}", route.rule), things.ids)
                for method in sorted(route.methods):
                    yield Knock(route, method, path, _filled(body, things.ids), things, verdict)

    def keep(self) -> None:
        """Remember the database as it is."""
        with closing(self._database()) as raw:
            raw.driver_connection.backup(self._saved)

    def restore(self, who: Principal) -> None:
        """Take back whatever has changed since, in the database and in this caller's browser."""
        if who.cookie is not None:
            who.client.set_cookie(self.app.config["SESSION_COOKIE_NAME"], who.cookie)
        with closing(self._database()) as raw:
            self._saved.backup(raw.driver_connection)

    def _database(self) -> Any:
        with self.app.app_context():
            return self.app.extensions["sqlalchemy"].engine.raw_connection()


def verdict_on(route: Route, who: Principal, things: Things, *, named: bool) -> str:
    """What the table says: `nobody`, `wrong kind`, `hidden`, `denied`, `let in`, or `unsaid` where it says nothing.

    `named`: the body names things of that network.
    """
    if route.access.door is Door.SIGNED_IN and (who.actor is None or not who.has_session):
        return "nobody"
    if who.actor is None and who.node_of is None:
        return "nobody"
    if (who.node_of is not None) != (route.access.door is Door.NODE_API):
        return "wrong kind"
    placeholders = _PLACEHOLDER.findall(route.rule)
    if who.node_of is not None:
        return "hidden" if placeholders and who.node_of != things.network_pk else "let in"
    assert who.actor is not None
    return _for_person(route, who.actor, things, placeholders, named=named)


def _for_person(route: Route, actor: Actor, things: Things, placeholders: list[str], *, named: bool) -> str:
    verb, endpoint = route.access.verb, route.endpoint
    if verb is None:
        return "unsaid"
    if verb in (Verb.MANAGE_USERS, Verb.CREATE_NETWORK):
        if not may(actor, verb, Facts()):
            return "denied"
        return "hidden" if placeholders and things.world == MISSING else "let in"
    if verb is Verb.MANAGE_OWN_TOKENS:
        theirs = actor.user_pk == things.sponsor_pk or (actor.is_admin and things.world != MISSING)
        if not placeholders and named:
            theirs = things.network_pk in actor.networks
        return "let in" if theirs or not (placeholders or named) else "hidden"
    if not placeholders:
        if not actor.networks:
            return "unsaid" if verb in (Verb.READ, Verb.READ_AUDIT, Verb.READ_MANDATE) else "hidden or denied"
        if named and things.network_pk not in actor.networks:
            return "hidden or denied"
        if named and "chat" in endpoint and actor.user_pk != things.sponsor_pk:
            return "hidden or denied"
        (network_pk,) = actor.networks
        facts = Facts(network_pk, things.sponsor_pk)
        return "let in" if may(actor, verb, facts) else "denied"
    facts = Facts(things.network_pk, things.sponsor_pk, private=bool(_PRIVATE & set(placeholders)))
    if things.network_pk not in actor.networks:
        return "hidden"
    if facts.private and not _knows(actor, things):
        return "hidden"
    if _OWN & set(placeholders) and actor.user_pk != things.sponsor_pk:
        return "hidden"
    return "let in" if may(actor, verb, facts) else "denied"


@dataclass(frozen=True)
class _Chat:
    network_pk: int
    owner_pk: int


def _knows(actor: Actor, things: Things) -> bool:
    assert things.network_pk is not None
    assert things.sponsor_pk is not None
    return knows_of(actor, _Chat(things.network_pk, things.sponsor_pk))


def _named(body: Mapping[str, Any]) -> bool:
    return any(isinstance(value, str) and "{" in value for value in body.values())


def _filled(what: Any, ids: Mapping[str, str]) -> Any:
    if isinstance(what, str):
        return re.sub(r"\{([a-z_]+)\}", lambda found: ids[found.group(1)], what)
    if isinstance(what, Mapping):
        return {key: _filled(value, ids) for key, value in what.items()}
    return what


# ---------------------------------------------------------------- building


def open_doors(app: Flask, clock: FrozenClock) -> Doors:
    """Furnish both networks and let everybody come."""
    house = make_house(app, clock)
    cast = house.cast
    with app.app_context():
        people = {
            "member": make_user("Mel"),
            "admin": make_user("Ada"),
            "dan": make_user("Dan"),
            "twin": make_user("Tina"),
            "root": make_user("Root", is_admin=True),
            "gone": make_user("Gus"),
            "lea": make_user("Lea"),
            "leo": make_user("Leo"),
        }
        for name in ("member", "admin", "gone"):
            make_member(people[name], cast.network, "admin" if name == "admin" else "member")
        make_member(people["dan"], cast.elsewhere, "member")
        make_member(people["lea"], cast.network, "viewer")
        make_member(people["leo"], cast.elsewhere, "viewer")
        make_member(people["twin"], cast.network, "owner")
        make_member(people["twin"], cast.elsewhere, "owner")
        house.tokens["dan"] = make_token(people["dan"])
        house.tokens["root"] = make_token(people["root"])
        bound = make_token(people["twin"], network=cast.elsewhere)
        gone = make_token(people["gone"])
        _give_names(cast.network, [cast.bob, people["lea"]], HARBOUR)
        _give_names(cast.elsewhere, [people["dan"], people["leo"]], ELSEWHERE)
    things = {
        HARBOUR: _furnish(house, HARBOUR, cast.network, "bob", cast.bob, people["lea"], "atlas"),
        ELSEWHERE: _furnish(house, ELSEWHERE, cast.elsewhere, "dan", people["dan"], people["leo"], "zephyr"),
    }
    things[MISSING] = things[HARBOUR].missing()

    def person(name: str, user: User, token: str, network: Network | None = None) -> Principal:
        with app.app_context():
            actor = actor_of(user)
        if network is not None:
            actor = Actor(
                actor.user_pk, actor.user_id, actor.name, False, {network.id: actor.roles[network.id]}
            )
        worlds = {world for world, place in things.items() if place.network_pk in actor.networks}
        # A token bound to one network is no session: its owner's would reach both.
        client = signed_in(app, user) if network is None else app.test_client()
        kept = client.get_cookie(app.config["SESSION_COOKIE_NAME"])
        cookie = None if kept is None else kept.value
        return Principal(name, client, bearer(token), actor, None, frozenset(worlds), network is None, cookie)

    def machine(name: str, alias: str, world: str) -> Principal:
        pk = things[world].network_pk
        return Principal(name, app.test_client(), bearer(house.tokens[alias]), None, pk, frozenset({world}))

    tokens = house.tokens
    with app.app_context():
        tokens |= {name: make_token(people[name]) for name in ("member", "admin")}
        former = signed_in(app, people["gone"])
        operations.deactivate_user(None, people["gone"].user_id, now=clock.now())
    everybody = [
        Principal("nobody", app.test_client(), {}),
        Principal("deactivated", former, bearer(gone)),
        person("viewer", cast.vera, tokens["vera"]),
        person("member", people["member"], tokens["member"]),
        person("sponsor", cast.bob, tokens["bob"]),
        person("admin", people["admin"], tokens["admin"]),
        person("owner", cast.alice, tokens["alice"]),
        person("owner of the other", cast.charlie, tokens["charlie"]),
        person("token bound to the other", people["twin"], bound, cast.elsewhere),
        person("system administrator", people["root"], tokens["root"]),
        machine("node", "atlas", HARBOUR),
        machine("node of the other", "zephyr", ELSEWHERE),
    ]
    doors = Doors(app, house, things, {who.name: who for who in everybody})
    doors.keep()
    return doors


@operation
def _give_names(tx: Tx, network: Network, people: list[User], world: str) -> None:
    """Names in which the canaries stand."""
    tx.session.execute(update(Network).where(Network.id == network.id).values(name=f"Net {CANARY[world]}"))
    for number, user in enumerate(people):
        tx.session.execute(
            update(User).where(User.id == user.id).values(name=f"{NAME_CANARY[world]} {number}")
        )


def _furnish(
    house: House, world: str, network: Network, who: str, user: User, bystander: User, alias: str
) -> Things:
    """One of everything, made by its sponsor; the node has answered once, and holds a task still."""
    word, node_id = CANARY[world], house.node_ids[alias]
    scene = Scene(house)
    schedule = house.create(who, target_node_id=node_id, name=f"Order {word}", task=f"Do {word}")
    schedule_id = schedule["schedule_id"]
    house.do(who, schedule_id, "run-now").part("run", 202)
    for item in house.call(alias, "GET", "/api/node/inbox").part("items"):
        path = f"/api/node/tasks/{item['task_id']}"
        house.call(alias, "POST", f"{path}/ack").part("task")
        answer = {"status": "failed", "result": f"result {word}"}
        house.call(alias, "POST", f"{path}/reply", answer).part("task")
    run = house.do(who, schedule_id, "run-now").part("run", 202)
    chat_id = scene.chat(who, f"Chat {word}")
    order = {
        "chat_id": chat_id,
        "prompt": f"Ask {word}",
        "schedule": {"kind": "daily", "time": "09:00"},
        "name": f"Prompt {word}",
    }
    task = house.call(who, "POST", "/api/chat-tasks", order, headers={"Idempotency-Key": word}).part(
        "task", 201
    )
    turn_id = scene.post(chat_id, f"Say {word}", who)["turn_id"]
    assert scene.begin(turn_id)
    (approval_id,) = scene.ask(turn_id, f"call-{word}")
    token = house.call(who, "POST", "/api/tokens", {"label": f"Token {word}"}).part("token", 201)
    ids = {
        "network_id": network.network_id,
        "user_id": bystander.user_id,
        "node_id": node_id,
        "schedule_id": schedule_id,
        "run_id": run["run_id"],
        "task_id": run["task_id"],
        "mandate_id": schedule["mandate_id"],
        "chat_id": chat_id,
        "turn_id": turn_id,
        "approval_id": approval_id,
        "short_id": task["id"],
        "token_id": token["token_id"],
    }
    _rename_node(house, node_id, f"{alias}-{word}")
    return Things(world, network.id, user.id, ids)


def _rename_node(house: House, node_id: str, alias: str) -> None:
    with house.app.app_context():
        _write_alias(node_id, alias)


@operation
def _write_alias(tx: Tx, node_id: str, alias: str) -> None:
    tx.session.execute(update(Node).where(Node.node_id == node_id).values(alias=alias))
