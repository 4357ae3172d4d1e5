"""What callers may ask of chats, as strict models: built by forms and JSON bodies alike. Pure.

A field that is left out keeps its default and is not in `model_fields_set`; null is a wrong type everywhere.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from webapp.chat.rules import DEFAULT_TITLE

MAX_TITLE = 120
MAX_TEXT = 10_000
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def _line(text: str) -> str:
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text):
        raise ValueError("control characters")
    return text


def _storable(text: str) -> str:
    if _UNSTORABLE.search(text):
        raise ValueError("NUL and halves of surrogate pairs cannot be stored")
    return text


Title = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TITLE),
    AfterValidator(_line),
]
Text = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TEXT),
    AfterValidator(_storable),
]
ModelName = Annotated[str, Field(min_length=1, max_length=80), AfterValidator(_line)]
NetworkId = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_storable)]


class Body(BaseModel):
    """Strict: no coercion, no unknown keys, no change after it was read."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NewChatBody(Body):
    """`POST /api/chats`. `network_id` is needed by those who belong to several networks."""

    title: Title = DEFAULT_TITLE
    network_id: NetworkId = ""


class ChatChanges(Body):
    """`PATCH /api/chats/{id}`."""

    title: Title


class NewMessageBody(Body):
    """`POST /api/chats/{id}/messages`. No model means the configured default.

    `deny_waiting`: what waits for an approval in this chat is denied, so that the answer to this message is next.
    """

    text: Text
    model: ModelName = ""
    deny_waiting: bool = False
