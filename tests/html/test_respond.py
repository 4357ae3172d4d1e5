"""How a view answers a browser with and without htmx."""

from __future__ import annotations

import json

import pytest
from flask import Flask, Response
from flask.testing import FlaskClient
from jinja2 import ChoiceLoader, DictLoader, StrictUndefined

from webapp.html import assets, filters, respond

HTMX = {"HX-Request": "true"}
TEMPLATES = {
    "page.html": "<html>{% include '_list.html' %}{% if refused is defined %} refused{% endif %}</html>",
    "_list.html": '<ul id="list">{{ word }}</ul>',
    "_other.html": "never offered",
}


@pytest.fixture
def app() -> Flask:
    root = assets.STATIC.parent
    app = Flask("carillon-respond", root_path=str(root), template_folder="templates", static_folder=None)
    app.secret_key = "for this test alone"
    app.jinja_env.undefined = StrictUndefined
    app.jinja_env.filters.update(filters.FILTERS)
    app.context_processor(lambda: {"shell": respond.Shell()})
    assets.init_assets(app)
    files = app.jinja_loader
    assert files is not None
    app.jinja_env.loader = ChoiceLoader([DictLoader(TEMPLATES), files])
    regions = {"list": "_list.html"}

    def through(view: str) -> Response:
        if view == "refused":
            return respond.form_refused("page.html", regions, word="kept")
        if view == "conflict":
            return respond.conflict("page.html", regions, word="both")
        return respond.page("page.html", regions, word="all")

    app.add_url_rule("/<any(page, refused, conflict):view>", view_func=through)
    app.add_url_rule("/go", "go", view_func=lambda: respond.redirect_to("/runs?from=a:b"))
    app.add_url_rule(
        "/no/<int:status>", "no", view_func=lambda status: respond.refused(status, "No.", "some_code")
    )
    app.add_url_rule("/remark", "remark", view_func=lambda: respond.remark("Nothing <changed>", "info"))
    return app


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({}, '<html><ul id="list">all</ul></html>'),
        ({"HX-Target": "ul#list"}, '<html><ul id="list">all</ul></html>'),
        (HTMX, '<html><ul id="list">all</ul></html>'),
        (HTMX | {"HX-Target": "body"}, '<html><ul id="list">all</ul></html>'),
        (HTMX | {"HX-Target": "ul#other"}, '<html><ul id="list">all</ul></html>'),
        (HTMX | {"HX-Target": "ul#_other.html"}, '<html><ul id="list">all</ul></html>'),
        (HTMX | {"HX-Target": "ul#list"}, '<ul id="list">all</ul>'),
        (HTMX | {"HX-Target": "ul#%6Cist"}, '<ul id="list">all</ul>'),
    ],
)
def test_a_region_is_answered_only_when_the_target_names_it(
    client: FlaskClient, headers: dict[str, str], text: str
) -> None:
    answer = client.get("/page", headers=headers)
    assert answer.text == text
    assert answer.headers["Vary"] == "HX-Request, HX-Target"


def test_a_fragment_is_never_kept_under_the_address_of_its_page(client: FlaskClient) -> None:
    whole = client.get("/page").headers["Cache-Control"]
    part = client.get("/page", headers=HTMX | {"HX-Target": "ul#list"}).headers["Cache-Control"]
    assert (whole, part) == ("private, no-cache", "no-store")


def test_a_refused_form_is_422_and_a_conflict_409(client: FlaskClient) -> None:
    refused, conflict = client.get("/refused"), client.get("/conflict")
    assert (refused.status_code, conflict.status_code) == (422, 409)
    assert "refused" in refused.text
    assert "refused" not in conflict.text


def test_a_redirect_is_303_for_a_browser_and_a_location_for_htmx(client: FlaskClient) -> None:
    plain, live = client.get("/go"), client.get("/go", headers=HTMX)
    assert (plain.status_code, plain.headers["Location"]) == (303, "/runs?from=a:b")
    assert (live.status_code, json.loads(live.headers["HX-Location"])) == (204, {"path": "/runs?from=a:b"})


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/", True),
        ("/runs?status=failed#last", True),
        ("//evil.test", False),
        ("/\\evil.test", False),
        ("/a\\b", False),
        ("/a\n", False),
        ("/\t/evil.test", False),
        ("https://evil.test", False),
        ("runs", False),
        ("", False),
        (None, False),
    ],
)
def test_only_a_path_of_this_site_is_local(path: str | None, local: bool) -> None:
    assert respond.is_local(path) is local


def test_a_redirect_off_the_site_is_a_programming_error(app: Flask) -> None:
    with app.test_request_context(), pytest.raises(ValueError, match="stay on this site"):
        respond.redirect_to("//evil.test")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 429, 500, 503])
def test_a_refusal_is_a_page_that_says_what_to_do_and_for_htmx_a_remark(
    client: FlaskClient, status: int
) -> None:
    page = client.get(f"/no/{status}")
    assert page.status_code == status
    assert page.text.count("<h1>") == 1
    assert "<code>some_code</code>" in page.text
    part = client.get(f"/no/{status}", headers=HTMX)
    assert part.status_code == status
    assert "<html" not in part.text
    assert 'id="flash"' in part.text
    assert "No. (some_code)" in part.text


def test_a_remark_goes_to_flash_wherever_the_request_was_aimed(client: FlaskClient) -> None:
    answer = client.get("/remark", headers=HTMX)
    assert answer.headers["HX-Retarget"] == "#flash"
    assert answer.headers["HX-Reselect"] == "#flash > *"
    assert "Nothing &lt;changed&gt;" in answer.text
