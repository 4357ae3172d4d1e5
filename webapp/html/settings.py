"""Settings: oneself, one's tokens, the people of the network, and for administrators everybody."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, g, request
from wtforms import Form

from webapp.errors import AppError
from webapp.html import respond
from webapp.html.forms import blame
from webapp.html.forms.settings import (
    MemberForm,
    NetworkForm,
    PasswordForm,
    TokenForm,
    UserForm,
    ZoneForm,
)
from webapp.html.viewing import asked, keyed_request, new_form_key
from webapp.html.zones import zone_options
from webapp.identity import operations, queries
from webapp.identity.access import Facts, Verb, demand, may
from webapp.identity.models import Role, User
from webapp.identity.queries import Member, Place
from webapp.scheduling.queries import count_sponsored
from webapp.store import db
from webapp.store.paging import PageRequest
from webapp.timetable import TimetableError, canonical_zone
from webapp.web import sessions
from webapp.web.auth import current_actor, current_person, viewer_place
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("settings", __name__, url_prefix="/settings")

_PAGE = "/settings"
_TOKENS_SHOWN = 50


@blueprint.get("")
@access(SignedIn, verb=Verb.READ)
def settings() -> Response:
    """Everything on one page."""
    return respond.page("settings/settings.html", **_context())


# ---------------------------------------------------------------- oneself


@blueprint.post("/time-zone")
@access(SignedIn)
def change_zone() -> Response:
    """Show my pages in another zone from now on."""
    form = ZoneForm(request.form)
    try:
        zone = canonical_zone(form.timezone.data)
    except TimetableError as error:
        form.timezone.errors = [str(AppError("invalid_timezone", message=error.message).message)]
        return _refused(zone_form=form)
    operations.set_timezone(current_actor(), zone, now=g.now)
    sessions.choose_zone(None)
    return _done(f"Your pages show times in {zone}.")


@blueprint.post("/password")
@access(SignedIn)
def change_password() -> Response:
    """A new password for oneself; every other session ends."""
    form = PasswordForm(request.form)
    actor = current_actor()
    try:
        user = operations.set_password(
            actor,
            actor.user_id,
            form.password.data or "",
            current_password=form.current_password.data or "",
            now=g.now,
        )
    except AppError as error:
        blame(form, error)
        return _refused(password_form=form)
    sessions.adopt_epoch(user.session_epoch)
    return _done("Your password is changed. You are signed out everywhere else.")


# ---------------------------------------------------------------- tokens


@blueprint.post("/tokens")
@access(SignedIn, verb=Verb.MANAGE_OWN_TOKENS)
def create_token() -> Response:
    """Make a token and show it, this once, in the answer itself: it is kept nowhere, not even in a cookie."""
    form = TokenForm(request.form)
    wish = {"label": form.label.data, "network_id": form.network_id.data, "expires": form.expires_days.data}
    try:
        issued = operations.create_user_token(
            current_actor(),
            form.label.data or "",
            network_id=form.network_id.data or None,
            expires_days=form.days(),
            request=keyed_request("token.create", wish),
            now=g.now,
        )
    except AppError as error:
        blame(form, error)
        return _refused(token_form=form)
    row = queries.token_row(issued.token, issued.network_id)
    response = respond.page("settings/token.html", token=row, secret=issued.text)
    response.headers["Cache-Control"] = "no-store"
    return response


@blueprint.post("/tokens/<token_id>/revoke")
@access(SignedIn, verb=Verb.MANAGE_OWN_TOKENS)
def revoke_token(token_id: str) -> Response:
    """End a token at once."""
    token = operations.revoke_token(current_actor(), token_id, now=g.now)
    return _done(f"The token ending in {token.hint} does not work any more.")


# ---------------------------------------------------------------- people of the network


@blueprint.post("/members")
@access(SignedIn, verb=Verb.MANAGE_MEMBERS)
def add_member() -> Response:
    """Give an existing person a place here."""
    form, place, actor = MemberForm(request.form), _managed_place(), current_actor()
    try:
        role = _role(form.role.data)
        user = queries.user_by_name(db.session(), (form.name.data or "")[:400])
        if user is None:
            raise AppError("user_not_found", field="name")
        operations.add_member(actor, place.network_id, user.user_id, role, now=g.now)
    except AppError as error:
        blame(form, _beside_name(error))
        return _refused(member_form=form)
    return _done(f"{user.name} is {role.value} of {place.name}.")


@blueprint.post("/members/<user_id>/role")
@access(SignedIn, verb=Verb.MANAGE_MEMBERS)
def change_role(user_id: str) -> Response:
    """Make a member something else."""
    place = _shown_place()
    member = _managed_member(place, user_id)
    role = _role(request.form.get("role"))
    operations.change_role(current_actor(), place.network_id, user_id, role, now=g.now)
    return _done(f"{member.name} is now {role.value} of {place.name}.")


@blueprint.get("/members/<user_id>/remove")
@access(SignedIn, verb=Verb.MANAGE_MEMBERS)
def ask_remove_member(user_id: str) -> Response:
    """Say what removing somebody stops, and ask."""
    place = _shown_place()
    own = user_id == current_actor().user_id
    member = _member(place, user_id) if own else _managed_member(place, user_id)
    user = queries.user_by_id(db.session(), user_id)
    stopping = count_sponsored(db.session(), user.id, network_pk=place.network_pk) if user else 0
    return respond.page("settings/remove.html", member=member, place=place, own=own, stopping=stopping)


@blueprint.post("/members/<user_id>/remove")
@access(SignedIn, verb=Verb.MANAGE_MEMBERS)
def remove_member(user_id: str) -> Response:
    """End somebody's place here, or one's own."""
    place = _shown_place()
    name = _member(place, user_id).name
    operations.remove_member(current_actor(), place.network_id, user_id, now=g.now)
    return _done(f"{name} does not belong to {place.name} any more.")


# ---------------------------------------------------------------- everybody, for administrators


@blueprint.post("/users")
@access(SignedIn, verb=Verb.MANAGE_USERS)
def create_user() -> Response:
    """Create a person, with a place in the network that is looked at."""
    form, place = UserForm(request.form), viewer_place()
    wish = {"name": form.name.data, "role": form.role.data, "admin": form.admin.data}
    try:
        user = operations.create_user(
            current_actor(),
            operations.NewUser(form.name.data or "", form.password.data or "", bool(form.admin.data)),
            network_id=None if place is None else place.network_id,
            role=_role(form.role.data),
            request=keyed_request("user.create", wish),
            now=g.now,
        )
    except AppError as error:
        blame(form, error)
        return _refused(user_form=form)
    return _done(f"{user.name} can sign in now. Have them change the first password under Settings.")


@blueprint.get("/users/<user_id>/deactivate")
@access(SignedIn, verb=Verb.MANAGE_USERS)
def ask_deactivate(user_id: str) -> Response:
    """Say what deactivating somebody stops, and ask."""
    account = _anybody(user_id)
    stopping = count_sponsored(db.session(), account.id)
    return respond.page("settings/deactivate.html", account=account, stopping=stopping)


@blueprint.post("/users/<user_id>/deactivate")
@access(SignedIn, verb=Verb.MANAGE_USERS)
def deactivate(user_id: str) -> Response:
    """Shut a person out."""
    user = operations.deactivate_user(current_actor(), user_id, now=g.now)
    return _done(f"{user.name} is deactivated.")


@blueprint.post("/users/<user_id>/reactivate")
@access(SignedIn, verb=Verb.MANAGE_USERS)
def reactivate(user_id: str) -> Response:
    """Let a person in again."""
    user = operations.reactivate_user(current_actor(), user_id, now=g.now)
    return _done(
        f"{user.name} can sign in again. What stopped meanwhile stays stopped until somebody resumes it."
    )


@blueprint.post("/networks")
@access(SignedIn, verb=Verb.CREATE_NETWORK)
def create_network() -> Response:
    """Make a network, own it, and look at it."""
    form = NetworkForm(request.form)
    wish = {"name": form.name.data, "slug": form.slug.data}
    try:
        network = operations.create_network(
            current_actor(),
            form.name.data or "",
            (form.slug.data or "").strip(),
            request=keyed_request("network.create", wish),
            now=g.now,
        )
    except AppError as error:
        blame(form, error)
        return _refused(network_form=form)
    sessions.choose_network(network.network_id)
    return _done(f"{network.name} stands; you look at it now.")


# ---------------------------------------------------------------- the page


def _context(**refused_forms: Form) -> dict[str, Any]:
    """What the page shows: the forms, of which refused ones keep what was typed, and the lists."""
    person, place = current_person(), viewer_place()
    actor = person.actor
    request_page = PageRequest(_TOKENS_SHOWN, asked("tokens_after"))
    forms: dict[str, Form] = {
        "zone_form": ZoneForm(data={"timezone": person.timezone}),
        "password_form": PasswordForm(),
        "token_form": TokenForm(data={"idempotency_key": new_form_key()}),
        "member_form": MemberForm(),
        "user_form": UserForm(data={"idempotency_key": new_form_key()}),
        "network_form": NetworkForm(data={"idempotency_key": new_form_key()}),
    } | refused_forms
    token_form = forms["token_form"]
    if isinstance(token_form, TokenForm):
        token_form.offer_networks((own.network_id, own.name) for own in person.places)
    facts = Facts(network_pk=None if place is None else place.network_pk)
    return {
        **forms,
        "person": person,
        "place": place,
        "zone_choices": zone_options(g.now, person.timezone),
        "tokens": queries.tokens_of(db.session(), actor.user_pk, request_page),
        "members": [] if place is None else queries.members(db.session(), place.network_pk),
        "may_manage": may(actor, Verb.MANAGE_MEMBERS, facts),
        "may_manage_owners": may(actor, Verb.MANAGE_OWNERS, facts),
        "may_manage_users": may(actor, Verb.MANAGE_USERS, facts),
        "everybody": queries.everybody(db.session()) if actor.is_admin else (),
        "roles": [role.value for role in Role],
    }


def _refused(**refused_forms: Form) -> Response:
    """The whole page again with the form that was refused."""
    zone_form = refused_forms.get("zone_form")
    if zone_form is not None and not isinstance(zone_form["timezone"].data, str):
        zone_form["timezone"].data = current_person().timezone
    return respond.form_refused("settings/settings.html", **_context(**refused_forms))


def _done(words: str) -> Response:
    respond.flash(words)
    return respond.redirect_to(_PAGE)


def _role(text: object) -> Role:
    try:
        return Role(str(text))
    except ValueError:
        raise AppError("invalid_role", field="role") from None


def _shown_place() -> Place:
    place = viewer_place()
    if place is None:
        raise AppError("network_not_found")
    return place


def _managed_place() -> Place:
    """The network that is looked at, if its people may be managed: asked before anybody is found by name."""
    place = _shown_place()
    demand(current_actor(), Verb.MANAGE_MEMBERS, Facts(network_pk=place.network_pk))
    return place


def _member(place: Place, user_id: str) -> Member:
    found = queries.member(db.session(), place.network_pk, user_id)
    if found is None:
        raise AppError("user_not_found")
    return found


def _managed_member(place: Place, user_id: str) -> Member:
    """A member of this network, if its people may be managed."""
    found = _member(place, user_id)
    demand(current_actor(), Verb.MANAGE_MEMBERS, Facts(network_pk=place.network_pk))
    return found


def _anybody(user_id: str) -> User:
    demand(current_actor(), Verb.MANAGE_USERS, Facts())
    user = queries.user_by_id(db.session(), user_id)
    if user is None:
        raise AppError("user_not_found")
    return user


def _beside_name(error: AppError) -> AppError:
    """A refusal that speaks of the person stands beside the person's name."""
    if error.code in ("user_not_found", "already_member"):
        return AppError(error.code, field="name")
    return error
