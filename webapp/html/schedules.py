"""The pages of schedules: what stands, one of them with its history, and what people do to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flask import Blueprint, Response, g, request
from sqlalchemy.orm import Session

from webapp.errors import AppError
from webapp.html.filters import wall
from webapp.html.forms import blame
from webapp.html.forms.chat import model_words
from webapp.html.forms.pause import PauseForm
from webapp.html.heat import draw_month, draw_year
from webapp.html.mandates import row_of_workload
from webapp.html.privacy import facts_of, is_chat
from webapp.html.respond import flash, form_refused, page, redirect_to, wanted_region
from webapp.html.runs import history_rows
from webapp.html.schedule_preview import check_lines, zones_shown
from webapp.html.schedule_story import Reason, policy_facts, reason_of, says
from webapp.html.viewing import (
    address,
    asked,
    asked_choice,
    new_form_key,
    reached_networks,
    shown_networks,
)
from webapp.html.ways import way_out
from webapp.identity.access import Actor, Facts, Verb, demand, may
from webapp.identity.idempotency import check_key
from webapp.nodes.models import Node
from webapp.nodes.queries import find_node, node_choices
from webapp.scheduling import operations, queries
from webapp.scheduling.calendar import month_ahead, planned_slots, year_behind
from webapp.scheduling.fields import PauseRequest
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus, TargetKind
from webapp.scheduling.models import Schedule
from webapp.scheduling.outlook import Act, foresee
from webapp.scheduling.queries import Order, RunFilter, ScheduleFilter
from webapp.store import db
from webapp.store.counting import add_up
from webapp.store.paging import PageRequest
from webapp.timetable import local_day, upcoming
from webapp.web.auth import current_actor, viewer_place, viewer_zone
from webapp.web.body import parse
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("schedule_pages", __name__, url_prefix="/schedules")

_LIST: Final = {"schedule-list": "schedules/_schedule_list.html"}
_DETAIL: Final = {
    "schedule-now": "schedules/_schedule_now.html",
    "schedule-calendar": "schedules/_schedule_calendar.html",
    "schedule-history": "schedules/_schedule_history.html",
    "schedule-order": "schedules/_schedule_order.html",
}
_STRIP: Final = 20
_PER_PAGE: Final = 25
_SLOTS: Final = 5
_STANDING: Final = (ScheduleStatus.ACTIVE, ScheduleStatus.PAUSED, ScheduleStatus.NEEDS_ATTENTION)


# --- The list ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScheduleRow:
    """One line of the list. `results` are the states of the last runs, oldest first."""

    schedule: Schedule
    says: str
    results: list[RunStatus]
    reason: Reason


@blueprint.get("")
@access(SignedIn, verb=Verb.READ)
def list_schedules() -> Response:
    """What stands, soonest first or as `?sort=` says, by `?status=` and `?q=`."""
    return page("schedules/list.html", _LIST, **_list_context())


def _list_context() -> dict[str, Any]:
    session, networks = db.session(), shown_networks()
    status, text = asked_choice("status", ScheduleStatus), asked("q")
    target = _target()
    wanted = ScheduleFilter(
        status=status,
        target_kind=TargetKind.NODE if target else None,
        target_pk=target.id if target else None,
        q=text,
        viewer_pk=current_actor().user_pk,
    )
    narrowed = {"q": text, "target": target.node_id if target else None}
    sort = asked_choice("sort", Order)
    order = sort or Order.NEXT
    found = queries.list_ordered(session, networks, wanted, order, PageRequest(_PER_PAGE, asked("cursor")))
    counts = queries.count_by_status(session, networks)
    following = found.next_cursor
    return {
        "rows": _rows(session, found.rows),
        "counts": counts,
        "total": add_up(counts.values()),
        "standing": add_up(counts.get(state, 0) for state in _STANDING),
        "ill": counts.get(ScheduleStatus.NEEDS_ATTENTION, 0),
        "soonest": queries.soonest(session, networks),
        "only": status,
        "target": target,
        "q": text,
        "order": order,
        "sort": sort,
        "address": address(status=status, **narrowed, sort=sort, cursor=asked("cursor")),
        "next_url": address(status=status, **narrowed, sort=sort, cursor=following) if following else None,
        "first_url": address(status=status, **narrowed, sort=sort) if asked("cursor") else None,
        "all_url": address(**narrowed, sort=sort),
        "status_urls": {state: address(status=state, **narrowed, sort=sort) for state in ScheduleStatus},
        "sort_urls": {each: address(status=status, **narrowed, sort=each) for each in Order},
        "every_target_url": address(status=status, q=text, sort=sort),
        "export_url": _export_url(
            status=status, q=text, target_node_id=target.node_id if target else None, sort=order
        ),
        "node_count": 0 if counts else len(node_choices(session, networks, now=g.now)),
        "may_create": _may_create(),
        "now": g.now,
    }


def _target() -> Node | None:
    """The node that the list is narrowed to by `?target=`. Raises AppError `node_not_found`."""
    node_id = asked("target")
    return find_node(db.session(), shown_networks(), node_id) if node_id else None


def _export_url(**narrowed: object) -> str | None:
    place = viewer_place()
    if place is None:
        return None
    return address("/api/scheduled-tasks/export", network_id=place.network_id, **narrowed)


def _rows(session: Session, schedules: Sequence[Schedule]) -> list[ScheduleRow]:
    last = queries.last_runs(session, [schedule.id for schedule in schedules], limit=_STRIP)
    return [
        ScheduleRow(
            schedule,
            says(schedule),
            [status for _, status in last.get(schedule.id, ())],
            reason_of(schedule),
        )
        for schedule in schedules
    ]


def _may_create() -> bool:
    place = viewer_place()
    return place is not None and may(
        current_actor(), Verb.CREATE_SCHEDULE, Facts(network_pk=place.network_pk)
    )


# --- One schedule --------------------------------------------------------------------------------------------


@blueprint.get("/<schedule_id>")
@access(SignedIn, verb=Verb.READ)
def show_schedule(schedule_id: str) -> Response:
    """One schedule: when next and in order, what became of each slot, on whose authority."""
    return show(schedule_id)


def show(schedule_id: str, refusal: AppError | None = None) -> Response:
    """The page of a schedule, with why what was just tried was refused."""
    return page(
        "schedules/detail.html",
        _DETAIL,
        status=refusal.status if refusal else 200,
        refusal=refusal,
        refused_way=way_out(refusal.code) if refusal else None,
        **_detail_context(schedule_id),
    )


def _detail_context(schedule_id: str) -> dict[str, Any]:
    session = db.session()
    schedule = queries.find_schedule(session, reached_networks(), schedule_id)
    verdict = queries.admission(session, schedule, now=g.now)
    return {
        "schedule": schedule,
        "says": says(schedule),
        "reason": reason_of(schedule),
        "reason_way": way_out(reason_of(schedule).code),
        "paused_by": queries.paused_by(session, schedule),
        "verdict": verdict,
        "checks": check_lines(verdict.checks),
        "zones": [name for name, _ in zones_shown(schedule.timezone, viewer_zone())],
        "viewer_zone": viewer_zone(),
        "policies": policy_facts(schedule),
        "mandate": row_of_workload(session, schedule, current_actor(), g.now),
        "model": model_words(schedule.model) if schedule.model else None,
        "run_key": new_form_key(),
        "planned": planned_slots(schedule, limit=2, now=g.now),
        "allowed": allowed(current_actor(), schedule),
        "now": g.now,
        **_calendar(session, schedule),
        **_history(session, schedule),
    }


def _calendar(session: Session, schedule: Schedule) -> dict[str, Any]:
    """The year and the month, which only the page and their own region show."""
    if wanted_region(_DETAIL) not in (None, _DETAIL["schedule-calendar"]):
        return {}
    since = local_day(schedule.timezone, schedule.created_at)
    return {
        "year": draw_year(year_behind(session, schedule, now=g.now), since=since),
        "month": draw_month(month_ahead(schedule, now=g.now)),
    }


def _history(session: Session, schedule: Schedule) -> dict[str, Any]:
    status, base = asked_choice("status", RunStatus), f"/schedules/{schedule.schedule_id}"
    wanted = RunFilter(status=status, schedule_pk=schedule.id)
    cursor = asked("cursor")
    found = queries.list_runs(session, [schedule.network_pk], wanted, PageRequest(_PER_PAGE, cursor))
    counts = queries.count_runs_by_status(session, schedule.id)
    following = found.next_cursor
    return {
        "rows": history_rows(found.rows, now=g.now),
        "counts": counts.by_status,
        "total": counts.total,
        "only": status,
        "address": address(base, status=status, cursor=cursor),
        "next_url": address(base, status=status, cursor=following) if following else None,
        "first_url": address(base, status=status) if cursor else None,
        "all_url": base,
        "status_urls": {state: address(base, status=state) for state in RunStatus},
    }


def allowed(actor: Actor, schedule: Schedule) -> frozenset[str]:
    """The buttons that the viewer may press: `run pause resume edit change-next cancel duplicate confirm reject`."""
    facts = facts_of(schedule)
    standing = schedule.status in _STANDING
    proposed = schedule.status is ScheduleStatus.PROPOSED
    stands_behind = may(actor, Verb.CONFIRM_SCHEDULE, facts)
    rearmable = schedule.status is ScheduleStatus.COMPLETED and is_chat(schedule)
    asked_for = {
        "run": standing and may(actor, Verb.RUN_SCHEDULE, facts),
        "pause": standing and may(actor, Verb.PAUSE_SCHEDULE, facts),
        "resume": standing
        and schedule.status is not ScheduleStatus.ACTIVE
        and may(actor, Verb.RESUME_SCHEDULE, facts),
        "edit": (standing or rearmable or (proposed and stands_behind))
        and may(actor, Verb.EDIT_SCHEDULE, facts),
        "change-next": schedule.status is ScheduleStatus.ACTIVE
        and schedule.due.next_run_at is not None
        and may(actor, Verb.EDIT_SCHEDULE, facts),
        "cancel": standing and may(actor, Verb.CANCEL_SCHEDULE, facts),
        "duplicate": may(actor, Verb.CREATE_SCHEDULE, facts) and not schedule.is_private_to(actor.user_pk),
        "confirm": proposed and stands_behind,
        "reject": proposed and may(actor, Verb.CANCEL_SCHEDULE, facts),
    }
    return frozenset(button for button, may_press in asked_for.items() if may_press)


# --- What people do to one -----------------------------------------------------------------------------------


@blueprint.get("/<schedule_id>/run-now", endpoint="leave_run_now")
@access(SignedIn)
def leave_action(schedule_id: str) -> Response:
    """Whoever loads the address of a refused attempt again comes back to the schedule."""
    return redirect_to(
        f"/schedules/{queries.find_schedule(db.session(), reached_networks(), schedule_id).schedule_id}"
    )


@blueprint.post("/<schedule_id>/run-now")
@access(SignedIn, verb=Verb.RUN_SCHEDULE)
def run_now(schedule_id: str) -> Response:
    """Start a run by hand, beside the timetable."""

    def act() -> str:
        key = check_key(request.form.get("idempotency_key") or None)
        run = operations.run_now(current_actor(), schedule_id, request_key=key, now=g.now)
        if run.blocked_by:
            return "A run is on its way. It waits until the earlier run has ended."
        if run.task_id is None:
            waits = (
                "The chat is busy: its prompt comes next." if run.turn_id is None else "Its turn is created."
            )
            return f"A run is on its way. {waits}"
        return f"A run is on its way. It waits until {run.target_alias} fetches it."

    return do_and_return(schedule_id, act)


@blueprint.get("/<schedule_id>/resume")
@access(SignedIn, verb=Verb.RESUME_SCHEDULE)
def ask_resume(schedule_id: str) -> Response:
    """What resuming will do: what stays missed, what rings next, what becomes of the mandate."""
    schedule = find_for(schedule_id, Verb.RESUME_SCHEDULE)
    if schedule.status is ScheduleStatus.ACTIVE:
        return redirect_to(f"/schedules/{schedule.schedule_id}")
    context = _act_context(schedule, Act.RESUME)
    return page("schedules/resume.html", **context, way=way_out(context["effect"].code))


@blueprint.post("/<schedule_id>/resume")
@access(SignedIn, verb=Verb.RESUME_SCHEDULE)
def resume_schedule(schedule_id: str) -> Response:
    """Go on from now; what was missed stays missed."""

    def act() -> str:
        schedule = operations.resume(current_actor(), schedule_id, now=g.now)
        following = wall(schedule.due.next_run_at, schedule.timezone, "long", g.now)
        return f"Resumed. Next: {following}. What fell due meanwhile is not caught up."

    return do_and_return(schedule_id, act)


def do_and_return(schedule_id: str, act: Callable[[], str]) -> Response:
    """Do it and go back to the schedule; a refusal of its state is shown on the schedule's own page."""
    try:
        flash(act())
    except AppError as refusal:
        if refusal.status != 409:
            raise
        # What was read before the attempt may be what made it too late.
        db.session.remove()
        return show(schedule_id, refusal)
    return redirect_to(f"/schedules/{schedule_id}")


