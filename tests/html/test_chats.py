"""The pages of chats, with script off."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from tests.factories import actor_of
from tests.html.browsing import House, assert_fragments_occur, forms_of
from tests.support import hostile
from webapp.chat import hooks, operations, steps
from webapp.chat.bodies import NewMessageBody
from webapp.chat.lifecycle import ApprovalStatus, MessageRole, TurnStatus
from webapp.chat.models import Approval, Chat, Turn
from webapp.identity.models import User
from webapp.store import reading
from webapp.store.transaction import Tx, operation

REGIONS = ("chat-head", "chat-talk", "chat-now", "chat-schedules")


def begin(house: House, owner: User, title: str = "Morning news") -> str:
    """A chat of `owner`; returns its address."""
    with house.backstage() as stage:
        chat = operations.create_chat(actor_of(owner), stage.cast.network.id, title, now=stage.clock.now())
        return f"/chats/{chat.chat_id}"


def write(house: House, owner: User, chat: str, text: str) -> str:
    """A message of the owner; returns the id of the turn that is to answer it."""
    with house.backstage() as stage:
        body = NewMessageBody(text=text)
        turn = operations.post_message(actor_of(owner), chat.rsplit("/", 1)[1], body, now=stage.clock.now())
        return turn.turn_id


def work(house: House, turn_id: str, answer: str | None = None, **asked: Any) -> str:
    """A worker begins the turn; it says `answer` and ends, or asks for `nodes.send_task` and waits: its approval."""

    @operation
    def act(tx: Tx, now: datetime) -> str:
        turn = tx.session.scalars(select(Turn).where(Turn.turn_id == turn_id)).one()
        hooks.before_turn_change(tx, turn.run_pk)
        chat = steps.lock_chat(tx, turn.chat_pk)
        if turn.status is TurnStatus.QUEUED and steps.begin(tx, turn, lease_owner="w1", now=now):
            hooks.turn_changed(tx, turn, now)
        if answer is not None:
            assistant = MessageRole.ASSISTANT
            steps.add_message(tx, chat, assistant, author="echo", text=answer, turn_pk=turn.id, now=now)
            turn.input_tokens, turn.output_tokens, turn.requests = 1000, 204, 2
            tx.session.flush()
            steps.end(tx, turn, TurnStatus.COMPLETED, now=now)
            hooks.turn_changed(tx, turn, now)
            return ""
        approval = steps.request_approval(
            tx,
            turn,
            call_id="call-1",
            operation="nodes.send_task",
            arguments={"node": "atlas", "task": "Draw the chart.\nDo not publish it."} | asked,
            schedule_id=None,
            deadline_at=now + timedelta(hours=4),
            now=now,
        )
        steps.wait_for_action(tx, turn, now=now)
        return approval.approval_id

    with house.backstage() as stage:
        return act(stage.clock.now())


def test_a_chat_is_begun_with_its_first_words_and_called_by_them(house: House) -> None:
    browser = house.bob
    page = browser.press(browser.get("/chats"), "/chats", text="Good morning, what is new?")
    assert browser.path.startswith("/chats/chat_")
    assert "<h1>Good morning, what is new?</h1>" in page
    assert "waiting its turn" in page
    assert "The next turn waits for a worker." in page
    assert "Good morning, what is new?" in browser.get("/chats")


def test_pressed_twice_it_is_begun_once(house: House) -> None:
    browser = house.bob
    form = browser.get("/chats")
    browser.press(form, "/chats", text="Once")
    first = browser.path
    browser.press(form, "/chats", text="Once")
    assert browser.path == first
    assert browser.get("/chats").count('class="table__name"') == 1


def test_what_is_said_shows_its_author_model_and_cost(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    turn = write(house, house.stage.cast.bob, chat, "How are sales?")
    work(house, turn, "Up **4 %**.")
    browser = house.bob
    page = browser.get(chat)
    assert "<b>Bob</b>" in page
    assert "<strong>4 %</strong>" in page
    assert "echo (built in, no model: it only repeats)" in page
    assert "1\u202f204 tokens in 2 requests" in page
    assert "It is quiet." in page
    assert_fragments_occur(browser, chat, REGIONS)


def test_a_message_waits_its_turn_and_its_place_is_shown(house: House) -> None:
    bob = house.stage.cast.bob
    chat = begin(house, bob)
    first = write(house, bob, chat, "One")
    work(house, first)
    browser = house.bob
    browser.press(browser.get(chat), f"{chat}/messages", text="Two")
    page = browser.press(browser.get(chat), f"{chat}/messages", text="Three")
    assert "1 turn goes before it" in page
    assert "2 turns go before it" in page


def test_a_turn_is_aborted(house: House) -> None:
    bob = house.stage.cast.bob
    chat = begin(house, bob)
    write(house, bob, chat, "One")
    browser = house.bob
    page = browser.press(browser.get(chat), f"{chat}/abort")
    assert "The turn is aborted." in page
    assert "aborted" in page
    assert "turn_aborted" in page


def test_a_waiting_approval_stands_in_its_chat_and_goes_back_to_it(house: House) -> None:
    bob = house.stage.cast.bob
    chat = begin(house, bob)
    approval = work(house, write(house, bob, chat, "Draw the chart"))
    browser = house.bob
    page = browser.get(chat)
    assert "It waits for your answer." in page
    assert "Send a task to <b>atlas</b>: Draw the chart." in page
    page = browser.press(page, f"/approvals/{approval}/approve")
    assert browser.path == chat
    assert "Approved, this once. The turn goes on." in page
    assert "Waiting for you" not in page


def test_deny_and_answer_me_denies_and_sends_in_one_go(house: House) -> None:
    bob = house.stage.cast.bob
    chat = begin(house, bob)
    approval = work(house, write(house, bob, chat, "Draw the chart"))
    browser = house.bob
    page = browser.get(chat)
    assert 'form="composer" name="deny_waiting"' in page
    page = browser.press(page, f"{chat}/messages", text="No, the table will do.", deny_waiting="y")
    assert "No, the table will do." in page
    assert "Waiting for you" not in page
    with house.backstage(), reading() as session:
        found = session.scalars(select(Approval).where(Approval.approval_id == approval)).one()
        assert found.status is ApprovalStatus.DENIED


def test_an_empty_message_is_refused_beside_its_field(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    browser = house.bob
    page = browser.press(browser.get(chat), f"{chat}/messages", text="  ")
    assert browser.status == 422
    assert 'id="text-error"' in page


def test_an_archived_chat_takes_no_words_until_it_is_taken_up_again(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    browser = house.bob
    old = browser.get(chat)
    page = browser.press(old, f"{chat}/archive")
    assert "It is archived: nothing can be written into it." in page
    assert not browser.offers(page, f"{chat}/messages")
    page = browser.press(old, f"{chat}/messages", text="Hello?")
    assert browser.status == 409
    assert "chat_archived" in page
    assert "Morning news" not in browser.get("/chats")
    assert "Morning news" in browser.get("/chats?kept=archived")
    page = browser.press(browser.get(chat), f"{chat}/unarchive")
    assert browser.offers(page, f"{chat}/messages")


def test_a_chat_is_renamed(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    browser = house.bob
    page = browser.press(browser.get(chat), f"{chat}/rename", title="Evening news")
    assert "<h1>Evening news</h1>" in page
    page = browser.press(page, f"{chat}/rename", title="")
    assert browser.status == 400


def test_an_admin_sees_that_a_chat_exists_and_not_a_word_of_it(house: House) -> None:
    bob = house.stage.cast.bob
    chat = begin(house, bob, "Secret plans")
    write(house, bob, chat, "The word is swordfish")
    listed = house.alice.get("/chats?of=all")
    page = house.alice.get(chat)
    assert "A chat of Bob" in listed
    assert "A chat of Bob" in page
    for shown in (listed, page):
        assert "Secret" not in shown
        assert "swordfish" not in shown
    assert "A chat of Bob" not in house.alice.get("/chats")
    alice = house.alice
    token = forms_of(alice.get("/chats"))[0].values["csrf_token"]
    form = {"csrf_token": token, "text": "eavesdropper"}
    assert alice.client.post(f"{chat}/messages", data=form).status_code == 403
    assert "eavesdropper" not in house.bob.get(chat)


def test_others_do_not_even_learn_that_it_exists(house: House) -> None:
    chat = begin(house, house.stage.cast.bob)
    for browser in (house.vera, house.charlie):
        browser.get(chat, 404)
        assert chat not in browser.get("/chats?of=all")


def test_nothing_that_was_said_can_act_on_the_page(house: House) -> None:
    bob = house.stage.cast.bob
    chat = begin(house, bob, hostile.PLAIN[0][:120])
    for text in hostile.ALL[:8]:
        work(house, write(house, bob, chat, text), text)
    page = house.bob.get(chat)
    assert f"{hostile.MARK}<" not in page
    assert "<script>" not in page
    assert "<img" not in page


def test_long_chats_have_pages(house: House) -> None:
    bob = house.stage.cast.bob
    chat = begin(house, bob)

    @operation
    def talk(tx: Tx, now: datetime) -> None:
        row = tx.session.scalars(select(Chat).where(Chat.chat_id == chat.rsplit("/", 1)[1])).one()
        locked = steps.lock_chat(tx, row.id)
        for number in range(60):
            steps.add_message(tx, locked, MessageRole.USER, author="Bob", text=f"word {number} end", now=now)

    with house.backstage() as stage:
        talk(stage.clock.now())
    browser = house.bob
    page = browser.get(chat)
    assert "word 59 end" in page
    assert "word 9 end" not in page
    cursor = page.split(f"{chat}?cursor=")[1].split('"')[0]
    older = browser.get(f"{chat}?cursor={cursor}")
    assert "word 9 end" in older
    assert "word 59 end" not in older
