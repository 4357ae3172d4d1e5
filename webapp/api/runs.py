"""`/api/runs`: what became of each slot."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

from webapp.api.filters import choice_of, id_of, instant_of
from webapp.identity.access import Verb
from webapp.scheduling import queries
from webapp.scheduling.lifecycle import RunStatus
from webapp.scheduling.queries import RunFilter
from webapp.store import db
from webapp.targets.node_queries import work_instants
from webapp.web import present
from webapp.web.auth import current_actor
from webapp.web.policy import UserApi, access
from webapp.web.requests import networks_of_read, page_request

blueprint = Blueprint("api_runs", __name__, url_prefix="/api/runs")


@blueprint.get("")
@access(UserApi, verb=Verb.READ)
def list_runs() -> Response:
    """The runs of the caller's networks, newest slot first; `from` and `to` (exclusive) are slots."""
    wanted = RunFilter(
        status=choice_of("status", RunStatus),
        schedule_id=id_of("schedule_id"),
        since=instant_of("from"),
        until=instant_of("to"),
    )
    page = queries.list_runs(db.session(), networks_of_read(), wanted, page_request())
    rows = [present.run_json(run, current_actor().user_pk) for run in page.rows]
    return jsonify(ok=True, runs=rows, next_cursor=page.next_cursor)


@blueprint.get("/<run_id>")
@access(UserApi, verb=Verb.READ)
def show_run(run_id: str) -> Response:
    """One run with its receipts."""
    run = queries.find_run(db.session(), current_actor().networks, run_id)
    work = work_instants(db.session(), run)
    return jsonify(ok=True, run=present.run_with_receipts(run, work, current_actor().user_pk))
