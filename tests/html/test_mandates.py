"""The pages of mandates, with script off."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import select

from tests.html.browsing import House, assert_fragments_occur
from tests.support import hostile
from webapp.errors import sentence_of
from webapp.mandates import operations
from webapp.mandates.bodies import MandateChanges
from webapp.mandates.models import Mandate
from webapp.scheduling.models import Schedule
from webapp.store import reading


def mandate_of(schedule: Schedule) -> Mandate:
    """The live mandate of a schedule; needs the product around it."""
    with reading() as session:
        statement = select(Mandate).where(
            Mandate.workload == f"schedule:{schedule.schedule_id}", Mandate.state != "revoked"
        )
        return session.scalars(statement).one()


def order(house: House, **fields: str) -> tuple[str, str]:
    """A schedule of Bob's; returns the addresses of its mandate and of itself."""
    with house.backstage() as stage:
        schedule = stage.create(stage.bob, **fields)
        return f"/mandates/{mandate_of(schedule).mandate_id}", f"/schedules/{schedule.schedule_id}"


def expire(house: House, own: str, **after: int) -> None:
    """Let it end this long from now."""
    with house.backstage() as stage:
        changes = MandateChanges(expires_at=stage.clock.now() + timedelta(**after))
        operations.change(
            stage.bob, own.rsplit("/", 1)[1], lambda: changes, revision=lambda: 1, now=stage.clock.now()
        )


def test_the_list_says_in_words_what_each_permits(house: House) -> None:
    own, _ = order(house)
    page = house.vera.get("/mandates")
    assert f'href="{own}"' in page
    assert "It may send a task to a node (only atlas), without asking. Anything else is refused." in page
    assert "0, no limit" in page
    assert "never by itself" in page
    assert_fragments_occur(house.vera, "/mandates", ("mandate-list",))
    assert "No mandate is like this." in house.vera.get("/mandates?state=revoked")


def test_its_page_shows_what_hangs_on_it_and_its_trail(house: House) -> None:
    own, schedule = order(house)
    with house.backstage() as stage:
        stage.tick(minutes=48)
    page = house.vera.get(own)
    assert "<h1>Mandate of Nightly sweep</h1>" in page
    assert f'href="{schedule}"' in page
    assert "mandate created" in page
    assert "mandate used" in page
    assert "1, no limit" in page
    assert page.split("Next slots")[1].count("<time") >= 5
    assert "1 run" in page.split("Not taken up yet")[1][:80]
    assert_fragments_occur(house.vera, own, ("mandate-state", "mandate-trail"))


def test_who_may_not_is_offered_nothing(house: House) -> None:
    own, _ = order(house)
    page = house.vera.get(own)
    for act in ("pause", "revoke", "change", "renew"):
        assert f'href="{own}/{act}"' not in page
        house.vera.get(f"{own}/{act}", 403)
    page = house.alice.get(own)
    assert f'href="{own}/revoke"' in page
    assert f'href="{own}/change"' not in page
    house.alice.get(f"{own}/change", 403)
    house.charlie.get(own, 404)


def test_a_pause_says_what_it_will_do_and_stops_the_schedule(house: House) -> None:
    own, schedule = order(house)
    browser = house.bob
    form = browser.get(f"{own}/pause")
    assert "Its schedule is paused at once" in form
    page = browser.press(form, f"{own}/pause", reason="Holiday")
    assert browser.path == own
    assert "Holiday" in page
    assert "mandate_paused" in page
    assert "mandate_paused" in browser.get(schedule)
    page = browser.press(browser.get(f"{own}/resume"), f"{own}/resume")
    assert "It permits again." in page
    assert "paused" in browser.get(schedule)


def test_a_revocation_shows_its_blast_radius_and_needs_a_reason(house: House) -> None:
    own, schedule = order(house)
    browser = house.alice
    form = browser.get(f"{own}/revoke")
    assert form.split("Next slots")[1].count("<time") >= 5
    page = browser.press(form, f"{own}/revoke", reason="")
    assert browser.status == 422
    assert page.count(sentence_of("reason_required")) == 2
    page = browser.press(page, f"{own}/revoke", reason="Left the company")
    assert "Revoked. Nothing acts on it any more." in page
    assert "Left the company" in page
    assert f'href="{own}/pause"' not in page
    assert "needs attention" in browser.get(schedule)
    assert "mandate_revoked" in browser.get(schedule)
    page = browser.press(form, f"{own}/revoke", reason="Again")
    assert browser.status == 200


def test_what_ends_soon_stands_on_top_with_its_renewal(house: House) -> None:
    own, _ = order(house)
    assert "End within 14 days" not in house.bob.get("/mandates")
    expire(house, own, days=10)
    page = house.bob.get("/mandates")
    assert "End within 14 days" in page
    assert f'href="{own}/renew"' in page
    assert "Bob can renew it" in house.alice.get("/mandates")
    browser = house.bob
    page = browser.press(browser.get(f"{own}/renew"), f"{own}/renew")
    assert browser.path == own
    assert "Renewed." in page
    assert "in 90 days" in page or "in 89 days" in page
    assert "End within 14 days" not in browser.get("/mandates")


def test_an_end_in_the_past_is_refused_beside_its_field(house: House) -> None:
    own, _ = order(house)
    browser = house.bob
    page = browser.press(browser.get(f"{own}/renew"), f"{own}/renew", expires_at="2020-01-01T00:00")
    assert browser.status == 422
    assert sentence_of("invalid_expires_at") in page
    page = browser.press(page, f"{own}/renew", expires_at="soon")
    assert browser.status == 422


def test_limits_are_changed_and_a_second_hand_is_noticed(house: House) -> None:
    own, _ = order(house)
    browser = house.bob
    form = browser.get(f"{own}/change")
    page = browser.press(form, f"{own}/change", limit_runs="10")
    assert "at most 10 runs" in page
    assert "0 of 10" in page
    page = browser.press(form, f"{own}/change", limit_runs="20")
    assert browser.status == 409
    assert "mandate_revision_conflict" in page
    page = browser.press(browser.get(f"{own}/change"), f"{own}/change", limit_runs="many")
    assert browser.status == 422


def test_reasons_of_others_are_shown_as_text(house: House) -> None:
    own, _ = order(house)
    browser = house.bob
    browser.press(browser.get(f"{own}/revoke"), f"{own}/revoke", reason=hostile.PLAIN[0])
    for address in (own, "/mandates", "/audit"):
        page = browser.get(address)
        assert hostile.MARK in page
        assert f"{hostile.MARK}<" not in page
