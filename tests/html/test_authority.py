"""Authority in plain words, and calls letter by letter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import hostile
from webapp.html.authority import OPERATIONS, READING, call_words, exact_call, limits_of, may_do, seen
from webapp.html.forms.authority import choice_of_policy, policy_of_choice
from webapp.mandates.policy import ask_each_time, exactly, node_policy, parse_policy, talk_only

NAMES = {"node_1": "atlas", "node_2": "quill"}


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (talk_only(), "It may only talk: it can do nothing else."),
        (ask_each_time(), "It may talk by itself; it asks each time it wants to act."),
        (
            node_policy("node_1"),
            "It may send a task to a node (only atlas), without asking. Anything else is refused.",
        ),
        (
            exactly(["nodes.list", "nodes.send_task", "schedules.list"], ["node:node_1", "node:node_2"]),
            "It may list the nodes, send a task to a node and list the schedules (only atlas and quill), "
            "without asking. Anything else is refused.",
        ),
        (exactly(["mail.send"]), "It may mail.send, without asking. Anything else is refused."),
    ],
)
def test_a_policy_reads_as_a_sentence(policy: Any, words: str) -> None:
    assert may_do(policy.to_json(), NAMES) == words


def test_listed_operations_that_must_ask_are_named() -> None:
    policy = {
        "version": 1,
        "apps": ["nodes"],
        "operations": ["nodes.send_task"],
        "actions": "require_approval",
    }
    assert may_do(parse_policy(policy).to_json()) == (
        "It asks each time it wants to send a task to a node. Anything else is refused."
    )


def test_limits_read_as_words() -> None:
    policy = policy_of_choice("ask", [], [], 1, 20_000)
    assert limits_of(parse_policy(policy).to_json()) == ["at most 1 run", "at most 20\u202f000 tokens"]


@pytest.mark.parametrize(
    ("choice", "operations", "nodes"),
    [
        ("talk", [], []),
        ("ask", [], []),
        ("exactly", ["nodes.list", "nodes.send_task"], ["node_1"]),
        ("exactly", ["schedules.list"], []),
    ],
)
def test_each_choice_is_a_policy_and_is_read_back_from_it(
    choice: str, operations: list[str], nodes: list[str]
) -> None:
    policy = parse_policy(policy_of_choice(choice, operations, nodes, 5, None)).to_json()
    found = choice_of_policy(policy)
    assert found["authority"] == choice
    assert found["operations"] == operations
    assert found["nodes"] == nodes
    assert (found["limit_runs"], found["limit_tokens"]) == ("5", "")


def test_every_tool_of_the_product_has_words(app: object) -> None:
    from webapp.chat.actions import all_tools

    tools = all_tools().values()
    assert {tool.operation for tool in tools} == set(OPERATIONS)
    assert {tool.operation for tool in tools if not tool.changes} == READING


def test_a_call_names_what_it_does_and_to_whom() -> None:
    words = call_words("nodes.send_task", {"node_id": "node_1", "task": "Draw it.\nThen stop."}, NAMES)
    assert words.line == "Send a task to atlas: Draw it."
    assert call_words("schedules.propose", {"name": "Papers", "task": "Read."}, {}).line == (
        "Propose a schedule Papers: Read."
    )
    assert call_words("nodes.list", {}, {}).line == "List the nodes"
    assert call_words("unknown.call", {}, {}).line == "Unknown.call"


@pytest.mark.parametrize("text", hostile.ALL)
def test_exact_arguments_lose_nothing_and_hide_nothing(text: str) -> None:
    shown = exact_call("nodes.send_task", {"task": text})
    assert shown.startswith("nodes.send_task\n  task")
    assert seen(shown.replace("\n", "")) == shown.replace("\n", "")
    value = shown.split("task", 2)[2].strip()
    lines = [line.removeprefix(" " * 14) for line in value.split("\n")]
    assert json.loads("\\n".join(lines)) == text


def test_letters_that_cannot_be_seen_are_written_out() -> None:
    assert seen("a\u202eb\u200bc\u0007\U000e0041") == "a\\u202eb\\u200bc\\u0007\\U000e0041"
    assert seen("größer 漢字 🔔") == "größer 漢字 🔔"
