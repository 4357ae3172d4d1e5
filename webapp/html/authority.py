"""Authority in plain words: what a mandate allows, what a call of a tool would do, its exact arguments."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webapp.html.filters import number, plural

# What each operation is, to be read after "It may": and the app that it belongs to.
OPERATIONS: Final[Mapping[str, str]] = {
    "nodes.list": "list the nodes",
    "nodes.send_task": "send a task to a node",
    "schedules.list": "list the schedules",
    "schedules.propose": "propose a schedule",
}
# They change nothing.
READING: Final = frozenset({"nodes.list", "schedules.list"})

_FIRST_WORDS: Final = 80
_INDENT: Final = "             "
_WIDE: Final = len(_INDENT) - 4
# What cannot be seen, or turns the line around, must not hide in what a person is asked to approve.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def may_do(policy: Mapping[str, Any], aliases: Mapping[str, str] | None = None) -> str:
    """What a policy (its JSON) allows, in a sentence or two. `aliases`: names of nodes by their id."""
    actions = policy.get("actions")
    if actions == "deny":
        return "It may only talk: it can do nothing else."
    operations = policy.get("operations")
    if actions == "preapproved":
        return (
            f"It may {_listed(operations)}{_at(policy, aliases)}, without asking. Anything else is refused."
        )
    if operations == "*":
        return f"It may talk by itself; it asks each time it wants to act{_at(policy, aliases)}."
    return f"It asks each time it wants to {_listed(operations)}{_at(policy, aliases)}. Anything else is refused."


def limits_of(policy: Mapping[str, Any]) -> list[str]:
    """The limits of a policy, in words: at most so many runs, so many tokens."""
    limits = policy.get("limits") or {}
    found = []
    if limits.get("max_runs") is not None:
        found.append(f"at most {plural(limits['max_runs'], 'run')}")
    if limits.get("max_tokens") is not None:
        found.append(f"at most {plural(limits['max_tokens'], 'token')}")
    return found


def operation_words(operation: str) -> str:
    """What an operation does: "send a task to a node"; an unknown one keeps its name."""
    return OPERATIONS.get(operation, operation)


def _listed(operations: object) -> str:
    if operations == "*":
        return "do anything"
    names = [operation_words(str(name)) for name in operations] if isinstance(operations, list) else []
    if not names:
        return "do nothing"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _at(policy: Mapping[str, Any], aliases: Mapping[str, str] | None) -> str:
    targets = policy.get("targets")
    if not targets:
        return ""
    names = [_target_name(str(target), aliases or {}) for target in targets]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f" (only {listed})"


def _target_name(target: str, aliases: Mapping[str, str]) -> str:
    node_id = target.removeprefix("node:")
    return aliases.get(node_id, node_id)


@dataclass(frozen=True)
class CallWords:
    """A call in plain words: "Send a task to", "quill", ": render the chart". `name` and `rest` are foreign text."""

    verb: str
    name: str
    rest: str

    @property
    def line(self) -> str:
        """All of it in one line."""
        return " ".join(part for part in (self.verb, self.name) if part) + self.rest


def call_words(operation: str, arguments: Mapping[str, Any], aliases: Mapping[str, str]) -> CallWords:
    """What a call of a tool would do. `aliases`: names of nodes by their id."""
    if operation == "nodes.send_task":
        return CallWords("Send a task to", _node_of(arguments, aliases), _first_words(arguments.get("task")))
    if operation == "schedules.propose":
        name = arguments.get("name")
        return CallWords(
            "Propose a schedule",
            str(name or ""),
            _first_words(arguments.get("task") or arguments.get("prompt")),
        )
    words = operation_words(operation)
    return CallWords(words[:1].upper() + words[1:], "", "")


def node_named(arguments: Mapping[str, Any]) -> str | None:
    """The node that a call is aimed at, by whatever name its arguments give it."""
    for name in ("node", "node_id", "node_alias", "target_node_id"):
        if isinstance(arguments.get(name), str):
            return str(arguments[name])
    return None


def _node_of(arguments: Mapping[str, Any], aliases: Mapping[str, str]) -> str:
    named = node_named(arguments)
    return "a node" if named is None else aliases.get(named, named)


def _first_words(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        return ""
    line = text.strip().splitlines()[0]
    return f": {line if len(line) <= _FIRST_WORDS else line[:_FIRST_WORDS] + ' …'}"


def exact_call(operation: str, arguments: Mapping[str, Any]) -> str:
    """A call letter by letter: each argument as JSON, line breaks as such, what cannot be seen written out."""
    lines = [operation]
    for name, value in arguments.items():
        shown = seen(str(name))
        gap = " " * max(1, _WIDE - len(shown))
        lines.append(f"  {shown}{gap}  {_exact(value)}")
    return "\n".join(lines)


def _exact(value: object) -> str:
    if isinstance(value, str):
        rows = [seen(json.dumps(row, ensure_ascii=False)[1:-1]) for row in value.split("\n")]
        return '"' + f"\n{_INDENT} ".join(rows) + '"'
    return seen(json.dumps(value, ensure_ascii=False))


def seen(text: str) -> str:
    r"""The text with every letter that cannot be seen, or that turns the line around, written out: `\u202e`."""
    return "".join(
        letter if unicodedata.category(letter) not in _UNSEEN else _written_out(letter) for letter in text
    )


def _written_out(letter: str) -> str:
    code = ord(letter)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def tokens(used_in: int, used_out: int) -> str:
    """How many tokens were used: "1 204 tokens"."""
    return plural(used_in + used_out, "token")


def share(used: int, most: int | None) -> str:
    """A use with its limit: "3 of 10", "3, no limit"."""
    return f"{number(used)} of {number(most)}" if most is not None else f"{number(used)}, no limit"


def targets_of(policy: Mapping[str, Any]) -> Collection[str]:
    """The ids of the nodes that a policy names."""
    return [str(target).removeprefix("node:") for target in policy.get("targets") or ()]
