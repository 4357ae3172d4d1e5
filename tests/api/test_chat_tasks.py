"""`/api/chat-tasks`: one's own, by short id, created once, gone when cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.house import TASKS as SCHEDULES
from tests.api.house import House
from tests.chat.scene import TASKS, Scene
from tests.support.races import at_once
from webapp.chat import execution
from webapp.chat.execution import Used

KEY = {"Idempotency-Key": "morning"}
HOURLY = {"kind": "cron", "cron": "0 * * * *"}


@pytest.fixture
def scene(house: House) -> Scene:
    return Scene(house)


def _task(scene: Scene, who: str = "bob", **fields: Any) -> dict[str, Any]:
    """A chat of that person's with an hourly prompt in it; the view of the task."""
    return scene.task(scene.chat(who), who, **{"schedule": HOURLY, **fields})


def _do(scene: Scene, task: dict[str, Any], what: str = "", method: str = "POST", **options: Any) -> Any:
    who = options.pop("who", "bob")
    return scene.call(who, method, f"{TASKS}/{task['id']}{what}", **options)


def _work_off(scene: Scene, *, fails_with: str | None = None) -> None:
    """A worker takes the next turn up, and it is answered or fails."""
    now = scene.house.clock.now()
    with scene.house.app.app_context():
        hold = execution.take_turn("worker-of-the-test", now=now)
        assert hold is not None
        if fails_with is not None:
            execution.fail(hold, fails_with, "It did not work.", now=now)
            return
        assert execution.request_sent(hold, "[]", most_input_tokens=10, now=now) is not None
        execution.answer_kept(hold, "[]", "Nothing.", Used(7, 5), has_calls=False, now=now)


def test_a_task_as_it_is_made(scene: Scene) -> None:
    chat_id = scene.chat("bob", "Bob's papers")
    task = scene.task(chat_id, "bob", prompt="  What is\nnew?  ", schedule=HOURLY, timezone="europe/berlin")
    assert task["name"] == "What is new?"
    assert task["prompt"] == "What is\nnew?"
    assert task["schedule"] == {"kind": "cron", "type": "cron", "cron": "0 * * * *"}
    assert (task["timezone"], task["state"], task["revision"]) == ("Europe/Berlin", "active", 1)
    assert (task["chat_id"], task["chat_title"], task["model"]) == (chat_id, "Bob's papers", None)
    assert task["next_run_at"] == "2026-11-30T09:00:00.000Z"
    assert len(task["id"]) == 6
    mandate = scene.call("bob", "GET", f"/api/mandates/{task['mandate_id']}").part("mandate")
    assert mandate["policy"]["actions"] == "require_approval"
    assert (mandate["subject"], mandate["expires_at"]) == ("Bob", None)


@pytest.mark.parametrize("spelling", ["kind", "type"])
def test_any_timetable_under_either_name(scene: Scene, spelling: str) -> None:
    for spec in (
        {"run_at": "2026-12-01T09:00:00Z"},
        {"every_seconds": 600},
        {"time": "09:00"},
        {"time": "09:00", "weekdays": [1]},
        {"cron": "@daily"},
    ):
        kind = {"run_at": "once", "every_seconds": "interval", "cron": "cron"}.get(next(iter(spec)))
        kind = kind or ("weekly" if "weekdays" in spec else "daily")
        task = _task(scene, schedule={spelling: kind, **spec})
        assert task["schedule"]["kind"] == task["schedule"]["type"] == kind


def test_two_names_for_one_kind_must_agree(scene: Scene) -> None:
    both = {"kind": "daily", "type": "daily", "time": "09:00"}
    assert _task(scene, schedule=both)["schedule"]["kind"] == "daily"
    body = {"chat_id": scene.chat("bob"), "prompt": "x", "schedule": {**both, "type": "cron"}}
    answer = scene.call("bob", "POST", TASKS, body, headers=KEY)
    assert answer.error == (400, "invalid_schedule_type")


def test_a_key_is_needed(scene: Scene) -> None:
    body = {"chat_id": scene.chat("bob"), "prompt": "x", "schedule": HOURLY}
    assert scene.call("bob", "POST", TASKS, body).error == (400, "idempotency_key_required")
    task = _task(scene)
    assert _do(scene, task, "/run").error == (400, "idempotency_key_required")


