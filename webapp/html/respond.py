"""How a view answers a browser. The only reader of ``HX-*`` headers.

A page is one address. htmx may ask for one region of it by name (``HX-Target``); anything else, also a plain
link, ``HX-Location`` and history, gets the whole page. A view says which regions exist; a client cannot choose
a template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

from flask import Response, current_app, g, make_response, render_template, request
from flask import flash as queue_message

VARY: Final = "HX-Request, HX-Target"
_LOCAL_PATH: Final = re.compile(r"/(?![/\\])[^\x00-\x20\x7f\\]*")
_ERROR_PAGES: Final = (400, 403, 404, 409, 413, 429, 500, 503)

Regions = Mapping[str, str]


@dataclass(frozen=True)
class WorkerPulse:
    """Whether slots are being claimed. ``state``: ``ticking``, ``late`` or ``silent``; ``due_count`` waits."""

    state: str
    last_pass_at: datetime | None = None
    lag_seconds: float | None = None
    due_count: int = 0


@dataclass(frozen=True)
class NetworkChoice:
    """One network the viewer may look at."""

    network_id: str
    name: str
    current: bool = False


@dataclass(frozen=True)
class Shell:
    """What the frame around every page shows. All of it is optional: a signed-out page has an empty one."""

    user_name: str | None = None
    network_id: str | None = None
    network_name: str | None = None
    networks: tuple[NetworkChoice, ...] = ()
    worker: WorkerPulse | None = None
    viewer_zone: str = "UTC"
    now: datetime | None = None
    csrf_token: str | None = None
    zone_data_version: str | None = None
    events_seen: int | None = None
    attention_count: int = 0
    approvals_count: int = 0
    keys: bool = True
    may_create: bool = False


def wants_fragment() -> bool:
    """Whether htmx asks, and not the address line."""
    return request.headers.get("HX-Request") == "true"


def wanted_region(regions: Regions) -> str | None:
    """The template of the region that ``HX-Target`` names, if the view offers one by that id."""
    if not wants_fragment():
        return None
    # htmx 4 sends the tag and the encoded id: "section#run-list".
    _tag, _, element_id = request.headers.get("HX-Target", "").partition("#")
    return regions.get(unquote(element_id)) if element_id else None


def page(template: str, regions: Regions | None = None, *, status: int = 200, **context: Any) -> Response:
    """Answer with a page, or with the one region of it that was asked for.

    ``regions`` maps the id of an element on the page to the template of that region. Both are rendered with
    the same ``context``.
    """
    region = wanted_region(regions or {})
    response = make_response(render_template(region or template, **context), status)
    response.headers["Vary"] = VARY
    # A fragment kept under the page's address would come back as the page when someone goes back.
    response.headers["Cache-Control"] = "no-store" if region else "private, no-cache"
    return response


def form_refused(template: str, regions: Regions | None = None, **context: Any) -> Response:
    """The form again with what was typed and why it was refused: 422. ``refused`` is true in the template."""
    return page(template, regions, status=422, refused=True, **context)


def conflict(template: str, regions: Regions | None = None, **context: Any) -> Response:
    """Somebody else saved first: 409 with a view that puts both versions side by side."""
    return page(template, regions, status=409, **context)


def is_local(path: str | None) -> bool:
    r"""Whether a path stays on this site: ``//host`` and ``/\host`` do not, nor does a control character."""
    return bool(path) and _LOCAL_PATH.fullmatch(path or "") is not None


def redirect_to(path: str) -> Response:
    """Send the browser on after a change: 303, for htmx 204 with ``HX-Location``.

    Raises ``ValueError`` for a path that leaves this site.
    """
    if not is_local(path):
        raise ValueError("a redirect must stay on this site")
    if wants_fragment():
        # As JSON, because htmx reads a bare value with a colon as its own small language.
        return Response(status=204, headers={"HX-Location": json.dumps({"path": path}), "Vary": VARY})
    return Response(status=303, headers={"Location": path, "Vary": VARY})


def flash(message: str, kind: str = "good") -> None:
    """Keep a remark for the next whole page. ``kind``: good, info, warn or bad."""
    queue_message(message, kind)


def remark(message: str, kind: str = "good", *, status: int = 200) -> Response:
    """Answer htmx with a remark alone; it goes into ``#flash`` wherever the request was aimed."""
    response = make_response(render_template("shared/_flash.html", remarks=[(kind, message)]), status)
    response.headers.update(
        {
            "HX-Retarget": "#flash",
            "HX-Reswap": "innerHTML",
            "HX-Reselect": "#flash > *",
            "Vary": VARY,
            "Cache-Control": "no-store",
        }
    )
    return response


def refused(status: int, message: str | None = None, code: str | None = None) -> Response:
    """Answer a refusal that belongs to no field: a remark for htmx, else a page that says what to do.

    ``message`` is a sentence for people, ``code`` the error code beside it.
    """
    if wants_fragment():
        text = message or "This could not be done."
        return remark(f"{text} ({code})" if code else text, "bad", status=status)
    nearest = status if status in _ERROR_PAGES else 500 if status >= 500 else 400
    template = f"errors/{nearest}.html"
    # What an operator finds the line of the log by.
    request_id = g.get("request_id") if status >= 500 else None
    context = {"status": status, "message": message, "code": code, "request_id": request_id}
    if status >= 500:
        # Past the context processors: what failed may be what they would ask.
        html = current_app.jinja_env.get_template(template).render(shell=Shell(), **context)
    else:
        html = render_template(template, **context)
    return make_response(html, status, {"Vary": VARY, "Cache-Control": "no-store"})
