"""No input, however wrong, gets anything but a refusal that says what is wrong; and it changes nothing.

Every field of every body is sent every kind of value; what the table calls legal for a field is left out. The
good body, which each attempt differs from in one value, is sent last and must be accepted: so each refusal was
about that value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.api.house import TASKS, House, make_house
from tests.chat.scene import Scene
from tests.factories import make_token, make_user
from tests.support.databases import START, DatabaseSource, config_for, dispose_engines
from webapp import create_app
from webapp.api.openapi import CALLS
from webapp.clock import FrozenClock
from webapp.identity.models import User
from webapp.ids import new_id
from webapp.store import reading
from webapp.store.base import Base
from webapp.store.transaction import Tx, operation
from webapp.web.openapi import path_of
from webapp.web.policy import Door, routes


class Raw(str):
    """JSON that is written as it stands."""


# Refused before any field is looked at: sent once in every body.
UNREADABLE: dict[str, Any] = {
    "endless digits": Raw("9" * 5000),
    "infinite": Raw("1e999"),
    "not a number": Raw("NaN"),
    "infinity": Raw("-Infinity"),
    "long": "x" * 300_000,
    "half a pair": "\ud800",
    "hidden half": ["ok", {"deep": "\udfff"}],
    "nul": "a\x00b",
}
# Sent in every field.
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "minus one": -1,
    "fraction": 1.5,
    "whole fraction": Raw("5.0"),
    "exponent": Raw("1e2"),
    "huge": 10**30,
    "empty": "",
    "blank": " ",
    "list": [],
    "object": {},
    "nested": [[[{"a": []}]]],
    "list of text": ["5"],
    "digits": "5",
    "word": "true",
    "emoji": "🌙 at night",
    "right to left": "\u202eabc",
    "escape": "a\x1bb",
    "two lines": "a\nb",
    "markup": "<b>' OR 1=1 --",
    "instant without offset": "2026-12-01T09:00:00",
}
# What the database itself could choke on, if it came so far; the other one has seen all of it.
ON_POSTGRESQL = ("minus one", "huge", "empty", "emoji", "markup")
LINES = {"digits", "word", "emoji", "right to left", "markup", "instant without offset"}
TEXT = {*LINES, "escape", "two lines"}
LEGAL: dict[str, set[str]] = {
    "NewSchedule.name": LINES,
    "ScheduleChanges.name": LINES,
    "NewSchedule.task": TEXT,
    "ScheduleChanges.task": TEXT,
    "misfire_grace_seconds": {"zero"},
    "failure_threshold": {"null"},
    "starts_at": {"null"},
    "ends_at": {"null"},
    "max_runs": {"null"},
    "ttl_seconds": {"null"},
    "NewTaskBody.ttl_seconds": set(),
    "max_run_seconds": {"null"},
    "PauseRequest.reason": {*TEXT, "null", "empty", "blank"},
    "PauseRequest.resume_at": {"null"},
    "BulkRequest.reason": {*TEXT, "null", "empty", "blank"},
    "BulkRequest.resume_at": {"null"},
    "BulkRequest.schedule_ids": {"list of text"},
    "SkipRequest.slot": {"null"},
    "MoveRequest.slot": {"null"},
    "alias": {"word"},
    "NewTaskBody.task": TEXT,
    "ReplyBody.result": {*TEXT, "empty", "blank"},
    "UserChanges.active": {"true", "false"},
    "NewMemberBody.name": {"null"},
    "NewUserBody.name": LINES,
    "NewUserBody.password": {"instant without offset", "markup"},
    "NewUserBody.admin": {"true", "false"},
    "NewUserBody.network_id": {"null"},
    "NewNetworkBody.name": LINES,
    "NewNetworkBody.slug": {"word"},
    "NewChatSchedule.name": LINES,
    "NewChatSchedule.prompt": TEXT,
    "NewChatSchedule.model": {"null"},
    "NewChatSchedule.policy": {"null"},
    "NewChatSchedule.expires_at": {"null"},
    "ChatTaskChanges.name": LINES,
    "ChatTaskChanges.prompt": TEXT,
    "ChatTaskChanges.model": {"null"},
    "NewChatBody.title": LINES,
    "ChatChanges.title": LINES,
    "NewMessageBody.text": TEXT,
    "NewMessageBody.deny_waiting": {"true", "false"},
    "MandateChanges.expires_at": {"null"},
    "PauseMandate.reason": {*TEXT, "empty", "blank"},
    "RevokeMandate.reason": TEXT,
    "NewTokenBody.label": {*LINES, "empty", "blank"},
    "NewTokenBody.network_id": {"null"},
    "NewTokenBody.expires_days": {"null"},
}
TIMETABLES: dict[str, dict[str, Any]] = {
    "once": {"type": "once", "run_at": "2026-12-01T09:00"},
    "interval": {"type": "interval", "every_seconds": 600, "anchor_at": "2026-12-01T09:00:00Z"},
    "daily": {"type": "daily", "time": "09:00"},
    "weekly": {"type": "weekly", "time": "09:00", "weekdays": [1, 5]},
    "cron": {"type": "cron", "cron": "0 9 * * 1-5"},
}
LEGAL_IN_TIMETABLES = {"run_at": {"instant without offset"}}

# Requests that are no JSON object at all: (body, content type) -> code.
BROKEN: dict[str, tuple[bytes, str, str]] = {
    "nothing in it": (b" ", "application/json", "invalid_json"),
    "cut off": (b'{"name": "a', "application/json", "invalid_json"),
    "an array": (b"[]", "application/json", "invalid_json"),
    "a text": (b'"x"', "application/json", "invalid_json"),
    "null": (b"null", "application/json", "invalid_json"),
    "a number": (b"1", "application/json", "invalid_json"),
    "two objects": (b"{}{}", "application/json", "invalid_json"),
    "a comment": (b"{} // x", "application/json", "invalid_json"),
    "single quotes": (b"{'a': 1}", "application/json", "invalid_json"),
    "a key twice": (b'{"a": 1, "a": 1}', "application/json", "invalid_json"),
    "a key twice, deep": (b'{"a": {"b": 1, "b": 2}}', "application/json", "invalid_json"),
    "nested beyond reach": (b'{"a":' * 40_000 + b"1" + b"}" * 40_000, "application/json", "invalid_json"),
    "lists beyond reach": (b'{"a":' + b"[" * 100_000, "application/json", "invalid_json"),
    "another encoding": ('{"a": "ü"}'.encode("latin-1"), "application/json", "invalid_json"),
    "two bytes a letter": ('{"a": 1}'.encode("utf-16"), "application/json", "invalid_json"),
    "a control letter": (b'{"a": "\x01"}', "application/json", "invalid_json"),
    "too large": (b'{"a": "' + b"x" * 270_000 + b'"}', "application/json", "payload_too_large"),
    "a form": (b"a=1", "application/x-www-form-urlencoded", "unsupported_media_type"),
    "plain text": (b"{}", "text/plain", "unsupported_media_type"),
    "XML": (b"<a/>", "application/xml", "unsupported_media_type"),
    "nonsense": (b"{}", "x", "unsupported_media_type"),
}


@dataclass(frozen=True)
class Aim:
    """A call to attack: who makes it, where, and a body that is good there."""

    who: str
    method: str
    path: str
    good: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


def _schedule(house: House, path: str = "", method: str = "POST", **good: Any) -> Aim:
    return Aim("alice", method, f"{TASKS}/{house.create()['schedule_id']}{path}", good)


def _task(house: House, *steps: str, retryable: bool = False) -> str:
    """A task of atlas that has been fetched, and for which the node has then reported `steps`."""
    body = {"node_id": house.node_ids["atlas"], "task": "Look."}
    task_id: str = house.call("alice", "POST", "/api/tasks", body).part("task", 201)["task_id"]
    house.call("atlas", "GET", "/api/node/inbox").part("items")
    for step in steps:
        house.call("atlas", "POST", f"/api/node/tasks/{task_id}/{step}", {}).part("task")
    if retryable:
        house.call("alice", "POST", f"/api/tasks/{task_id}/cancel").part("task")
    return task_id


def _user(house: House, name: str) -> str:
    new = {"name": name, "password": "a long enough one"}
    view = house.call("alice", "POST", "/api/users", new).part("user", 201)
    return str(view["user_id"])


def _members(house: House) -> str:
    return f"/api/networks/{house.cast.network.network_id}/members"


def _report(house: House, what: str, *steps: str, **good: Any) -> Aim:
    return Aim("atlas", "POST", f"/api/node/tasks/{_task(house, *steps)}/{what}", {"attempt": 1, **good})


def _chat(house: House, path: str = "", method: str = "POST", **good: Any) -> Aim:
    return Aim("alice", method, f"/api/chats/{Scene(house).chat()}{path}", good)


KEYED = {"Idempotency-Key": "attack"}


def _new_chat_task(house: House) -> Aim:
    good = {
        "chat_id": Scene(house).chat(),
        "prompt": "What is new?",
        "schedule": {"kind": "daily", "time": "09:00"},
    }
    return Aim("alice", "POST", "/api/chat-tasks", good, KEYED)


def _chat_task(house: House, path: str = "", method: str = "POST", **good: Any) -> Aim:
    short_id = Scene(house).task(Scene(house).chat())["id"]
    return Aim("alice", method, f"/api/chat-tasks/{short_id}{path}", good, KEYED)


def _turn(house: House, path: str) -> Aim:
    scene = Scene(house)
    return Aim("alice", "POST", f"/api/turns/{scene.post(scene.chat())['turn_id']}{path}", {})


def _approval(house: House, path: str) -> Aim:
    scene = Scene(house)
    _, (approval_id,) = scene.waiting(scene.chat())
    return Aim("alice", "POST", f"/api/approvals/{approval_id}{path}", {})


def _many(house: House, path: str) -> Aim:
    good = {"action": "pause", "schedule_ids": [house.create()["schedule_id"]], "reason": "Holidays"}
    return Aim("alice", "POST", f"{TASKS}/bulk{path}", good)


def _mandate(house: House, path: str = "", method: str = "POST", **good: Any) -> Aim:
    return Aim("alice", method, f"/api/mandates/{house.create()['mandate_id']}{path}", good)


def _proposal(house: House, path: str) -> Aim:
    return Aim("alice", "POST", f"{TASKS}/{house.in_state('proposed')}{path}", {})


# endpoint -> what is needed for it, made just before.
AIMS: dict[str, Callable[[House], Aim]] = {
    "api_schedules.create_schedule": lambda house: Aim("alice", "POST", TASKS, house.body()),
    "api_schedules.preview": lambda _: Aim(
        "alice", "POST", f"{TASKS}/preview", {"schedule": TIMETABLES["daily"]}
    ),
    "api_schedules.edit_schedule": lambda house: _schedule(house, "", "PATCH", revision=1, name="Other"),
    "api_schedules.pause_schedule": lambda house: _schedule(house, "/pause", revision=1),
    "api_schedules.resume_schedule": lambda house: _schedule(house, "/resume", revision=1),
    "api_schedules.cancel_schedule": lambda house: _schedule(house, "/cancel", revision=1),
    "api_schedules.delete_schedule": lambda house: _schedule(house, "", "DELETE", revision=1),
    "api_schedules.change_many": lambda house: _many(house, ""),
    "api_schedules.preview_many": lambda house: _many(house, "/preview"),
    "api_schedules.skip_next": lambda house: _schedule(house, "/skip-next", revision=1),
    "api_schedules.move_next": lambda house: _schedule(
        house, "/move-next", revision=1, to="2026-11-30T09:30:00Z"
    ),
    "api_schedules.undo_next_change": lambda house: _schedule(house, "/next-change", "DELETE", revision=1),
    "api_schedules.run_now": lambda house: _schedule(house, "/run-now"),
    "api_schedules.confirm_schedule": lambda house: _proposal(house, "/confirm"),
    "api_schedules.reject_schedule": lambda house: _proposal(house, "/reject"),
    "api_mandates.change_mandate": lambda house: _mandate(house, "", "PATCH", revision=1, expires_at=None),
    "api_mandates.confirm_mandate": lambda house: _mandate(house, "/confirm", revision=1),
    "api_mandates.pause_mandate": lambda house: _mandate(house, "/pause", revision=1),
    "api_mandates.resume_mandate": lambda house: _mandate(house, "/resume", revision=1),
    "api_mandates.revoke_mandate": lambda house: _mandate(house, "/revoke", revision=1, reason="Enough."),
    "api_nodes.create_node": lambda _: Aim("alice", "POST", "/api/nodes", {"alias": "hermes"}),
    "api_nodes.update_node": lambda house: Aim(
        "alice", "PATCH", f"/api/nodes/{house.add_node('iris')}", {"alias": "juno"}
    ),
    "api_nodes.rotate_token": lambda house: Aim(
        "alice", "POST", f"/api/nodes/{house.add_node('pallas')}/token", {}
    ),
    "api_tasks.create_task": lambda house: Aim(
        "alice", "POST", "/api/tasks", {"node_id": house.node_ids["atlas"], "task": "Look."}
    ),
    "api_tasks.cancel_task": lambda house: Aim("alice", "POST", f"/api/tasks/{_task(house)}/cancel", {}),
    "api_tasks.retry_task": lambda house: Aim(
        "alice", "POST", f"/api/tasks/{_task(house, retryable=True)}/retry", {}
    ),
    "api_node.heartbeat": lambda house: Aim(
        "atlas", "POST", "/api/node/heartbeat", {"status": "working", "task_id": _task(house, "ack")}
    ),
    "api_node.acknowledge": lambda house: _report(house, "ack"),
    "api_node.start": lambda house: _report(house, "start", "ack"),
    "api_node.reply": lambda house: _report(house, "reply", "ack", status="replied", result="So."),
    "api_chats.create_chat": lambda _: Aim("alice", "POST", "/api/chats", {"title": "Papers"}),
    "api_chats.rename_chat": lambda house: _chat(house, "", "PATCH", title="Other"),
    "api_chats.archive_chat": lambda house: _chat(house, "/archive"),
    "api_chats.unarchive_chat": lambda house: _chat(house, "/unarchive"),
    "api_chats.post_message": lambda house: _chat(house, "/messages", text="Hello", model="echo"),
    "api_chat_tasks.create_task": _new_chat_task,
    "api_chat_tasks.edit_task": lambda house: _chat_task(house, "", "PATCH", revision=1, name="Other"),
    "api_chat_tasks.pause_task": lambda house: _chat_task(house, "/pause", revision=1),
    "api_chat_tasks.resume_task": lambda house: _chat_task(house, "/resume", revision=1),
    "api_chat_tasks.run_task": lambda house: _chat_task(house, "/run"),
    "api_chat_tasks.delete_task": lambda house: _chat_task(house, "", "DELETE", revision=1),
    "api_turns.abort_turn": lambda house: _turn(house, "/abort"),
    "api_approvals.approve": lambda house: _approval(house, "/approve"),
    "api_approvals.deny": lambda house: _approval(house, "/deny"),
    "people_api.create_network": lambda _: Aim(
        "root", "POST", "/api/networks", {"name": "Third", "slug": "third"}
    ),
    "people_api.add_member": lambda house: Aim(
        "alice", "POST", _members(house), {"user_id": _user(house, "Dora"), "role": "viewer"}
    ),
    "people_api.change_member": lambda house: Aim(
        "alice", "PATCH", f"{_members(house)}/{house.cast.bob.user_id}", {"role": "viewer"}
    ),
    "people_api.create_user": lambda house: Aim(
        "alice",
        "POST",
        "/api/users",
        {"name": "Emil", "password": "correct horse", "network_id": house.cast.network.network_id},
    ),
    "people_api.change_user": lambda house: Aim(
        "alice", "PATCH", f"/api/users/{_user(house, 'Fritz')}", {"active": False}
    ),
    "people_api.create_token": lambda house: Aim(
        "alice", "POST", "/api/tokens", {"label": "script", "expires_days": 30}
    ),
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def house(request: pytest.FixtureRequest, databases: DatabaseSource) -> Iterator[House]:
    """One house for all of these: nothing here may change it but what is good. Alice runs the whole system."""
    with databases.lend(request.param) as url:
        clock = FrozenClock(START)
        app = create_app(config_for(url), clock)
        house = make_house(app, clock)
        with app.app_context():
            _make_admin(house.cast.alice.id)
            house.tokens["root"] = make_token(make_user("Root", is_admin=True))
        yield house
        dispose_engines(app)


@operation
def _make_admin(tx: Tx, user_pk: int) -> None:
    tx.session.execute(update(User).where(User.id == user_pk).values(is_admin=True))


def dump(house: House) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that is stored, but for what any call may note: when a token was used, a node was heard."""
    with house.app.app_context(), reading() as session:
        return {
            table.name: sorted((tuple(row) for row in session.execute(select(*_columns(table)))), key=str)
            for table in Base.metadata.sorted_tables
            if table.name != "node_presence"
        }