def test_a_replay_is_answered_before_anything_that_time_changes(scene: Scene) -> None:
    chat_id = scene.chat("bob")
    body = {
        "chat_id": chat_id,
        "prompt": "x",
        "schedule": {"kind": "once", "run_at": "2026-11-30T09:00:00Z"},
        "expires_at": "2026-11-30T09:30:00Z",
    }
    first = scene.call("bob", "POST", TASKS, body, headers=KEY).part("task", 201)
    scene.house.clock.advance(hours=2)
    scene.call("bob", "POST", f"/api/chats/{chat_id}/archive").part("chat")
    again = scene.call("bob", "POST", TASKS, body, headers=KEY).part("task", 201)
    assert (again["id"], again["mandate_id"]) == (first["id"], first["mandate_id"])
    other = scene.call("bob", "POST", TASKS, {**body, "prompt": "y"}, headers=KEY)
    assert other.error == (409, "idempotency_conflict")
    for change in ({"policy": {"version": 1, "apps": [], "operations": [], "actions": "deny"}},):
        assert scene.call("bob", "POST", TASKS, {**body, **change}, headers=KEY).status == 409
    _do(scene, first, method="DELETE").part("task")
    gone = scene.call("bob", "POST", TASKS, body, headers=KEY).part("task", 201)
    assert (gone["id"], gone["state"]) == (first["id"], "cancelled")


def test_made_twice_at_once_it_is_one_with_one_mandate(scene: Scene) -> None:
    chat_id = scene.chat("bob")
    body = {"chat_id": chat_id, "prompt": "x", "schedule": HOURLY}

    def make() -> str:
        return str(scene.call("bob", "POST", TASKS, body, headers=KEY).part("task", 201)["id"])

    assert len(set(at_once(scene.house.app, [make] * 4))) == 1
    assert len(scene.call("bob", "GET", TASKS).part("tasks")) == 1
    assert len(scene.call("bob", "GET", "/api/mandates").part("mandates")) == 1


