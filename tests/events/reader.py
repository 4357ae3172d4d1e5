"""Reading server-sent events as a client would: lines in, messages out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Message:
    """One message; `event` is empty for one that only moves the position."""

    id: int | None
    event: str
    data: Any


def messages(chunks: Iterable[bytes]) -> Iterator[Message]:
    """The messages in a stream; comments such as pings are left out."""
    waiting = b""
    for chunk in chunks:
        waiting += chunk
        while b"\n\n" in waiting:
            block, waiting = waiting.split(b"\n\n", 1)
            message = _read(block.decode())
            if message is not None:
                yield message


def _read(block: str) -> Message | None:
    fields: dict[str, str] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
    if not fields:
        return None
    number = int(fields["id"]) if "id" in fields else None
    data = json.loads(fields["data"]) if "data" in fields else None
    return Message(number, fields.get("event", ""), data)
