"""The pages of nodes, with script off, on both databases."""

from __future__ import annotations

import re

import pytest
from markupsafe import escape

from tests.html.browsing import Browser, House, assert_fragments_occur
from webapp.errors import sentence_of
from webapp.identity.queries import authenticate_token
from webapp.nodes.lifecycle import NodeLifecycle, NodeStatus
from webapp.store import reading
from webapp.targets import node as bridge


def atlas(house: House) -> str:
    """The address of the page of atlas."""
    return f"/nodes/{house.stage.node.node_id}"


def shown_token(page: str) -> str | None:
    found = re.search(r"ntok_[A-Za-z0-9_-]+", page)
    return found.group() if found else None


def holds(house: House, token: str) -> bool:
    """Whether the door takes this token as one of a node."""
    answer = house.app.test_client().get("/api/node/inbox", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code == 200


def test_a_node_is_registered_and_its_token_shown_once_with_how_to_start_it(house: House) -> None:
    browser = house.bob
    form = browser.get("/nodes")
    page = browser.press(form, "/nodes", alias=" quill ")
    token = shown_token(page)
    assert browser.status == 200
    assert token is not None
    assert f"CARILLON_NODE_TOKEN={token}" in page
    assert "python examples/node.py --url http://localhost" in page
    assert browser.answer is not None
    assert browser.answer.headers["Cache-Control"] == "no-store"
    assert holds(house, token)
    again = browser.press(form, "/nodes", alias="quill")
    assert shown_token(again) is None
    assert "cannot be shown again" in again
    assert browser.get("/nodes").count("quill") == 1


def test_a_refused_alias_stands_beside_its_field_and_what_was_typed_is_kept(house: House) -> None:
    browser = house.alice
    page = browser.press(browser.get("/nodes"), "/nodes", alias="No Good")
    assert browser.status == 422
    assert page.count(sentence_of("invalid_alias")) == 2
    assert 'value="No Good"' in page
    assert 'aria-invalid="true"' in page
    assert "<title>Error: Nodes" in page
    browser.press(page, "/nodes", alias="atlas")
    assert browser.status == 422
    assert browser.answer is not None
    assert sentence_of("alias_taken") in browser.answer.text


def test_the_list_says_in_words_whether_a_node_is_there(house: House) -> None:
    assert "never seen: it was not started with its token yet" in house.vera.get("/nodes")
    with house.backstage() as stage:
        bridge.heartbeat(stage.node.id, NodeStatus.WAITING_INPUT, None, now=stage.clock.now())
        stage.clock.advance(minutes=2)
    page = house.vera.get("/nodes")
    assert "waiting for input" in page
    assert "2 min ago" in page
    with house.backstage() as stage:
        stage.clock.advance(minutes=20)
    page = house.vera.get("/nodes")
    assert "silent since" in page
    assert "Mon 30 Nov, 08:12 UTC" in page
    assert "offline" in page


def test_a_node_shows_what_it_holds_its_schedules_and_its_last_tasks(house: House) -> None:
    with house.backstage() as stage:
        schedule = stage.create(name="Nightly sweep")
        stage.tick(minutes=48)
    page = house.vera.get(atlas(house))
    assert "Silent, and holds 1 task" in page
    assert f'href="/schedules/{schedule.schedule_id}"' in page
    assert "in the inbox" in page
    assert "Sweep the inbox." in page


def test_an_admin_renames_a_node(house: House) -> None:
    browser = house.alice
    page = browser.press(browser.get(atlas(house)), f"{atlas(house)}/rename", alias="atlas-2")
    assert browser.path == atlas(house)
    assert "The node is called atlas-2 now." in page
    page = browser.press(page, f"{atlas(house)}/rename", alias="A")
    assert browser.status == 422
    assert sentence_of("invalid_alias") in page
    assert "atlas-2" in browser.get("/nodes")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_alias_that_is_taken_is_refused_beside_the_field(house: House) -> None:
    with house.backstage() as stage:
        stage.add_node("hermes")
    browser = house.alice
    page = browser.press(browser.get(atlas(house)), f"{atlas(house)}/rename", alias="hermes")
    assert browser.status == 422
    assert sentence_of("alias_taken") in page


def test_a_node_is_stopped_and_activated_again(house: House) -> None:
    browser, lifecycle = house.alice, f"{atlas(house)}/lifecycle"
    page = browser.get(atlas(house))
    states = [NodeLifecycle.STOPPING, NodeLifecycle.STOPPED]
    assert page.count(f'action="{lifecycle}"') == len(states)
    page = browser.press(page, lifecycle, nth=1)
    assert "The node is stopped: it is given nothing any more." in page
    assert "It takes no new work: stopped" in page
    assert "<code>target_not_active</code>" not in page
    assert not browser.offers(page, f"{atlas(house)}/tasks")
    page = browser.press(page, lifecycle, nth=0)
    assert "The node takes work again." in page
    assert browser.offers(page, f"{atlas(house)}/tasks")
    with browser.client.session_transaction() as session:
        token = session["csrf"]
    odd = browser.client.post(lifecycle, data={"csrf_token": token, "lifecycle_state": "deleting"})
    assert odd.status_code == 400
    assert "<code>invalid_lifecycle_state</code>" in odd.text


def test_a_new_token_ends_the_earlier_one(house: House) -> None:
    browser = house.alice
    first = shown_token(browser.press(browser.get("/nodes"), "/nodes", alias="quill"))
    own = re.findall(r'href="(/nodes/node_[a-z0-9]+)"', browser.get("/nodes"))
    address = next(link for link in own if link != atlas(house))
    form = browser.get(f"{address}/token")
    assert "quill is cut off at once, until it is started with the new one." in form
    assert first is not None
    assert f"ends in …{first[-4:]}" in form
    page = browser.press(form, f"{address}/token")
    second = shown_token(page)
    assert first is not None
    assert second is not None
    assert "The earlier token has ended" in page
    assert not holds(house, first)
    assert holds(house, second)
    assert shown_token(browser.press(form, f"{address}/token")) is None
    assert holds(house, second)


def test_deleting_says_first_which_schedules_would_stop(house: House) -> None:
    with house.backstage() as stage:
        active, paused = stage.create(name="Active one"), stage.create(name="Paused one")
        stage.pause(paused)
        stage.tick(minutes=48)
    browser = house.alice
    assert f'href="{atlas(house)}/delete"' in browser.get(atlas(house))
    page = browser.get(f"{atlas(house)}/delete")
    assert "1 schedule would stop, 1 open task would end." in page
    assert "Active one" in page.partition("target_node_not_found")[2]
    assert "Paused one" in page.partition("could not be resumed")[2]
    page = browser.press(page, f"{atlas(house)}/delete")
    assert browser.path == "/nodes"
    assert "atlas is deleted." in page
    browser.get(atlas(house), 404)
    with house.backstage() as stage:
        assert stage.schedule(active).status_reason == "target_node_not_found"
        (task,) = stage.tasks()
    assert "atlas (deleted)" in browser.get(f"/tasks/{task.task_id}")


def test_a_member_sends_a_task_and_a_viewer_sees_no_form(house: House) -> None:
    browser = house.bob
    page = browser.press(
        browser.get(atlas(house)), f"{atlas(house)}/tasks", task="  Say hello.  ", priority="high"
    )
    assert browser.path.startswith("/tasks/task_")
    assert "The task waits in the inbox of atlas." in page
    with house.backstage() as stage:
        (task,) = stage.tasks()
    assert (task.priority_rank, task.ttl_seconds) == (0, 3600)
    viewer = house.vera.get(atlas(house))
    for action in ("tasks", "rename", "lifecycle", "token"):
        assert not house.vera.offers(viewer, f"{atlas(house)}/{action}")


def test_the_same_task_form_sent_twice_makes_one_task(house: House) -> None:
    browser, send = house.bob, f"{atlas(house)}/tasks"
    form = browser.get(atlas(house))
    browser.press(form, send, task="Once")
    first = browser.path
    browser.press(form, send, task="Once")
    assert browser.path == first
    page = browser.press(form, send, task="Something else")
    assert "Something else" in page
    assert browser.status == 409
    assert "<code>idempotency_conflict</code>" in page
    with house.backstage() as stage:
        assert len(stage.tasks()) == 1


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ({"task": "   "}, "invalid_task"),
        ({"task": "x" * 10_001}, "invalid_task"),
        ({"task": "Do", "ttl_seconds": "5"}, "invalid_ttl_seconds"),
        ({"task": "Do", "ttl_seconds": "soon"}, "invalid_ttl_seconds"),
        ({"task": "Do", "priority": "urgent"}, "invalid_priority"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_refused_task_is_kept_with_the_reason(house: House, typed: dict[str, str], code: str) -> None:
    browser = house.alice
    page = browser.press(browser.get(atlas(house)), f"{atlas(house)}/tasks", **typed)
    assert browser.status == 422
    assert page.count(str(escape(sentence_of(code)))) == 2
    assert typed["task"].strip() in page


def test_a_node_that_stopped_meanwhile_takes_no_task_and_the_page_says_so(house: House) -> None:
    browser, send = house.bob, f"{atlas(house)}/tasks"
    form = browser.get(atlas(house))
    admin = house.alice
    admin.press(admin.get(atlas(house)), f"{atlas(house)}/lifecycle", nth=1)
    page = browser.press(form, send, task="Too late")
    assert browser.status == 409
    assert "<code>node_not_active</code>" in page
    assert "Activate the node" in page


def test_who_may_not_is_refused_and_a_stranger_finds_nothing(house: House) -> None:
    steps = (
        ("rename", {"alias": "mine"}),
        ("lifecycle", {"lifecycle_state": "stopped"}),
        ("token", {}),
        ("delete", {}),
    )
    for browser, status in ((house.bob, 403), (house.vera, 403), (house.charlie, 404)):
        for action, data in steps:
            assert post(browser, f"{atlas(house)}/{action}", data) == status, action
        browser.get(f"{atlas(house)}/delete", status)
    assert post(house.vera, f"{atlas(house)}/tasks", {"task": "Do"}) == 403
    assert post(house.charlie, f"{atlas(house)}/tasks", {"task": "Do"}) == 404
    assert post(house.vera, "/nodes", {"alias": "mine"}) == 403
    assert "atlas" not in house.charlie.get("/nodes")
    house.charlie.get(atlas(house), 404)


def post(browser: Browser, address: str, data: dict[str, str]) -> int:
    """Send what no page offers; returns the status."""
    browser.get("/nodes")
    with browser.client.session_transaction() as session:
        token = session["csrf"]
    return browser.client.post(address, data={**data, "csrf_token": token}).status_code


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_form_without_its_secret_changes_nothing(house: House) -> None:
    browser = house.alice
    browser.get("/nodes")
    assert browser.client.post("/nodes", data={"alias": "quill"}).status_code == 400
    assert browser.client.post(f"{atlas(house)}/delete").status_code == 400
    assert "quill" not in browser.get("/nodes")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_loading_the_address_of_a_form_leads_back_to_the_node(house: House) -> None:
    for action in ("rename", "lifecycle", "tasks"):
        answer = house.alice.client.get(f"{atlas(house)}/{action}")
        assert (answer.status_code, answer.headers["Location"]) == (303, atlas(house))
        assert house.charlie.client.get(f"{atlas(house)}/{action}").status_code == 404
    assert house.charlie.client.get(f"{atlas(house)}/token").status_code == 404
    assert house.vera.client.get(f"{atlas(house)}/token").status_code == 403


def test_the_list_says_first_how_the_nodes_are_and_draws_their_last_tasks(house: House) -> None:
    page = house.vera.get("/nodes")
    assert '<p class="page__say">1 node, 1 silent. No work waits for it.</p>' in page
    assert "no tasks" in page
    with house.backstage() as stage:
        stage.create()
        stage.tick(minutes=48)
        stage.serve()
        stage.tick(hours=1)
        stage.add_node("hermes")
        stage.clock.advance(minutes=30)
    page = house.vera.get("/nodes")
    assert "2 nodes, 2 silent. Work waits for 1 of them." in page
    assert 'aria-label="Last 2 tasks, newest last: 1 replied, 1 created"' in page
    steer = house.alice.get(atlas(house))
    assert "1 active schedule would stop, 1 open task would end; you see first which." in steer


def test_every_fragment_occurs_in_its_page(house: House) -> None:
    with house.backstage() as stage:
        stage.create()
        stage.tick(minutes=48)
    assert_fragments_occur(house.alice, "/nodes", ("node-list",))
    assert_fragments_occur(house.alice, atlas(house), ("node-state",))


def test_a_token_of_the_page_is_stored_hashed_only(house: House) -> None:
    browser = house.alice
    token = shown_token(browser.press(browser.get("/nodes"), "/nodes", alias="quill"))
    assert token is not None
    with house.backstage() as stage, reading() as session:
        principal = authenticate_token(session, token, now=stage.clock.now())
    assert principal.network_pk == house.stage.cast.network.id
