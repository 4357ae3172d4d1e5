"""What the overview says of authority: what waits for an answer, what is proposed, what ends soon, what broke."""

from __future__ import annotations

import pytest

from tests.html.browsing import House
from tests.html.test_approvals import ask
from tests.html.test_chat_schedules import made, write_schedule
from tests.html.test_chats import begin
from tests.html.test_mandates import expire, order
from webapp.errors import sentence_of
from webapp.html.ways import way_out
from webapp.scheduling import making
from webapp.scheduling.lifecycle import TargetKind
from webapp.store.transaction import Tx, operation

FAULTS = (
    "mandate_missing",
    "mandate_unconfirmed",
    "mandate_paused",
    "mandate_exhausted",
    "mandate_expired",
    "mandate_revoked",
    "mandate_changed",
    "mandate_denies",
    "sponsor_inactive",
    "sponsor_not_permitted",
    "chat_archived",
    "chat_not_owned",
    "model_unavailable",
)


def propose(house: House) -> str:
    """What an agent proposes to Bob; returns the address of the schedule."""

    @operation
    def act(tx: Tx) -> str:
        schedule = making.propose(
            tx,
            network_pk=house.stage.cast.network.id,
            sponsor_pk=house.stage.cast.bob.id,
            target_kind=TargetKind.NODE,
            target_id=house.stage.node.node_id,
            name="Count the words",
            text="Count the words of the day.",
            schedule={"type": "daily", "time": "09:00"},
            actor="schedule Papers, for Bob",
            now=house.stage.clock.now(),
        )
        return f"/schedules/{schedule.schedule_id}"

    with house.backstage():
        return act()


@pytest.mark.parametrize("code", FAULTS)
def test_each_fault_of_authority_has_a_sentence_and_a_way_out(code: str) -> None:
    assert sentence_of(code)
    assert way_out(code)


def test_approvals_that_wait_are_one_card_with_the_nearest_deadline(house: House) -> None:
    own = ask(house)
    page = house.bob.get("/")
    assert "1 approval</a> stopped in the middle of a turn" in page
    assert "The nearest deadline is in 4 h." in page
    assert "approval</a>" not in house.alice.get("/")
    house.bob.press(house.bob.get("/approvals"), f"{own}/deny")
    assert "Waits for your answer" not in house.bob.get("/")


def test_a_proposal_is_confirmed_from_its_card(house: House) -> None:
    own = propose(house)
    browser = house.bob
    page = browser.get("/")
    assert "waits for your confirmation" in page
    assert f'href="{own}/confirm"' in page
    assert "waits for your confirmation" not in house.alice.get("/")
    shown = browser.get(own)
    assert "An agent proposed this" in shown
    form = browser.get(f"{own}/confirm")
    assert "Count the words of the day." in form
    page = browser.press(form, f"{own}/confirm")
    assert "Confirmed. It acts on your authority. Next:" in page
    page = browser.press(form, f"{own}/confirm")
    assert browser.status == 409
    assert "not_proposed" in page


def test_a_proposal_is_rejected_by_its_sponsor_or_an_admin_alone(house: House) -> None:
    own = propose(house)
    house.vera.get(f"{own}/reject", 403)
    house.alice.get(f"{own}/confirm", 403)
    assert f'href="{own}/reject"' in house.alice.get(own)
    browser = house.bob
    page = browser.press(browser.get(f"{own}/reject"), f"{own}/reject")
    assert "Rejected." in page
    assert "proposal_rejected" in page


def test_what_ends_within_14_days_is_renewed_from_its_card(house: House) -> None:
    own, _ = order(house)
    expire(house, own, days=13)
    page = house.bob.get("/")
    assert "Mandate ends soon" in page
    assert f'href="{own}/renew"' in page
    assert "Mandate ends soon" not in house.alice.get("/")


def test_a_broken_authority_stops_the_schedule_and_its_card_says_what_to_do(house: House) -> None:
    own, schedule = order(house)
    expire(house, own, hours=1)
    with house.backstage() as stage:
        stage.clock.advance(hours=1)
        stage.tick(minutes=48)
    page = house.bob.get("/")
    assert "Needs attention" in page
    assert sentence_of("mandate_expired") in page
    assert way_out("mandate_expired") in page  # type: ignore[operator]
    assert f'href="{own}/renew"' in page
    assert f'href="{schedule}/resume"' in page
    assert f'href="{schedule}/resume"' in house.alice.get("/")


def test_the_card_of_a_foreign_chat_keeps_its_words(house: House) -> None:
    chat = begin(house, house.stage.cast.bob, "Secret plans")
    browser = house.bob
    write_schedule(browser, chat, name="Papers")
    schedule = made(house, browser)
    browser.press(browser.get(chat), f"{chat}/archive")
    page = house.alice.get("/")
    assert sentence_of("chat_archived") in page
    assert "Secret" not in page
    assert "swordfish" not in page
    assert f'href="/schedules/{schedule.schedule_id}/resume"' not in page
    assert f'href="{chat}"' in house.bob.get("/")
