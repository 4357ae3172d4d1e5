"""`/api/mandates`: who lets what act, how far, until when."""

from __future__ import annotations

from flask import Blueprint, Response, g, jsonify

from webapp.api.body import bare_change, change, parse
from webapp.api.filters import choice_of
from webapp.audit.queries import AuditFilter, list_entries
from webapp.identity.access import Verb
from webapp.mandates import operations, queries
from webapp.mandates.bodies import MandateChanges, PauseMandate, RevokeMandate
from webapp.mandates.lifecycle import MandateState
from webapp.store import db
from webapp.store.paging import PageRequest
from webapp.targets.blast_radius import blast_radius
from webapp.web import present
from webapp.web.auth import current_actor, current_person
from webapp.web.policy import UserApi, access
from webapp.web.present_mandates import blast_radius_json, mandate_json
from webapp.web.requests import networks_of_read, page_request

blueprint = Blueprint("api_mandates", __name__, url_prefix="/api/mandates")
_TRAIL = 50


@blueprint.get("")
@access(UserApi, verb=Verb.READ_MANDATE)
def list_mandates() -> Response:
    """The mandates of the caller's networks, the one changed last first, by `?state=`."""
    wanted = queries.MandateFilter(state=choice_of("state", MandateState))
    page = queries.list_mandates(db.session(), networks_of_read(), wanted, page_request())
    rows = [mandate_json(row, _networks()) for row in page.rows]
    return jsonify(ok=True, mandates=rows, next_cursor=page.next_cursor)


@blueprint.get("/<mandate_id>")
@access(UserApi, verb=Verb.READ_MANDATE)
def show_mandate(mandate_id: str) -> Response:
    """One mandate, what hangs on it, and the last 50 entries of its audit trail."""
    session = db.session()
    mandate = queries.find_mandate(session, current_actor().networks, mandate_id)
    wanted = AuditFilter(subject_id=mandate.mandate_id)
    trail = list_entries(session, mandate.network_pk, wanted, PageRequest(_TRAIL))
    network_id = _networks()[mandate.network_pk]
    response = jsonify(
        ok=True,
        mandate=mandate_json(mandate, _networks()),
        blast_radius=blast_radius_json(blast_radius(session, mandate, now=g.now)),
        entries=[present.entry_json(entry, network_id) for entry in trail.rows],
    )
    response.set_etag(str(mandate.revision))
    return response


@blueprint.patch("/<mandate_id>")
@access(UserApi, verb=Verb.CHANGE_MANDATE)
def change_mandate(mandate_id: str) -> Response:
    """Give a mandate another policy or end: its subject alone may. Its schedule follows at once."""
    data, revision = change()
    operations.change(
        current_actor(), mandate_id, lambda: parse(MandateChanges, data), revision=revision, now=g.now
    )
    return _answer(mandate_id)


@blueprint.post("/<mandate_id>/confirm")
@access(UserApi, verb=Verb.CHANGE_MANDATE)
def confirm_mandate(mandate_id: str) -> Response:
    """Stand behind a mandate that an agent asked for: its subject alone may. Repeatable."""
    operations.confirm(current_actor(), mandate_id, revision=bare_change(), now=g.now)
    return _answer(mandate_id)


@blueprint.post("/<mandate_id>/pause")
@access(UserApi, verb=Verb.STOP_MANDATE)
def pause_mandate(mandate_id: str) -> Response:
    """Let it permit nothing until its subject resumes it; its schedule is paused at once. Repeatable."""
    data, revision = change(optional=True)
    operations.pause(
        current_actor(), mandate_id, lambda: parse(PauseMandate, data), revision=revision, now=g.now
    )
    return _answer(mandate_id)


@blueprint.post("/<mandate_id>/resume")
@access(UserApi, verb=Verb.CHANGE_MANDATE)
def resume_mandate(mandate_id: str) -> Response:
    """Let a paused mandate permit again: its subject alone may. Its schedule stays paused. Repeatable."""
    operations.resume(current_actor(), mandate_id, revision=bare_change(), now=g.now)
    return _answer(mandate_id)


@blueprint.post("/<mandate_id>/revoke")
@access(UserApi, verb=Verb.STOP_MANDATE)
def revoke_mandate(mandate_id: str) -> Response:
    """End it for good and say why; its schedule stops, turns at work may do nothing more. Repeatable."""
    data, revision = change()
    operations.revoke(
        current_actor(), mandate_id, lambda: parse(RevokeMandate, data), revision=revision, now=g.now
    )
    return _answer(mandate_id)


def _networks() -> dict[int, str]:
    return {place.network_pk: place.network_id for place in current_person().places}


def _answer(mandate_id: str) -> Response:
    mandate = queries.find_mandate(db.session(), current_actor().networks, mandate_id)
    response = jsonify(ok=True, mandate=mandate_json(mandate, _networks()))
    response.set_etag(str(mandate.revision))
    return response
