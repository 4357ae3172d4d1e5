"""Every refusal and failure, turned into the answer its caller can read: JSON on `/api`, a page elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from flask import Flask, Response, g, jsonify, make_response, request
from sqlalchemy.exc import OperationalError
from werkzeug.exceptions import HTTPException

from webapp.errors import AppError
from webapp.logs import get_logger
from webapp.web.auth import is_api

PageProblem = Callable[[AppError], Response]
_log = get_logger(__name__)

_RETRY_SECONDS = 10
_MACHINE_PATHS = ("/healthz", "/readyz", "/metrics")
_CODES = {
    400: "bad_request",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    405: "method_not_allowed",
    413: "payload_too_large",
    415: "unsupported_media_type",
    429: "rate_limited",
}


def init_problems(app: Flask, page: PageProblem | None = None) -> None:
    """Answer all errors; `page` draws those of pages (`webapp/html` stands above this package)."""
    draw = page or _plain_page

    def answer(error: AppError) -> Response:
        response = problem_json(error) if _asked_by_a_machine() else draw(error)
        _add_headers(response, error)
        return response

    @app.errorhandler(AppError)
    def refused(error: AppError) -> Response:
        return answer(error)

    @app.errorhandler(HTTPException)
    def refused_by_the_framework(error: HTTPException) -> Response:
        if error.response is not None or error.code is None or error.code < 400:
            return make_response(error.get_response())
        response = answer(_from_framework(error))
        allow = dict(error.get_headers()).get("Allow")
        if allow:
            response.headers["Allow"] = allow
        return response

    @app.errorhandler(Exception)
    def failed(error: Exception) -> Response:
        _log.error("a request failed", exc_info=error)
        if _is_away(error):
            return answer(AppError("not_ready", retry_after=_RETRY_SECONDS))
        return answer(AppError("internal_error"))


def _is_away(error: Exception) -> bool:
    """Whether the database could not be reached, or was lost in the middle; a statement that failed is our fault."""
    return isinstance(error, OperationalError) and (error.statement is None or error.connection_invalidated)


def _asked_by_a_machine() -> bool:
    return is_api() or request.path in _MACHINE_PATHS


def problem_json(error: AppError) -> Response:
    """`{"ok": false, "error", "message", "field"?, …details}` with the error's status."""
    body = {"ok": False, "error": error.code, "message": error.message}
    if error.field is not None:
        body["field"] = error.field
    response = jsonify({**error.details, **body})
    response.status_code = error.status
    response.headers["Cache-Control"] = "no-store"
    return response


def _from_framework(error: HTTPException) -> AppError:
    status = error.code or 500
    code = _CODES.get(status) or ("internal_error" if status >= 500 else "bad_request")
    if code == "internal_error":
        _log.error("a request failed", exc_info=error)
    return AppError(code, status=status)


def _add_headers(response: Response, error: AppError) -> None:
    if error.status == 401 and _asked_by_a_machine():
        response.headers["WWW-Authenticate"] = "Bearer"
    if "retry_after" in error.details:
        response.headers["Retry-After"] = str(error.details["retry_after"])


def _plain_page(error: AppError) -> Response:
    """A page for the case that nobody draws better ones."""
    text = f"{escape(error.message)} ({escape(error.code)}, {escape(str(g.get('request_id', '')))})"
    html = f'<!doctype html><html lang="en"><title>{error.status}</title><p>{text}</p></html>'
    return make_response(html, error.status, {"Content-Type": "text/html; charset=utf-8"})