@blueprint.get("/<schedule_id>/pause")
@access(SignedIn, verb=Verb.PAUSE_SCHEDULE)
def ask_pause(schedule_id: str) -> Response:
    """What a pause will do, and the form for its reason and end."""
    schedule = find_for(schedule_id, Verb.PAUSE_SCHEDULE)
    return page("schedules/pause.html", **_act_context(schedule, Act.PAUSE), form=PauseForm.of(schedule))


@blueprint.post("/<schedule_id>/pause")
@access(SignedIn, verb=Verb.PAUSE_SCHEDULE)
def pause_schedule(schedule_id: str) -> Response:
    """Let no more slots fire, until somebody resumes or the time comes that is given here."""
    form, zone = PauseForm(request.form), find_for(schedule_id, Verb.PAUSE_SCHEDULE).timezone
    try:
        operations.pause(
            current_actor(), schedule_id, lambda: parse(PauseRequest, form.body(zone)), now=g.now
        )
    except AppError as refusal:
        return _pause_refused(schedule_id, form, refusal)
    flash("Paused. What falls due meanwhile is not caught up.")
    return redirect_to(f"/schedules/{schedule_id}")


def _pause_refused(schedule_id: str, form: PauseForm, refusal: AppError) -> Response:
    db.session.remove()
    if refusal.status == 409:
        return show(schedule_id, refusal)
    blame(form, refusal)
    schedule = find_for(schedule_id, Verb.PAUSE_SCHEDULE)
    return form_refused("schedules/pause.html", **_act_context(schedule, Act.PAUSE), form=form)


