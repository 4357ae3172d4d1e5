"""`/api/scheduled-tasks`: standing orders over JSON."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, g, jsonify, request

from webapp.api.body import bare_change, change, parse
from webapp.api.filters import choice_of, line_of
from webapp.errors import AppError
from webapp.identity.access import Verb
from webapp.identity.queries import Place
from webapp.nodes.bodies import NoBody
from webapp.scheduling import bulk, next_slot, operations, outlook, queries
from webapp.scheduling.edit import check_bounds, read_timetable
from webapp.scheduling.fields import (
    BulkRequest,
    MoveRequest,
    NewSchedule,
    PauseRequest,
    PreviewRequest,
    ScheduleChanges,
    SkipRequest,
)
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus, TargetKind
from webapp.scheduling.outlook import Act
from webapp.scheduling.queries import MAX_SEARCH, Order, RunFilter, ScheduleFilter
from webapp.store import db
from webapp.timetable import Plan, clock_changes, sentence, upcoming
from webapp.web import export, present
from webapp.web.auth import current_actor
from webapp.web.policy import UserApi, access
from webapp.web.requests import (
    json_body,
    network_of_write,
    networks_of_read,
    page_request,
)

blueprint = Blueprint("api_schedules", __name__, url_prefix="/api/scheduled-tasks")


@blueprint.get("")
@access(UserApi, verb=Verb.READ)
def list_schedules() -> Response:
    """The schedules of the caller's networks, the one changed last first unless `sort` says another order."""
    wanted, order = _narrowed()
    page = queries.list_ordered(db.session(), networks_of_read(), wanted, order, page_request())
    rows = [present.schedule_json(row, current_actor().user_pk) for row in page.rows]
    return jsonify(ok=True, schedules=rows, next_cursor=page.next_cursor)


@blueprint.get("/export")
@access(UserApi, verb=Verb.READ)
def export_schedules() -> Response:
    """What is listed as one JSON document, up to 10 000 schedules, sent as it is read."""
    wanted, order = _narrowed()
    queries.check_search(wanted)
    return export.answer(networks_of_read(), wanted, order, current_actor().user_pk)


def _narrowed() -> tuple[ScheduleFilter, Order]:
    wanted = ScheduleFilter(
        viewer_pk=current_actor().user_pk,
        status=choice_of("status", ScheduleStatus),
        target_kind=choice_of("target_kind", TargetKind),
        target_id=line_of("target_node_id", 2, 200),
        q=line_of("q", 0, MAX_SEARCH),
    )
    return wanted, choice_of("sort", Order) or Order.UPDATED


@blueprint.post("")
@access(UserApi, verb=Verb.CREATE_SCHEDULE)
def create_schedule() -> Response:
    """Make a schedule. `warnings` says what would stop it from firing right now."""
    data = json_body()
    place = _network(data)
    saved = operations.create(
        current_actor(),
        place.network_pk,
        lambda: parse(NewSchedule, data),
        request_key=request.headers.get("Idempotency-Key"),
        now=g.now,
    )
    return _answer(saved.schedule.schedule_id, status=201, warnings=present.warnings_json(saved.warnings))


@blueprint.post("/preview")
@access(UserApi)
def preview() -> Response:
    """The next slots of a timetable, in words too, and what clock changes of the next year do to it."""
    wish = parse(PreviewRequest, json_body())
    timetable, zone = read_timetable(wish.schedule, wish.timezone, previous=None, now=g.now)
    check_bounds(wish.starts_at, wish.ends_at)
    plan, after = Plan(timetable, wish.starts_at, wish.ends_at), wish.after_or(g.now)
    return jsonify(
        ok=True,
        sentence=sentence(timetable, zone),
        timezone=zone,
        occurrences=[present.slot_json(slot) for slot in upcoming(plan, zone, after, wish.count)],
        clock_changes=[change.message for change in clock_changes(plan, zone, after)],
    )