def values_for(house: House) -> dict[str, Any]:
    """Everything wrong on SQLite, a part of it on PostgreSQL: the door before both is the same."""
    return VALUES if is_sqlite(house) else {kind: VALUES[kind] for kind in ON_POSTGRESQL}


def some(house: House, cases: dict[str, Any]) -> dict[str, Any]:
    """All cases on SQLite, the last three on PostgreSQL, where they would be refused at the same door."""
    return cases if is_sqlite(house) else dict(list(cases.items())[-3:])


def is_sqlite(house: House) -> bool:
    return bool(house.app.config["SQLALCHEMY_DATABASE_URI"].startswith("sqlite"))


def _columns(table: Any) -> list[Any]:
    return [column for column in table.columns if column.name != "last_used_at"]


def test_every_call_with_a_body_is_attacked() -> None:
    assert set(AIMS) == {endpoint for endpoint, call in CALLS.items() if call.body is not None}


@pytest.mark.parametrize("endpoint", sorted(AIMS))
def test_wrong_values_are_refused_and_change_nothing(house: House, endpoint: str) -> None:
    aim = AIMS[endpoint](house)
    body = CALLS[endpoint].body
    assert body is not None
    before = dump(house)
    for name in [*body.model.model_fields, *body.also]:
        legal = LEGAL.get(f"{body.model.__name__}.{name}", LEGAL.get(name, set()))
        for kind, value in values_for(house).items():
            if kind not in legal:
                code = _refused(house, aim, {**aim.good, name: value}, f"{name}: {kind}")
                assert code != "unknown_field", f"{endpoint} does not know {name}, which is described"
    for kind, value in some(house, UNREADABLE).items():
        code = _refused(house, aim, {**aim.good, "unknown": value}, kind)
        assert code == ("payload_too_large" if kind == "long" else "invalid_json"), kind
    for key in ("unknown", "", "Name", "__proto__", "k" * 5000, "\ud800", "a\x00b", "schlüssel"):
        code = _refused(house, aim, {**aim.good, key: 1}, repr(key[:20]))
        assert code in ("unknown_field", "invalid_json"), key
    for name in body.model.model_fields:
        if body.model.model_fields[name].is_required():
            _refused(house, aim, {key: aim.good[key] for key in aim.good if key != name}, f"no {name}")
    for kind, (raw, content_type, code) in some(house, BROKEN).items():
        answer = house.call(
            aim.who, aim.method, aim.path, data=raw, content_type=content_type, headers=aim.headers
        )
        assert answer.json["error"] == code, kind
    if aim.good and not body.optional and endpoint != "api_node.reply":
        assert house.call(aim.who, aim.method, aim.path).error == (415, "unsupported_media_type")
    assert dump(house) == before, f"{endpoint}: something left a trace"
    accepted = house.call(aim.who, aim.method, aim.path, aim.good, headers=aim.headers)
    assert accepted.status < 300, accepted.json


