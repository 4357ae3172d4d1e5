"""The pages of nodes: who is there, what each holds, and what an operator decides about one."""

from __future__ import annotations

from typing import Any, Final

from flask import Blueprint, Response, current_app, g, request

from webapp.errors import AppError
from webapp.html.filters import number, plural
from webapp.html.forms import blame
from webapp.html.forms.node import NodeForm
from webapp.html.forms.task import TaskForm
from webapp.html.respond import flash, form_refused, page, redirect_to
from webapp.html.viewing import address, asked, keyed_request, new_form_key, reached_networks, shown_networks
from webapp.html.ways import way_out
from webapp.identity.access import Facts, Verb, may
from webapp.identity.queries import token_of_node
from webapp.nodes import operations, queries
from webapp.nodes.bodies import NewTaskBody, NodeChanges
from webapp.nodes.models import Node
from webapp.nodes.rules import accepts_work
from webapp.scheduling.calendar import planned_slots
from webapp.scheduling.lifecycle import TargetKind
from webapp.scheduling.queries import count_of_target, schedules_of_target
from webapp.store import db
from webapp.store.counting import add_up
from webapp.store.paging import PageRequest
from webapp.targets.node_queries import facts_of_runs
from webapp.web.auth import current_actor, viewer_place, viewer_zone
from webapp.web.body import parse
from webapp.web.policy import SignedIn, access

blueprint = Blueprint("node_pages", __name__, url_prefix="/nodes")

_PER_PAGE: Final = 25
_LAST_TASKS: Final = 20
_MOST_SCHEDULES: Final = 20
_LIST: Final = {"node-list": "nodes/_node_list.html"}
_DETAIL: Final = {"node-state": "nodes/_node_state.html"}
# Refusals that belong to no field: said above the form, which keeps what was typed.
_SHOWN_ABOVE: Final = frozenset({"node_not_active", "idempotency_conflict"})
_LIFECYCLE_DONE: Final = {
    "active": "The node takes work again.",
    "stopping": "The node takes no new work; it may fetch and finish what it holds.",
    "stopped": "The node is stopped: it is given nothing any more.",
}


# --- The list, and a new one ---


@blueprint.get("")
@access(SignedIn, verb=Verb.READ)
def list_nodes() -> Response:
    """The nodes of the network by alias, and the form to register one."""
    return page("nodes/list.html", _LIST, **_list_context(NodeForm()))


@blueprint.post("")
@access(SignedIn, verb=Verb.CREATE_NODE)
def create_node() -> Response:
    """Register a node and show its token, this once."""
    form = NodeForm(request.form)
    place = viewer_place()
    if place is None:
        raise AppError("permission_denied", message="You belong to no network.")
    alias = form.alias.data or ""
    keyed = keyed_request("create_node", {"network_id": place.network_id, "alias": alias})
    try:
        node, token = operations.create_node(
            current_actor(), place.network_pk, alias, request=keyed, now=g.now
        )
    except AppError as refusal:
        if refusal.code in _SHOWN_ABOVE:
            return page("nodes/list.html", _LIST, status=refusal.status, **_list_context(form, refusal))
        blame(form, refusal)
        return form_refused("nodes/list.html", _LIST, **_list_context(form))
    return _show_token(node, token, fresh=True)


def _list_context(form: NodeForm, refusal: AppError | None = None) -> dict[str, Any]:
    place = viewer_place()
    cursor = asked("cursor")
    session, networks = db.session(), shown_networks()
    counts = queries.count_nodes(session, networks, now=g.now)
    found = queries.page_by_alias(session, networks, PageRequest(_PER_PAGE, cursor), now=g.now)
    return {
        "refusal": refusal,
        "way": way_out(refusal.code) if refusal else None,
        "views": found.rows,
        "results": queries.last_results(session, [view.node.id for view in found.rows], limit=_LAST_TASKS),
        "said": _said(counts),
        "address": address("/nodes", cursor=cursor),
        "next_url": address("/nodes", cursor=found.next_cursor) if found.next_cursor else None,
        "first_url": "/nodes" if cursor else None,
        "form": form,
        "form_key": new_form_key(),
        "may_create": place is not None
        and may(current_actor(), Verb.CREATE_NODE, Facts(network_pk=place.network_pk)),
        "zone": viewer_zone(),
        "now": g.now,
    }


