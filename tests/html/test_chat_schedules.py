"""Schedules that speak into chats: their form, their page and their runs, with script off."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import select

from tests.factories import CSRF
from tests.html.browsing import Browser, House
from tests.html.test_chats import begin, work
from webapp.errors import sentence_of
from webapp.ids import turn_id_of_run
from webapp.scheduling.models import Run, Schedule
from webapp.store import reading

WORDS = "Read the swordfish papers and tell me what matters."


def write_schedule(browser: Browser, chat: str, **typed: Any) -> str:
    """Fill the form from the chat's own link and send it; returns the page that follows."""
    form = browser.get(f"/schedules/new?chat={chat.rsplit('/', 1)[1]}")
    return browser.press(form, "/schedules/new", **({"task": WORDS} | typed))


def made(house: House, browser: Browser) -> Schedule:
    """The schedule whose page the browser shows."""
    schedule_id = browser.path.rsplit("/", 1)[1]
    with house.backstage(), reading() as session:
        return session.scalars(select(Schedule).where(Schedule.schedule_id == schedule_id)).one()


def test_a_prompt_is_ordered_with_the_authority_to_ask_each_time(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    browser = house.bob
    form = browser.get(f"/schedules/new?chat={chat.rsplit('/', 1)[1]}")
    assert 'value="chat" checked' in form
    assert "Morning news" in form
    page = browser.press(form, "/schedules/new", task=WORDS)
    assert browser.path.startswith("/schedules/sched_"), page
    assert "It speaks in Morning news, for Bob." in page
    assert "It may talk by itself; it asks each time it wants to act." in page
    assert "in 90 days" in page or "in 89 days" in page
    assert "<h1>Read the swordfish papers" in page
    assert WORDS in page
    assert made(house, browser).failure_threshold == 1
    assert "swordfish" in browser.get(chat).split("Schedules that speak here")[-1]


def test_exactly_these_are_permitted_and_only_at_the_ticked_node(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    browser = house.bob
    node_id = house.stage.node.node_id
    operations = ["nodes.list", "nodes.send_task"]
    page = write_schedule(
        browser, chat, authority="exactly", operations=operations, nodes=[node_id], limit_tokens="5000"
    )
    assert "It may list the nodes and send a task to a node (only atlas), without asking." in page
    assert "at most 5\u202f000 tokens" in page


def test_only_talk_permits_nothing_else(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    page = write_schedule(house.bob, chat, authority="talk", mandate_expires_at="")
    assert "It may only talk: it can do nothing else." in page
    assert "it is cancelled, revoked, or Bob may no longer act here" in page


def test_what_is_wrong_stands_beside_its_field_and_what_was_typed_is_kept(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    browser = house.bob
    page = write_schedule(browser, chat, authority="exactly", mandate_expires_at="2020-01-01T10:00")
    assert browser.status == 422
    assert 'id="authority-error"' in page
    assert WORDS in page
    page = write_schedule(browser, chat, mandate_expires_at="2020-01-01T10:00", chat_failure_threshold="x")
    assert browser.status == 422
    assert 'id="chat_failure_threshold-error"' in page
    page = write_schedule(browser, chat, overlap_policy="allow")
    assert browser.status == 422
    assert 'id="overlap_policy-error"' in page
    page = write_schedule(browser, chat, target_chat_id="chat_nothing")
    assert sentence_of("chat_not_found") in page


def test_its_owner_edits_it_and_nobody_else_reads_it(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    browser = house.bob
    write_schedule(browser, chat, name="Papers")
    own = browser.path
    page = browser.press(browser.get(f"{own}/edit"), f"{own}/edit", task="Read the herald.")
    assert browser.path == own
    assert "Saved as revision 2." in page
    assert "Read the herald." in page
    alice = house.alice
    seen = alice.get(own)
    assert "Papers" not in seen
    assert re.search(r"<h1>Prompt [2-9a-z]{6}</h1>", seen)
    assert "herald" not in seen
    assert "Morning news" not in seen
    assert "Its words are Bob’s alone." in seen
    assert "Morning news" not in alice.get("/schedules")
    alice.get(f"{own}/edit", 403)
    alice.get(f"/schedules/new?from={own.rsplit('/', 1)[1]}", 403)
    assert alice.client.post(f"/schedules/preview?schedule={own.rsplit('/', 1)[1]}").status_code in (400, 403)
    for act in ("pause", "cancel"):
        assert "Morning news" not in alice.get(f"{own}/{act}")
    copy = browser.get(f"/schedules/new?from={own.rsplit('/', 1)[1]}")
    assert "Papers (copy)" in copy
    assert 'value="chat" checked' in copy


def test_its_run_shows_the_turn_and_leads_to_what_was_said(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    browser = house.bob
    write_schedule(browser, chat, name="Papers")
    own = browser.path
    page = browser.press(browser.get(own), f"{own}/run-now")
    assert "A run is on its way. Its turn is created." in page
    with house.backstage(), reading() as session:
        run_id = session.scalars(select(Run.run_id)).one()
    page = browser.get(f"/runs/{run_id}")
    turn_id = turn_id_of_run(run_id)
    assert f'href="{chat}#{turn_id}"' in page
    assert "Its turn was written into the chat" in page
    assert "Cancel this run" in page
    said = browser.get(chat)
    assert "schedule Papers, for Bob" in said
    assert f'href="/runs/{run_id}"' in said
    assert f'id="{turn_id}"' in said
    work(house, turn_id, "Nothing **new**.")
    foreign = house.alice.get(f"/runs/{run_id}")
    assert "Nothing" not in foreign.split("<main")[1].replace("Nothing was", "")
    assert "swordfish" not in foreign
    assert "Morning news" not in house.alice.get("/runs")
    assert "Morning news" not in house.alice.get("/")


def test_a_run_of_ones_own_is_cancelled(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    browser = house.bob
    write_schedule(browser, chat, name="Papers")
    own = browser.path
    browser.press(browser.get(own), f"{own}/run-now")
    with house.backstage(), reading() as session:
        run_id = session.scalars(select(Run.run_id)).one()
    write_schedule(browser, chat, name="More papers")
    second = browser.path
    page = browser.press(browser.get(second), f"{second}/run-now")
    assert "The chat is busy: its prompt comes next." in page
    with house.backstage(), reading() as session:
        waiting = session.scalars(select(Run.run_id).where(Run.run_id != run_id)).one()
    page = browser.get(f"/runs/{waiting}")
    assert "It waits for the turn that is at work in its chat." in page
    admin = house.alice
    assert not admin.offers(admin.get(f"/runs/{waiting}"), f"/runs/{waiting}/cancel"), (
        "in a chat its owner decides"
    )
    assert admin.client.post(f"/runs/{waiting}/cancel", data={"csrf_token": CSRF}).status_code == 403
    page = browser.press(page, f"/runs/{waiting}/cancel")
    assert "The run is cancelled. Nothing of it was sent." in page
    assert "run_cancelled" in page
    page = browser.press(page, f"{second}/run-now")
    assert "The chat is busy: its prompt comes next." in page, "the way to do it again is a run by hand"
    page = browser.press(browser.get(f"/runs/{run_id}"), f"/runs/{run_id}/cancel")
    assert "The turn is aborted" in page
    assert "turn_aborted" in page
    assert browser.offers(page, f"{own}/run-now")
    assert not browser.offers(page, f"/runs/{run_id}/retry")


def test_an_admin_pauses_and_cancels_what_speaks_in_a_chat_of_others(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    browser = house.bob
    write_schedule(browser, chat, name="Papers")
    own = browser.path
    alice = house.alice
    page = alice.get(chat)
    assert f'href="{own}/pause"' in page
    assert f'href="{own}/cancel"' in page
    page = alice.press(alice.get(f"{own}/pause"), f"{own}/pause")
    assert "Paused." in page
    assert f'href="{own}/resume"' not in page
    assert f'href="{own}/resume"' in browser.get(own)
