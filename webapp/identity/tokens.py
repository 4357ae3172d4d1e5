"""The text of a token: what is shown once, what is stored, what is shown later. Pure but for chance."""

from __future__ import annotations

import hashlib
import re
import secrets

from webapp.identity.models import TokenKind

_PREFIXES = {TokenKind.USER: "utok_", TokenKind.NODE: "ntok_"}
_SECRET_BYTES = 32
_HINT_LENGTH = 4
# Long enough for every token we ever made; anything longer is not worth a hash.
_SHAPE = re.compile(r"[un]tok_[A-Za-z0-9_-]{27,80}")


def new_token_text(kind: TokenKind) -> str:
    """A fresh `utok_…` or `ntok_…` with 256 bits of chance."""
    return _PREFIXES[kind] + secrets.token_urlsafe(_SECRET_BYTES)


def new_link_text() -> str:
    """The secret part of a set-up link, 256 bits of chance."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def looks_like_token(text: str) -> bool:
    """Whether `text` has the shape of a token (a cheap check before a query)."""
    return _SHAPE.fullmatch(text) is not None


def token_hash(text: str) -> str:
    """What is stored of a secret: its SHA-256 as 64 hexadecimal characters.

    A slow hash would add nothing: these texts are not chosen by people and cannot be guessed.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def token_hint(text: str) -> str:
    """The last characters of a token, by which its owner tells it from others."""
    return text[-_HINT_LENGTH:]
