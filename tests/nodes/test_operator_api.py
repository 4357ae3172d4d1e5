"""What people do to nodes and tasks, over HTTP: works, outsider, wrong state, repeat, race, bad input."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import func, select

from tests import factories
from tests.nodes.scene import Scene
from webapp.audit import AuditEntry
from webapp.clock import FrozenClock
from webapp.nodes import operations
from webapp.nodes.bodies import NewTaskBody
from webapp.nodes.models import Node, Task
from webapp.store import reading

NODE_KEYS = {
    "node_id", "network_id", "alias", "lifecycle_state", "status", "last_seen_at", "held", "created_at",
}  # fmt: skip
TASK_KEYS = {
    "task_id", "node_id", "run_id", "task", "priority", "status", "attempt", "error_code", "result", "created_at",
    "delivered_at", "acked_at", "started_at", "completed_at", "expires_at", "events",
}  # fmt: skip


def audit_verbs(scene: Scene, subject_id: str) -> list[tuple[str, str]]:
    statement = (
        select(AuditEntry.actor, AuditEntry.verb)
        .where(AuditEntry.subject_id == subject_id)
        .order_by(AuditEntry.seq)
    )
    with scene.app.app_context(), reading() as session:
        return [(actor, verb) for actor, verb in session.execute(statement)]


def test_a_node_is_made_with_its_token_shown_once(scene: Scene) -> None:
    code, answer = scene.call("bob", "POST", "/api/nodes", {"alias": "borg-2.x_1"})
    assert code == 201
    node, token = answer["node"], answer["token"]
    assert node.keys() >= NODE_KEYS
    assert (node["alias"], node["lifecycle_state"], node["status"]) == ("borg-2.x_1", "active", "offline")
    assert token.startswith("ntok_")
    scene.nodes["borg"] = (node["node_id"], token)
    assert scene.inbox("borg") == []
    code, answer = scene.call("vera", "GET", f"/api/nodes/{node['node_id']}")
    assert code == 200
    assert "token" not in answer
    assert answer["node"]["status"] == "idle"
    assert audit_verbs(scene, node["node_id"]) == [("Bob", "node.create")]


def test_who_may_not_make_nodes(scene: Scene) -> None:
    body = {"alias": "borg"}
    for who, more, code, error in (
        (None, {}, 401, "unauthenticated"),
        ("vera", {}, 403, "permission_denied"),
        ("vera", {"alias": 5}, 403, "permission_denied"),
        ("charlie", {"network_id": scene.cast.network.network_id}, 404, "network_not_found"),
        ("charlie", {"network_id": scene.cast.network.network_id, "alias": 5}, 404, "network_not_found"),
        ("atlas", {}, 403, "user_token_required"),
    ):
        status, answer = scene.call(who, "POST", "/api/nodes", {**body, **more})
        assert (status, answer["error"]) == (code, error), (who, more)


def test_an_alias_is_unique_in_its_network_while_its_node_exists(scene: Scene) -> None:
    code, answer = scene.call("alice", "POST", "/api/nodes", {"alias": "atlas"})
    assert (code, answer["error"], answer["field"]) == (409, "alias_taken", "alias")
    assert scene.call("charlie", "POST", "/api/nodes", {"alias": "atlas"})[0] == 201
    assert scene.call("alice", "DELETE", f"/api/nodes/{scene.node_id('atlas')}")[0] == 200
    assert scene.call("alice", "POST", "/api/nodes", {"alias": "atlas"})[0] == 201


def test_a_repeated_creation_answers_the_first_node_without_its_token(scene: Scene) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = scene.call("alice", "POST", "/api/nodes", {"alias": "borg"}, headers=key)
    again = scene.call("alice", "POST", "/api/nodes", {"alias": "borg"}, headers=key)
    assert (first[0], again[0]) == (201, 201)
    assert again[1]["node"]["node_id"] == first[1]["node"]["node_id"]
    assert "token" in first[1]
    assert "token" not in again[1]
    code, answer = scene.call("alice", "POST", "/api/nodes", {"alias": "other"}, headers=key)
    assert (code, answer["error"]) == (409, "idempotency_conflict")
    code, answer = scene.call(
        "alice", "POST", "/api/nodes", {"alias": "x1"}, headers={"Idempotency-Key": "ü"}
    )
    assert (code, answer["error"]) == (400, "invalid_idempotency_key")


def test_of_many_who_want_one_alias_one_gets_it(scene: Scene) -> None:
    def make(_turn: int) -> int:
        headers = factories.bearer(scene.tokens["alice"])
        return scene.app.test_client().post("/api/nodes", json={"alias": "borg"}, headers=headers).status_code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(make, range(6))) == [201] + [409] * 5


def test_nodes_are_listed_to_their_own_network_alone(scene: Scene) -> None:
    for number in range(4):
        scene.add_node(f"more-{number}")
    seen: list[str] = []
    cursor = ""
    while True:
        code, answer = scene.call("vera", "GET", f"/api/nodes?limit=2{cursor}")
        assert code == 200
        seen += [node["alias"] for node in answer["nodes"]]
        if answer["next_cursor"] is None:
            break
        cursor = f"&cursor={answer['next_cursor']}"
    assert seen == ["more-3", "more-2", "more-1", "more-0", "atlas"]
    assert [node["alias"] for node in scene.call("charlie", "GET", "/api/nodes")[1]["nodes"]] == ["zephyr"]
    code, answer = scene.call("charlie", "GET", f"/api/nodes/{scene.node_id('atlas')}")
    assert (code, answer["error"]) == (404, "node_not_found")


def test_held_counts_waiting_work_and_work_in_hand(scene: Scene) -> None:
    first, _second, third = scene.send(), scene.send(), scene.send()
    scene.inbox()
    scene.report(first, "ack")
    scene.report(third, "reply", {"status": "replied"})
    node = scene.call("vera", "GET", f"/api/nodes/{scene.node_id('atlas')}")[1]["node"]
    assert (node["held"], node["unacknowledged"], node["at_work"]) == (2, 1, 1)


def test_steering_a_node_is_for_admins(scene: Scene) -> None:
    path = f"/api/nodes/{scene.node_id('atlas')}"
    for who, code, error in (
        ("bob", 403, "permission_denied"),
        ("vera", 403, "permission_denied"),
        ("charlie", 404, "node_not_found"),
    ):
        for method, where, body in (
            ("PATCH", path, {"alias": "other"}),
            ("PATCH", path, {"alias": 5}),
            ("DELETE", path, None),
            ("POST", f"{path}/token", {}),
            ("POST", f"{path}/token", {"x": 1}),
        ):
            status, answer = scene.call(who, method, where, body)
            assert (status, answer["error"]) == (code, error), (who, method, body)
    assert scene.call("vera", "GET", path)[1]["node"]["alias"] == "atlas"


def test_a_node_is_renamed_and_steered(scene: Scene) -> None:
    path = f"/api/nodes/{scene.node_id('atlas')}"
    code, answer = scene.call("alice", "PATCH", path, {"alias": "atlas-2", "lifecycle_state": "stopping"})
    assert (code, answer["node"]["alias"], answer["node"]["lifecycle_state"]) == (200, "atlas-2", "stopping")
    for _ in range(2):
        assert scene.call("alice", "PATCH", path, {"lifecycle_state": "active"})[0] == 200
    assert scene.call("alice", "PATCH", path, {})[0] == 200
    verbs = [verb for _, verb in audit_verbs(scene, scene.node_id("atlas"))]
    assert verbs == ["node.create", "node.update", "node.update"]
    scene.add_node("borg")
    code, answer = scene.call("alice", "PATCH", path, {"alias": "borg"})
    assert (code, answer["error"]) == (409, "alias_taken")


def test_a_deleted_node_is_gone_with_its_token_and_its_work(scene: Scene) -> None:
    waiting, at_work, done = scene.send(), scene.send(), scene.send()
    scene.inbox()
    scene.report(at_work, "ack")
    scene.report(done, "reply", {"status": "replied", "result": "ok"})
    path = f"/api/nodes/{scene.node_id('atlas')}"
    code, answer = scene.call("alice", "DELETE", path)
    assert (code, answer["node"]["lifecycle_state"]) == (200, "deleting")
    assert scene.call("alice", "GET", path)[0] == 404
    assert scene.call("alice", "DELETE", path)[0] == 404
    assert scene.call("alice", "GET", "/api/nodes")[1]["nodes"] == []
    assert scene.call("atlas", "GET", "/api/node/inbox")[0] == 401
    for task_id in (waiting, at_work):
        task = scene.task(task_id)
        assert (task["status"], task["error_code"]) == ("cancelled", "target_node_not_found")
        code, answer = scene.call("alice", "POST", f"/api/tasks/{task_id}/retry")
        assert (code, answer["error"]) == (409, "node_not_active")
    assert scene.task(done)["result"] == "ok"
    code, answer = scene.call(
        "alice", "POST", "/api/tasks", {"node_id": scene.node_id("atlas"), "task": "more"}
    )
    assert (code, answer["error"]) == (404, "node_not_found")
    listed = scene.call("alice", "GET", f"/api/tasks?node={scene.node_id('atlas')}")[1]["tasks"]
    assert [task["task_id"] for task in listed] == [done, at_work, waiting]


def test_rotating_ends_the_earlier_token_at_once(scene: Scene) -> None:
    path = f"/api/nodes/{scene.node_id('atlas')}/token"
    key = {"Idempotency-Key": "rotate"}
    code, answer = scene.call("alice", "POST", path, headers=key)
    assert code == 201
    assert scene.call("atlas", "GET", "/api/node/inbox")[0] == 401
    scene.nodes["atlas"] = (scene.node_id("atlas"), answer["token"])
    assert scene.inbox() == []
    code, again = scene.call("alice", "POST", path, headers=key)
    assert (code, "token" in again) == (201, False)
    assert scene.inbox() == []


def test_a_task_has_all_its_fields(scene: Scene) -> None:
    task_id = scene.send(who="bob")
    task = scene.task(task_id)
    assert task.keys() >= TASK_KEYS
    assert not [key for key in task if key.endswith("_pk") or key == "id"]
    assert (task["from"], task["run_id"], task["attempt"], task["priority"]) == ("Bob", None, 1, "normal")
    assert task["expires_at"] == "2026-11-30T09:12:00.000Z"
    assert audit_verbs(scene, task_id) == [("Bob", "task.create")]


def test_who_may_not_send_tasks(scene: Scene) -> None:
    node_id = scene.node_id("atlas")
    for who, body, code, error in (
        ("vera", {"node_id": node_id, "task": "x"}, 403, "permission_denied"),
        ("vera", {"node_id": node_id, "task": 5}, 403, "permission_denied"),
        ("charlie", {"node_id": node_id, "task": "x"}, 404, "node_not_found"),
        ("charlie", {"node_id": node_id, "task": 5}, 404, "node_not_found"),
        ("alice", {"node_id": scene.node_id("zephyr"), "task": "x"}, 404, "node_not_found"),
        ("alice", {"node_id": "nope", "task": "x"}, 404, "node_not_found"),
    ):
        status, answer = scene.call(who, "POST", "/api/tasks", body)
        assert (status, answer["error"]) == (code, error), (who, body)
    with scene.app.app_context(), reading() as session:
        assert session.scalar(select(func.count()).select_from(Task)) == 0


def test_a_repeated_task_is_sent_once_even_when_the_node_has_stopped_since(scene: Scene) -> None:
    key = {"Idempotency-Key": "t-1"}
    body = {"node_id": scene.node_id("atlas"), "task": " Read "}
    first = scene.call("alice", "POST", "/api/tasks", body, headers=key)
    scene.call("alice", "PATCH", f"/api/nodes/{scene.node_id('atlas')}", {"lifecycle_state": "stopped"})
    again = scene.call("alice", "POST", "/api/tasks", {**body, "priority": "normal"}, headers=key)
    assert (first[0], again[0]) == (201, 201)
    assert first[1]["task"]["task_id"] == again[1]["task"]["task_id"]
    code, answer = scene.call("alice", "POST", "/api/tasks", {**body, "task": "else"}, headers=key)
    assert (code, answer["error"]) == (409, "idempotency_conflict")
    assert scene.call("bob", "POST", "/api/tasks", body, headers=key)[1]["error"] == "node_not_active"


def test_the_same_keyed_task_sent_at_once_is_one_task(scene: Scene) -> None:
    def send(_turn: int) -> str:
        headers = {**factories.bearer(scene.tokens["alice"]), "Idempotency-Key": "same"}
        body = {"node_id": scene.node_id("atlas"), "task": "x"}
        answer = scene.app.test_client().post("/api/tasks", json=body, headers=headers)
        assert answer.status_code == 201
        return str(answer.get_json()["task"]["task_id"])

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(send, range(6)))) == 1
    assert len(scene.inbox()) == 1


def test_tasks_are_listed_by_status_and_node_newest_first(scene: Scene, clock: FrozenClock) -> None:
    scene.add_node("borg")
    tasks = []
    for alias in ("atlas", "borg", "atlas"):
        tasks.append(scene.send(alias))
        clock.advance(seconds=1)
    scene.inbox("borg")

    def listed(query: str, who: str = "vera") -> list[str]:
        code, answer = scene.call(who, "GET", f"/api/tasks{query}")
        assert code == 200
        return [task["task_id"] for task in answer["tasks"]]

    assert listed("") == tasks[::-1]
    assert listed("?status=delivered") == [tasks[1]]
    assert listed(f"?node={scene.node_id('atlas')}") == [tasks[2], tasks[0]]
    assert listed(f"?node={scene.node_id('atlas')}&status=replied") == []
    assert listed("", who="charlie") == []
    assert listed(f"?node={scene.node_id('atlas')}", who="charlie") == []
    page = scene.call("vera", "GET", "/api/tasks?limit=2")[1]
    assert [task["task_id"] for task in page["tasks"]] == tasks[:0:-1]
    assert listed(f"?limit=2&cursor={page['next_cursor']}") == [tasks[0]]
    for query, error in (
        ("status=open", "invalid_status"),
        ("status=", "invalid_status"),
        ("node=x", "invalid_node"),
        ("node=", "invalid_node"),
        ("cursor=x", "invalid_cursor"),
        ("limit=x", "invalid_limit"),
    ):
        code, answer = scene.call("vera", "GET", f"/api/tasks?{query}")
        assert (code, answer["error"]) == (400, error), query


def test_steering_a_task_is_for_its_sender_and_admins(scene: Scene) -> None:
    task_id = scene.send()
    for action in ("cancel", "retry"):
        path = f"/api/tasks/{task_id}/{action}"
        for who, code, error in (
            ("vera", 403, "permission_denied"),
            ("bob", 403, "permission_denied"),
            ("charlie", 404, "task_not_found"),
        ):
            status, answer = scene.call(who, "POST", path)
            assert (status, answer["error"]) == (code, error), (who, action)
    bobs = scene.send(who="bob")
    assert scene.call("bob", "POST", f"/api/tasks/{bobs}/cancel")[0] == 200
    assert scene.call("alice", "POST", f"/api/tasks/{bobs}/retry")[0] == 200


def test_retry_is_for_what_did_not_succeed(scene: Scene) -> None:
    task_id = scene.send()
    path = f"/api/tasks/{task_id}/retry"
    assert scene.call("alice", "POST", path)[1]["error"] == "task_not_retryable"
    scene.inbox()
    scene.report(task_id, "reply", {"status": "replied"})
    assert scene.call("alice", "POST", path)[1]["error"] == "task_not_retryable"
    assert scene.call("alice", "POST", f"/api/tasks/{task_id}/cancel")[1]["error"] == "task_already_final"
    failed = scene.send()
    scene.inbox()
    scene.report(failed, "reply", {"status": "failed", "result": "broke"})
    scene.call("alice", "PATCH", f"/api/nodes/{scene.node_id('atlas')}", {"lifecycle_state": "stopping"})
    assert scene.call("alice", "POST", f"/api/tasks/{failed}/retry")[1]["error"] == "node_not_active"
    scene.call("alice", "PATCH", f"/api/nodes/{scene.node_id('atlas')}", {"lifecycle_state": "active"})
    code, answer = scene.call("alice", "POST", f"/api/tasks/{failed}/retry")
    assert (code, answer["task"]["status"], answer["task"]["attempt"]) == (200, "created", 2)


WRONG: list[Any] = [None, True, 1, 1.5, [], {}]


def test_bad_fields_of_every_body_are_named_and_change_nothing(scene: Scene) -> None:
    node = f"/api/nodes/{scene.node_id('atlas')}"
    task = scene.send()
    aliases = [*WRONG, "", "a", "Atlas", "a b", "ä" * 3, "-ab", "x" * 61, "ab\n"]
    tables: list[tuple[str, str, dict[str, Any], dict[str, tuple[str, list[Any]]]]] = [
        (
            "POST",
            "/api/nodes",
            {"alias": "borg"},
            {
                "alias": ("invalid_alias", aliases),
                "network_id": ("invalid_network_id", WRONG[1:]),
                "lifecycle_state": ("unknown_field", ["active"]),
            },
        ),
        (
            "PATCH",
            node,
            {"alias": "borg"},
            {
                "alias": ("invalid_alias", aliases),
                "lifecycle_state": ("invalid_lifecycle_state", [*WRONG, "", "deleting", "Active"]),
                "status": ("unknown_field", ["idle"]),
            },
        ),
        ("POST", f"{node}/token", {}, {"x": ("unknown_field", WRONG)}),
        (
            "POST",
            "/api/tasks",
            {"node_id": scene.node_id("atlas"), "task": "x"},
            {
                "node_id": ("invalid_node_id", WRONG),
                "task": ("invalid_task", [*WRONG, "", "  ", "x" * 10_001]),
                "priority": ("invalid_priority", [*WRONG, "", "urgent", "HIGH"]),
                "ttl_seconds": ("invalid_ttl_seconds", [None, True, 3600.0, "3600", [], {}, 59, 604_801, -1]),
                "run_id": ("unknown_field", ["srun_abc234"]),
            },
        ),
        ("POST", f"/api/tasks/{task}/cancel", {}, {"reason": ("unknown_field", WRONG)}),
        ("POST", f"/api/tasks/{task}/retry", {}, {"attempt": ("unknown_field", WRONG)}),
    ]
    for method, path, good, fields in tables:
        for field, (error, values) in fields.items():
            for value in values:
                status, answer = scene.call("alice", method, path, {**good, field: value})
                assert (status, answer["error"], answer["field"]) == (400, error, field), (path, field, value)
        for required in good if method == "POST" else ():
            body = {key: value for key, value in good.items() if key != required}
            status, answer = scene.call("alice", method, path, body)
            assert (status, answer["field"]) == (400, required)
    with scene.app.app_context(), reading() as session:
        assert session.scalar(select(func.count()).select_from(Task)) == 1
        assert session.scalar(select(func.count()).select_from(Node)) == 2
    assert scene.task(task)["status"] == "created"


def test_the_edges_of_what_is_good(scene: Scene) -> None:
    for body in (
        {"task": "x" * 10_000},
        {"task": " " * 50 + "x"},
        {"ttl_seconds": 60},
        {"ttl_seconds": 604_800},
        {"priority": "low"},
        {"network_id": scene.cast.network.network_id},
    ):
        scene.send(**{"task": "x", **body})
    for alias in ("ab", "x" * 60, "0.a_b-c"):
        assert scene.call("alice", "POST", "/api/nodes", {"alias": alias})[0] == 201, alias
    code, answer = scene.call(
        "alice",
        "POST",
        "/api/tasks",
        {
            "node_id": scene.node_id("atlas"),
            "task": "x",
            "network_id": scene.cast.elsewhere.network_id,
        },
    )
    assert (code, answer["error"]) == (404, "node_not_found")


def test_a_person_of_several_networks_names_one(scene: Scene) -> None:
    with scene.app.app_context():
        factories.make_member(scene.cast.alice, scene.cast.elsewhere, "admin")
    code, answer = scene.call("alice", "POST", "/api/nodes", {"alias": "borg"})
    assert (code, answer["error"]) == (400, "network_id_required")
    body = {"alias": "borg", "network_id": scene.cast.elsewhere.network_id}
    code, answer = scene.call("alice", "POST", "/api/nodes", body)
    assert (code, answer["node"]["network_id"]) == (201, scene.cast.elsewhere.network_id)
    assert len(scene.call("alice", "GET", "/api/nodes")[1]["nodes"]) == 3


def test_the_command_line_makes_nodes_too(scene: Scene, clock: FrozenClock) -> None:
    with scene.app.app_context():
        node, token = operations.create_node(None, scene.cast.network.id, "borg", now=clock.now())
    assert token is not None
    scene.nodes["borg"] = (node.node_id, token)
    assert scene.inbox("borg") == []
    assert audit_verbs(scene, node.node_id) == [("command line", "node.create")]


def test_a_form_sends_the_same_task_as_a_body(scene: Scene, clock: FrozenClock) -> None:
    with scene.app.app_context():
        body = NewTaskBody(node_id=scene.node_id("atlas"), task=" Read the news ")
        task = operations.create_task(factories.actor_of(scene.cast.bob), body, now=clock.now())
    assert task.text.body == "Read the news"
    assert [item["task_id"] for item in scene.inbox()] == [task.task_id]