def _said(counts: dict[str, int]) -> str | None:
    """How the nodes are, in two sentences with their numbers; None where there is none."""
    if not counts["all"]:
        return None
    silent, holding = counts["silent"], counts["holding"]
    if not silent:
        return f"{plural(counts['all'], 'node')}, all heard within the last ten minutes."
    said = f"{plural(counts['all'], 'node')}, {number(silent)} silent."
    if not holding:
        return f"{said} No work waits for {'it' if silent == 1 else 'them'}."
    return f"{said} Work waits for {'it' if silent == 1 else f'{number(holding)} of them'}."


def _show_token(node: Node, token: str | None, *, fresh: bool) -> Response:
    answer = page("nodes/token.html", node=node, token=token, fresh=fresh, base_url=_base_url())
    # Whoever goes back in this browser later must not find the secret.
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _base_url() -> str:
    config = current_app.extensions["carillon_config"]
    return str(config.public_url or request.host_url.rstrip("/"))


# --- One node ---


@blueprint.get("/<node_id>")
@access(SignedIn, verb=Verb.READ)
def show_node(node_id: str) -> Response:
    """One node: presence, what it holds, its schedules and last tasks, and what may be done to it."""
    return _show(node_id)


@blueprint.get("/<node_id>/rename", endpoint="leave_rename")
@blueprint.get("/<node_id>/lifecycle", endpoint="leave_lifecycle")
@blueprint.get("/<node_id>/tasks", endpoint="leave_tasks")
@access(SignedIn)
def leave_action(node_id: str) -> Response:
    """Whoever loads the address of a form again comes back to the node."""
    return redirect_to(f"/nodes/{queries.find_node(db.session(), reached_networks(), node_id).node_id}")


@blueprint.post("/<node_id>/rename")
@access(SignedIn, verb=Verb.STEER_NODE)
def rename_node(node_id: str) -> Response:
    """Give a node another alias."""
    form = NodeForm(request.form)
    _check_may_steer(node_id)
    try:
        changes = parse(NodeChanges, {"alias": form.alias.data or ""})
        node = operations.update_node(current_actor(), node_id, changes, now=g.now)
    except AppError as refusal:
        blame(form, refusal)
        return _show(node_id, rename_form=form, status=422)
    flash(f"The node is called {node.alias} now.")
    return redirect_to(f"/nodes/{node_id}")


@blueprint.post("/<node_id>/lifecycle")
@access(SignedIn, verb=Verb.STEER_NODE)
def steer_node(node_id: str) -> Response:
    """Let a node run dry, stop it, or activate it again."""
    _check_may_steer(node_id)
    state = request.form.get("lifecycle_state", "")
    changes = parse(NodeChanges, {"lifecycle_state": state})
    operations.update_node(current_actor(), node_id, changes, now=g.now)
    flash(_LIFECYCLE_DONE[state])
    return redirect_to(f"/nodes/{node_id}")


@blueprint.get("/<node_id>/token")
@access(SignedIn, verb=Verb.STEER_NODE)
def ask_rotate_token(node_id: str) -> Response:
    """What a new token means for a node, before it gets one."""
    _check_may_steer(node_id)
    view = queries.node_detail(db.session(), reached_networks(), node_id, now=g.now)
    return page(
        "nodes/rotate.html",
        view=view,
        token=token_of_node(db.session(), view.node.id),
        form_key=new_form_key(),
        zone=viewer_zone(),
        now=g.now,
    )


@blueprint.post("/<node_id>/token")
@access(SignedIn, verb=Verb.STEER_NODE)
def rotate_token(node_id: str) -> Response:
    """Give a node a new token and show it, this once; the earlier ones end."""
    keyed = keyed_request("rotate_node_token", {"node_id": node_id})
    node, token = operations.rotate_token(current_actor(), node_id, request=keyed, now=g.now)
    return _show_token(node, token, fresh=False)


