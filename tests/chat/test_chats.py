"""A chat is its owner's alone; admins see that it exists, others do not see it at all."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chat.scene import CHATS, Scene
from webapp.chat import hooks
from webapp.store.transaction import Tx

pytestmark = pytest.mark.usefixtures("doctor_clean")


def test_a_chat_is_made_listed_and_shown_to_its_owner(scene: Scene) -> None:
    made = scene.call("bob", "POST", CHATS, {"title": "  Papers  "}).part("chat", 201)
    assert (made["title"], made["owner"], made["archived_at"]) == ("Papers", "Bob", None)
    assert scene.call("bob", "GET", f"{CHATS}/{made['chat_id']}").part("chat") == made
    untitled = scene.call("bob", "POST", CHATS).part("chat", 201)
    assert untitled["title"] == "New chat"
    listed = scene.call("bob", "GET", CHATS).part("chats")
    assert [chat["chat_id"] for chat in listed] == [untitled["chat_id"], made["chat_id"]]
    assert scene.audited(made["chat_id"]) == [("Bob", "chat.create")]


def test_the_chat_that_changed_last_comes_first_page_by_page(scene: Scene) -> None:
    chats = []
    for number in range(3):
        scene.house.clock.advance(seconds=1)
        chats.append(scene.chat(title=f"Chat {number}"))
    scene.house.clock.advance(seconds=1)
    scene.post(chats[0])
    first = scene.call("alice", "GET", f"{CHATS}?limit=2")
    rest = scene.call("alice", "GET", f"{CHATS}?limit=2&cursor={first.part('next_cursor')}")
    seen = [chat["chat_id"] for chat in (*first.part("chats"), *rest.part("chats"))]
    assert seen == [chats[0], chats[2], chats[1]]
    assert rest.part("next_cursor") is None


def test_an_admin_sees_that_a_chat_exists_and_no_word_of_it(scene: Scene) -> None:
    chat_id = scene.chat("bob")
    scene.post(chat_id, who="bob")
    seen = scene.call("alice", "GET", f"{CHATS}/{chat_id}").part("chat")
    assert (seen["title"], seen["updated_at"], seen["owner"]) == (None, None, "Bob")
    assert seen in scene.call("alice", "GET", CHATS).part("chats")
    assert scene.call("alice", "GET", f"{CHATS}/{chat_id}/messages").error == (403, "permission_denied")


@pytest.mark.parametrize("who", ["vera", "charlie"])
def test_for_others_there_is_no_such_chat(scene: Scene, who: str) -> None:
    chat_id = scene.chat("bob")
    for path in ("", "/messages"):
        assert scene.call(who, "GET", f"{CHATS}/{chat_id}{path}").error == (404, "chat_not_found")
    assert scene.call(who, "GET", CHATS).part("chats") == []


CHANGES: list[tuple[str, str, Any]] = [
    ("PATCH", "", {"title": "Other"}),
    ("POST", "/archive", {}),
    ("POST", "/unarchive", {}),
    ("POST", "/messages", {"text": "Hello"}),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_nobody_but_the_owner_changes_a_chat(scene: Scene, method: str, path: str, body: Any) -> None:
    chat_id = scene.chat("bob")
    before = scene.call("bob", "GET", f"{CHATS}/{chat_id}").part("chat")
    for who, error in (
        ("alice", (403, "permission_denied")),
        ("vera", (404, "chat_not_found")),
        ("charlie", (404, "chat_not_found")),
    ):
        assert scene.call(who, method, f"{CHATS}/{chat_id}{path}", body).error == error
        # What is wrong with a body is told to nobody who may not send it.
        assert scene.call(who, method, f"{CHATS}/{chat_id}{path}", {"moon": 1}).error == error
    assert scene.call("bob", "GET", f"{CHATS}/{chat_id}").part("chat") == before
    assert scene.messages(chat_id, "bob") == []


def test_a_viewer_makes_no_chat_and_nobody_makes_one_elsewhere(scene: Scene) -> None:
    assert scene.call("vera", "POST", CHATS, {"title": "Mine"}).error == (403, "permission_denied")
    elsewhere = scene.house.cast.elsewhere.network_id
    body = {"title": "Mine", "network_id": elsewhere}
    assert scene.call("bob", "POST", CHATS, body).error == (404, "network_not_found")


def test_the_same_key_makes_one_chat(scene: Scene) -> None:
    key = {"Idempotency-Key": "papers"}
    first = scene.call("alice", "POST", CHATS, {"title": "Papers"}, headers=key).part("chat", 201)
    again = scene.call("alice", "POST", CHATS, {"title": " Papers"}, headers=key).part("chat", 201)
    assert again == first
    other = scene.call("alice", "POST", CHATS, {"title": "Other"}, headers=key)
    assert other.error == (409, "idempotency_conflict")


def test_a_rename_is_heard_and_the_audit_does_not_tell_the_title(scene: Scene) -> None:
    chat_id = scene.chat()
    seen = scene.last_event()
    body = {"title": "Evening papers"}
    assert scene.call("alice", "PATCH", f"{CHATS}/{chat_id}", body).part("chat")["title"] == "Evening papers"
    scene.call("alice", "PATCH", f"{CHATS}/{chat_id}", body).part("chat")
    assert scene.audited(chat_id) == [("Alice", "chat.create"), ("Alice", "chat.rename")]
    assert scene.events_since(seen) == [("chat", {"chats": [chat_id]})]
    entries = scene.call("vera", "GET", "/api/audit").part("entries")
    assert "papers" not in str(entries)


def test_an_archived_chat_takes_no_word_until_it_is_taken_up_again(scene: Scene) -> None:
    chat_id = scene.chat()
    archived = scene.call("alice", "POST", f"{CHATS}/{chat_id}/archive").part("chat")
    assert archived["archived_at"] is not None
    assert scene.call("alice", "POST", f"{CHATS}/{chat_id}/archive").part("chat") == archived
    refused = scene.call("alice", "POST", f"{CHATS}/{chat_id}/messages", {"text": "Hello"})
    assert refused.error == (409, "chat_archived")
    # State before fields.
    assert scene.call("alice", "POST", f"{CHATS}/{chat_id}/messages", {"text": 5}).error[0] == 409
    for _ in range(2):
        assert scene.call("alice", "POST", f"{CHATS}/{chat_id}/unarchive").part("chat")["archived_at"] is None
    scene.post(chat_id)
    verbs = [verb for _, verb in scene.audited(chat_id)]
    assert verbs == ["chat.create", "chat.archive", "chat.unarchive"]


def test_archiving_ends_what_its_owner_asked_for(scene: Scene) -> None:
    chat_id = scene.chat()
    at_work = scene.post(chat_id)["turn_id"]
    scene.begin(at_work)
    queued = scene.post(chat_id)["turn_id"]
    scene.call("alice", "POST", f"{CHATS}/{chat_id}/archive").part("chat")
    ended = scene.show(queued)
    assert (ended["status"], ended["error_code"]) == ("aborted", "chat_archived")
    # The one in a worker's hands ends at its next step.
    assert (scene.turn(at_work).status.value, scene.turn(at_work).stop_code) == ("running", "chat_archived")


def test_what_hangs_on_a_chat_is_told_of_it_in_the_same_transaction(scene: Scene) -> None:
    told: list[tuple[str, int]] = []

    def before(_tx: Tx, chat_pk: int) -> None:
        told.append(("before", chat_pk))

    def changed(_tx: Tx, chat_pk: int, _now: Any) -> None:
        told.append(("changed", chat_pk))

    chat_id = scene.chat()
    kept = hooks.registered()
    hooks.register(before_chat_change=before, chat_changed=changed)
    try:
        scene.call("alice", "POST", f"{CHATS}/{chat_id}/archive").part("chat")
        scene.call("alice", "POST", f"{CHATS}/{chat_id}/archive").part("chat")
    finally:
        hooks.register(**kept)
    assert [what for what, _ in told] == ["before", "changed", "before"]
