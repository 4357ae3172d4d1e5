"""The cast with its tokens and nodes, spoken to over the JSON API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from tests import factories
from webapp.nodes import operations
from webapp.web.live import event_feed

Answer = tuple[int, dict[str, Any]]


@dataclass
class Scene:
    """Alice, Bob, Vera and Charlie with tokens; nodes by alias as (public id, token)."""

    app: Flask
    client: FlaskClient
    cast: factories.Cast
    tokens: dict[str, str]
    nodes: dict[str, tuple[str, str]] = field(default_factory=dict)
    node_pks: dict[str, int] = field(default_factory=dict)

    def call(
        self,
        who: str | None,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> Answer:
        """One call as a person (`alice`) or a node (`atlas`); None is nobody. Returns status and JSON."""
        sent = dict(headers or {})
        if who is not None:
            token = self.nodes[who][1] if who in self.nodes else self.tokens[who]
            sent.update(factories.bearer(token))
        if body is not None:
            options["json"] = body
        response = self.client.open(path, method=method, headers=sent, **options)
        answer = response.get_json(silent=True)
        assert isinstance(answer, dict), (response.status_code, response.data[:200])
        assert answer["ok"] is (response.status_code < 400)
        return response.status_code, answer

    def node_id(self, alias: str) -> str:
        return self.nodes[alias][0]

    def add_node(self, alias: str, owner: str = "alice") -> str:
        """A node of the owner's network, made by the product's own operation; returns its public id."""
        with self.app.app_context():
            actor = factories.actor_of(getattr(self.cast, owner))
            network_pk = next(iter(actor.networks))
            now = self.app.extensions["carillon_clock"].now()
            node, token = operations.create_node(actor, network_pk, alias, now=now)
        assert token is not None
        self.nodes[alias] = (node.node_id, token)
        self.node_pks[alias] = node.id
        return node.node_id

    def send(self, alias: str = "atlas", who: str = "alice", task: str = "Read the news", **more: Any) -> str:
        """A task over the API; returns its id."""
        status, answer = self.call(
            who, "POST", "/api/tasks", {"node_id": self.node_id(alias), "task": task, **more}
        )
        assert status == 201, answer
        return str(answer["task"]["task_id"])

    def inbox(self, alias: str = "atlas", query: str = "") -> list[dict[str, Any]]:
        status, answer = self.call(alias, "GET", f"/api/node/inbox{query}")
        assert status == 200, answer
        return list(answer["items"])

    def report(self, task_id: str, what: str, body: Any = None, alias: str = "atlas") -> Answer:
        return self.call(alias, "POST", f"/api/node/tasks/{task_id}/{what}", {} if body is None else body)

    def task(self, task_id: str) -> dict[str, Any]:
        status, answer = self.call("alice", "GET", f"/api/tasks/{task_id}")
        assert status == 200
        return dict(answer["task"])

    def close(self) -> None:
        with self.app.app_context():
            event_feed().close()


def make_scene(app: Flask) -> Scene:
    """The scene with the nodes `atlas` (Harbour) and `zephyr` (Elsewhere)."""
    with app.app_context():
        cast = factories.make_cast()
        tokens = {
            name: factories.make_token(getattr(cast, name)) for name in ("alice", "bob", "vera", "charlie")
        }
    scene = Scene(app, app.test_client(), cast, tokens)
    scene.add_node("atlas")
    scene.add_node("zephyr", owner="charlie")
    return scene