@blueprint.get("/<node_id>/delete")
@access(SignedIn, verb=Verb.STEER_NODE)
def confirm_delete(node_id: str) -> Response:
    """What deleting a node would stop, before it does."""
    _check_may_steer(node_id)
    view = queries.node_detail(db.session(), reached_networks(), node_id, now=g.now)
    stopping_count, others_count = count_of_target(db.session(), TargetKind.NODE, view.node.id)
    stopping, others = (
        schedules_of_target(db.session(), TargetKind.NODE, view.node.id, active=active, limit=_MOST_SCHEDULES)
        for active in (True, False)
    )
    return page(
        "nodes/delete.html",
        view=view,
        stopping=stopping,
        ahead={each.schedule_id: planned_slots(each, limit=1, now=g.now) for each in stopping},
        stopping_count=stopping_count,
        others=others,
        others_count=others_count,
        zone=viewer_zone(),
        now=g.now,
    )


@blueprint.post("/<node_id>/delete")
@access(SignedIn, verb=Verb.STEER_NODE)
def delete_node(node_id: str) -> Response:
    """Take a node out of service for good."""
    node = operations.delete_node(current_actor(), node_id, now=g.now)
    flash(f"{node.alias} is deleted. Its history stays, its tokens have ended.")
    return redirect_to("/nodes")


@blueprint.post("/<node_id>/tasks")
@access(SignedIn, verb=Verb.SEND_TASK)
def send_task(node_id: str) -> Response:
    """Put a task of one's own into the inbox of a node."""
    form = TaskForm(request.form)
    node = queries.find_node(db.session(), reached_networks(), node_id)
    try:
        operations.check_sendable(node, current_actor())
        body = parse(NewTaskBody, form.body(node_id))
        keyed = keyed_request("create_task", body.model_dump(mode="json"))
        task = operations.create_task(current_actor(), body, request=keyed, now=g.now)
    except AppError as refusal:
        if refusal.code in _SHOWN_ABOVE:
            db.session.remove()
            return _show(node_id, task_form=form, refusal=refusal, status=refusal.status)
        blame(form, refusal)
        return _show(node_id, task_form=form, status=422)
    flash(f"The task waits in the inbox of {node.alias}.")
    return redirect_to(f"/tasks/{task.task_id}")


def _check_may_steer(node_id: str) -> None:
    node = queries.find_node(db.session(), reached_networks(), node_id)
    if not may(current_actor(), Verb.STEER_NODE, Facts(network_pk=node.network_pk)):
        raise AppError("permission_denied")


def _show(
    node_id: str,
    *,
    rename_form: NodeForm | None = None,
    task_form: TaskForm | None = None,
    refusal: AppError | None = None,
    status: int = 200,
) -> Response:
    session, networks = db.session(), reached_networks()
    view = queries.node_detail(session, networks, node_id, now=g.now)
    tasks = queries.list_tasks(session, networks, PageRequest(limit=_LAST_TASKS), node_id=node_id)
    actor, facts = current_actor(), Facts(network_pk=view.node.network_pk)
    aiming = count_of_target(session, TargetKind.NODE, view.node.id)
    return page(
        "nodes/detail.html",
        _DETAIL,
        status=status,
        refused=status == 422,
        view=view,
        tasks=tasks.rows,
        run_facts=facts_of_runs(session, [row.task for row in tasks.rows]),
        schedules=schedules_of_target(session, TargetKind.NODE, view.node.id, limit=_MOST_SCHEDULES),
        stopping=aiming[0],
        schedule_count=add_up(aiming),
        rename_form=rename_form or NodeForm(alias=view.node.alias),
        task_form=task_form or TaskForm(),
        form_key=new_form_key(),
        refusal=refusal,
        way=way_out(refusal.code) if refusal else None,
        may_steer=may(actor, Verb.STEER_NODE, facts),
        may_send=may(actor, Verb.SEND_TASK, facts) and accepts_work(view.node.lifecycle_state),
        zone=viewer_zone(),
        now=g.now,
    )