@blueprint.get("/<schedule_id>/cancel")
@access(SignedIn, verb=Verb.CANCEL_SCHEDULE)
def ask_cancel(schedule_id: str) -> Response:
    """What cancelling will do."""
    schedule = find_for(schedule_id, Verb.CANCEL_SCHEDULE)
    return page("schedules/cancel.html", **_act_context(schedule, Act.CANCEL))


@blueprint.post("/<schedule_id>/cancel")
@access(SignedIn, verb=Verb.CANCEL_SCHEDULE)
def cancel_schedule(schedule_id: str) -> Response:
    """End it for good; its history stays."""

    def act() -> str:
        operations.cancel(current_actor(), schedule_id, now=g.now)
        return "Cancelled. Its history stays."

    return do_and_return(schedule_id, act)


@blueprint.get("/<schedule_id>/confirm")
@access(SignedIn, verb=Verb.CONFIRM_SCHEDULE)
def ask_confirm(schedule_id: str) -> Response:
    """What an agent proposed, word for word, before somebody stands behind it."""
    schedule = find_for(schedule_id, Verb.CONFIRM_SCHEDULE)
    return page("schedules/confirm.html", **_proposal_context(schedule))


@blueprint.post("/<schedule_id>/confirm")
@access(SignedIn, verb=Verb.CONFIRM_SCHEDULE)
def confirm_schedule(schedule_id: str) -> Response:
    """Let what an agent proposed begin, on one's own authority."""
    seen = request.form.get("revision", "")

    def act() -> str:
        schedule = operations.confirm(
            current_actor(), schedule_id, revision=lambda: int(seen) if seen.isdecimal() else None, now=g.now
        )
        following = wall(schedule.due.next_run_at, schedule.timezone, "long", g.now)
        return f"Confirmed. It acts on your authority. Next: {following}."

    return do_and_return(schedule_id, act)


