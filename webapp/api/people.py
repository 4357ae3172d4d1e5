"""People, networks, members and tokens as JSON."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from flask import Blueprint, Response, current_app, g, jsonify

from webapp.api.body import parse
from webapp.errors import AppError
from webapp.identity import operations, queries
from webapp.identity.access import Facts, Verb, demand
from webapp.identity.bodies import (
    MemberChanges,
    NewMemberBody,
    NewNetworkBody,
    NewTokenBody,
    NewUserBody,
    UserChanges,
)
from webapp.identity.models import Role, User
from webapp.identity.queries import Place
from webapp.store import db
from webapp.web import present_people as present
from webapp.web.auth import current_actor, current_person, current_token
from webapp.web.policy import UserApi, access
from webapp.web.requests import idempotency_request, json_body, page_request

blueprint = Blueprint("people_api", __name__, url_prefix="/api")

Answer = Response | tuple[Response, int]


@blueprint.get("/me")
@access(UserApi)
def me() -> Answer:
    """Who calls, and the networks this call may reach."""
    return jsonify(ok=True, user=present.person(current_person()))


# ---------------------------------------------------------------- networks


@blueprint.get("/networks")
@access(UserApi)
def networks() -> Answer:
    """The caller's networks by name; all of them, as there are few."""
    places = current_person().places
    return jsonify(ok=True, networks=[present.place(place) for place in places], next_cursor=None)


@blueprint.post("/networks")
@access(UserApi, verb=Verb.CREATE_NETWORK)
def create_network() -> Answer:
    """Make a network and own it."""
    body = parse(NewNetworkBody, json_body(), before_refusal=_demanding(Verb.CREATE_NETWORK))
    request = idempotency_request("network.create", body.model_dump())
    network = operations.create_network(current_actor(), body.name, body.slug, request=request, now=g.now)
    return jsonify(ok=True, network=present.network(network, Role.OWNER)), 201


@blueprint.get("/networks/<network_id>/members")
@access(UserApi, verb=Verb.READ)
def members(network_id: str) -> Answer:
    """The people of a network."""
    page = queries.member_page(db.session(), _place(network_id).network_pk, page_request())
    rows = [present.member(member) for member in page.rows]
    return jsonify(ok=True, members=rows, next_cursor=page.next_cursor)


@blueprint.post("/networks/<network_id>/members")
@access(UserApi, verb=Verb.MANAGE_MEMBERS)
def add_member(network_id: str) -> Answer:
    """Give an existing person a place, by id or by name."""
    raw = json_body()
    place = _demanded_place(network_id)
    body = parse(NewMemberBody, raw)
    if body.user_id is not None and body.name is not None:
        raise AppError(
            "invalid_user_name", field="name", message="Name the person once: by user_id or by name."
        )
    user_id = body.user_id if body.user_id is not None else _user_id_of(body.name or "")
    operations.add_member(current_actor(), place.network_id, user_id, Role(body.role), now=g.now)
    return jsonify(ok=True, member=_member(place, user_id)), 201


@blueprint.patch("/networks/<network_id>/members/<user_id>")
@access(UserApi, verb=Verb.MANAGE_MEMBERS)
def change_member(network_id: str, user_id: str) -> Answer:
    """Make a member something else."""
    raw = json_body()
    _demanded_place(network_id)
    body = parse(MemberChanges, raw)
    operations.change_role(current_actor(), network_id, user_id, Role(body.role), now=g.now)
    return jsonify(ok=True, member=_member(_place(network_id), user_id))


@blueprint.delete("/networks/<network_id>/members/<user_id>")
@access(UserApi, verb=Verb.MANAGE_MEMBERS)
def remove_member(network_id: str, user_id: str) -> Answer:
    """End somebody's place in a network, or one's own."""
    operations.remove_member(current_actor(), network_id, user_id, now=g.now)
    return jsonify(ok=True)


# ---------------------------------------------------------------- users


@blueprint.get("/users")
@access(UserApi)
def users() -> Answer:
    """Everybody for a system administrator, else those who share a network with the caller."""
    page = queries.people_page(db.session(), current_actor(), page_request())
    return jsonify(ok=True, users=[present.user(user) for user in page.rows], next_cursor=page.next_cursor)


