"""`/api/nodes`: what people do to nodes."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, g

from webapp.api.body import parse
from webapp.identity.access import Facts, Verb, demand
from webapp.nodes import operations, queries
from webapp.nodes.bodies import NewNodeBody, NoBody, NodeChanges
from webapp.nodes.models import Node
from webapp.store import db
from webapp.web.auth import current_actor
from webapp.web.policy import UserApi, access
from webapp.web.present_nodes import node_json
from webapp.web.requests import (
    idempotency_request,
    json_body,
    network_of_write,
    networks_of_read,
    page_request,
)

blueprint = Blueprint("api_nodes", __name__, url_prefix="/api/nodes")
Answer = tuple[dict[str, Any], int]


@blueprint.get("")
@access(UserApi, verb=Verb.READ)
def list_nodes() -> Answer:
    """The nodes of the caller's networks, newest first."""
    page = queries.list_nodes(db.session(), networks_of_read(), page_request(), now=g.now)
    nodes = [node_json(view) for view in page.rows]
    return {"ok": True, "nodes": nodes, "next_cursor": page.next_cursor}, 200


@blueprint.post("")
@access(UserApi, verb=Verb.CREATE_NODE)
def create_node() -> Answer:
    """A new node with its token, which is shown this once."""
    data = json_body()

    def may_create() -> None:
        place = network_of_write(data.get("network_id"))
        demand(current_actor(), Verb.CREATE_NODE, Facts(network_pk=place.network_pk))

    body = parse(NewNodeBody, data, before_refusal=may_create)
    place = network_of_write(data.get("network_id"))
    request = idempotency_request("create_node", {"network_id": place.network_id, "alias": body.alias})
    node, token = operations.create_node(
        current_actor(), place.network_pk, body.alias, request=request, now=g.now
    )
    return _with_token(node, token), 201


@blueprint.get("/<node_id>")
@access(UserApi, verb=Verb.READ)
def show_node(node_id: str) -> Answer:
    """One node."""
    view = queries.node_detail(db.session(), current_actor().networks, node_id, now=g.now)
    return {"ok": True, "node": node_json(view)}, 200


@blueprint.patch("/<node_id>")
@access(UserApi, verb=Verb.STEER_NODE)
def update_node(node_id: str) -> Answer:
    """Rename a node, or let it stop and start again."""
    changes = parse(NodeChanges, json_body(), before_refusal=lambda: _may_steer(node_id))
    return _answer(operations.update_node(current_actor(), node_id, changes, now=g.now)), 200


@blueprint.delete("/<node_id>")
@access(UserApi, verb=Verb.STEER_NODE)
def delete_node(node_id: str) -> Answer:
    """Take a node out of service for good."""
    return _answer(operations.delete_node(current_actor(), node_id, now=g.now)), 200


@blueprint.post("/<node_id>/token")
@access(UserApi, verb=Verb.STEER_NODE)
def rotate_token(node_id: str) -> Answer:
    """A new token; the earlier ones end at once."""
    parse(NoBody, json_body(optional=True), before_refusal=lambda: _may_steer(node_id))
    request = idempotency_request("rotate_node_token", {"node_id": node_id})
    node, token = operations.rotate_token(current_actor(), node_id, request=request, now=g.now)
    return _with_token(node, token), 201


def _may_steer(node_id: str) -> None:
    node = queries.find_node(db.session(), current_actor().networks, node_id)
    demand(current_actor(), Verb.STEER_NODE, Facts(network_pk=node.network_pk))


def _answer(node: Node) -> dict[str, Any]:
    return {"ok": True, "node": node_json(queries.node_view(db.session(), node, now=g.now))}


def _with_token(node: Node, token: str | None) -> dict[str, Any]:
    # A repeated request is answered without the secret.
    return _answer(node) if token is None else {**_answer(node), "token": token}