@blueprint.post("/bulk")
@access(UserApi, verb=Verb.PAUSE_SCHEDULE)
def change_many() -> Response:
    """Pause, resume or cancel several schedules, each in a transaction of its own; says what became of each."""
    wish = parse(BulkRequest, json_body())
    outcomes = bulk.carry_out(current_actor(), wish.schedule_ids, Act(wish.action), wish.pause(), now=g.now)
    results = [present.outcome_json(outcome) for outcome in outcomes]
    done = sum(1 for result in results if result["ok"])
    return jsonify(ok=True, results=results, done=done, refused=len(results) - done)


@blueprint.post("/bulk/preview")
@access(UserApi, verb=Verb.READ)
def preview_many() -> Response:
    """What that call would do to each, if it were made now. Changes nothing."""
    wish = parse(BulkRequest, json_body())
    effects = outlook.foresee(
        db.session(), current_actor(), wish.schedule_ids, Act(wish.action), wish.pause(), now=g.now
    )
    return jsonify(ok=True, effects=[present.effect_json(effect) for effect in effects])


@blueprint.get("/<schedule_id>")
@access(UserApi, verb=Verb.READ)
def show_schedule(schedule_id: str) -> Response:
    """One schedule."""
    return _answer(schedule_id)


@blueprint.patch("/<schedule_id>")
@access(UserApi, verb=Verb.EDIT_SCHEDULE)
def edit_schedule(schedule_id: str) -> Response:
    """Change a schedule. `status` alone is a pause or a resume, and asks for that right."""
    data, revision = change()
    saved = operations.edit(
        current_actor(),
        schedule_id,
        lambda: parse(ScheduleChanges, data),
        revision=revision,
        wants_status_alone=data.keys() == {"status"},
        now=g.now,
    )
    return _answer(schedule_id, warnings=present.warnings_json(saved.warnings))


@blueprint.post("/<schedule_id>/pause")
@access(UserApi, verb=Verb.PAUSE_SCHEDULE)
def pause_schedule(schedule_id: str) -> Response:
    """Let no more slots fire, until somebody resumes or `resume_at` comes. Repeatable."""
    data, revision = change(optional=True)
    operations.pause(
        current_actor(), schedule_id, lambda: parse(PauseRequest, data), revision=revision, now=g.now
    )
    return _answer(schedule_id)


@blueprint.post("/<schedule_id>/resume")
@access(UserApi, verb=Verb.RESUME_SCHEDULE)
def resume_schedule(schedule_id: str) -> Response:
    """Go on from now; what was missed stays missed. Repeatable."""
    revision = bare_change()
    operations.resume(current_actor(), schedule_id, revision=revision, now=g.now)
    return _answer(schedule_id)


@blueprint.post("/<schedule_id>/confirm")
@access(UserApi, verb=Verb.CONFIRM_SCHEDULE)
def confirm_schedule(schedule_id: str) -> Response:
    """Let what an agent proposed begin: its sponsor alone may."""
    operations.confirm(current_actor(), schedule_id, revision=bare_change(), now=g.now)
    return _answer(schedule_id)


@blueprint.post("/<schedule_id>/reject")
@access(UserApi, verb=Verb.CANCEL_SCHEDULE)
def reject_schedule(schedule_id: str) -> Response:
    """Turn down what an agent proposed; it is cancelled."""
    operations.reject(current_actor(), schedule_id, revision=bare_change(), now=g.now)
    return _answer(schedule_id)


@blueprint.post("/<schedule_id>/skip-next")
@access(UserApi, verb=Verb.EDIT_SCHEDULE)
def skip_next(schedule_id: str) -> Response:
    """Have the next slot skipped when it falls due. `slot` refuses another one than that."""
    data, revision = change(optional=True)
    next_slot.skip_next(
        current_actor(), schedule_id, lambda: parse(SkipRequest, data), revision=revision, now=g.now
    )
    return _answer(schedule_id)