@blueprint.post("/users")
@access(UserApi, verb=Verb.MANAGE_USERS)
def create_user() -> Answer:
    """Create a person, with a place in a network if one is named."""
    body = parse(NewUserBody, json_body(), before_refusal=_demanding(Verb.MANAGE_USERS))
    if body.network_id is not None:
        _place(body.network_id)
    # What is kept of a request must not let anybody guess at the password.
    masked = {**body.model_dump(), "password": _masked(body.password)}
    request = idempotency_request("user.create", masked)
    new = operations.NewUser(body.name, body.password, body.admin)
    user = operations.create_user(
        current_actor(),
        new,
        network_id=body.network_id,
        role=Role(body.role),
        request=request,
        now=g.now,
    )
    return jsonify(ok=True, user=present.user(user)), 201


@blueprint.patch("/users/<user_id>")
@access(UserApi, verb=Verb.MANAGE_USERS)
def change_user(user_id: str) -> Answer:
    """Shut a person out, or let them in again."""
    body = parse(UserChanges, json_body(), before_refusal=lambda: _demand_user(user_id))
    change = operations.reactivate_user if body.active else operations.deactivate_user
    return jsonify(ok=True, user=present.user(change(current_actor(), user_id, now=g.now)))


# ---------------------------------------------------------------- tokens


@blueprint.get("/tokens")
@access(UserApi)
def tokens() -> Answer:
    """The caller's own tokens, those that are over too; none shows its secret."""
    actor, by = current_actor(), current_token()
    page = queries.tokens_of(
        db.session(), actor.user_pk, page_request(), network_pk=None if by is None else by.network_pk
    )
    return jsonify(ok=True, tokens=[present.token(row) for row in page.rows], next_cursor=page.next_cursor)


@blueprint.post("/tokens")
@access(UserApi, verb=Verb.MANAGE_OWN_TOKENS)
def create_token() -> Answer:
    """Make a token for oneself; `secret` is in this answer alone, and not in a replay of it."""
    body = parse(NewTokenBody, json_body(optional=True))
    issued = operations.create_user_token(
        current_actor(),
        body.label,
        network_id=body.network_id,
        expires_days=body.expires_days,
        by=current_token(),
        request=idempotency_request("token.create", body.model_dump()),
        now=g.now,
    )
    answer = {"token": present.token(queries.token_row(issued.token, issued.network_id))}
    secret = {} if issued.text is None else {"secret": issued.text}
    return jsonify(ok=True, **answer, **secret), 201


@blueprint.delete("/tokens/<token_id>")
@access(UserApi, verb=Verb.MANAGE_OWN_TOKENS)
def revoke_token(token_id: str) -> Answer:
    """End a token at once. Repeatable."""
    token = operations.revoke_token(current_actor(), token_id, by=current_token(), now=g.now)
    return jsonify(
        ok=True, token={"token_id": token.token_id, "revoked_at": present.instant(token.revoked_at)}
    )


def _place(network_id: str) -> Place:
    for place in current_person().places:
        if place.network_id == network_id:
            return place
    raise AppError("network_not_found")


def _demanded_place(network_id: str) -> Place:
    """The network if the caller may manage its members; asked before anybody is looked up by name."""
    place = _place(network_id)
    demand(current_actor(), Verb.MANAGE_MEMBERS, Facts(network_pk=place.network_pk))
    return place


def _demanding(verb: Verb) -> Callable[[], None]:
    """The check that comes before a wrong field is spoken of."""
    return lambda: demand(current_actor(), verb, Facts())


def _demand_user(user_id: str) -> None:
    demand(current_actor(), Verb.MANAGE_USERS, Facts())
    if queries.user_by_id(db.session(), user_id) is None:
        raise AppError("user_not_found")


def _masked(password: str) -> str:
    key = str(current_app.secret_key).encode()
    return hmac.new(key, password.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _user_id_of(name: str) -> str:
    user: User | None = queries.user_by_name(db.session(), name)
    if user is None:
        raise AppError("user_not_found", field="name")
    return user.user_id


def _member(place: Place, user_id: str) -> dict[str, object]:
    found = queries.member(db.session(), place.network_pk, user_id)
    if found is None:
        raise AppError("user_not_found")
    return present.member(found)
