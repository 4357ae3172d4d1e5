"""No other site may have a signed-in browser change something here."""

from __future__ import annotations

from typing import Final

from flask import request

from webapp.errors import AppError
from webapp.web import sessions
from webapp.web.origin import comes_from_elsewhere

FIELD: Final = "csrf_token"
HEADER: Final = "X-CSRF-Token"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def check() -> None:
    """Refuse a change that another site may have sent: wrong origin, or without this session's token.

    The token comes as the form field `csrf_token` or the header `X-CSRF-Token`. Raises AppError `csrf_failed`.
    """
    if request.method in _SAFE:
        return
    if comes_from_elsewhere():
        raise AppError("csrf_failed", message="This request came from another site and was not obeyed.")
    token = request.headers.get(HEADER)
    if token is None and not request.is_json:
        token = request.form.get(FIELD)
    if not sessions.csrf_token_fits(token):
        raise AppError("csrf_failed")
