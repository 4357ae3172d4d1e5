"""The page of approvals, with script off."""

from __future__ import annotations

from tests.html.browsing import House, assert_fragments_occur
from tests.html.test_chats import begin, work, write
from tests.support import hostile
from webapp.errors import sentence_of


def ask(house: House, **arguments: str) -> str:
    """Bob's turn wants to send a task; returns the address of the approval."""
    bob = house.stage.cast.bob
    chat = begin(house, bob)
    return f"/approvals/{work(house, write(house, bob, chat, 'Draw the chart'), **arguments)}"


def test_it_says_in_words_what_is_asked_and_shows_the_exact_arguments(house: House) -> None:
    ask(house, priority="high")
    page = house.bob.get("/approvals")
    assert "<h1>One agent waits for your answer</h1>" in page
    assert "Send a task to <b>atlas</b>: Draw the chart." in page
    assert "nodes.send_task\n  node       &#34;atlas&#34;" in page
    assert "&#34;Draw the chart.\n              Do not publish it.&#34;" in page
    assert "priority   &#34;high&#34;" in page
    assert "No answer counts as no" in page
    assert "atlas is offline" in page
    assert 'Approvals <span class="masthead__count">1<' in page
    assert_fragments_occur(house.bob, "/approvals", ("approvals-waiting", "approvals-past"))


def test_an_answer_is_given_once_and_stands_below(house: House) -> None:
    own = ask(house)
    browser = house.bob
    form = browser.get("/approvals")
    page = browser.press(form, f"{own}/deny")
    assert browser.path == "/approvals"
    assert "No agent waits for your answer" in page
    assert "denied" in page
    page = browser.press(form, f"{own}/approve")
    assert browser.status == 409
    assert sentence_of("approval_already_decided") in page
    assert "approval_already_decided" in page


def test_deny_and_answer_in_the_chat_leads_to_the_chat(house: House) -> None:
    own = ask(house)
    browser = house.bob
    page = browser.press(browser.get("/approvals"), f"{own}/deny", nth=1)
    assert browser.path.startswith("/chats/")
    assert "Denied." in page


def test_nobody_but_the_owner_sees_or_answers(house: House) -> None:
    own = ask(house)
    for browser in (house.alice, house.vera, house.charlie):
        page = browser.get("/approvals")
        assert "No agent waits for your answer" in page
        assert "Draw the chart" not in page
        assert not browser.offers(page, f"{own}/approve")
    house.charlie.get(f"{own}/approve", 404)
    house.alice.get(f"{own}/approve", 403)


def test_after_its_deadline_it_cannot_be_approved(house: House) -> None:
    own = ask(house)
    browser = house.bob
    form = browser.get("/approvals")
    with house.backstage() as stage:
        stage.clock.advance(hours=5)
    page = browser.press(form, f"{own}/approve")
    assert browser.status == 409
    assert "approval_expired" in page


def test_arguments_are_shown_as_they_are_and_nothing_hides_in_them(house: House) -> None:
    ask(house, task=hostile.PLAIN[0] + "\u202ereversed\u200b", note=hostile.PLAIN[3])
    page = house.bob.get("/approvals")
    assert f"{hostile.MARK}<" not in page
    exact = page.split('aria-label="Exact arguments of')[1].split("</pre>")[0]
    assert "\\u202ereversed\\u200b" in exact
