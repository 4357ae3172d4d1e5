"""The next slot of a schedule in the hands of people: skip it, move it, take either back."""

from __future__ import annotations

from typing import Any, Final

from flask import Blueprint, Response, g, request

from webapp.errors import AppError
from webapp.html.filters import wall
from webapp.html.forms import blame
from webapp.html.forms.move import MoveForm
from webapp.html.forms.schedule import local_of_instant
from webapp.html.respond import flash, form_refused, page, redirect_to
from webapp.html.schedule_story import says
from webapp.html.schedules import do_and_return, find_for, show
from webapp.html.viewing import reached_networks
from webapp.identity.access import Verb
from webapp.scheduling import next_slot, queries
from webapp.scheduling.calendar import planned_slots
from webapp.scheduling.fields import MoveRequest, SkipRequest
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.scheduling.next_change import change_of
from webapp.store import db
from webapp.timetable import utc_text
from webapp.web.auth import current_actor
from webapp.web.body import parse
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("schedule_next", __name__, url_prefix="/schedules")

_MOVE: Final = "schedules/move.html"


@blueprint.get("/<schedule_id>/skip-next", endpoint="leave_skip_next")
@blueprint.get("/<schedule_id>/undo-next", endpoint="leave_undo_next")
@access(SignedIn)
def leave_action(schedule_id: str) -> Response:
    """Whoever loads the address of a refused attempt again comes back to the schedule."""
    schedule = queries.find_schedule(db.session(), reached_networks(), schedule_id)
    return redirect_to(f"/schedules/{schedule.schedule_id}")


@blueprint.post("/<schedule_id>/skip-next")
@access(SignedIn, verb=Verb.EDIT_SCHEDULE)
def skip_next(schedule_id: str) -> Response:
    """Have the slot skipped that the page showed; the timetable goes on after it."""
    body = {"slot": request.form.get("slot") or None}

    def act() -> str:
        schedule = next_slot.skip_next(
            current_actor(), schedule_id, lambda: parse(SkipRequest, body), now=g.now
        )
        return f"{_slot_words(schedule)} will be skipped. Until then this can be undone."

    return do_and_return(schedule_id, act)


@blueprint.post("/<schedule_id>/undo-next")
@access(SignedIn, verb=Verb.EDIT_SCHEDULE)
def undo_next(schedule_id: str) -> Response:
    """Take a skip or a move back."""

    def act() -> str:
        schedule = next_slot.undo_next_change(current_actor(), schedule_id, now=g.now)
        return f"Undone. {_slot_words(schedule)} rings as the timetable says."

    return do_and_return(schedule_id, act)


@blueprint.get("/<schedule_id>/move-next")
@access(SignedIn, verb=Verb.EDIT_SCHEDULE)
def ask_move(schedule_id: str) -> Response:
    """The form for another time of the next slot; where no slot can be moved, the schedule says why."""
    schedule = find_for(schedule_id, Verb.EDIT_SCHEDULE)
    slot = schedule.due.next_run_at
    if schedule.status is not ScheduleStatus.ACTIVE or slot is None:
        return show(schedule_id, AppError("schedule_has_no_future_occurrence", status=409))
    if change_of(schedule.next_change, slot) is not None:
        return show(schedule_id, AppError("next_change_exists"))
    text = utc_text(slot)
    form = MoveForm(data={"to": local_of_instant(slot, schedule.timezone), "slot": text})
    return page(_MOVE, **_move_context(schedule), form=form)


@blueprint.post("/<schedule_id>/move-next")
@access(SignedIn, verb=Verb.EDIT_SCHEDULE)
def move_next(schedule_id: str) -> Response:
    """Have the slot fall due at the time that was typed."""
    form, zone = MoveForm(request.form), find_for(schedule_id, Verb.EDIT_SCHEDULE).timezone
    try:
        schedule = next_slot.move_next(
            current_actor(), schedule_id, lambda: parse(MoveRequest, form.body(zone)), now=g.now
        )
    except AppError as refusal:
        return _move_refused(schedule_id, form, refusal)
    change = change_of(schedule.next_change, schedule.due.next_run_at)
    to = wall(change.to if change else None, zone, "long", g.now)
    flash(f"Moved. It rings {to} instead of {_slot_words(schedule)}. Until then this can be undone.")
    return redirect_to(f"/schedules/{schedule_id}")


def _move_refused(schedule_id: str, form: MoveForm, refusal: AppError) -> Response:
    db.session.remove()
    if refusal.status == 409:
        return show(schedule_id, refusal)
    if refusal.status != 400:
        raise refusal
    blame(form, refusal)
    return form_refused(_MOVE, **_move_context(find_for(schedule_id, Verb.EDIT_SCHEDULE)), form=form)


def _move_context(schedule: Schedule) -> dict[str, Any]:
    planned = planned_slots(schedule, limit=2, now=g.now)
    return {"schedule": schedule, "says": says(schedule), "planned": planned, "now": g.now}


def _slot_words(schedule: Schedule) -> str:
    return wall(schedule.due.next_run_at, schedule.timezone, "long", g.now)