@blueprint.get("/<schedule_id>/reject")
@access(SignedIn, verb=Verb.CANCEL_SCHEDULE)
def ask_reject(schedule_id: str) -> Response:
    """What rejecting a proposal will do."""
    return page("schedules/reject.html", **_proposal_context(find_for(schedule_id, Verb.CANCEL_SCHEDULE)))


@blueprint.post("/<schedule_id>/reject")
@access(SignedIn, verb=Verb.CANCEL_SCHEDULE)
def reject_schedule(schedule_id: str) -> Response:
    """Turn down what an agent proposed."""

    def act() -> str:
        operations.reject(current_actor(), schedule_id, now=g.now)
        return "Rejected. It is cancelled and its mandate revoked; the proposal stays in the history."

    return do_and_return(schedule_id, act)


def _proposal_context(schedule: Schedule) -> dict[str, Any]:
    plan = queries.plan_for(schedule)
    slots = upcoming(plan, schedule.timezone, g.now, _SLOTS) if plan is not None else ()
    return {
        "schedule": schedule,
        "says": says(schedule),
        "now": g.now,
        "slots": [slot.at for slot in slots],
        "mandate": row_of_workload(db.session(), schedule, current_actor(), g.now),
    }


def find_for(schedule_id: str, verb: Verb) -> Schedule:
    """A schedule of the viewer's, to which they may do this. Raises AppError."""
    schedule = queries.find_schedule(db.session(), reached_networks(), schedule_id)
    demand(current_actor(), verb, facts_of(schedule))
    return schedule


def _act_context(schedule: Schedule, act: Act) -> dict[str, Any]:
    """A schedule, and what will become of it and of what it has in hand."""
    (effect,) = foresee(db.session(), current_actor(), [schedule.schedule_id], act, now=g.now)
    ahead = planned_slots(schedule, limit=1, now=g.now)
    return {
        "schedule": schedule,
        "says": says(schedule),
        "effect": effect,
        "ahead": ahead[0] if ahead else None,
        "now": g.now,
    }
