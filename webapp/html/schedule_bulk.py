"""The same to several schedules: first what will happen to each, then, if that is wanted, doing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from flask import Blueprint, Response, g, request

from webapp.errors import AppError, sentence_of
from webapp.html.filters import plural
from webapp.html.forms import blame
from webapp.html.forms.pause import PauseForm
from webapp.html.respond import flash, form_refused, page, redirect_to
from webapp.html.viewing import reached_networks
from webapp.identity.access import Verb
from webapp.scheduling import bulk, queries
from webapp.scheduling.calendar import Planned, planned_slots
from webapp.scheduling.fields import BulkRequest, PauseRequest
from webapp.scheduling.models import Schedule
from webapp.scheduling.outlook import Act, Effect, foresee
from webapp.store import db
from webapp.web.auth import current_actor, viewer_zone
from webapp.web.body import parse
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("schedule_bulk", __name__, url_prefix="/schedules")

_PAGE: Final = "schedules/bulk.html"
_DONE: Final = {Act.PAUSE: "paused", Act.RESUME: "resumed", Act.CANCEL: "cancelled"}


class Line(NamedTuple):
    """A schedule that was ticked (None: it is not there for the viewer) and what will happen to it."""

    schedule: Schedule | None
    effect: Effect

    @property
    def ahead(self) -> Planned | None:
        """The slot that it has ahead now."""
        planned = planned_slots(self.schedule, limit=1, now=g.now) if self.schedule is not None else []
        return planned[0] if planned else None


@blueprint.get("/bulk")
@access(SignedIn, verb=Verb.PAUSE_SCHEDULE)
def ask_many() -> Response:
    """What `?act=` would do to each `?pick=`; nothing is done yet."""
    act, picked = _act(request.args.get("act")), request.args.getlist("pick")
    if not picked:
        flash("Tick the schedules first, then press again.", "warn")
        return redirect_to("/schedules")
    wish = parse(BulkRequest, {"action": act.value, "schedule_ids": picked})
    return page(_PAGE, **_context(act, _foresee(wish.schedule_ids, act)), form=PauseForm())


@blueprint.post("/bulk")
@access(SignedIn, verb=Verb.PAUSE_SCHEDULE)
def do_many() -> Response:
    """Do it to each, one after the other; what was refused is said by name and keeps no other back."""
    act, form = _act(request.form.get("act")), PauseForm(request.form)
    fields = form.body(viewer_zone()) if act is Act.PAUSE else {}
    picked = request.form.getlist("pick")
    try:
        wish = parse(BulkRequest, {"action": act.value, "schedule_ids": picked, **fields})
        _check_end(wish, act)
    except AppError as refusal:
        if refusal.field not in ("reason", "resume_at"):
            raise
        blame(form, refusal)
        return form_refused(_PAGE, **_context(act, _foresee(picked, act)), form=form)
    names = {line.effect.schedule_id: line.effect.name for line in _foresee(wish.schedule_ids, act)}
    db.session.remove()
    outcomes = bulk.carry_out(current_actor(), wish.schedule_ids, act, wish.pause(), now=g.now)
    _say(act, outcomes, names)
    return redirect_to("/schedules")


def _act(text: str | None) -> Act:
    try:
        act = Act(text or "")
    except ValueError:
        act = None
    if act not in _DONE:
        raise AppError("bad_request")
    return act


def _check_end(wish: BulkRequest, act: Act) -> None:
    """An end of a pause that no schedule can have is the form's to mend, before anything is done."""
    if act is Act.PAUSE and wish.resume_at is not None and wish.resume_at <= g.now:
        raise AppError("invalid_resume_at", field="resume_at")


def _foresee(schedule_ids: Sequence[str], act: Act, wish: PauseRequest | None = None) -> list[Line]:
    found = queries.schedules_by_id(db.session(), reached_networks(), schedule_ids)
    effects = foresee(db.session(), current_actor(), schedule_ids, act, wish, now=g.now)
    return [Line(found.get(effect.schedule_id), effect) for effect in effects]


def _context(act: Act, lines: Sequence[Line]) -> dict[str, Any]:
    able = [line for line in lines if line.effect.code is None and line.effect.changes]
    return {
        "act": act,
        "lines": lines,
        "able": able,
        "becomes": _DONE[act],
        "said": _said(act, lines, able),
        "zone": viewer_zone(),
        "now": g.now,
    }


def _said(act: Act, lines: Sequence[Line], able: Sequence[Line]) -> str:
    """The sum of it in one sentence or two."""
    rest = len(lines) - len(able)
    withdrawn = sum(len(line.effect.withdrawn) for line in able)
    at_work = sum(len(line.effect.at_work) for line in able)
    said = f"{plural(len(able), 'schedule')} will be {_DONE[act]}"
    said += f", {rest} will not" if rest else ""
    work = [f"{plural(withdrawn, 'run')} withdrawn"] if withdrawn else []
    if at_work:
        work.append(f"{plural(at_work, 'run')} {'asked to stop' if act is Act.CANCEL else 'left to end'}")
    return f"{said}. {', '.join(work).capitalize()}." if work else f"{said}."


def _say(act: Act, outcomes: Sequence[bulk.Outcome], names: dict[str, str]) -> None:
    done = [outcome for outcome in outcomes if outcome.code is None]
    if done:
        flash(f"{plural(len(done), 'schedule')} {_DONE[act]}.")
    for outcome in outcomes:
        if outcome.code is not None:
            name = names.get(outcome.schedule_id) or outcome.schedule_id
            flash(f"{name}: not {_DONE[act]}. {sentence_of(outcome.code)} ({outcome.code})", "warn")
