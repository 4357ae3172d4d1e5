"""Refusals that no view answers itself, drawn for a browser."""

from __future__ import annotations

from urllib.parse import quote

from flask import Response, request

from webapp.errors import AppError
from webapp.html import respond

_SAFE_METHODS = ("GET", "HEAD")


def draw(error: AppError) -> Response:
    """The page, or for htmx the remark, that tells a person of a refusal; a stranger is sent to sign in."""
    if error.code != "unauthenticated":
        return respond.refused(error.status, error.message, error.code)
    if request.method in _SAFE_METHODS:
        return respond.redirect_to(f"/sign-in?next={quote(_address())}")
    if respond.wants_fragment():
        words = "You were signed out while you typed. Sign in in another tab; what you typed is still here."
        return respond.refused(401, words, error.code)
    return respond.redirect_to("/sign-in")


def _address() -> str:
    return request.full_path if request.query_string else request.path
