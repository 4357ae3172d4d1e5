"""People of a network: who may add, change and remove whom, and that an owner remains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from flask import Flask

from tests.factories import Cast, actor_of, make_member, make_network, make_user
from tests.identity.reading import audited, count, events, owners, roles
from tests.support.races import at_once
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.identity import operations
from webapp.identity.access import Actor
from webapp.identity.idempotency import Request
from webapp.identity.models import Network, Role, User
from webapp.identity.queries import person_of, user_by_name
from webapp.store import reading

pytestmark = pytest.mark.usefixtures("quick_hashes")
PASSWORD = "a long enough password"
Told = list[tuple[int, int | None]]


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(AppError) as refused:
        call()
    return refused.value.code


def test_an_owner_adds_somebody_and_everybody_concerned_is_told(
    cast: Cast, clock: FrozenClock, told: Told
) -> None:
    dora = make_user("Dora")
    alice = actor_of(cast.alice)
    place = operations.add_member(alice, cast.network.network_id, dora.user_id, Role.VIEWER, now=clock.now())
    assert place.role is Role.VIEWER
    assert roles(cast.network)["Dora"] == "viewer"
    assert audited(cast.network) == [("Alice", "member.add", {"name": "Dora", "role": "viewer"})]
    assert events(cast.network) == ["member"]
    assert told == [(dora.id, cast.network.id)]


def test_adding_twice_is_harmless_and_adding_as_something_else_is_not(cast: Cast, clock: FrozenClock) -> None:
    alice, network_id = actor_of(cast.alice), cast.network.network_id
    operations.add_member(alice, network_id, cast.bob.user_id, Role.MEMBER, now=clock.now())
    assert audited(cast.network) == []
    again = code_of(
        lambda: operations.add_member(alice, network_id, cast.bob.user_id, Role.ADMIN, now=clock.now())
    )
    assert again == "already_member"
    assert roles(cast.network)["Bob"] == "member"


def test_a_role_is_changed_once_however_often_it_is_asked(cast: Cast, clock: FrozenClock, told: Told) -> None:
    alice, network_id = actor_of(cast.alice), cast.network.network_id
    for _ in range(2):
        operations.change_role(alice, network_id, cast.bob.user_id, Role.ADMIN, now=clock.now())
    assert roles(cast.network)["Bob"] == "admin"
    assert audited(cast.network) == [
        ("Alice", "member.change_role", {"name": "Bob", "from": "member", "to": "admin"})
    ]
    assert told == [(cast.bob.id, cast.network.id)]


def test_somebody_removed_sees_the_network_no_more(cast: Cast, clock: FrozenClock, told: Told) -> None:
    operations.remove_member(actor_of(cast.alice), cast.network.network_id, cast.bob.user_id, now=clock.now())
    assert actor_of(cast.bob).networks == frozenset()
    assert told == [(cast.bob.id, cast.network.id)]
    again = code_of(
        lambda: operations.remove_member(
            actor_of(cast.alice), cast.network.network_id, cast.bob.user_id, now=clock.now()
        )
    )
    assert again == "user_not_found"


def test_everybody_may_leave(cast: Cast, clock: FrozenClock) -> None:
    operations.remove_member(actor_of(cast.vera), cast.network.network_id, cast.vera.user_id, now=clock.now())
    assert "Vera" not in roles(cast.network)


@pytest.mark.parametrize("who", ["bob", "vera"])
def test_members_and_viewers_change_nobody(cast: Cast, clock: FrozenClock, who: str) -> None:
    actor, network_id, now = actor_of(getattr(cast, who)), cast.network.network_id, clock.now()
    other = cast.vera if who == "bob" else cast.bob
    calls: list[Callable[[], object]] = [
        lambda: operations.add_member(actor, network_id, cast.charlie.user_id, Role.VIEWER, now=now),
        lambda: operations.change_role(actor, network_id, other.user_id, Role.ADMIN, now=now),
        lambda: operations.remove_member(actor, network_id, other.user_id, now=now),
    ]
    assert [code_of(call) for call in calls] == ["permission_denied"] * 3
    assert audited(cast.network) == []


def test_to_an_outsider_the_network_is_not_there(cast: Cast, clock: FrozenClock) -> None:
    actor, network_id, now = actor_of(cast.charlie), cast.network.network_id, clock.now()
    calls: list[Callable[[], object]] = [
        lambda: operations.add_member(actor, network_id, cast.charlie.user_id, Role.OWNER, now=now),
        lambda: operations.change_role(actor, network_id, cast.bob.user_id, Role.VIEWER, now=now),
        lambda: operations.remove_member(actor, network_id, cast.bob.user_id, now=now),
    ]
    assert [code_of(call) for call in calls] == ["network_not_found"] * 3


def test_admins_manage_people_but_no_owners(cast: Cast, clock: FrozenClock) -> None:
    network_id, now = cast.network.network_id, clock.now()
    make_member(make_user("Ann"), cast.network, Role.ADMIN)
    ann = actor_of(user_named("Ann"))
    operations.change_role(ann, network_id, cast.vera.user_id, Role.MEMBER, now=now)
    calls: list[Callable[[], object]] = [
        lambda: operations.change_role(ann, network_id, cast.bob.user_id, Role.OWNER, now=now),
        lambda: operations.change_role(ann, network_id, cast.alice.user_id, Role.VIEWER, now=now),
        lambda: operations.remove_member(ann, network_id, cast.alice.user_id, now=now),
        lambda: operations.add_member(ann, network_id, cast.charlie.user_id, Role.OWNER, now=now),
    ]
    assert [code_of(call) for call in calls] == ["permission_denied"] * 4


def test_what_counts_is_the_role_now_not_the_one_at_the_start_of_the_request(
    cast: Cast, clock: FrozenClock
) -> None:
    stale = replace(actor_of(cast.bob), roles={cast.network.id: Role.OWNER})
    refused = code_of(
        lambda: operations.remove_member(stale, cast.network.network_id, cast.vera.user_id, now=clock.now())
    )
    assert refused == "permission_denied"


def test_the_last_owner_can_neither_leave_nor_step_down(cast: Cast, clock: FrozenClock) -> None:
    alice, network_id, now = actor_of(cast.alice), cast.network.network_id, clock.now()
    ghost = make_user("Ghost", active=False)
    make_member(ghost, cast.network, Role.OWNER)
    calls: list[Callable[[], object]] = [
        lambda: operations.remove_member(alice, network_id, alice.user_id, now=now),
        lambda: operations.change_role(alice, network_id, alice.user_id, Role.ADMIN, now=now),
    ]
    assert [code_of(call) for call in calls] == ["last_owner"] * 2
    operations.change_role(alice, network_id, cast.bob.user_id, Role.OWNER, now=now)
    operations.remove_member(alice, network_id, alice.user_id, now=now)
    assert roles(cast.network)["Bob"] == "owner"


@pytest.mark.parametrize("_again", range(3))
def test_two_owners_who_remove_each_other_at_once_leave_one(
    context: Flask, clock: FrozenClock, _again: int
) -> None:
    network = make_network()
    pair = [make_user(), make_user()]
    for user in pair:
        make_member(user, network, Role.OWNER)

    def remove(actor: Actor, victim: User) -> None:
        operations.remove_member(actor, network.network_id, victim.user_id, now=clock.now())

    actors = [actor_of(user) for user in pair]
    results = at_once(context, [lambda: remove(actors[0], pair[1]), lambda: remove(actors[1], pair[0])])
    assert owners(network) == 1
    assert sum(result is None for result in results) == 1


def test_two_owners_who_step_down_at_once_leave_one(context: Flask, clock: FrozenClock) -> None:
    network = make_network()
    pair = [make_user(), make_user()]
    for user in pair:
        make_member(user, network, Role.OWNER)

    def step_down(user: User) -> object:
        return operations.change_role(
            actor_of(user), network.network_id, user.user_id, Role.MEMBER, now=clock.now()
        )

    results = at_once(context, [lambda user=user: step_down(user) for user in pair])
    assert owners(network) == 1
    assert [result.code for result in results if isinstance(result, AppError)] == ["last_owner"]


def user_named(name: str) -> User:
    with reading() as session:
        user = user_by_name(session, name)
    assert user is not None
    return user


# ---------------------------------------------------------------- the system


def test_deactivating_ends_sessions_and_is_told_to_every_network(
    cast: Cast, clock: FrozenClock, told: Told
) -> None:
    ada = make_user("Ada", is_admin=True)
    make_member(cast.bob, cast.elsewhere, Role.VIEWER)
    for _ in range(2):
        user = operations.deactivate_user(actor_of(ada), cast.bob.user_id, now=clock.now())
    assert not user.active
    assert user.session_epoch == cast.bob.session_epoch + 1
    assert told == [(cast.bob.id, None)]
    for network in (cast.network, cast.elsewhere):
        assert audited(network) == [("Ada", "user.deactivate", {"name": "Bob"})]
        assert events(network) == ["member"]
    with reading() as session:
        assert person_of(session, user_pk=cast.bob.id) is None
    operations.reactivate_user(actor_of(ada), cast.bob.user_id, now=clock.now())
    assert actor_of(cast.bob).networks == {cast.network.id, cast.elsewhere.id}
    assert told == [(cast.bob.id, None)] * 2


def test_only_administrators_deactivate_and_create(cast: Cast, clock: FrozenClock) -> None:
    alice, now = actor_of(cast.alice), clock.now()
    new = operations.NewUser("Dora", PASSWORD)
    calls: list[Callable[[], object]] = [
        lambda: operations.deactivate_user(alice, cast.bob.user_id, now=now),
        lambda: operations.reactivate_user(alice, cast.bob.user_id, now=now),
        lambda: operations.create_user(alice, new, now=now),
        lambda: operations.create_network(alice, "More", "more", now=now),
    ]
    assert [code_of(call) for call in calls] == ["permission_denied"] * 4


def test_the_last_administrator_stays(cast: Cast, clock: FrozenClock) -> None:
    ada, ben = make_user("Ada", is_admin=True), make_user("Ben", is_admin=True)
    operations.deactivate_user(actor_of(ada), ben.user_id, now=clock.now())
    last = code_of(lambda: operations.deactivate_user(actor_of(ada), ada.user_id, now=clock.now()))
    assert last == "last_admin"


def test_two_administrators_who_deactivate_each_other_at_once_leave_one(
    context: Flask, clock: FrozenClock
) -> None:
    pair = [make_user("Ada", is_admin=True), make_user("Ben", is_admin=True)]
    actors = [actor_of(user) for user in pair]
    at_once(
        context,
        [
            lambda: operations.deactivate_user(actors[0], pair[1].user_id, now=clock.now()),
            lambda: operations.deactivate_user(actors[1], pair[0].user_id, now=clock.now()),
        ],
    )
    assert [user_named(name).active for name in ("Ada", "Ben")].count(True) == 1


def test_an_administrator_creates_a_person_with_a_place(cast: Cast, clock: FrozenClock) -> None:
    ada = make_user("Ada", is_admin=True)
    make_member(ada, cast.network, Role.ADMIN)
    new = operations.NewUser(" Dora ", PASSWORD)
    request = Request(ada.id, "user.create", "key-1", {"name": "Dora"})
    made = [
        operations.create_user(
            actor_of(ada),
            new,
            network_id=cast.network.network_id,
            role=Role.MEMBER,
            request=request,
            now=clock.now(),
        )
        for _ in range(2)
    ]
    assert made[0].user_id == made[1].user_id
    assert made[0].name == "Dora"
    assert roles(cast.network)["Dora"] == "member"
    assert code_of(
        lambda: operations.create_user(actor_of(ada), replace(new, name="DORA"), now=clock.now())
    ) == ("user_name_taken")
    elsewhere = code_of(
        lambda: operations.create_user(
            actor_of(ada),
            replace(new, name="Dirk"),
            network_id=cast.elsewhere.network_id,
            now=clock.now(),
        )
    )
    assert elsewhere == "network_not_found"


def test_of_many_who_take_a_name_at_once_one_gets_it(context: Flask, clock: FrozenClock) -> None:
    def create() -> object:
        return operations.create_user_at_command_line(
            operations.NewUser("Dora", PASSWORD), network_slug="harbour", role=None, now=clock.now()
        )

    results = at_once(context, [create] * 4)
    codes = [result.code for result in results if isinstance(result, AppError)]
    assert len(codes) == 3
    assert set(codes) <= {"user_name_taken", "slug_taken"}
    assert count(User) == count(Network) == 1


def test_an_administrator_creates_a_network_and_owns_it(cast: Cast, clock: FrozenClock) -> None:
    ada = make_user("Ada", is_admin=True)
    network = operations.create_network(actor_of(ada), "Yard", "yard", now=clock.now())
    assert roles(network) == {"Ada": "owner"}
    taken = code_of(lambda: operations.create_network(actor_of(ada), "Yard", "yard", now=clock.now()))
    assert taken == "slug_taken"


@pytest.mark.parametrize(
    ("slug", "role", "given"),
    [
        ("fresh", None, "owner"),
        ("fresh", Role.VIEWER, "viewer"),
        ("harbour", None, "member"),
        ("harbour", Role.OWNER, "owner"),
    ],
)
def test_the_command_line_gives_the_role_that_fits(
    cast: Cast, clock: FrozenClock, slug: str, role: Role | None, given: str
) -> None:
    new = operations.NewUser("Dora", PASSWORD)
    _, network, _ = operations.create_user_at_command_line(new, network_slug=slug, role=role, now=clock.now())
    assert network is not None
    assert roles(network)["Dora"] == given
    assert audited(network)[-1][0] == "command line"
