"""Tokens: shown once, stored as a hash, bound, limited in time, revoked."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import select

from tests.factories import (
    Cast,
    actor_of,
    make_member,
    make_node_token,
    make_token,
    make_user,
)
from tests.identity.reading import audited
from tests.support.races import at_once
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.identity import operations, steps
from webapp.identity.idempotency import Request
from webapp.identity.models import Role, Token
from webapp.identity.queries import (
    NodePrincipal,
    Principal,
    UserPrincipal,
    authenticate_token,
    person_of,
    tokens_of,
)
from webapp.nodes.lifecycle import NodeLifecycle
from webapp.nodes.models import Node
from webapp.store import reading
from webapp.store.paging import PageRequest
from webapp.store.transaction import Tx, operation


def authenticated(text: str, clock: FrozenClock) -> Principal:
    with reading() as session:
        return authenticate_token(session, text, now=clock.now())


def refusal(text: str, clock: FrozenClock) -> str:
    with pytest.raises(AppError) as refused:
        authenticated(text, clock)
    return refused.value.code


def principal(text: str, clock: FrozenClock) -> UserPrincipal:
    found = authenticated(text, clock)
    assert isinstance(found, UserPrincipal)
    return found


def test_a_token_stands_for_its_person_and_is_stored_as_a_hash(cast: Cast, clock: FrozenClock) -> None:
    text = make_token(cast.bob, label="laptop")
    assert text.startswith("utok_")
    assert len(text) >= 5 + 27, "at least 160 bits"
    assert principal(text, clock).user_pk == cast.bob.id
    with reading() as session:
        row = session.scalars(select(Token)).one()
        shown = tokens_of(session, cast.bob.id, PageRequest()).rows
    assert text not in repr(row.__dict__)
    assert row.hint == text[-4:]
    assert [(token.label, token.hint) for token in shown] == [("laptop", text[-4:])]
    assert audited(cast.network) == [("Bob", "token.create", {"label": "laptop", "hint": text[-4:]})]
    assert text not in repr(audited(cast.network))


@pytest.mark.parametrize(
    "text",
    ["", "utok_", "utok_" + "x" * 43, "ntok_" + "x" * 43, "x", "utok_" + "é" * 43, "utok_\0", "u" * 9999],
)
def test_what_is_no_token_of_ours_is_refused(cast: Cast, clock: FrozenClock, text: str) -> None:
    assert refusal(text, clock) == "unauthenticated"


def test_a_token_ends_at_its_expiry_to_the_millisecond(cast: Cast, clock: FrozenClock) -> None:
    text = make_token(cast.bob, expires_days=1)
    clock.advance(days=1, milliseconds=-1)
    authenticated(text, clock)
    clock.advance(milliseconds=1)
    assert refusal(text, clock) == "unauthenticated"


@pytest.mark.parametrize("days", [0, -1, 3651, True, 1.5, "7"])
def test_an_odd_lifetime_is_refused(cast: Cast, clock: FrozenClock, days: object) -> None:
    with pytest.raises(AppError) as refused:
        operations.create_user_token(actor_of(cast.bob), expires_days=days, now=clock.now())  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.field) == ("invalid_expires_days", "expires_days")


def test_a_revoked_token_is_dead_at_once_and_revoking_is_repeatable(cast: Cast, clock: FrozenClock) -> None:
    text = make_token(cast.bob)
    token_id = only_token_id(cast)
    first = operations.revoke_token(actor_of(cast.bob), token_id, now=clock.now())
    assert refusal(text, clock) == "unauthenticated"
    clock.advance(minutes=5)
    again = operations.revoke_token(actor_of(cast.bob), token_id, now=clock.now())
    assert again.revoked_at == first.revoked_at
    assert [verb for _, verb, _ in audited(cast.network)] == ["token.create", "token.revoke"]


def only_token_id(cast: Cast) -> str:
    with reading() as session:
        return tokens_of(session, cast.bob.id, PageRequest()).rows[0].token_id


def test_others_tokens_are_not_there_but_for_an_administrator(cast: Cast, clock: FrozenClock) -> None:
    make_token(cast.bob)
    token_id = only_token_id(cast)
    for other in (cast.alice, cast.charlie):
        with pytest.raises(AppError) as refused:
            operations.revoke_token(actor_of(other), token_id, now=clock.now())
        assert refused.value.code == "token_not_found"
    ada = make_user("Ada", is_admin=True)
    assert operations.revoke_token(actor_of(ada), token_id, now=clock.now()).revoked_at == clock.now()


def test_a_bound_token_reaches_its_network_alone_and_administers_nothing(
    cast: Cast, clock: FrozenClock
) -> None:
    ada = make_user("Ada", is_admin=True)
    make_member(ada, cast.network, Role.OWNER)
    make_member(ada, cast.elsewhere, Role.OWNER)
    bound = principal(make_token(ada, network=cast.network), clock)
    with reading() as session:
        person = person_of(session, user_pk=ada.id, network_pk=bound.network_pk)
    assert person is not None
    assert person.actor.networks == {cast.network.id}
    assert not person.actor.is_admin


def test_a_bound_token_of_somebody_who_left_reaches_nothing(cast: Cast, clock: FrozenClock) -> None:
    bound = principal(make_token(cast.bob, network=cast.network), clock)
    operations.remove_member(None, cast.network.network_id, cast.bob.user_id, now=clock.now())
    with reading() as session:
        person = person_of(session, user_pk=cast.bob.id, network_pk=bound.network_pk)
    assert person is not None
    assert person.actor.networks == frozenset()


def test_a_token_cannot_be_bound_to_a_network_of_others(cast: Cast, clock: FrozenClock) -> None:
    with pytest.raises(AppError) as refused:
        operations.create_user_token(
            actor_of(cast.bob), network_id=cast.elsewhere.network_id, now=clock.now()
        )
    assert refused.value.code == "network_not_found"


def test_a_token_makes_none_that_reaches_further_or_lasts_longer(cast: Cast, clock: FrozenClock) -> None:
    make_member(cast.bob, cast.elsewhere, Role.MEMBER)
    by = principal(make_token(cast.bob, network=cast.network, expires_days=7), clock)
    with reading() as session:
        person = person_of(session, user_pk=cast.bob.id, network_pk=by.network_pk)
    assert person is not None
    now = clock.now()
    child = operations.create_user_token(person.actor, expires_days=300, by=by, now=now)
    assert child.network_id == cast.network.network_id
    assert child.token.expires_at == now + timedelta(days=7)
    with pytest.raises(AppError) as refused:
        operations.create_user_token(person.actor, network_id=cast.elsewhere.network_id, by=by, now=now)
    assert refused.value.code == "network_not_found"


def test_a_bound_token_revokes_only_what_is_bound_to_the_same_network(cast: Cast, clock: FrozenClock) -> None:
    free = principal(make_token(cast.bob), clock)
    bound = principal(make_token(cast.bob, network=cast.network), clock)
    with reading() as session:
        ids = {token.id: token.token_id for token in session.scalars(select(Token))}
    with pytest.raises(AppError) as refused:
        operations.revoke_token(actor_of(cast.bob), ids[free.token_pk], by=bound, now=clock.now())
    assert refused.value.code == "token_not_found"
    operations.revoke_token(actor_of(cast.bob), ids[bound.token_pk], by=bound, now=clock.now())


def test_a_repeated_request_makes_one_token_and_shows_its_text_once(cast: Cast, clock: FrozenClock) -> None:
    bob = actor_of(cast.bob)
    request = Request(bob.user_pk, "token.create", "key-1", {"label": "ci"})
    first = operations.create_user_token(bob, "ci", request=request, now=clock.now())
    again = operations.create_user_token(bob, "ci", request=request, now=clock.now())
    assert first.text is not None
    assert again.text is None
    assert again.token.token_id == first.token.token_id
    other = Request(bob.user_pk, "token.create", "key-1", {"label": "other"})
    with pytest.raises(AppError) as refused:
        operations.create_user_token(bob, "other", request=other, now=clock.now())
    assert refused.value.code == "idempotency_conflict"


def test_the_same_request_many_times_at_once_makes_one_token(
    context: Flask, cast: Cast, clock: FrozenClock
) -> None:
    bob = actor_of(cast.bob)
    request = Request(bob.user_pk, "token.create", "key-1", {"label": "ci"})

    def create() -> operations.IssuedToken:
        return operations.create_user_token(bob, "ci", request=request, now=clock.now())

    results = at_once(context, [create] * 4)
    issued = [result for result in results if isinstance(result, operations.IssuedToken)]
    assert len(issued) == 4, results
    assert len({result.token.token_id for result in issued}) == 1
    assert sum(result.text is not None for result in issued) == 1


def test_last_use_is_written_once_a_minute(cast: Cast, clock: FrozenClock) -> None:
    text = make_token(cast.bob)
    seen = []
    for _ in range(4):
        found = principal(text, clock)
        if operations.use_is_worth_recording(found.last_used_at, clock.now()):
            operations.record_use(found.token_pk, now=clock.now())
        seen.append(principal(text, clock).last_used_at)
        clock.advance(seconds=25)
    assert seen[0] == seen[1] == seen[2] != seen[3]
    assert seen[3] == seen[0] + timedelta(seconds=75)  # type: ignore[operator]


def test_a_nodes_tokens_are_issued_and_ended_together(cast: Cast, clock: FrozenClock) -> None:
    @operation
    def node(tx: Tx) -> Node:
        row = Node(
            node_id="node_atlas22",
            network_pk=cast.network.id,
            alias="atlas",
            lifecycle_state=NodeLifecycle.ACTIVE,
            created_at=clock.now(),
        )
        tx.session.add(row)
        tx.session.flush()
        return row

    @operation
    def revoke(tx: Tx, node_pk: int) -> int:
        return steps.revoke_node_tokens(tx, node_pk, clock.now())

    atlas = node()
    texts = [make_node_token(atlas.id, cast.network.id) for _ in range(2)]
    assert all(text.startswith("ntok_") for text in texts)
    found = authenticated(texts[0], clock)
    assert isinstance(found, NodePrincipal)
    assert (found.node_pk, found.network_pk) == (atlas.id, cast.network.id)
    assert revoke(atlas.id) == 2
    assert [refusal(text, clock) for text in texts] == ["unauthenticated"] * 2
    assert revoke(atlas.id) == 0