def _refused(house: House, aim: Aim, body: dict[str, Any], what: str) -> str:
    raw = _written(body)
    answer = house.call(
        aim.who, aim.method, aim.path, data=raw, content_type="application/json", headers=aim.headers
    )
    assert 400 <= answer.status < 500, f"{aim.method} {aim.path} {what}: {answer.status}"
    return str(answer.json["error"])


def _written(value: Any) -> str:
    """JSON, with raw parts as they stand."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_written(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)


def test_wrong_values_in_a_timetable_are_refused(house: House) -> None:
    aim = AIMS["api_schedules.edit_schedule"](house)
    before = dump(house)
    for spec in TIMETABLES.values():
        for name in spec:
            for kind, value in values_for(house).items():
                if kind not in LEGAL_IN_TIMETABLES.get(name, set()):
                    wrong = {**aim.good, "schedule": {**spec, name: value}}
                    _refused(house, aim, wrong, f"{spec['type']} {name}: {kind}")
            if name != "anchor_at":
                short = {key: value for key, value in spec.items() if key != name}
                _refused(house, aim, {**aim.good, "schedule": short}, f"no {name}")
        _refused(house, aim, {**aim.good, "schedule": {**spec, "unknown": 1}}, "unknown")
    assert dump(house) == before
    for spec in TIMETABLES.values():
        wish = {"schedule": spec, "timezone": "Europe/Berlin"}
        assert house.call("alice", "POST", f"{TASKS}/preview", wish).status == 200


def test_the_edges_of_the_calendar_are_survived(house: House) -> None:
    """What is legal but far out is stored, listed, previewed and taken away again without a fault."""
    far = "9999-12-31T23:59:59.999Z"
    early = "0001-01-01T00:00:00Z"
    orders: list[dict[str, Any]] = [
        {"schedule": {"type": "once", "run_at": far}, "timezone": "Pacific/Kiritimati"},
        {"schedule": {"type": "once", "run_at": "9999-12-30T23:59"}, "timezone": "America/New_York"},
        {
            "schedule": {"type": "interval", "every_seconds": 31_536_000, "anchor_at": early},
            "timezone": "America/New_York",
        },
        {"schedule": {"type": "interval", "every_seconds": 60, "anchor_at": far}, "timezone": "Asia/Tokyo"},
        {"starts_at": early, "ends_at": far, "timezone": "America/St_Johns"},
        {"starts_at": "9999-12-31T00:00:00Z", "timezone": "Europe/Berlin"},
        {"schedule": {"type": "cron", "cron": "0 0 29 2 1"}, "starts_at": "2099-01-01T00:00:00Z"},
        {"max_runs": 1_000_000, "ttl_seconds": 604_800, "max_run_seconds": 2_592_000},
    ]
    for order in orders:
        made = house.call("alice", "POST", TASKS, house.body(**order))
        if made.status != 201:
            assert made.error == (400, "schedule_has_no_future_occurrence"), order
            continue
        path = f"{TASKS}/{made.json['schedule']['schedule_id']}"
        assert house.call("alice", "GET", TASKS).status == 200
        assert house.call("alice", "GET", f"{path}/admission").status == 200
        wish = {"revision": 1, "timezone": "Pacific/Apia"}
        assert house.call("alice", "PATCH", path, wish).status in (200, 400), order
        assert house.call("alice", "DELETE", path).status == 200
    for order in orders[:6]:
        for after in (early, far, "9998-12-31T12:00:00Z"):
            spec = order.get("schedule", {"type": "cron", "cron": "*/7 * * * *"})
            wish = {**order, "schedule": spec, "after": after, "count": 100}
            answer = house.call("alice", "POST", f"{TASKS}/preview", wish)
            assert answer.status == 200, (wish, answer.json)


def test_ids_that_are_none_or_are_foreign_are_not_there(house: House) -> None:
    theirs = _foreign_ids(house)
    wrong_ids = some(house, dict.fromkeys(_WRONG_IDS))
    # The first word of a node is an event; it is not what is looked at here.
    house.call("atlas", "GET", "/api/node/inbox").part("items")
    before = dump(house)
    attempts = 0
    for route in routes(house.app):
        path = path_of(route.rule)
        if not path.startswith("/api/") or "{" not in path:
            continue
        # Alice runs the system: people and their tokens are in her reach wherever they are.
        who = "atlas" if route.access.door is Door.NODE_API else "alice" if "user_id" in path else "bob"
        for method in sorted(route.methods):
            good = {"role": "viewer"} if route.endpoint == "people_api.change_member" else {}
            for ids in [theirs, *(dict.fromkeys(theirs, wrong) for wrong in wrong_ids)]:
                answer = house.call(who, method, path.format(**ids), good)
                assert answer.status == 404, (method, path, ids, answer.json)
                assert answer.json["error"].endswith("not_found")
                attempts += 1
    assert attempts > 25 * (1 + len(wrong_ids))
    assert dump(house) == before


_WRONG_IDS = (
    "x",
    "0",
    "-1",
    "null",
    "sched_",
    "SCHED_ABCDEFGH",
    "node_" + "a" * 5000,
    "task_abc'--",
    "%F0%9F%8C%99moon",
    "a%FFb",
    "task_%00abcdef",
    "user_abcdefgh%20",
    "srun_abcdefgh%0A",
    new_id("sched"),
    new_id("node"),
)


def _foreign_ids(house: House) -> dict[str, str]:
    """What Charlie has: real ids, that nobody of Harbour may know of."""
    order = house.body(target_node_id=house.node_ids["zephyr"])
    schedule = house.call("charlie", "POST", TASKS, order).part("schedule", 201)
    path = f"{TASKS}/{schedule['schedule_id']}/run-now"
    run = house.call("charlie", "POST", path).part("run", 202)
    token = house.call("charlie", "POST", "/api/tokens", {}).part("token", 201)
    scene = Scene(house)
    chat_id = scene.chat("charlie")
    turn_id = scene.post(chat_id, who="charlie")["turn_id"]
    assert scene.begin(turn_id)
    return {
        "chat_id": chat_id,
        "short_id": scene.task(chat_id, "charlie")["id"],
        "turn_id": turn_id,
        "approval_id": scene.ask(turn_id, "call-1")[0],
        "schedule_id": schedule["schedule_id"],
        "mandate_id": schedule["mandate_id"],
        "run_id": run["run_id"],
        "task_id": run["task_id"],
        "node_id": house.node_ids["zephyr"],
        "network_id": house.cast.elsewhere.network_id,
        "user_id": "user_nobodyatall",
        "token_id": token["token_id"],
    }


WRONG_PAGES = {
    "limit=": "invalid_limit",
    "limit=ten": "invalid_limit",
    "limit=1.5": "invalid_limit",
    "limit=1e3": "invalid_limit",
    "limit=%D9%A3": "invalid_limit",
    "limit=" + "9" * 50: "invalid_limit",
    "limit=0x10": "invalid_limit",
    "cursor=": "invalid_cursor",
    "cursor=x": "invalid_cursor",
    "cursor=!": "invalid_cursor",
    "cursor=%F0%9F%8C%99": "invalid_cursor",
    "cursor=" + "A" * 5000: "invalid_cursor",
    "cursor=W10": "invalid_cursor",
    "cursor=W251bGwsbnVsbF0": "invalid_cursor",
    "cursor=Wzk5OTk5OTk5OTk5OTk5OTk5OTk5LDFd": "invalid_cursor",
    "cursor=WzEsOTk5OTk5OTk5OTk5OTk5OTk5OTk5XQ": "invalid_cursor",
    "cursor=a%00b": "bad_request",
}


def test_wrong_pages_are_refused_by_every_list(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    network_id = house.cast.network.network_id
    scene = Scene(house)
    chat_id = scene.chat()
    ids = {"schedule_id": schedule_id, "network_id": network_id, "chat_id": chat_id}
    ids["short_id"] = scene.task(chat_id)["id"]
    lists = 0
    for route in routes(house.app):
        call = CALLS.get(route.endpoint)
        if call is None or not any(parameter.name == "cursor" for parameter in call.parameters):
            continue
        lists += 1
        path = path_of(route.rule).format(**ids)
        for query, code in some(house, WRONG_PAGES).items():
            assert house.call("alice", "GET", f"{path}?{query}").error == (400, code), (path, query)
        for parameter in call.parameters:
            for wrong in some(house, dict.fromkeys(("", "\u202e\x07", "a\nb", "%", "x" * 5000, "�"))):
                query_string = {parameter.name: wrong}
                answer = house.call("alice", "GET", path, query_string=query_string)
                fine = parameter.name == "q" and wrong in ("", "%", "�")
                fine |= parameter.name in ("actor", "subject") and wrong in ("%", "�")
                assert (answer.status == 200) is fine, (path, parameter.name, wrong, answer.json)
    assert lists >= 9


def test_wrong_headers_are_refused(house: House) -> None:
    schedule_id = house.create()["schedule_id"]
    path = f"{TASKS}/{schedule_id}"
    before = dump(house)
    for value in ("1", '"0"', '"-1"', '"x"', "'1'", '"1", "2"', '"' + "9" * 40 + '"', '""'):
        answer = house.call("alice", "PATCH", path, {"name": "x"}, headers={"If-Match": value})
        assert answer.error == (400, "invalid_revision"), value
    for header in (
        "Bearer",
        "Bearer ",
        "Bearer utok_x",
        "Basic YTpi",
        "utok_x",
        "Bearer \xff\xfe",
        "Bearer a b",
    ):
        response = house.app.test_client().get(path, headers={"Authorization": header})
        assert (response.status_code, response.get_json()["error"]) == (401, "unauthenticated"), header
    for method in ("PUT", "PATCH", "DELETE"):
        assert house.call("alice", method, TASKS, {}).error == (405, "method_not_allowed")
    for unknown in ("/api", "/api/", "/api/nothing", f"{TASKS}/", f"{path}/confirm", f"{path}/%00"):
        assert house.call("alice", "GET", unknown).status in (404, 405), unknown
    assert dump(house) == before
