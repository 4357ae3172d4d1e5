"""The door for people: sign in, sign out, and the first start."""

from __future__ import annotations

from flask import Blueprint, Response, g, request

from webapp.errors import AppError
from webapp.html import respond
from webapp.html.forms import blame
from webapp.html.forms.session import SetUpForm, SignInForm
from webapp.html.keeping import Kept, kept
from webapp.html.schedule_editing import restored_form
from webapp.identity import operations, queries
from webapp.identity.sign_in import SignedIn as SignedInPerson
from webapp.identity.sign_in import sign_in
from webapp.store import db
from webapp.timetable import suggest_zone
from webapp.web import sessions
from webapp.web.auth import caller
from webapp.web.origin import safe_next
from webapp.web.policy import Public, SignedIn, access

blueprint = Blueprint("session", __name__)

_AFTER_SET_UP = "/"
# Until somebody chooses a zone, their account has this one.
_NEVER_CHOSEN = "UTC"


@blueprint.get("/sign-in")
@access(Public)
def sign_in_page() -> Response:
    """Ask who it is; whoever has come in already goes on."""
    target = safe_next(request.args.get("next"))
    if caller().person is not None:
        return respond.redirect_to(target)
    form = SignInForm(data={"next": target})
    first_start = not queries.any_user(db.session())
    return respond.page("session/sign_in.html", form=form, first_start=first_start, problem=None)


@blueprint.post("/sign-in")
@access(Public)
def sign_in_now() -> Response:
    """Begin a session, or the form again with what was typed and no word about which half was wrong."""
    form = SignInForm(request.form)
    try:
        came_in = sign_in(form.name.data or "", form.password.data or "", request.remote_addr, now=g.now)
    except AppError as error:
        return _sign_in_again(form, error)
    _begin(came_in, form.timezone.data)
    late = kept(form.kept.data)
    return respond.redirect_to(safe_next(form.next.data)) if late is None else _bring_back(late)


def _bring_back(late: Kept) -> Response:
    """What was typed before the session ended: the form itself where it can be drawn, else the question to send it.

    Somebody else than who typed it gets nothing of it; nor is it kept for longer.
    """
    # Whoever this is was nobody when the request began.
    g.pop("caller", None)
    if not late.is_theirs:
        response = respond.page("session/kept_for_another.html")
    else:
        response = restored_form(late) or respond.page("session/kept.html", kept=late)
    response.headers["Cache-Control"] = "no-store"
    return response


def _sign_in_again(form: SignInForm, error: AppError) -> Response:
    form.next.data = safe_next(form.next.data)
    response = respond.page(
        "session/sign_in.html",
        status=error.status,
        refused=True,
        form=form,
        first_start=False,
        problem=error,
    )
    if "retry_after" in error.details:
        response.headers["Retry-After"] = str(error.details["retry_after"])
    return response


@blueprint.post("/sign-out")
@access(SignedIn)
def sign_out() -> Response:
    """End this session, and with it every copy of its cookie."""
    sessions.end(g.now)
    respond.flash("You are signed out.", "info")
    return respond.redirect_to("/sign-in")


@blueprint.get("/setup")
@access(Public)
def set_up_page() -> Response:
    """The form for the first owner, for whoever brings the link that the first start printed."""
    token = request.args.get("token", "")
    if not queries.set_up_link_works(db.session(), token):
        raise AppError("set_up_link_invalid")
    form = SetUpForm(data={"token": token})
    return _without_trace(respond.page("session/setup.html", form=form))


@blueprint.post("/setup")
@access(Public)
def set_up_now() -> Response:
    """Create the first owner and their network, and let them in."""
    form = SetUpForm(request.form)
    zone = suggest_zone(form.timezone.data) or _NEVER_CHOSEN
    try:
        user = operations.create_first_owner(
            form.token.data or "",
            form.name.data or "",
            form.password.data or "",
            form.network_name.data or "",
            form.slug(),
            timezone=zone,
            now=g.now,
        )
    except AppError as error:
        blame(form, error)
        return _without_trace(respond.form_refused("session/setup.html", form=form))
    sessions.start(SignedInPerson(user.id, user.user_id, user.session_epoch), now=g.now)
    respond.flash(f"Welcome, {user.name}. Your network stands; next comes a node.")
    return respond.redirect_to(_AFTER_SET_UP)


def _begin(came_in: SignedInPerson, browser_zone: str | None) -> None:
    person = queries.person_of(db.session(), user_pk=came_in.user_pk)
    never_chosen = person is not None and person.timezone == _NEVER_CHOSEN
    zone = suggest_zone(browser_zone) if never_chosen and browser_zone else None
    sessions.start(came_in, zone=zone, now=g.now)


def _without_trace(response: Response) -> Response:
    """The address holds a secret: no copy of the page on the disk."""
    response.headers["Cache-Control"] = "no-store"
    return response
