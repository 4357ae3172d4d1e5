"""The OpenAPI document says what is served: every route, who may call it, what it reads, answers and refuses.

That each answer of each test is one that the document promises is checked by `tests/api/documented.py`; that
each described field is read, by test_bad_input.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from tests.api import test_runs, test_schedules
from tests.api.house import TASKS, House
from tests.chat.scene import Scene
from webapp.api.openapi import CALLS, OVERRIDES
from webapp.errors import ERRORS
from webapp.web.openapi import Call, Incomplete, document, path_of
from webapp.web.policy import Door, routes

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

SECURITY = {
    Door.PUBLIC: [],
    Door.USER_API: [{"userToken": []}, {"session": []}],
    Door.NODE_API: [{"nodeToken": []}],
}


@pytest.fixture
def served(house: House) -> dict[str, Any]:
    """The document as a caller gets it."""
    response = house.app.test_client().get(
        "/api/openapi.json", headers={"Authorization": f"Bearer {house.tokens['vera']}"}
    )
    assert (response.status_code, response.mimetype) == (200, "application/json")
    found: dict[str, Any] = json.loads(response.data)
    return found


def operations(served: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in served["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_route_of_the_api_is_in_it_and_nothing_else(house: House, served: dict[str, Any]) -> None:
    in_map = {
        (path_of(route.rule), method.lower(), str(SECURITY[route.access.door]))
        for route in routes(house.app)
        for method in route.methods
        if route.rule.startswith("/api")
    }
    described = {(path, method, str(operation["security"])) for path, method, operation in operations(served)}
    assert described == in_map
    assert len(described) > 40
    assert served["openapi"] == "3.1.0"


def test_every_reference_leads_somewhere_and_every_name_is_unique(served: dict[str, Any]) -> None:
    text = json.dumps(served)
    schemas = served["components"]["schemas"]
    named = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert named <= set(schemas)
    unused = {name for name in schemas if name not in named}
    assert unused == set()
    ids = [operation["operationId"] for _, _, operation in operations(served)]
    assert len(ids) == len(set(ids))
    assert all(operation["summary"].endswith(".") for _, _, operation in operations(served))
    for path, _, operation in operations(served):
        written = {part["name"] for part in operation.get("parameters", []) if part["in"] == "path"}
        assert written == {part.partition("}")[0] for part in path.split("{")[1:]}


def test_every_refusal_is_described_with_its_codes(served: dict[str, Any]) -> None:
    for path, method, operation in operations(served):
        refusals = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        assert {"400", "401", "403", "429", "500"} <= set(refusals), (path, method)
        for answer in refusals.values():
            _, narrowed = answer["content"]["application/json"]["schema"]["allOf"]
            assert set(narrowed["properties"]["error"]["enum"]) <= set(ERRORS)
        if "{" in path:
            assert "404" in refusals, (path, method)
        if "requestBody" in operation:
            assert {"413", "415"} <= set(refusals), (path, method)


def test_bodies_are_closed_and_show_their_limits(served: dict[str, Any]) -> None:
    bodies = {
        operation["operationId"]: operation["requestBody"]["content"]["application/json"]["schema"]
        for _, _, operation in operations(served)
        if "requestBody" in operation
    }
    assert all(body["additionalProperties"] is False for body in bodies.values())
    create = bodies["api_schedules.create_schedule"]
    assert sorted(create["required"]) == ["name", "schedule", "target_node_id", "task"]
    fields = create["properties"]
    assert fields["name"] == {"maxLength": 120, "minLength": 1, "type": "string"}
    assert fields["misfire_grace_seconds"] == {
        "default": 60,
        "maximum": 86_400,
        "minimum": 0,
        "type": "integer",
    }
    assert [part["properties"]["type"]["const"] for part in fields["schedule"]["oneOf"]] == [
        "once",
        "interval",
        "daily",
        "weekly",
        "cron",
    ]
    edit = bodies["api_schedules.edit_schedule"]
    assert "required" not in edit
    assert not any("default" in part for part in edit["properties"].values())
    assert "revision" in edit["properties"]


def test_answers_name_every_field_of_the_contract(served: dict[str, Any]) -> None:
    schemas = served["components"]["schemas"]
    assert set(test_schedules.FIELDS) == set(schemas["Schedule"]["required"])
    assert set(test_runs.FIELDS) == set(schemas["Run"]["required"])
    answer = served["paths"][TASKS]["post"]["responses"]["201"]
    assert set(answer["content"]["application/json"]["schema"]["required"]) == {"ok", "schedule", "warnings"}
    assert "ETag" in answer["headers"]


def test_a_route_that_is_not_described_is_noticed(app: Flask) -> None:
    fewer = {endpoint: call for endpoint, call in CALLS.items() if endpoint != "api_runs.show_run"}
    with pytest.raises(Incomplete, match=r"api_runs\.show_run"):
        document(app, fewer, overrides={}, about={})
    more = {**CALLS, "api_moon.rise": Call({200: {}})}
    with pytest.raises(Incomplete, match=r"api_moon\.rise"):
        document(app, more, overrides={}, about={})


def test_every_call_that_reads_answers_as_described(house: House) -> None:
    """Those that take a body are called by test_bad_input.py; here are all others but the streams."""
    schedule = house.create()
    schedule_id = schedule["schedule_id"]
    run = house.do("alice", schedule_id, "run-now").part("run", 202)
    house.serve()
    scene = Scene(house)
    chat_id = scene.chat()
    order = {"chat_id": chat_id, "prompt": "What is new?", "timezone": "UTC"}
    order["schedule"] = {"kind": "cron", "cron": "0 * * * *"}
    key = {"Idempotency-Key": "order"}
    task = house.call("alice", "POST", "/api/chat-tasks", order, headers=key).part("task", 201)
    token = house.call("alice", "POST", "/api/tokens", {}).part("token", 201)
    ids = {
        "schedule_id": schedule_id,
        "run_id": run["run_id"],
        "task_id": run["task_id"],
        "node_id": house.node_ids["atlas"],
        "network_id": house.cast.network.network_id,
        "user_id": house.cast.bob.user_id,
        "token_id": token["token_id"],
        "chat_id": chat_id,
        "turn_id": scene.post(chat_id)["turn_id"],
        "short_id": task["id"],
        "mandate_id": schedule["mandate_id"],
    }
    called = set()
    for route in sorted(routes(house.app), key=lambda route: "DELETE" in route.methods):
        call = CALLS.get(route.endpoint)
        if call is None or call.body is not None or "text/event-stream" in call.answers.values():
            continue
        if route.endpoint == "api_openapi.show_openapi":
            continue
        who = "atlas" if route.access.door is Door.NODE_API else "alice"
        (method,) = route.methods
        answer = house.call(who, method, path_of(route.rule).format(**ids))
        assert answer.status in call.answers, (route.endpoint, answer.json)
        called.add(route.endpoint)
    assert len(called) >= 30


def test_what_a_model_cannot_say_is_said_by_hand_for_fields_that_exist(app: Flask) -> None:
    models = {call.body.model.__name__: call.body.model for call in CALLS.values() if call.body}
    fields = {name for model in models.values() for name in model.model_fields}
    for name in OVERRIDES:
        model, _, field = name.rpartition(".")
        assert field in (models[model].model_fields if model else fields), name
