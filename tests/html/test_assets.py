"""What the browser loads besides pages, and the rules it loads it by."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest
from flask import Flask, render_template_string
from flask.testing import FlaskClient

from webapp.html import assets

CSS_FILES = sorted((assets.STATIC / "css").rglob("*.css"))
COMPONENTS = sorted((assets.STATIC / "css" / "components").glob("*.css"))
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgba?|hsla?|hwb|oklch|oklab|lab|lch|light-dark)\(")


@pytest.fixture
def client() -> FlaskClient:
    app = Flask("carillon-assets", static_folder=None)
    assets.init_assets(app)

    @app.get("/page")
    def page() -> str:
        return render_template_string("{{ asset_url('app.css') }} {{ page_nonce() }} {{ page_nonce() }}")

    return app.test_client()


def test_the_stylesheet_sets_the_layer_order_first_and_keeps_pico_below_the_components() -> None:
    css = assets.build_stylesheet()
    marks = [
        "@layer tokens, base, components, utilities;",
        "@layer tokens {",
        "@layer base {\n/*!\n * Pico CSS",
        "/* Pico map:",
        "/* Foundation:",
        "/* Button:",
        "@layer utilities {",
    ]
    places = [css.index(mark) for mark in marks]
    assert places == sorted(places)
    assert "@charset" not in css
    assert "@import" not in css


def test_the_script_holds_htmx_then_its_extensions_then_ours() -> None:
    script = assets.build_script()
    marks = ["var htmx=", '"hx-csp"', 'registerExtension("sse"', "time[data-clock]", "class ZoneSelect"]
    places = [script.index(mark) for mark in marks]
    assert places == sorted(places)


@pytest.mark.parametrize("path", CSS_FILES, ids=lambda path: path.name)
def test_a_style_file_is_one_layer_block_and_names_no_colour_but_in_tokens(path: Path) -> None:
    text = re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
    assert text.count("@layer") == 1
    if path.name != "tokens.css":
        assert COLOUR.findall(text) == []


@pytest.mark.parametrize("path", COMPONENTS, ids=lambda path: path.name)
def test_a_component_file_stays_small(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 120


def test_every_vendored_file_is_listed_and_unchanged() -> None:
    folder = assets.STATIC / "vendor"
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.suffix in {".js", ".css"}
    }
    assert found == assets.vendored()


@pytest.mark.parametrize("name", ["app.css", "app.js", "mark.svg"])
def test_an_asset_is_kept_for_ever_under_a_name_with_its_hash(client: FlaskClient, name: str) -> None:
    url = assets.asset_url(name)
    answer = client.get(url)
    assert answer.status_code == 200
    assert hashlib.sha256(answer.data).hexdigest()[:16] in url
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    packed = client.get(url, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == answer.data


def test_an_unknown_asset_is_404_and_an_unknown_name_stops_the_template(client: FlaskClient) -> None:
    assert client.get("/static/build/app-0000000000000000.css").status_code == 404
    with pytest.raises(KeyError):
        assets.asset_url("nothing.css")


def test_a_page_has_one_nonce_and_the_next_page_another(client: FlaskClient) -> None:
    pages = [client.get("/page").text.split() for _ in range(2)]
    assert all(first == second for _url, first, second in pages)
    assert pages[0][1] != pages[1][1]


def test_every_answer_carries_the_strict_policy(client: FlaskClient) -> None:
    headers = client.get("/page").headers
    policy = headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert {"script-src 'self'", "frame-ancestors 'none'", "trusted-types htmx"} <= set(policy.split("; "))
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"


def test_https_is_demanded_only_where_it_is_spoken(client: FlaskClient) -> None:
    assert "Strict-Transport-Security" not in client.get("/page").headers
    assert "Strict-Transport-Security" in client.get("/page", base_url="https://carillon.test").headers
