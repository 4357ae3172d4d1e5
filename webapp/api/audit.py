"""`/api/audit`: who changed what. Each network has one sequence of its own, without gaps."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from webapp.api.filters import instant_of, line_of
from webapp.audit.queries import AuditFilter, list_entries
from webapp.identity.access import Facts, Verb, demand
from webapp.store import db
from webapp.web import present
from webapp.web.auth import current_actor
from webapp.web.policy import UserApi, access
from webapp.web.requests import network_of_write, page_request

blueprint = Blueprint("api_audit", __name__, url_prefix="/api/audit")


@blueprint.get("")
@access(UserApi, verb=Verb.READ_AUDIT)
def list_audit() -> Response:
    """The audit of one network, newest first; `network_id` names it where the caller has several."""
    place = network_of_write(request.args.get("network_id"))
    demand(current_actor(), Verb.READ_AUDIT, Facts(network_pk=place.network_pk))
    wanted = AuditFilter(
        actor=line_of("actor", 1, 120),
        subject_id=line_of("subject", 1, 200),
        since=instant_of("from"),
        until=instant_of("to"),
    )
    page = list_entries(db.session(), place.network_pk, wanted, page_request())
    entries = [present.entry_json(entry, place.network_id) for entry in page.rows]
    return jsonify(ok=True, entries=entries, next_cursor=page.next_cursor)
