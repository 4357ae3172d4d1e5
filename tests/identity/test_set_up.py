"""The first start: one link, one owner, no default password."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import select

from tests.factories import make_user
from tests.identity.reading import audited, count, roles
from tests.support.races import at_once
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.identity import operations
from webapp.identity.models import Network, SetUpLink, User
from webapp.identity.sign_in import sign_in
from webapp.store import reading

pytestmark = pytest.mark.usefixtures("quick_hashes")

PASSWORD = "a long enough password"


def first_owner(link: str, clock: FrozenClock, **changes: str) -> User:
    wish = {"name": "Alice", "password": PASSWORD, "network_name": "Harbour", "network_slug": "harbour"}
    wish |= changes
    return operations.create_first_owner(
        link, wish["name"], wish["password"], wish["network_name"], wish["network_slug"], now=clock.now()
    )


def issue(clock: FrozenClock) -> str:
    link = operations.issue_set_up_link(now=clock.now())
    assert link is not None
    return link


def test_the_link_makes_an_administrator_who_owns_a_network_and_can_sign_in(
    context: Flask, clock: FrozenClock
) -> None:
    user = first_owner(issue(clock), clock)
    assert user.is_admin
    network = operations.create_user_at_command_line(
        operations.NewUser("Bob", PASSWORD), network_slug="harbour", role=None, now=clock.now()
    )[1]
    assert network is not None
    assert network.name == "Harbour"
    assert roles(network) == {"Alice": "owner", "Bob": "member"}
    assert audited(network)[0] == ("Alice", "member.add", {"name": "Alice", "role": "owner"})
    assert sign_in("alice", PASSWORD, "192.0.2.1", now=clock.now()).user_pk == user.id


def test_a_link_works_once(context: Flask, clock: FrozenClock) -> None:
    link = issue(clock)
    first_owner(link, clock)
    with pytest.raises(AppError) as refused:
        first_owner(link, clock, name="Mallory", network_slug="other")
    assert refused.value.code == "set_up_link_invalid"
    assert count(User) == count(Network) == 1


def test_a_new_start_replaces_an_unused_link(context: Flask, clock: FrozenClock) -> None:
    old, new = issue(clock), issue(clock)
    with pytest.raises(AppError) as refused:
        first_owner(old, clock)
    assert refused.value.code == "set_up_link_invalid"
    first_owner(new, clock)


def test_no_link_is_issued_and_none_works_once_somebody_exists(context: Flask, clock: FrozenClock) -> None:
    link = issue(clock)
    make_user("Bob")
    assert operations.issue_set_up_link(now=clock.now()) is None
    with pytest.raises(AppError) as refused:
        first_owner(link, clock)
    assert refused.value.code == "set_up_link_invalid"


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("name", " ", "invalid_user_name"),
        ("name", "A" * 81, "invalid_user_name"),
        ("name", "Ali\u202ece", "invalid_user_name"),
        ("password", "elevenchars", "invalid_password"),
        ("password", "x" * 201, "invalid_password"),
        ("network_name", "", "invalid_network_name"),
        ("network_slug", "-harbour", "invalid_slug"),
        ("network_slug", "Harbour", "invalid_slug"),
        ("network_slug", "h", "invalid_slug"),
    ],
)
def test_a_wrong_field_is_named_and_leaves_the_link_good(
    context: Flask, clock: FrozenClock, field: str, value: str, code: str
) -> None:
    link = issue(clock)
    with pytest.raises(AppError) as refused:
        first_owner(link, clock, **{field: value})
    assert (refused.value.code, refused.value.field) == (code, field)
    first_owner(link, clock)


def test_of_many_with_the_same_link_one_becomes_the_owner(context: Flask, clock: FrozenClock) -> None:
    link = issue(clock)

    def become(number: int) -> User:
        return first_owner(link, clock, name=f"Person {number}", network_slug=f"network-{number}")

    results = at_once(context, [lambda number=number: become(number) for number in range(4)])
    assert sum(isinstance(result, User) for result in results) == 1
    refusals = [result for result in results if not isinstance(result, User)]
    assert [getattr(error, "code", error) for error in refusals] == ["set_up_link_invalid"] * 3
    assert count(User) == count(Network) == 1


def test_the_link_itself_is_not_stored(context: Flask, clock: FrozenClock) -> None:
    link = issue(clock)
    with reading() as session:
        row = session.scalars(select(SetUpLink)).one()
    assert link not in row.token_hash
    assert len(link) >= 32
