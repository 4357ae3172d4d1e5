"""The pages of mandates: who lets what act, how far, until when; and what stopping one would do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from flask import Blueprint, Response, g
from flask import request as http
from sqlalchemy.orm import Session
from wtforms import Form
from wtforms.fields import SelectChoice  # type: ignore[attr-defined] # the stubs are older

from webapp.audit.queries import AuditFilter, list_entries
from webapp.errors import AppError
from webapp.html.audit import entry_rows
from webapp.html.authority import limits_of, may_do, share
from webapp.html.filters import plural, wall
from webapp.html.forms import blame
from webapp.html.forms.mandate import ChangeForm, ReasonForm, RenewForm, suggested_end
from webapp.html.respond import flash, form_refused, page, redirect_to
from webapp.html.schedule_story import says
from webapp.html.viewing import address, asked, asked_choice, reached_networks, shown_networks
from webapp.html.ways import way_out
from webapp.identity.access import Actor, Facts, Verb, demand, may
from webapp.mandates import operations, queries
from webapp.mandates.bodies import MandateChanges, PauseMandate, RevokeMandate
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.models import Mandate
from webapp.mandates.policy import is_expired
from webapp.nodes.queries import aliases_by_id
from webapp.scheduling.calendar import Planned, planned_slots
from webapp.scheduling.lifecycle import OPEN, UNACKNOWLEDGED, TargetKind
from webapp.scheduling.models import Schedule
from webapp.scheduling.outlook import Act, Effect, foresee
from webapp.scheduling.queries import count_open_runs, schedules_by_id
from webapp.store import db
from webapp.store.paging import PageRequest
from webapp.web.auth import current_actor, viewer_zone
from webapp.web.body import parse
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("mandate_pages", __name__, url_prefix="/mandates")

_LIST: Final = {"mandate-list": "mandates/_mandate_list.html"}
_DETAIL: Final = {
    "mandate-state": "mandates/_mandate_state.html",
    "mandate-trail": "mandates/_mandate_trail.html",
}
_PER_PAGE: Final = 25
_SLOTS: Final = 5
# Of those that end soon, the first to end.
_SOON: Final = 20
_TRAIL: Final = 20


# --- In words ---


def standing(mandate: Mandate, now: datetime) -> str:
    """The state of a mandate as people see it: also `expired` and `unconfirmed`."""
    if mandate.state is MandateState.REVOKED:
        return "revoked"
    if mandate.confirmed_at is None:
        return "unconfirmed"
    if is_expired(mandate.expires_at, now):
        return "expired"
    return mandate.state.value


@dataclass(frozen=True)
class MandateRow:
    """A mandate in a table: what it is for (None: gone), what it may do, how much of it is used."""

    mandate: Mandate
    schedule: Schedule | None
    standing: str
    may_do: str
    limits: tuple[str, ...]
    used: str
    may_change: bool


def _rows(
    session: Session,
    networks: frozenset[int],
    mandates: Iterable[Mandate],
    aliases: Mapping[str, str],
    actor: Actor,
    now: datetime,
) -> list[MandateRow]:
    found = list(mandates)
    schedules = schedules_by_id(session, networks, [_schedule_id(mandate) for mandate in found])
    return [
        MandateRow(
            mandate,
            schedules.get(_schedule_id(mandate)),
            standing(mandate, now),
            may_do(mandate.policy, aliases),
            tuple(limits_of(mandate.policy)),
            share(mandate.used_runs, mandate.max_runs),
            mandate.state is not MandateState.REVOKED and may(actor, Verb.CHANGE_MANDATE, _facts(mandate)),
        )
        for mandate in found
    ]


def _schedule_id(mandate: Mandate) -> str:
    return mandate.workload.partition(":")[2]


def _facts(mandate: Mandate) -> Facts:
    return Facts(network_pk=mandate.network_pk, sponsor_pk=mandate.subject_pk)


def node_aliases(networks: Iterable[int]) -> dict[str, str]:
    """The names of the nodes by their public ids."""
    return aliases_by_id(db.session(), frozenset(networks))


def row_of_workload(session: Session, schedule: Schedule, actor: Actor, now: datetime) -> MandateRow | None:
    """The mandate that a schedule knows; None where it has none."""
    if schedule.mandate_id is None:
        return None
    try:
        mandate = queries.find_mandate(session, [schedule.network_pk], schedule.mandate_id)
    except AppError:
        return None
    networks = frozenset({schedule.network_pk})
    return _rows(session, networks, [mandate], node_aliases(networks), actor, now)[0]


# --- The list ---


@blueprint.get("")
@access(SignedIn, verb=Verb.READ_MANDATE)
def list_mandates() -> Response:
    """The mandates of the network, the one changed last first, by `?state=`; above them what ends soon."""
    session, networks, actor = db.session(), shown_networks(), current_actor()
    state, cursor = asked_choice("state", MandateState), asked("cursor")
    wanted = queries.MandateFilter(state=state)
    found = queries.list_mandates(session, networks, wanted, PageRequest(_PER_PAGE, cursor))
    aliases = node_aliases(networks)
    soon = queries.expiring(session, networks, limit=_SOON, now=g.now)
    following = found.next_cursor
    ending = queries.count_expiring(session, networks, now=g.now)
    return page(
        "mandates/list.html",
        _LIST,
        said=_said(queries.count_by_state(session, networks), ending),
        rows=_rows(session, networks, found.rows, aliases, actor, g.now),
        soon=_rows(session, networks, soon, aliases, actor, g.now),
        soon_count=ending,
        only=state,
        address=address(state=state, cursor=cursor),
        next_url=address(state=state, cursor=following) if following else None,
        first_url=address(state=state) if cursor else None,
        all_url=address(),
        state_urls={choice: address(state=choice) for choice in MandateState},
        zone=viewer_zone(),
        now=g.now,
    )


def _said(counts: Mapping[MandateState, int], ending: int) -> str | None:
    """How the mandates stand, with their numbers; None where there is none."""
    if not counts:
        return None
    active, paused = counts.get(MandateState.ACTIVE, 0), counts.get(MandateState.PAUSED, 0)
    said = f"{plural(active, 'mandate lets', 'mandates let')} something act"
    said += f", {plural(paused, 'is paused', 'are paused')}." if paused else "."
    return f"{said} {plural(ending, 'ends', 'end')} within 14 days." if ending else said


# --- One mandate ---


@dataclass(frozen=True)
class Radius:
    """What stopping a mandate would hit: its schedule, the slots given up, runs withdrawn and runs at work."""

    schedule: Schedule | None
    says: str | None
    slots: tuple[Planned, ...]
    withdrawn: int
    at_work: int


def radius_of(session: Session, networks: frozenset[int], mandate: Mandate, now: datetime) -> Radius:
    """What hangs on a mandate now."""
    schedule = schedules_by_id(session, networks, [_schedule_id(mandate)]).get(_schedule_id(mandate))
    if schedule is None:
        return Radius(None, None, (), 0, 0)
    counts = count_open_runs(session, schedule.id)
    return Radius(
        schedule,
        says(schedule),
        tuple(planned_slots(schedule, limit=_SLOTS, now=now)),
        sum(counts.get(status, 0) for status in UNACKNOWLEDGED),
        sum(counts.get(status, 0) for status in OPEN - UNACKNOWLEDGED),
    )


@blueprint.get("/<mandate_id>")
@access(SignedIn, verb=Verb.READ_MANDATE)
def show_mandate(mandate_id: str) -> Response:
    """One mandate: what it permits in words, until when, how much is used, what hangs on it, its trail."""
    return _show(mandate_id)


def _show(mandate_id: str, refusal: AppError | None = None) -> Response:
    return page(
        "mandates/detail.html",
        _DETAIL,
        status=refusal.status if refusal else 200,
        refusal=refusal,
        refused_way=way_out(refusal.code) if refusal else None,
        **_context(_find(mandate_id)),
    )


def _find(mandate_id: str, verb: Verb = Verb.READ_MANDATE) -> Mandate:
    mandate = queries.find_mandate(db.session(), reached_networks(), mandate_id)
    demand(current_actor(), verb, _facts(mandate))
    return mandate


def _context(mandate: Mandate) -> dict[str, Any]:
    session, networks = db.session(), reached_networks()
    trail = list_entries(
        session, mandate.network_pk, AuditFilter(subject_id=mandate.mandate_id), PageRequest(_TRAIL)
    )
    return {
        "mandate": mandate,
        "standing": standing(mandate, g.now),
        "may_do": may_do(mandate.policy, node_aliases([mandate.network_pk])),
        "limits": limits_of(mandate.policy),
        "runs_used": share(mandate.used_runs, mandate.max_runs),
        "tokens_used": share(mandate.used_tokens, mandate.max_tokens),
        "radius": radius_of(session, networks, mandate, g.now),
        "would": lambda act: _would(mandate, Act(act)),
        "trail": entry_rows(list(trail.rows)),
        "trail_url": address("/audit", subject=mandate.mandate_id),
        "more_trail": trail.next_cursor is not None,
        "allowed": _allowed(current_actor(), mandate),
        "zone": viewer_zone(),
        "now": g.now,
    }


def _would(mandate: Mandate, act: Act) -> Effect | None:
    """What stopping the mandate would do to its schedule; None where that is gone."""
    (effect,) = foresee(db.session(), current_actor(), [_schedule_id(mandate)], act, now=g.now)
    return effect if effect.code is None else None


def _allowed(actor: Actor, mandate: Mandate) -> frozenset[str]:
    """The buttons that the viewer may press: `renew change confirm pause resume revoke`."""
    changes = may(actor, Verb.CHANGE_MANDATE, _facts(mandate))
    stops = may(actor, Verb.STOP_MANDATE, _facts(mandate))
    if mandate.state is MandateState.REVOKED:
        return frozenset()
    paused = mandate.state is MandateState.PAUSED
    asked_for = {
        "renew": changes,
        "change": changes,
        "confirm": changes and mandate.confirmed_at is None,
        "pause": stops and not paused,
        "resume": changes and paused,
        "revoke": stops,
    }
    return frozenset(button for button, may_press in asked_for.items() if may_press)


# --- What people do to one ---

_PAUSE: Final = "mandates/pause.html"
_REVOKE: Final = "mandates/revoke.html"
_RESUME: Final = "mandates/resume.html"
_CONFIRM: Final = "mandates/confirm.html"
_RENEW: Final = "mandates/renew.html"
_CHANGE: Final = "mandates/change.html"


@blueprint.get("/<mandate_id>/pause")
@access(SignedIn, verb=Verb.STOP_MANDATE)
def ask_pause(mandate_id: str) -> Response:
    """What a pause would do, and its reason."""
    return page(_PAUSE, **_context(_find(mandate_id, Verb.STOP_MANDATE)), form=ReasonForm())


@blueprint.post("/<mandate_id>/pause")
@access(SignedIn, verb=Verb.STOP_MANDATE)
def pause_mandate(mandate_id: str) -> Response:
    """Let it permit nothing until its subject resumes it."""
    form = ReasonForm(http.form)

    def act() -> None:
        operations.pause(current_actor(), mandate_id, lambda: parse(PauseMandate, form.body()), now=g.now)

    done = "Paused. It permits nothing, and its schedule is paused with it."
    return _do(mandate_id, act, done, _PAUSE, Verb.STOP_MANDATE, form)


@blueprint.get("/<mandate_id>/revoke")
@access(SignedIn, verb=Verb.STOP_MANDATE)
def ask_revoke(mandate_id: str) -> Response:
    """What a revocation would hit, and its reason."""
    return page(_REVOKE, **_context(_find(mandate_id, Verb.STOP_MANDATE)), form=ReasonForm())


@blueprint.post("/<mandate_id>/revoke")
@access(SignedIn, verb=Verb.STOP_MANDATE)
def revoke_mandate(mandate_id: str) -> Response:
    """End it for good."""
    form = ReasonForm(http.form)

    def act() -> None:
        operations.revoke(current_actor(), mandate_id, lambda: parse(RevokeMandate, form.body()), now=g.now)

    done = "Revoked. Nothing acts on it any more."
    return _do(mandate_id, act, done, _REVOKE, Verb.STOP_MANDATE, form)


@blueprint.get("/<mandate_id>/resume")
@access(SignedIn, verb=Verb.CHANGE_MANDATE)
def ask_resume(mandate_id: str) -> Response:
    """What resuming would do."""
    return page(_RESUME, **_context(_find(mandate_id, Verb.CHANGE_MANDATE)))


@blueprint.post("/<mandate_id>/resume")
@access(SignedIn, verb=Verb.CHANGE_MANDATE)
def resume_mandate(mandate_id: str) -> Response:
    """Let it permit again; its schedule stays as it is."""

    def act() -> None:
        operations.resume(current_actor(), mandate_id, now=g.now)

    return _do(mandate_id, act, "It permits again. Its schedule stays as it is until somebody resumes it.")


@blueprint.get("/<mandate_id>/confirm")
@access(SignedIn, verb=Verb.CHANGE_MANDATE)
def ask_confirm(mandate_id: str) -> Response:
    """What one would stand behind."""
    return page(_CONFIRM, **_context(_find(mandate_id, Verb.CHANGE_MANDATE)))


@blueprint.post("/<mandate_id>/confirm")
@access(SignedIn, verb=Verb.CHANGE_MANDATE)
def confirm_mandate(mandate_id: str) -> Response:
    """Stand behind what an agent asked for."""

    def act() -> None:
        operations.confirm(current_actor(), mandate_id, now=g.now)

    return _do(mandate_id, act, "Confirmed. It acts on your authority.")


@blueprint.get("/<mandate_id>/renew")
@access(SignedIn, verb=Verb.CHANGE_MANDATE)
def ask_renew(mandate_id: str) -> Response:
    """Until when it is to stand; 90 days from now are proposed."""
    mandate = _find(mandate_id, Verb.CHANGE_MANDATE)
    form = RenewForm(
        data={"expires_at": suggested_end(g.now, viewer_zone()), "revision": str(mandate.revision)}
    )
    return page(_RENEW, **_context(mandate), form=form)


@blueprint.post("/<mandate_id>/renew")
@access(SignedIn, verb=Verb.CHANGE_MANDATE)
def renew_mandate(mandate_id: str) -> Response:
    """Let it stand until another moment."""
    form, zone = RenewForm(http.form), viewer_zone()

    def act() -> None:
        _change(mandate_id, form.body(zone), form.revision.data)

    at = _find(mandate_id, Verb.CHANGE_MANDATE).expires_at
    done = f"Renewed. It ended {wall(at, zone, 'long', g.now)} before." if at else "Renewed."
    return _do(mandate_id, act, done, _RENEW, Verb.CHANGE_MANDATE, form)


@blueprint.get("/<mandate_id>/change")
@access(SignedIn, verb=Verb.CHANGE_MANDATE)
def ask_change(mandate_id: str) -> Response:
    """What it permits, as a form."""
    mandate = _find(mandate_id, Verb.CHANGE_MANDATE)
    return page(_CHANGE, **_change_context(mandate, ChangeForm.of(mandate, viewer_zone())))


@blueprint.post("/<mandate_id>/change")
@access(SignedIn, verb=Verb.CHANGE_MANDATE)
def change_mandate(mandate_id: str) -> Response:
    """Give it another policy or end."""
    form, zone = ChangeForm(http.form), viewer_zone()
    body = form.body(_find(mandate_id, Verb.CHANGE_MANDATE), zone)
    try:
        _change(mandate_id, body, form.revision.data)
    except AppError as refusal:
        db.session.remove()
        if refusal.status == 409:
            return _show(mandate_id, refusal)
        if refusal.field == "policy":
            refusal = AppError(refusal.code, field="authority", message=refusal.message)
        blame(form, refusal)
        return form_refused(_CHANGE, **_change_context(_find(mandate_id, Verb.CHANGE_MANDATE), form))
    flash("Saved. What it starts from now on is bound to this.")
    return redirect_to(f"/mandates/{mandate_id}")


def _change_context(mandate: Mandate, form: ChangeForm) -> dict[str, Any]:
    context = _context(mandate)
    schedule = context["radius"].schedule
    form.nodes.choices = [
        SelectChoice(node_id, alias) for node_id, alias in node_aliases([mandate.network_pk]).items()
    ]
    private = schedule is not None and schedule.target_kind is TargetKind.CHAT
    return {**context, "form": form, "choosable": private}


def _change(mandate_id: str, body: dict[str, Any], seen: str | None) -> None:
    operations.change(
        current_actor(),
        mandate_id,
        lambda: parse(MandateChanges, body),
        revision=lambda: int(seen) if seen and seen.isascii() and seen.isdigit() and len(seen) < 12 else None,
        now=g.now,
    )


def _do(
    mandate_id: str,
    act: Callable[[], None],
    done: str,
    template: str | None = None,
    verb: Verb = Verb.CHANGE_MANDATE,
    form: Form | None = None,
) -> Response:
    """Do it and go back to the mandate. A refusal of its state is shown there, one of a field on the form."""
    try:
        act()
    except AppError as refusal:
        # What was read before the attempt may be what made it too late.
        db.session.remove()
        if refusal.status == 409:
            return _show(mandate_id, refusal)
        if template is None or form is None:
            raise
        blame(form, refusal)
        return form_refused(template, **_context(_find(mandate_id, verb)), form=form)
    flash(done)
    return redirect_to(f"/mandates/{mandate_id}")
