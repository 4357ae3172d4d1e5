"""What was typed into a form whose session had ended meanwhile, carried through the sign-in.

It travels in a hidden field of the sign-in page, signed by this server, and stays on no disk and in no address.
It belongs to the person for whom the form was drawn: whoever else signs in does not get it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from flask import current_app, g, request
from itsdangerous import BadData, URLSafeSerializer
from werkzeug.datastructures import MultiDict

from webapp.web import csrf, sessions
from webapp.web.origin import comes_from_elsewhere

LIFETIME: Final = timedelta(days=1)
_MOST: Final = 150_000
_SALT: Final = "carillon kept form"
# What a page puts into a form by itself: where there is nothing else, nothing was typed.
_UNTYPED: Final = frozenset({csrf.FIELD, "idempotency_key", "revision", "seen", "slot", "then"})
_SECRET: Final = frozenset({"password", "token", "secret"})


@dataclass(frozen=True)
class Kept:
    """A form that was sent too late: where to, and its fields in their order, without the forgery token."""

    path: str
    fields: tuple[tuple[str, str], ...]
    token: str

    @property
    def is_theirs(self) -> bool:
        """Whether whoever is signed in now is the person for whom the form was drawn."""
        return sessions.is_drawn_for_this_person(self.token)

    @property
    def form(self) -> MultiDict[str, str]:
        """The fields as a request would bring them."""
        return MultiDict(self.fields)

    @property
    def typed(self) -> list[tuple[str, str]]:
        """What is worth showing of it, under words made from the names of the fields."""
        return [
            (name.replace("_", " ").capitalize(), value)
            for name, value in self.fields
            if name not in _UNTYPED and value
        ]


def keep() -> str | None:
    """The form of this request as one signed text; None where nothing was typed, or what must not be kept.

    Secrets are not kept, nor what another site had a browser send, nor what is too long for a page.
    """
    fields = [(name, value) for name, value in request.form.items(multi=True) if name != csrf.FIELD]
    typed = any(value for name, value in fields if name not in _UNTYPED)
    secret = any(_SECRET & set(name.split("_")) for name, _ in fields)
    if not typed or secret or comes_from_elsewhere():
        return None
    path = request.full_path.rstrip("?")
    token = request.form.get(csrf.FIELD, "")
    text = _signer().dumps({"at": int(g.now.timestamp()), "path": path, "fields": fields, "token": token})
    return text if isinstance(text, str) and len(text) <= _MOST else None


def kept(text: str | None) -> Kept | None:
    """What `keep` made; None for anything else, and for what is older than a day."""
    if not text:
        return None
    try:
        found = _signer().loads(text)
    except BadData:
        return None
    if not isinstance(found, Mapping) or g.now.timestamp() - found["at"] > LIFETIME.total_seconds():
        return None
    return Kept(found["path"], tuple((name, value) for name, value in found["fields"]), found["token"])


def _signer() -> URLSafeSerializer:
    return URLSafeSerializer(current_app.secret_key or "", salt=_SALT)
