"""The frame around every page: whose it is, which network is looked at, whether the worker ticks."""

from __future__ import annotations

from typing import Any, Final

from flask import Blueprint, Flask, current_app, g, request
from flask.typing import ResponseReturnValue
from jinja2 import StrictUndefined

from webapp.errors import AppError
from webapp.events.queries import last_numbers
from webapp.html import assets, filters, privacy, respond
from webapp.html.frame_counts import FrameCounts, frame_counts
from webapp.html.respond import NetworkChoice, Shell, WorkerPulse
from webapp.identity import operations
from webapp.identity.access import Facts, Verb, may
from webapp.identity.queries import Person, Place
from webapp.scheduling import queries
from webapp.store import db
from webapp.timetable import ZONE_DATA_VERSION
from webapp.web import sessions
from webapp.web.auth import caller, current_actor, current_person, viewer_place, viewer_zone
from webapp.web.policy import SignedIn, access, access_of

# A slot may wait for one whole sleep of the worker; later than two is worth a word.
_LATE_TICKS: Final = 2
_REGIONS: Final = {"pulse": "shared/_pulse.html", "masthead": "shared/_masthead.html"}

blueprint = Blueprint("shell", __name__)


def init_shell(app: Flask) -> None:
    """Give templates their filters, tests and `shell`, serve the assets and the network switch."""
    assets.init_assets(app)
    app.jinja_env.undefined = StrictUndefined
    app.jinja_env.filters.update(filters.FILTERS)
    app.jinja_env.tests.update(filters.TESTS)
    app.jinja_env.tests.update(secret=privacy.is_secret, chat=privacy.is_chat)
    app.jinja_env.filters.update(aim=privacy.aim, called=privacy.called)
    app.before_request(_note_events)
    app.context_processor(_shell_context)
    app.register_blueprint(blueprint)


@blueprint.post("/switch-network")
@access(SignedIn)
def switch_network() -> ResponseReturnValue:
    """Show the pages of another of one's networks from now on."""
    wanted = request.form.get("network_id")
    if wanted not in {place.network_id for place in current_person().places}:
        raise AppError("network_not_found")
    sessions.choose_network(str(wanted))
    return respond.redirect_to("/")


@blueprint.get("/shell")
@access(SignedIn)
def frame() -> ResponseReturnValue:
    """The frame alone, for pages that stand open: whether the worker ticks, and what waits on each way."""
    if respond.wanted_region(_REGIONS) is None:
        return respond.redirect_to("/")
    return respond.page("shared/keys.html", _REGIONS, section=request.args.get("section", ""))


@blueprint.get("/keys")
@access(SignedIn)
def show_keys() -> ResponseReturnValue:
    """Which keys do what, and the switch to turn them off."""
    return respond.page("shared/keys.html")


@blueprint.post("/keys")
@access(SignedIn)
def switch_keys() -> ResponseReturnValue:
    """Turn single keys on or off for oneself, in every browser."""
    off = request.form.get("keys") == "off"
    operations.set_keys_off(current_actor(), off, now=g.now)
    respond.flash(
        "Single keys are off: none does anything on your pages." if off else "Single keys are on again."
    )
    return respond.redirect_to("/keys")


def _note_events() -> None:
    """Remember how far the events of the network went before the page reads anything: its stream begins there."""
    access = access_of(current_app, request.endpoint)
    place = viewer_place() if access is not None and access.door is SignedIn else None
    if place is not None:
        g.events_seen = last_numbers(db.session(), [place.network_pk])[place.network_pk]


def _shell_context() -> dict[str, Any]:
    return {"shell": current_shell()}


def current_shell() -> Shell:
    """The frame for whoever asks; for somebody who is not signed in only the clock and the form's secret."""
    person = caller().person
    if person is None:
        return Shell(csrf_token=sessions.form_token(), viewer_zone=viewer_zone())
    place = viewer_place()
    networks = [place.network_pk] if place else []
    counts = frame_counts(db.session(), person.actor, networks, now=g.now)
    return Shell(
        user_name=person.actor.name,
        network_id=place.network_id if place else None,
        network_name=place.name if place else None,
        networks=_choices(person, place),
        worker=_worker_pulse(counts),
        viewer_zone=viewer_zone(),
        now=g.now,
        csrf_token=sessions.form_token(),
        zone_data_version=ZONE_DATA_VERSION,
        events_seen=g.get("events_seen"),
        attention_count=counts.needs,
        approvals_count=counts.approvals,
        keys=not person.keys_off,
        may_create=place is not None
        and may(person.actor, Verb.CREATE_SCHEDULE, Facts(network_pk=place.network_pk)),
    )


def _choices(person: Person, current: Place | None) -> tuple[NetworkChoice, ...]:
    return tuple(
        NetworkChoice(place.network_id, place.name, current=place == current) for place in person.places
    )


def _worker_pulse(counts: FrameCounts) -> WorkerPulse:
    tick_seconds = current_app.extensions["carillon_config"].tick_seconds
    found = queries.pulse(db.session(), tick_seconds=tick_seconds, now=g.now, due=counts.due)
    late = found.lag_seconds > _LATE_TICKS * tick_seconds
    return WorkerPulse(
        state="silent" if not found.alive else "late" if late else "ticking",
        last_pass_at=found.last_tick_at,
        lag_seconds=found.lag_seconds if found.alive else None,
        due_count=found.due_unclaimed,
    )