@blueprint.post("/<schedule_id>/move-next")
@access(UserApi, verb=Verb.EDIT_SCHEDULE)
def move_next(schedule_id: str) -> Response:
    """Have the next slot fall due at another time, before the one that follows it."""
    data, revision = change()
    next_slot.move_next(
        current_actor(), schedule_id, lambda: parse(MoveRequest, data), revision=revision, now=g.now
    )
    return _answer(schedule_id)


@blueprint.delete("/<schedule_id>/next-change")
@access(UserApi, verb=Verb.EDIT_SCHEDULE)
def undo_next_change(schedule_id: str) -> Response:
    """Take a skip or a move of the next slot back. Repeatable."""
    next_slot.undo_next_change(current_actor(), schedule_id, revision=bare_change(), now=g.now)
    return _answer(schedule_id)


@blueprint.post("/<schedule_id>/run-now")
@access(UserApi, verb=Verb.RUN_SCHEDULE)
def run_now(schedule_id: str) -> Response:
    """Start a run by hand, beside the timetable."""
    data = json_body(optional=True)
    run = operations.run_now(
        current_actor(),
        schedule_id,
        check_fields=lambda: parse(NoBody, data),
        request_key=request.headers.get("Idempotency-Key"),
        now=g.now,
    )
    found = queries.find_run(db.session(), current_actor().networks, run.run_id)
    response = jsonify(ok=True, run=present.run_json(found, current_actor().user_pk))
    response.status_code = 202
    return response


@blueprint.post("/<schedule_id>/cancel")
@access(UserApi, verb=Verb.CANCEL_SCHEDULE)
def cancel_schedule(schedule_id: str) -> Response:
    """End a schedule for good. Repeatable."""
    return _cancel(schedule_id)


@blueprint.delete("/<schedule_id>")
@access(UserApi, verb=Verb.CANCEL_SCHEDULE)
def delete_schedule(schedule_id: str) -> Response:
    """The same as cancel: its history stays."""
    return _cancel(schedule_id)


@blueprint.get("/<schedule_id>/runs")
@access(UserApi, verb=Verb.READ)
def runs_of_schedule(schedule_id: str) -> Response:
    """The runs of one schedule, newest slot first."""
    networks = current_actor().networks
    schedule = queries.find_schedule(db.session(), networks, schedule_id)
    wanted = RunFilter(status=choice_of("status", RunStatus), schedule_pk=schedule.id)
    page = queries.list_runs(db.session(), networks, wanted, page_request())
    rows = [present.run_json(run, current_actor().user_pk) for run in page.rows]
    return jsonify(ok=True, runs=rows, next_cursor=page.next_cursor)


@blueprint.get("/<schedule_id>/admission")
@access(UserApi, verb=Verb.READ)
def show_admission(schedule_id: str) -> Response:
    """Whether it would fire, and every question that was asked."""
    schedule = queries.find_schedule(db.session(), current_actor().networks, schedule_id)
    verdict = queries.admission(db.session(), schedule, now=g.now)
    checks = [present.check_json(check) for check in verdict.checks]
    return jsonify(ok=True, would_fire=verdict.would_fire, checks=checks)


def _cancel(schedule_id: str) -> Response:
    revision = bare_change()
    operations.cancel(current_actor(), schedule_id, revision=revision, now=g.now)
    return _answer(schedule_id)


def _answer(schedule_id: str, *, status: int = 200, **more: Any) -> Response:
    schedule = queries.find_schedule(db.session(), current_actor().networks, schedule_id)
    response = jsonify(ok=True, schedule=present.schedule_json(schedule, current_actor().user_pk), **more)
    response.status_code = status
    response.set_etag(str(schedule.revision))
    return response


def _network(data: dict[str, Any]) -> Place:
    """The network of a new schedule, which is no field of the schedule; null does not leave it out."""
    if "network_id" in data and data["network_id"] is None:
        raise AppError("invalid_network_id", field="network_id")
    return network_of_write(data.pop("network_id", None))
