"""The built-in model: it needs no key, reaches no network, and says the same to the same. Pure.

It repeats what it was told, labelled as what it is. A line of the prompt that begins with a slash makes it ask for a
tool, so that the whole chain of a turn, an approval and a node can be seen without a key:

    /list-nodes
    /list-schedules
    /send-task ALIAS: what the node is to do
    /propose-schedule ALIAS at HH:MM: what the node is to do every day

All lines are asked for in one answer; what came of them is said in the next.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LABEL = "[echo: no model is set up]"
_SEND = re.compile(r"/send-task\s+(\S+?)\s*:\s*(.+)")
_PROPOSE = re.compile(r"/propose-schedule\s+(\S+)\s+at\s+(\d{2}:\d{2})\s*:\s*(.+)")
_MAX_REPEATED = 2000


@dataclass(frozen=True)
class Said:
    """What it says, and the tools it asks for: names and arguments."""

    text: str
    calls: Sequence[tuple[str, Mapping[str, Any]]] = field(default=())


def answer(prompt: str, results: Sequence[tuple[str, str]], offered: Collection[str]) -> Said:
    """What it says to a prompt, given what came of the tools it has asked for already.

    It asks only for tools that are offered to it.
    """
    if results:
        lines = [f"{name}: {text}" for name, text in results]
        return Said("\n".join([f"{LABEL} This came of it:", *lines]))
    calls = [call for line in prompt.splitlines() if (call := _call(line.strip())) and call[0] in offered]
    if calls:
        return Said("", calls)
    return Said(f"{LABEL} {prompt[:_MAX_REPEATED]}")


def _call(line: str) -> tuple[str, dict[str, Any]] | None:
    if line == "/list-nodes":
        return "list_nodes", {}
    if line == "/list-schedules":
        return "list_schedules", {}
    if found := _SEND.fullmatch(line):
        return "send_task", {"node": found[1], "task": found[2]}
    if found := _PROPOSE.fullmatch(line):
        timetable = {"type": "daily", "time": found[2]}
        return "propose_schedule", {"node": found[1], "task": found[3], "schedule": timetable}
    return None
