"""Small conversions of what people type."""

from __future__ import annotations

import re
from typing import Final

_WHOLE: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)


def trimmed(text: str | None) -> str:
    """Without blanks around it; nothing is the empty text."""
    return (text or "").strip()


def plain_newlines(text: str | None) -> str:
    """Trimmed, and with one character for each line break: browsers send two, whatever was typed."""
    return (text or "").replace("\r\n", "\n").strip()


def whole_number(text: str) -> int | str | None:
    """A whole number; nothing is None; anything else stays as it was typed, to be refused."""
    if not text:
        return None
    return int(text) if _WHOLE.fullmatch(text) else text
