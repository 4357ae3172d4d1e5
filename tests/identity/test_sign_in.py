"""Who gets in, and how slow guessing is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask

from tests.factories import PASSWORD, Cast, actor_of, make_user
from tests.identity.reading import count
from tests.support.races import at_once
from webapp import retention
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.identity import operations, steps
from webapp.identity.models import SignInThrottle
from webapp.identity.sign_in import SignedIn, sign_in
from webapp.store.transaction import Tx, operation

HERE = "192.0.2.7"


pytestmark = pytest.mark.usefixtures("quick_hashes")


def refusal(name: str, password: str, clock: FrozenClock, address: str | None = HERE) -> AppError:
    with pytest.raises(AppError) as refused:
        sign_in(name, password, address, now=clock.now())
    return refused.value


@pytest.mark.parametrize("spelling", ["Alice", "ALICE", " alice ", "Ａｌｉｃｅ"])
def test_a_name_is_found_in_any_spelling(cast: Cast, clock: FrozenClock, spelling: str) -> None:
    assert sign_in(spelling, PASSWORD, HERE, now=clock.now()).user_id == cast.alice.user_id


@pytest.mark.parametrize("name", ["Alice", "Nobody", "", "x" * 5000, "Al\0ice", "\ud800", "Dora"])
def test_a_wrong_pair_says_no_more_than_that(cast: Cast, clock: FrozenClock, name: str) -> None:
    make_user("Dora", active=False)
    password = PASSWORD if name == "Dora" else "not the password at all"
    assert refusal(name, password, clock).code == "wrong_credentials"


def test_a_password_of_surrogates_or_of_enormous_length_is_only_wrong(cast: Cast, clock: FrozenClock) -> None:
    assert refusal("Alice", "\ud800" * 20, clock).code == "wrong_credentials"
    assert refusal("Alice", "x" * 200_000, clock).code == "wrong_credentials"


def test_five_failures_for_a_name_close_it_for_a_growing_while(cast: Cast, clock: FrozenClock) -> None:
    for number in range(5):
        assert refusal("Nobody", "wrong", clock, f"192.0.2.{number}").code == "wrong_credentials"
    waits = []
    for _ in range(6):
        blocked = refusal("nobody", "wrong", clock, "198.51.100.9")
        assert blocked.code == "rate_limited"
        assert blocked.status == 429
        waits.append(blocked.details["retry_after"])
        clock.advance(seconds=waits[-1])
        assert refusal("Nobody", "wrong", clock, "198.51.100.9").code == "wrong_credentials"
    assert waits == [30, 60, 120, 240, 300, 300]


def test_a_right_password_during_the_wait_is_not_looked_at(cast: Cast, clock: FrozenClock) -> None:
    for _ in range(5):
        refusal("Alice", "wrong", clock)
    assert refusal("Alice", PASSWORD, clock).code == "rate_limited"
    clock.advance(seconds=31)
    assert sign_in("Alice", PASSWORD, HERE, now=clock.now()).user_pk == cast.alice.id
    assert refusal("Alice", "wrong", clock).code == "wrong_credentials", "success has forgotten the failures"


def test_an_address_that_tries_many_names_is_slowed_whatever_it_knows(cast: Cast, clock: FrozenClock) -> None:
    for number in range(20):
        assert refusal(f"Person {number}", "wrong", clock).code == "wrong_credentials"
    assert refusal("Person 99", "wrong", clock).code == "rate_limited"
    assert refusal("Person 99", "wrong", clock, "198.51.100.9").code == "wrong_credentials"


def test_one_good_account_buys_no_guesses_at_others(cast: Cast, clock: FrozenClock) -> None:
    for number in range(19):
        with pytest.raises(AppError):
            sign_in(f"Person {number % 4}-{number}", "wrong", HERE, now=clock.now())
    sign_in("Bob", PASSWORD, HERE, now=clock.now())
    assert refusal("Person 50", "wrong", clock).code == "wrong_credentials"
    assert refusal("Person 51", "wrong", clock).code == "rate_limited"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        (None, "not an address"),
    ],
)
def test_addresses_of_one_household_are_counted_together(
    cast: Cast, clock: FrozenClock, first: str | None, second: str
) -> None:
    for number in range(20):
        refusal(f"Person {number}", "wrong", clock, first)
    assert refusal("Person 99", "wrong", clock, second).code == "rate_limited"


def test_many_guesses_at_once_are_no_more_than_five(context: Flask, clock: FrozenClock) -> None:
    def guess(number: int) -> SignedIn:
        return sign_in("Nobody", f"guess {number}", f"192.0.2.{number}", now=clock.now())

    results = at_once(context, [lambda number=number: guess(number) for number in range(10)])
    codes = sorted(getattr(result, "code", repr(result)) for result in results)
    assert codes == ["rate_limited"] * 5 + ["wrong_credentials"] * 5


def test_old_failures_are_forgotten_and_their_rows_swept(cast: Cast, clock: FrozenClock) -> None:
    for _ in range(4):
        refusal("Nobody", "wrong", clock)
    clock.advance(hours=1, seconds=1)
    for _ in range(4):
        assert refusal("Nobody", "wrong", clock).code == "wrong_credentials"
    clock.advance(days=1, seconds=1)

    @operation
    def sweep(tx: Tx) -> int:
        return steps.forget_old_door_rows(tx, clock.now())

    assert sweep() == 2
    assert count(SignInThrottle) == 0


def test_ones_own_password_is_changed_with_the_present_one(cast: Cast, clock: FrozenClock) -> None:
    alice = actor_of(cast.alice)
    now = clock.now()
    with pytest.raises(AppError) as refused:
        operations.set_password(alice, alice.user_id, "another long password", current_password="no", now=now)
    assert (refused.value.code, refused.value.field) == ("wrong_password", "current_password")
    changed = operations.set_password(
        alice, alice.user_id, "another long password", current_password=PASSWORD, now=now
    )
    assert changed.session_epoch == cast.alice.session_epoch + 1
    assert refusal("Alice", PASSWORD, clock).code == "wrong_credentials"
    sign_in("Alice", "another long password", HERE, now=now)


def test_guessing_the_present_password_is_counted_as_well(cast: Cast, clock: FrozenClock) -> None:
    alice = actor_of(cast.alice)
    codes = []
    for _ in range(6):
        with pytest.raises(AppError) as refused:
            operations.set_password(
                alice, alice.user_id, "another long password", current_password="no", now=clock.now()
            )
        codes.append(refused.value.code)
    assert codes == ["wrong_password"] * 5 + ["rate_limited"]


def test_others_passwords_are_for_administrators(cast: Cast, clock: FrozenClock) -> None:
    admin = make_user("Ada", is_admin=True)
    with pytest.raises(AppError) as refused:
        operations.set_password(
            actor_of(cast.alice), cast.bob.user_id, "another long password", now=clock.now()
        )
    assert refused.value.code == "permission_denied"
    operations.set_password(actor_of(admin), cast.bob.user_id, "another long password", now=clock.now())
    sign_in("Bob", "another long password", HERE, now=clock.now() + timedelta(seconds=1))


def test_pruning_sweeps_what_the_door_no_longer_needs(cast: Cast, clock: FrozenClock) -> None:
    refusal("Nobody", "wrong", clock)
    operations.end_session("a session", clock.now() + timedelta(days=15))
    clock.advance(days=2)
    assert retention.prune(now=clock.now())["door_rows"] == 2
    assert retention.prune(now=clock.now())["door_rows"] == 0
    clock.advance(days=14)
    assert retention.prune(now=clock.now())["door_rows"] == 1