def test_a_chat_that_is_not_ones_own_or_is_archived_is_none(scene: Scene) -> None:
    chat_id = scene.chat("bob")
    body = {"chat_id": chat_id, "prompt": "x", "schedule": HOURLY}
    for who in ("alice", "vera", "charlie"):
        assert scene.call(who, "POST", TASKS, body, headers=KEY).error == (404, "chat_not_found")
    scene.call("bob", "POST", f"/api/chats/{chat_id}/archive").part("chat")
    assert scene.call("bob", "POST", TASKS, body, headers=KEY).error == (404, "chat_not_found")
    nobodys = {**body, "chat_id": "chat_abcdefgh"}
    assert scene.call("bob", "POST", TASKS, nobodys, headers=KEY).error == (404, "chat_not_found")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"prompt": " "}, "invalid_prompt"),
        ({"name": ""}, "invalid_name"),
        ({"model": "no-such-model"}, "invalid_model"),
        (
            {"policy": {"version": 1, "apps": "*", "operations": "*", "actions": "preapproved"}},
            "invalid_policy",
        ),
        ({"expires_at": "2026-11-30T08:00:00Z"}, "invalid_expires_at"),
        ({"overlap_policy": "allow"}, "invalid_overlap_policy"),
        (
            {"schedule": {"kind": "once", "run_at": "2026-11-30T08:00:00Z"}},
            "schedule_has_no_future_occurrence",
        ),
        ({"schedule": {"kind": "hourly"}}, "invalid_schedule_type"),
        ({"schedule": None}, "schedule_required"),
        ({"timezone": "PST"}, "invalid_timezone"),
        ({"target_node_id": "node_abcdefgh"}, "unknown_field"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(scene: Scene, fields: dict[str, Any], code: str) -> None:
    body = {"chat_id": scene.chat("bob"), "prompt": "x", "schedule": HOURLY, **fields}
    assert scene.call("bob", "POST", TASKS, body, headers=KEY).error == (400, code)
    assert scene.call("bob", "GET", TASKS).part("tasks") == []


def test_nobody_else_finds_it(scene: Scene) -> None:
    task = _task(scene)
    for who in ("alice", "vera", "charlie"):
        assert scene.call(who, "GET", TASKS).part("tasks") == []
        for method, what in (
            ("GET", ""),
            ("PATCH", ""),
            ("DELETE", ""),
            ("POST", "/pause"),
            ("POST", "/run"),
        ):
            answer = _do(scene, task, what, method, who=who, body={"revision": 1}, headers=KEY)
            assert answer.error == (404, "schedule_not_found"), (who, method, what)
    assert _do(scene, {"id": task["schedule_id"]}, method="GET").part("task") == task


def test_lists_come_newest_first_and_are_narrowed(scene: Scene) -> None:
    one = _task(scene, name="One")
    scene.house.clock.advance(minutes=1)
    two = scene.task(one["chat_id"], "bob", name="Two")
    other = _task(scene, name="Other")
    _do(scene, two, "/pause").part("task")
    _do(scene, other, method="DELETE").part("task")

    def names(query: str = "") -> list[str]:
        return [row["name"] for row in scene.call("bob", "GET", f"{TASKS}{query}").part("tasks")]

    assert names() == ["Two", "One"]
    assert names(f"?chat={one['chat_id']}") == ["Two", "One"]
    assert names(f"?chat={other['chat_id']}") == []
    assert names("?state=paused") == ["Two"]
    for wrong in ("?state=cancelled", "?state=x"):
        assert scene.call("bob", "GET", f"{TASKS}{wrong}").error == (400, "invalid_state")
    assert scene.call("bob", "GET", f"{TASKS}?chat=x").error == (400, "invalid_chat")


def test_run_now_and_what_became_of_it(scene: Scene) -> None:
    task = _task(scene)
    first = _do(scene, task, "/run", headers=KEY).part("occurrence", 202)
    assert (first["state"], first["trigger"], first["task_id"]) == ("queued", "manual", task["id"])
    assert first["turn_id"] is not None
    assert _do(scene, task, "/run", headers=KEY).part("occurrence", 202) == first
    again = _do(scene, task, "/run", headers={"Idempotency-Key": "another"})
    assert again.error == (409, "previous_run_active")
    assert again.json["blocking_run_id"] == first["id"]
    _work_off(scene, fails_with="model_failed")
    shown = _do(scene, task, method="GET")
    assert [row["error"] for row in shown.part("occurrences")] == ["model_failed"]
    assert shown.json["task"]["last_error"] == "model_failed"
    assert _do(scene, task, "/occurrences", "GET").part("occurrences")[0]["state"] == "failed"


def test_a_slot_that_failed_asks_for_attention_and_a_resume_goes_on(scene: Scene) -> None:
    task = _task(scene)
    scene.house.tick(minutes=48)
    _work_off(scene, fails_with="worker_lost")
    shown = _do(scene, task, method="GET").part("task")
    assert (shown["state"], shown["last_error"], shown["next_run_at"]) == (
        "needs_attention",
        "worker_lost",
        None,
    )
    assert _do(scene, task, "/resume").part("task")["state"] == "active"
    assert _do(scene, task, "/resume").part("task")["state"] == "active"


def test_a_completed_once_is_armed_again_by_a_new_timetable_alone(scene: Scene) -> None:
    task = _task(scene, schedule={"kind": "once", "run_at": "2026-11-30T09:00:00Z"})
    scene.house.tick(minutes=48)
    _work_off(scene)
    shown = _do(scene, task, method="GET").part("task")
    assert shown["state"] == "completed"
    mandate = f"/api/mandates/{task['mandate_id']}"
    assert scene.call("bob", "GET", mandate).part("mandate")["state"] == "paused"
    for what in ("/pause", "/resume", "/run"):
        assert _do(scene, task, what, headers=KEY).error == (409, "schedule_completed"), what
    assert _do(scene, task, method="DELETE").error == (409, "schedule_completed")
    edited = _do(scene, task, method="PATCH", body={"revision": shown["revision"], "prompt": "New words."})
    assert (edited.part("task")["state"], edited.json["task"]["prompt"]) == ("completed", "New words.")
    later = {"kind": "once", "run_at": "2026-11-30T12:00:00Z"}
    armed = _do(
        scene, task, method="PATCH", body={"revision": edited.json["task"]["revision"], "schedule": later}
    ).part("task")
    assert (armed["state"], armed["next_run_at"]) == ("active", "2026-11-30T12:00:00.000Z")
    assert scene.call("bob", "GET", mandate).part("mandate")["state"] == "active"


def test_what_cannot_be_armed_again_says_why_and_stays(scene: Scene) -> None:
    task = _task(scene, schedule={"kind": "once", "run_at": "2026-11-30T09:00:00Z"})
    scene.house.tick(minutes=48)
    _work_off(scene)
    scene.call("bob", "POST", f"/api/chats/{task['chat_id']}/archive").part("chat")
    before = _do(scene, task, method="GET").part("task")
    wish = {"revision": before["revision"], "schedule": HOURLY, "prompt": "New words."}
    assert _do(scene, task, method="PATCH", body=wish).error == (409, "chat_archived")
    assert _do(scene, task, method="GET").part("task") == before


def test_edits_need_the_revision_that_was_seen(scene: Scene) -> None:
    task = _task(scene)
    assert _do(scene, task, method="PATCH", body={"name": "x"}).error == (409, "revision_conflict")
    edited = _do(
        scene, task, method="PATCH", body={"name": "x", "model": "echo"}, headers={"If-Match": '"1"'}
    )
    assert (edited.part("task")["name"], edited.json["task"]["model"]) == ("x", "echo")
    assert edited.headers["ETag"] == '"2"'
    stale = _do(scene, task, method="PATCH", body={"name": "y", "revision": 1})
    assert stale.error == (409, "revision_conflict")
    assert stale.json["current_revision"] == 2
    back = _do(scene, task, method="PATCH", body={"model": None, "revision": 2}).part("task")
    assert back["model"] is None


def test_a_cancelled_one_is_gone_from_here_and_stays_in_the_history(scene: Scene) -> None:
    task = _task(scene)
    assert _do(scene, task, method="DELETE").part("task")["state"] == "cancelled"
    assert _do(scene, task, method="DELETE").part("task")["state"] == "cancelled"
    for method, what in (
        ("GET", ""),
        ("PATCH", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/run"),
    ):
        answer = _do(scene, task, what, method, body={} if what else {"revision": 1}, headers=KEY)
        assert answer.error == (404, "schedule_not_found"), (method, what)
    assert scene.call("bob", "GET", TASKS).part("tasks") == []
    kept = scene.call("bob", "GET", f"{SCHEDULES}/{task['schedule_id']}").part("schedule")
    assert kept["status"] == "cancelled"
    mandate = scene.call("bob", "GET", f"/api/mandates/{task['mandate_id']}").part("mandate")
    assert mandate["state"] == "revoked"


def test_among_the_schedules_others_see_that_it_exists_and_not_its_words(scene: Scene) -> None:
    task = _task(scene, name="News", prompt="Secret words.")
    run = _do(scene, task, "/run", headers=KEY).part("occurrence", 202)
    path = f"{SCHEDULES}/{task['schedule_id']}"
    for who, words in (("bob", "Secret words."), ("alice", None), ("vera", None)):
        seen = scene.call(who, "GET", path).part("schedule")
        name = f"Prompt {seen['short_id']}" if words is None else "News"
        assert (seen["name"], seen["target_kind"], seen["target_node_id"]) == (name, "chat", None)
        assert seen["task"] == words
        assert (seen["target_chat_id"] is None) is (seen["target_alias"] is None) is (words is None)
        one = scene.call(who, "GET", f"/api/runs/{run['id']}").part("run")
        assert (one["text"], one["result"]) == (words, None)
        listed = scene.call(who, "GET", f"{SCHEDULES}?target_kind=chat").part("schedules")
        assert [row["task"] for row in listed] == [words]
    assert scene.call("charlie", "GET", path).error == (404, "schedule_not_found")
    edit = {"revision": 1, "name": "Mine"}
    assert scene.call("alice", "PATCH", path, edit).error == (403, "permission_denied")
    assert scene.call("alice", "POST", f"{path}/run-now").error == (403, "permission_denied")
    assert scene.call("alice", "POST", f"{path}/pause").part("schedule")["status"] == "paused"
    assert scene.call("vera", "POST", f"{path}/pause").error == (403, "permission_denied")
    assert scene.call("alice", "POST", f"{path}/resume").error == (403, "permission_denied")
    assert scene.call("alice", "POST", f"{path}/cancel").part("schedule")["status"] == "cancelled"


def test_somebody_elses_words_are_not_found_letter_by_letter(scene: Scene) -> None:
    task = scene.task(scene.chat("bob", "Takeover plans"), "bob", prompt="Buy the mill quietly.")
    assert task["name"] == "Buy the mill quietly."
    for word in ("takeover", "quietly"):
        assert scene.call("alice", "GET", f"{SCHEDULES}?q={word}").part("schedules") == []
        found = scene.call("bob", "GET", f"{SCHEDULES}?q={word}").part("schedules")
        assert [row["name"] for row in found] == [task["name"]]
    [known] = scene.call("alice", "GET", f"{SCHEDULES}?q={task['id']}").part("schedules")
    assert "quietly" not in str(known)


def test_a_node_has_no_business_here(scene: Scene) -> None:
    assert scene.call("atlas", "GET", TASKS).error == (403, "user_token_required")
    assert scene.call(None, "GET", TASKS).error == (401, "unauthenticated")
