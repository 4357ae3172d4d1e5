"""The session cookie: who signed in, in which epoch, and what this browser chose."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Final

from flask import Flask, current_app, request, session
from flask.sessions import SecureCookieSessionInterface

from webapp.config import Config
from webapp.identity import operations
from webapp.identity.queries import Person, person_of, session_has_ended
from webapp.identity.sign_in import SignedIn
from webapp.store import db

LIFETIME: Final = timedelta(days=14)
_RENEWED_EACH: Final = timedelta(days=1)

_USER, _EPOCH, _ID, _RENEWED = "user", "epoch", "sid", "renewed"
_CSRF, _ZONE, _NETWORK = "csrf", "zone", "network"
_MARKED: Final = "."


class _Sessions(SecureCookieSessionInterface):
    """Flask's signed cookie, marked Secure wherever the request came by https."""

    def get_cookie_secure(self, app: Flask) -> bool:
        return bool(app.config["SESSION_COOKIE_SECURE"]) or request.is_secure


def init_sessions(app: Flask, config: Config) -> None:
    """Set what the cookie is called and how browsers must treat it."""
    app.session_interface = _Sessions()
    app.permanent_session_lifetime = LIFETIME
    app.config.update(
        # With the prefix a browser takes it only from this very host, by https, for all paths.
        SESSION_COOKIE_NAME="__Host-carillon" if config.https else "carillon",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=config.https,
        SESSION_COOKIE_PATH="/",
        # An answer in flight must not bring back the cookie that another answer has just replaced.
        SESSION_REFRESH_EACH_REQUEST=False,
    )


def start(signed_in: SignedIn, *, zone: str | None = None, now: datetime) -> None:
    """Begin a session for somebody who has just proved who they are; nothing of an earlier one remains."""
    session.clear()
    session.permanent = True
    session[_USER] = signed_in.user_id
    session[_EPOCH] = signed_in.session_epoch
    session[_ID] = secrets.token_urlsafe(24)
    session[_RENEWED] = int(now.timestamp())
    if zone is not None:
        session[_ZONE] = zone


def end(now: datetime) -> None:
    """End this session, for copies of its cookie too."""
    session_id = session.get(_ID)
    session.clear()
    if isinstance(session_id, str) and len(session_id) <= 64:
        operations.end_session(session_id, now + LIFETIME + _RENEWED_EACH)


def adopt_epoch(session_epoch: int) -> None:
    """Let this session go on where its owner has just ended all the others."""
    session[_EPOCH] = session_epoch


def person(now: datetime) -> Person | None:
    """Whoever this session belongs to, if it still holds: signed, not ended, of the present epoch."""
    user_id, session_id = session.get(_USER), session.get(_ID)
    if not isinstance(user_id, str) or not isinstance(session_id, str):
        return None
    found = person_of(db.session(), user_id=user_id)
    if (
        found is None
        or found.session_epoch != session.get(_EPOCH)
        or session_has_ended(db.session(), session_id)
    ):
        _forget_person()
        return None
    if now.timestamp() - session.get(_RENEWED, 0) >= _RENEWED_EACH.total_seconds():
        session[_RENEWED] = int(now.timestamp())
    return found


def _forget_person() -> None:
    """Nobody is signed in any more. The secret of forms stays, so that answers in flight do not undo each other's."""
    known = session.get(_CSRF)
    session.clear()
    if isinstance(known, str):
        session[_CSRF] = known


def is_blank() -> bool:
    """Whether this browser brought no session at all."""
    return not session


def leave_no_cookie() -> None:
    """Let this answer set none: it holds no form, and another answer's secret may have reached the browser first."""
    session.clear()
    session.modified = False


def csrf_token() -> str:
    """This session's secret against forged forms; made when first asked for, also before signing in."""
    if _CSRF not in session:
        session[_CSRF] = secrets.token_urlsafe(24)
    token: str = session[_CSRF]
    return token


def csrf_token_fits(token: str | None) -> bool:
    """Whether a form or header carries this session's secret."""
    known = session.get(_CSRF)
    if not isinstance(known, str) or not token:
        return False
    given = token.partition(_MARKED)[0]
    return secrets.compare_digest(known.encode(), given.encode("utf-8", "surrogatepass"))


def form_token() -> str:
    """The secret as forms carry it: with a mark of the person for whom the form is drawn."""
    token = csrf_token()
    return f"{token}{_MARKED}{_mark(token, session.get(_USER))}"


def is_drawn_for_this_person(token: str | None) -> bool:
    """Whether a form with this token was drawn for whoever is signed in, in this session or an earlier one."""
    token, _, mark = (token or "").partition(_MARKED)
    user_id = session.get(_USER)
    if not isinstance(user_id, str):
        return False
    return secrets.compare_digest(_mark(token, user_id).encode(), mark.encode("utf-8", "surrogatepass"))


def _mark(token: str, user_id: str | None) -> str:
    """Nobody can tell whose it is, or make one, without the key of this server."""
    key = current_app.secret_key or ""
    key = key.encode() if isinstance(key, str) else key
    words = f"drawn for\n{token}\n{user_id or ''}".encode("utf-8", "surrogatepass")
    return hmac.new(key, words, hashlib.sha256).hexdigest()[:32]


def chosen_zone() -> str | None:
    """The time zone chosen for this browser alone."""
    return session.get(_ZONE)


def choose_zone(zone: str | None) -> None:
    """Show times in this zone in this browser; None returns to the person's own."""
    if zone is None:
        session.pop(_ZONE, None)
    else:
        session[_ZONE] = zone


def chosen_network_id() -> str | None:
    """The network whose pages this browser shows."""
    return session.get(_NETWORK)


def choose_network(network_id: str) -> None:
    """Show the pages of this network in this browser."""
    session[_NETWORK] = network_id
