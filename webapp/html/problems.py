"""Refusals that no view answers itself, drawn for a browser."""

from __future__ import annotations

from urllib.parse import quote

from flask import Response, request

from webapp.errors import AppError
from webapp.html import respond
from webapp.html.forms.session import SignInForm
from webapp.html.keeping import keep
from webapp.web import sessions

_SAFE_METHODS = ("GET", "HEAD")
# What is asked while somebody types must not take the form away under their hands.
_PREVIEWS = "/preview"


def draw(error: AppError) -> Response:
    """The page, or for htmx the remark, that tells a person of a refusal; a stranger is sent to sign in."""
    if error.code != "unauthenticated":
        return respond.refused(error.status, error.message, error.code)
    if request.method in _SAFE_METHODS:
        return respond.redirect_to(f"/sign-in?next={quote(_address())}")
    kept = None if request.path.endswith(_PREVIEWS) else keep()
    if kept is not None:
        return _sign_in_first(kept)
    if respond.wants_fragment():
        words = "You were signed out while you typed. Sign in in another tab; what you typed is still here."
        blank = sessions.is_blank()
        answer = respond.refused(401, words, error.code)
        if blank:
            sessions.leave_no_cookie()
        return answer
    return respond.redirect_to("/sign-in")


def _sign_in_first(kept: str) -> Response:
    """The door, with what was typed behind it; htmx puts it in the place of the page that was left."""
    form = SignInForm(data={"next": _address(), "kept": kept})
    response = respond.page(
        "session/sign_in.html", status=401, form=form, first_start=False, problem=None, refused=False
    )
    response.headers["Cache-Control"] = "no-store"
    return response


def _address() -> str:
    return request.full_path if request.query_string else request.path
