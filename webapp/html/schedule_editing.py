"""The form of a schedule: new, duplicated, edited; its preview; and the conflict when two save at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from flask import Blueprint, Response, g, request
from pydantic import ValidationError
from wtforms.fields import SelectChoice  # type: ignore[attr-defined] # the stubs are older

from webapp.audit.queries import AuditFilter, list_entries
from webapp.chat import profiles
from webapp.chat.queries import titles_of_own
from webapp.errors import AppError
from webapp.html.filters import wall
from webapp.html.form_offers import Offer, offers
from webapp.html.forms.authority import OTHER, choice_of_policy
from webapp.html.forms.chat import model_choices, model_words
from webapp.html.forms.mandate import suggested_end
from webapp.html.forms.schedule import (
    ScheduleForm,
    Values,
    blank_beside,
    blank_values,
    happens_twice,
    values_of,
)
from webapp.html.keeping import Kept
from webapp.html.mandates import row_of_workload
from webapp.html.policy_story import pictures
from webapp.html.privacy import facts_of, is_chat, is_secret
from webapp.html.respond import conflict, flash, form_refused, page, redirect_to
from webapp.html.schedule_conflict import Differences, Side, find_conflict, pack, unpack
from webapp.html.schedule_preview import Preview, Subject, preview_of
from webapp.html.schedule_story import changed_words
from webapp.html.viewing import new_form_key, reached_networks, shown_networks
from webapp.html.ways import way_out
from webapp.html.zones import zone_options
from webapp.identity.access import Facts, Verb, demand
from webapp.identity.idempotency import check_key
from webapp.nodes.queries import NodeChoice, node_choices
from webapp.scheduling import operations, queries
from webapp.scheduling.edit import read_timetable
from webapp.scheduling.fields import ChatScheduleChanges, NewChatSchedule, NewSchedule, ScheduleChanges
from webapp.scheduling.lifecycle import ScheduleStatus, TargetKind
from webapp.scheduling.models import Schedule
from webapp.scheduling.operations import Saved
from webapp.scheduling.outlook import EditEffect, foresee_edit
from webapp.store import db
from webapp.store.paging import PageRequest
from webapp.timetable import TimetableError, canonical_zone
from webapp.web.auth import current_actor, viewer_place, viewer_zone
from webapp.web.body import parse, refusals_of
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("schedule_forms", __name__, url_prefix="/schedules")

_FORM: Final = "schedules/form.html"
_REGIONS: Final = {"schedule-form": "schedules/_schedule_form.html", "preview": "schedules/_preview.html"}
_CONFLICT: Final = "schedules/conflict.html"
_CONFLICT_REGIONS: Final = {"schedule-form": "schedules/_conflict.html"}
_EDIT_PATH: Final = re.compile(r"/schedules/([A-Za-z0-9_]+)/edit")
_MOST_CHATS: Final = 200
# Refusals that a form can be mended after; a missing target is the one 404 among them.
_MENDABLE: Final = (400, 404, 409)


class Writing(NamedTuple):
    """What is being written: a form, the schedule it edits (none for a new one), and where it goes."""

    form: ScheduleForm
    subject: Subject
    action: str

    @property
    def schedule(self) -> Schedule | None:
        return self.subject.schedule


# --- New -----------------------------------------------------------------------------------------------------


@blueprint.get("/new")
@access(SignedIn, verb=Verb.CREATE_SCHEDULE)
def new_schedule() -> Response:
    """An empty form, or with `?from=` one filled from a schedule that exists."""
    writing = _write_new(ScheduleForm(data={**_first_values(), "idempotency_key": new_form_key()}))
    demand(current_actor(), Verb.CREATE_SCHEDULE, Facts(network_pk=writing.subject.network_pk))
    return page(_FORM, _REGIONS, **_context(writing))


@blueprint.post("/new")
@access(SignedIn, verb=Verb.CREATE_SCHEDULE)
def create_schedule() -> Response:
    """Make the schedule, or say what is to be mended. Pressed twice, it is made once."""
    writing = _write_new(ScheduleForm(request.form))
    if "preview" in request.form or "take" in request.form:
        return _as_typed(writing)
    try:
        saved = _create(writing)
    except AppError as refusal:
        return _refused(writing, refusal)
    _say_created(saved)
    return redirect_to(f"/schedules/{saved.schedule.schedule_id}")


def _first_values() -> Values:
    source, chat = request.args.get("from"), request.args.get("chat") or ""
    if source is None:
        kind = TargetKind.CHAT if chat else TargetKind.NODE
        return {
            **blank_values(viewer_zone()),
            **blank_beside(kind, suggested_end(g.now, viewer_zone())),
            "target_node_id": _first_node_id(),
            "target_chat_id": chat,
        }
    schedule = queries.find_schedule(db.session(), reached_networks(), source)
    if is_secret(schedule):
        raise AppError("permission_denied")
    return {
        **values_of(schedule),
        **blank_beside(schedule.target_kind, suggested_end(g.now, schedule.timezone)),
        **_authority_of(schedule),
        "name": f"{schedule.name} (copy)"[:120],
    }


def _authority_of(schedule: Schedule) -> Values:
    """What the fields of authority show of a schedule of a chat that is to be copied."""
    if schedule.target_kind is not TargetKind.CHAT:
        return {}
    found: Values = {
        "target_chat_id": schedule.target_id,
        "chat_failure_threshold": ""
        if schedule.failure_threshold is None
        else str(schedule.failure_threshold),
    }
    row = row_of_workload(db.session(), schedule, current_actor(), g.now)
    if row is None:
        return found
    choice = choice_of_policy(row.mandate.policy)
    return found | (choice if choice["authority"] != OTHER else {})


def _first_node_id() -> str:
    """The node that a link names, or the only one there is."""
    nodes = node_choices(db.session(), shown_networks(), now=g.now)
    return request.args.get("node") or (nodes[0].node_id if len(nodes) == 1 else "")


def _write_new(form: ScheduleForm) -> Writing:
    place = viewer_place()
    if place is None:
        raise AppError("permission_denied", message="You belong to no network.")
    return Writing(form, Subject(place.network_pk, current_actor().user_pk), "/schedules/new")


def _create(writing: Writing) -> Saved:
    if writing.form.is_chat:
        chat_body = writing.form.chat_body()
        return operations.create_for_chat(
            current_actor(),
            chat_body["chat_id"],
            lambda: parse(NewChatSchedule, chat_body),
            request_key=check_key(writing.form.idempotency_key.data or None),
            now=g.now,
        )
    body = writing.form.body()
    return operations.create(
        current_actor(),
        writing.subject.network_pk,
        lambda: parse(NewSchedule, body),
        request_key=check_key(writing.form.idempotency_key.data or None),
        now=g.now,
    )


def _say_created(saved: Saved) -> None:
    due = saved.schedule.due.next_run_at
    flash(f"Created. Next: {wall(due, saved.schedule.timezone, 'long', g.now)}." if due else "Created.")
    _say_warnings(saved)


def _say_warnings(saved: Saved) -> None:
    for code in saved.warnings:
        reason = AppError(code)
        flash(f"It would not fire now. {reason.message} {way_out(code) or ''} ({code})", "warn")


# --- Preview -------------------------------------------------------------------------------------------------


@blueprint.post("/preview")
@access(SignedIn)
def preview_schedule() -> Response:
    """What the engine would do with what is typed; `?schedule=` names the one that is edited."""
    form = ScheduleForm(request.form)
    edited = request.args.get("schedule")
    writing = _write_new(form) if edited is None else _write_edit(edited, form)
    return page(_FORM, _REGIONS, **_context(writing))


def _as_typed(writing: Writing) -> Response:
    """The form as it stands, with an offer of the preview taken up where one was pressed; nothing is saved."""
    wanted = request.form.get("take")
    found = next((offer for offer in _offers(writing) if offer.key == wanted), None)
    if found is None:
        return page(_FORM, _REGIONS, **_context(writing))
    for name, value in found.values.items():
        writing.form[name].data = value
    return page(_FORM, _REGIONS, **{**_context(writing), "focus": found.focus})


def _offers(writing: Writing) -> tuple[Offer, ...]:
    opened = unpack(writing.form.seen.data)
    saved_kind = opened["type"] if opened is not None and writing.schedule is not None else None
    return offers(writing.form.values(), saved_kind=saved_kind, now=g.now)


def _preview(writing: Writing, nodes: list[NodeChoice]) -> Preview:
    return preview_of(
        db.session(),
        writing.form,
        writing.subject,
        doer=_doer(writing, nodes),
        viewer_zone=viewer_zone(),
        now=g.now,
    )


def _doer(writing: Writing, nodes: list[NodeChoice]) -> str:
    """Who does it, to begin a sentence with."""
    if writing.form.is_chat:
        return "The chat"
    chosen = writing.form.target_node_id.data
    aliases = (node.alias for node in nodes if node.node_id == chosen)
    return next(aliases, "The node")


def _saving(writing: Writing) -> EditEffect | None:
    """What saving would do to the schedule that stands; None for a new one, and where it would be refused."""
    schedule = writing.schedule
    if schedule is None:
        return None
    try:
        shape = ChatScheduleChanges if is_chat(schedule) else ScheduleChanges
        changes = parse(shape, writing.form.changes(values_of(schedule)))
        return foresee_edit(db.session(), current_actor(), schedule, changes, now=g.now)
    except AppError:
        return None


# --- Edit ----------------------------------------------------------------------------------------------------


@blueprint.get("/<schedule_id>/edit")
@access(SignedIn, verb=Verb.EDIT_SCHEDULE)
def open_schedule(schedule_id: str) -> Response:
    """The form as the schedule stands."""
    schedule = _editable(schedule_id)
    values = values_of(schedule)
    form = ScheduleForm(data={**values, "revision": str(schedule.revision), "seen": pack(values)})
    return page(_FORM, _REGIONS, **_context(_write_edit(schedule_id, form)))


@blueprint.post("/<schedule_id>/edit")
@access(SignedIn, verb=Verb.EDIT_SCHEDULE)
def save_schedule(schedule_id: str) -> Response:
    """Save what was changed; what somebody else changed since is set beside it."""
    writing = _write_edit(schedule_id, ScheduleForm(request.form))
    if "settle" in request.form:
        return _settle(writing)
    if "preview" in request.form or "take" in request.form:
        return _as_typed(writing)
    return _save(writing)


def _editable(schedule_id: str) -> Schedule:
    schedule = queries.find_schedule(db.session(), reached_networks(), schedule_id)
    demand(current_actor(), Verb.EDIT_SCHEDULE, facts_of(schedule))
    ended = {ScheduleStatus.CANCELLED} | ({ScheduleStatus.COMPLETED} if not is_chat(schedule) else set())
    if schedule.status in ended:
        raise AppError(f"schedule_{schedule.status.value}")
    if schedule.status is ScheduleStatus.PROPOSED and schedule.sponsor_pk != current_actor().user_pk:
        raise AppError("permission_denied")
    return schedule


def _write_edit(schedule_id: str, form: ScheduleForm) -> Writing:
    schedule = queries.find_schedule(db.session(), reached_networks(), schedule_id)
    if is_secret(schedule):
        raise AppError("permission_denied")
    subject = Subject(schedule.network_pk, schedule.sponsor_pk, schedule)
    form.target_kind.data = schedule.target_kind.value
    if is_chat(schedule):
        form.target_chat_id.data = schedule.target_id
    return Writing(form, subject, f"/schedules/{schedule_id}/edit")


def _save(writing: Writing) -> Response:
    schedule = _standing(writing)
    schedule_id, sponsor_pk, revision = schedule.schedule_id, schedule.sponsor_pk, schedule.revision
    body, chat = writing.form.changes(values_of(schedule)), is_chat(schedule)
    try:
        saved = operations.edit(
            current_actor(),
            schedule_id,
            lambda: parse(ChatScheduleChanges if chat else ScheduleChanges, body),
            revision=lambda: _revision(writing.form),
            now=g.now,
        )
    except AppError as refusal:
        # What was read before the attempt may be what made it too late.
        db.session.remove()
        return _refused(_write_edit(schedule_id, writing.form), refusal)
    _say_saved(saved, revision, taken_over=saved.schedule.sponsor_pk != sponsor_pk)
    return redirect_to(f"/schedules/{schedule_id}")


def _standing(writing: Writing) -> Schedule:
    assert writing.schedule is not None
    return writing.schedule


def _revision(form: ScheduleForm) -> int | None:
    text = form.revision.data or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _say_saved(saved: Saved, revision: int, *, taken_over: bool) -> None:
    schedule = saved.schedule
    if schedule.revision == revision:
        flash("Nothing was changed.", "info")
        return
    due = schedule.due.next_run_at
    following = f" Next: {wall(due, schedule.timezone, 'long', g.now)}." if due else ""
    flash(f"Saved as revision {schedule.revision}.{following}")
    if taken_over:
        flash("It acts on your authority from now on, because you changed what it does or how.", "info")
    _say_warnings(saved)


# --- Sent too late ---------------------------------------------------------------------------------------------


def restored_form(late: Kept) -> Response | None:
    """The form of a schedule as it was typed when the session had ended; None for what is no such form.

    Raises AppError where whoever signed in may not write it.
    """
    if late.path == "/schedules/new":
        writing = _write_new(ScheduleForm(late.form))
        demand(current_actor(), Verb.CREATE_SCHEDULE, Facts(network_pk=writing.subject.network_pk))
    else:
        found = _EDIT_PATH.fullmatch(late.path)
        if found is None:
            return None
        _editable(found[1])
        writing = _write_edit(found[1], ScheduleForm(late.form))
    flash("You are signed in again, and the form is as you left it. Nothing of it is saved yet.", "info")
    return page(_FORM, **_context(writing))


# --- Refused -------------------------------------------------------------------------------------------------


def _refused(writing: Writing, refusal: AppError) -> Response:
    """The form again, everything typed kept. Raises the refusal where no form could mend it."""
    if refusal.code == "revision_conflict":
        return _conflict(writing)
    if refusal.status not in _MENDABLE or refusal.code in ("not_found", "schedule_not_found"):
        raise refusal
    if refusal.code == "idempotency_conflict":
        # The form was sent before and went through; pressing once more means a second schedule.
        writing.form.idempotency_key.data = new_form_key()
    found = _problems(writing) if refusal.status != 409 else []
    loose = writing.form.blame([refusal, *found])
    extra = [f"{sentence} {way_out(refusal.code) or ''} ({refusal.code})" for sentence in loose]
    answer = conflict if refusal.status == 409 else form_refused
    return answer(_FORM, _REGIONS, **_context(writing, extra))


def _problems(writing: Writing) -> list[AppError]:
    """Everything that is wrong with what was typed, not only the first thing."""
    body = writing.form.body()
    shape = NewChatSchedule if writing.form.is_chat else NewSchedule
    found: list[AppError] = []
    try:
        shape.model_validate(writing.form.chat_body() if writing.form.is_chat else body)
    except ValidationError as error:
        found += refusals_of(shape, error)
    try:
        read_timetable(body["schedule"], body["timezone"], previous=writing.subject.timetable, now=g.now)
    except AppError as error:
        found.append(error)
    return found


# --- Conflict ------------------------------------------------------------------------------------------------


def _conflict(writing: Writing) -> Response:
    schedule = _standing(writing)
    found = find_conflict(
        _differences(writing),
        who=_who_saved(schedule),
        saved_at=schedule.updated_at,
        revision=schedule.revision,
        opened_revision=writing.form.revision.data or "",
        names={node.node_id: node.alias for node in _nodes(writing)},
        now=g.now,
    )
    return conflict(
        _CONFLICT,
        _CONFLICT_REGIONS,
        conflict=found,
        schedule=schedule,
        action=writing.action,
        seen=writing.form.seen.data or "",
        now=g.now,
    )


def _differences(writing: Writing) -> Differences:
    opened = unpack(writing.form.seen.data)
    return Differences(opened, values_of(_standing(writing)), writing.form.values())


def _who_saved(schedule: Schedule) -> str:
    wanted = AuditFilter(subject_id=schedule.schedule_id)
    entries = list_entries(db.session(), schedule.network_pk, wanted, PageRequest(limit=1)).rows
    return entries[0].actor if entries else "Somebody"


def _settle(writing: Writing) -> Response:
    """Save, or go on writing with, the version that was chosen on the conflict page."""
    schedule = _standing(writing)
    if _revision(writing.form) != schedule.revision:
        return _conflict(writing)
    values = _differences(writing).settled(_picks())
    saved = values_of(schedule)
    form = ScheduleForm(data={**values, "revision": str(schedule.revision), "seen": pack(saved)})
    writing = _write_edit(schedule.schedule_id, form)
    if request.form["settle"] == "form":
        return page(_FORM, _REGIONS, **_context(writing))
    return _save(writing)


def _picks() -> dict[str, Side]:
    """The picked side of each part that clashed; one button picks the same side for all."""
    prefix = "pick-"
    names = [name.removeprefix(prefix) for name in request.form if name.startswith(prefix)]
    side: Callable[[str], str] = lambda name: request.form[prefix + name]  # noqa: E731
    if request.form["settle"] in ("saved", "yours"):
        side = lambda _name: request.form["settle"]  # noqa: E731
    return {name: "saved" if side(name) == "saved" else "yours" for name in names}


# --- What the page shows -------------------------------------------------------------------------------------


def _context(writing: Writing, extra: list[str] | None = None) -> dict[str, Any]:
    form, nodes, saving = writing.form, _nodes(writing), _saving(writing)
    form.target_node_id.choices = _node_choices(writing, nodes)
    form.target_chat_id.choices = _chat_choices(writing)
    form.nodes.choices = [SelectChoice(node.node_id, node.alias) for node in nodes]
    form.model.choices = [
        SelectChoice("", f"the default, {model_words(profiles.default_name())}"),
        *model_choices(profiles.all_profiles(), form.model.data),
    ]
    return {
        "form": form,
        "action": writing.action,
        "schedule": writing.schedule,
        "extra": extra or [],
        "preview": _preview(writing, nodes),
        "offers": _offers(writing),
        "pictures": pictures(),
        "saving": saving,
        "saving_changes": changed_words(saving.changed) if saving is not None else "",
        "preview_url": _preview_url(writing),
        "zones": zone_options(g.now, _known_zone(form.timezone.data)),
        "ask_turn": happens_twice(form.run_at.data or "", form.timezone.data or ""),
        "becomes_sponsor": writing.subject.sponsor_pk != current_actor().user_pk,
        "focus": None,
        "has_nodes": bool(nodes),
        "has_chats": bool(form.target_chat_id.choices),
        "now": g.now,
    }


def _known_zone(name: str | None) -> str | None:
    try:
        return canonical_zone(name)
    except TimetableError:
        return None


def _preview_url(writing: Writing) -> str:
    schedule = writing.schedule
    return "/schedules/preview" + (f"?schedule={schedule.schedule_id}" if schedule is not None else "")


def _nodes(writing: Writing) -> list[NodeChoice]:
    return node_choices(db.session(), [writing.subject.network_pk], now=g.now)


def _node_choices(writing: Writing, nodes: list[NodeChoice]) -> list[SelectChoice]:
    choices = [
        SelectChoice(node.node_id, f"{node.alias} ({node.state.value.replace('_', ' ')})") for node in nodes
    ]
    chosen = writing.form.target_node_id.data or ""
    if chosen and chosen not in {choice.value for choice in choices}:
        alias = writing.schedule.target_alias if writing.schedule is not None else chosen
        choices.insert(0, SelectChoice(chosen, f"{alias} (gone)"))
    return choices if chosen else [SelectChoice("", "Choose a node"), *choices]


def _chat_choices(writing: Writing) -> list[SelectChoice]:
    """The viewer's own chats, for a new schedule; the first choice is none while none is chosen."""
    if writing.schedule is not None:
        return []
    own = titles_of_own(db.session(), current_actor(), [writing.subject.network_pk], limit=_MOST_CHATS)
    choices = [SelectChoice(chat_id, title) for chat_id, title in own]
    chosen = writing.form.target_chat_id.data or ""
    if chosen and chosen not in {choice.value for choice in choices}:
        choices.insert(0, SelectChoice(chosen, "a chat that is archived, or not yours"))
    return choices if chosen or not choices else [SelectChoice("", "Choose a chat"), *choices]
