"""Every door, everybody, everything of one's own, of others, and of nobody: the answer is the table's.

What is foreign is answered as what does not exist, and no text of a network is ever read outside of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from werkzeug.test import TestResponse

from tests.proof.doors import (
    CANARY,
    ELSEWHERE,
    HARBOUR,
    MISSING,
    NAME_CANARY,
    Doors,
    Knock,
    Principal,
    open_doors,
)
from tests.support.databases import START, DatabaseSource, config_for, dispose_engines
from webapp import create_app
from webapp.clock import FrozenClock
from webapp.web.policy import routes

PRINCIPALS = (
    "nobody",
    "deactivated",
    "viewer",
    "member",
    "sponsor",
    "admin",
    "owner",
    "owner of the other",
    "token bound to the other",
    "system administrator",
    "node",
    "node of the other",
)
STREAM = "text/event-stream"


@pytest.fixture(scope="module")
def doors(databases: DatabaseSource) -> Iterator[Doors]:
    """One furnished product for all: whatever a knock changes is taken back."""
    with databases.lend("sqlite") as url:
        clock = FrozenClock(START)
        app = create_app(config_for(url), clock)
        yield open_doors(app, clock)
        dispose_engines(app)


def test_everybody_is_tried(doors: Doors) -> None:
    assert tuple(doors.principals) == PRINCIPALS


@pytest.mark.parametrize("name", PRINCIPALS)
def test_the_answer_at_every_door_is_the_tables(doors: Doors, name: str) -> None:
    who = doors.principals[name]
    wrong: list[str] = []
    seen: Counter[str] = Counter()
    foreign: dict[str, str] = {}
    for knock in doors.knocks(who):
        answer = _answered(doors, who, knock)
        status, text = answer.status_code, _words(answer)
        answer.close()
        seen[knock.verdict] += 1
        if status not in _allowed(knock, is_api=knock.path.startswith("/api/")):
            wrong.append(f"{knock}: {status}, but {knock.verdict}")
        if knock.verdict.startswith("hidden") or (
            knock.verdict == "unsaid" and "<" in knock.route.rule and knock.things.world not in who.worlds
        ):
            told = f"{status} {_without_ids(text, doors)}"
            if foreign.setdefault(f"{knock.method} {knock.route.rule}", told) != told:
                wrong.append(f"{knock}: what is foreign is told apart from what is missing")
        wrong += [f"{knock}: {canary} is read" for canary in _heard(who, text)]
    print(f"{name}: {dict(seen)}")
    assert not wrong, "\n".join(wrong)
    assert sum(seen.values()) > 80


def test_calls_for_many_say_of_what_is_foreign_what_they_say_of_nothing(doors: Doors) -> None:
    """They answer for each schedule by itself; `FOR_EACH` keeps them out of the table's test."""
    who = doors.principals["sponsor"]
    named = {world: things.ids["schedule_id"] for world, things in doors.things.items()}
    for path in ("/api/scheduled-tasks/bulk", "/api/scheduled-tasks/bulk/preview"):
        body = {"action": "pause", "schedule_ids": list(named.values())}
        answer = who.knock("POST", path, body).get_json()
        doors.restore(who)
        rows = answer.get("results") or answer["effects"]
        told = {row.pop("schedule_id"): row for row in rows}
        assert told[named[ELSEWHERE]] == told[named[MISSING]]
        assert told[named[HARBOUR]] != told[named[MISSING]]
    picks = "&".join(f"pick={schedule_id}" for schedule_id in named.values())
    for path in (f"/schedules/bulk?act=pause&{picks}", "/needs/resume"):
        answer = who.knock("GET", path, {})
        assert answer.status_code in (200, 303)
        assert _heard(who, answer.get_data(as_text=True)) == []


def test_no_list_search_export_or_filter_finds_the_text_of_another_network(doors: Doors) -> None:
    word = CANARY[ELSEWHERE]
    theirs = doors.things[ELSEWHERE].ids
    queries = ["", f"?q={word}", "?limit=200", f"?network_id={theirs['network_id']}"]
    queries += [f"?{name}={theirs['node_id']}" for name in ("target", "target_node_id", "node_id", "node")]
    queries += [f"?{name}={theirs['schedule_id']}" for name in ("subject_id", "subject", "schedule")]
    queries += [f"?{name}={theirs['chat_id']}" for name in ("chat", "subject_id")]
    queries += [f"?duplicate={theirs['schedule_id']}", f"?from={theirs['schedule_id']}"]
    lists = [
        route.rule
        for route in routes(doors.app)
        if "GET" in route.methods
        and "<" not in route.rule
        and not route.rule.startswith(("/static", "/api/node/", "/metrics", "/setup", "/sign-in"))
    ]
    seen, wrong = 0, []
    for name, asked in (("owner", queries), ("system administrator", queries[:2])):
        who = doors.principals[name]
        for rule in lists:
            for query in asked:
                answer = who.knock("GET", rule + query, {})
                # What was searched for stands in the field again; it is what the caller sent.
                sent = word in query and not rule.startswith("/api/")
                text = _words(answer).replace(f'value="{word}"', "").replace(query, "")
                answer.close()
                seen += 1
                if _heard(who, text) and not (sent and _only_echoed(text, word)):
                    wrong.append(f"{name}: {rule}{query}")
    assert not wrong, "\n".join(wrong)
    assert seen > 400


def _only_echoed(text: str, word: str) -> bool:
    """Whether the word stands nowhere but in what was typed: no name, task or prompt of the other network around it."""
    return not any(
        f"{before} {word}" in text for before in ("Order", "Do", "Chat", "Ask", "Say", "Prompt", "Net")
    )


def _answered(doors: Doors, who: Principal, knock: Knock) -> TestResponse:
    answer = who.knock(knock.method, knock.path, knock.body)
    if knock.method != "GET" and answer.status_code < 400:
        answer.get_data()
        doors.restore(who)
    return answer


def _words(answer: TestResponse) -> str:
    return "" if answer.mimetype == STREAM else answer.get_data(as_text=True)


def _allowed(knock: Knock, *, is_api: bool) -> frozenset[int]:
    """Statuses that go with a verdict. Right comes before state and fields, so a refusal of those has been let in."""
    let_in = {200, 201, 202, 204, 303, 400, 409, 422}
    return frozenset(
        {
            # A page keeps what was typed and asks who it is.
            "nobody": {401} if is_api else {303, 401},
            "wrong kind": {403},
            "hidden": {404},
            "hidden or denied": {400, 403, 404, 422},
            "denied": {403},
            "let in": let_in,
            "unsaid": let_in | {403, 404},
        }[knock.verdict]
    )


def _heard(who: Principal, text: str) -> list[str]:
    """The canaries of networks that are none of this caller's business."""
    closed = {HARBOUR, ELSEWHERE} - who.worlds
    sees_people = who.actor is not None and who.actor.is_admin
    words = [CANARY[world] for world in closed] + [NAME_CANARY[world] for world in closed if not sees_people]
    return [word for word in words if word in text]


def _without_ids(text: str, doors: Doors) -> str:
    """What is left of an answer when the ids that were asked for, and what is new in each page, are taken away."""
    for things in doors.things.values():
        for thing in things.ids.values():
            text = text.replace(thing, "ID")
    return re.sub(r'value="[^"]*"|content="[^"]*"|nonce(:inherited)?="[^"]*"|[0-9a-f]{16}', "", text)
