"""What the browser loads besides pages: one stylesheet, one script, the mark; and the rules it loads them by.

The files are put together once at start and served from memory under a name that carries their hash, so a
browser may keep them for ever and a new version is a new address.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from flask import Flask, Response, abort, g, request

from webapp.web.policy import Public, access

STATIC: Final = Path(__file__).resolve().parents[2] / "static"
BUILD_PATH: Final = "/static/build/"
FOREVER: Final = "public, max-age=31536000, immutable"

PICO: Final = "vendor/pico-2.1.1.min.css"
HTMX: Final = "vendor/htmx-bundle-4.0.1.js"
# These set the ground that the others stand on; inside a layer the later rule wins.
COMPONENTS_FIRST: Final = ("pico-map.css", "foundation.css")
# These speak of all the others.
COMPONENTS_LAST: Final = ("forced.css", "print.css")

_CSP_DIRECTIVES: Final = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "htmx",
}
CONTENT_SECURITY_POLICY: Final = "; ".join(f"{name} {value}" for name, value in _CSP_DIRECTIVES.items())
ONE_YEAR_SECONDS: Final = 31_536_000


@dataclass(frozen=True)
class Asset:
    """One file as the browser gets it. ``name`` carries the hash; ``packed`` is ``body`` gzipped."""

    name: str
    body: bytes
    packed: bytes
    media_type: str


def build_stylesheet(static: Path = STATIC) -> str:
    """All CSS as one text: layer order, tokens, Pico inside layer ``base``, components, utilities."""
    css = static / "css"
    # A charset rule is only allowed at the very start, which Pico is no longer; the header names the charset.
    pico = (static / PICO).read_text("utf-8").removeprefix('@charset "UTF-8";')
    components = sorted((css / "components").glob("*.css"), key=_component_order)
    parts = [
        (css / "layers.css").read_text("utf-8"),
        (css / "tokens.css").read_text("utf-8"),
        f"@layer base {{\n{pico}\n}}\n",
        *(path.read_text("utf-8") for path in components),
        (css / "utilities.css").read_text("utf-8"),
    ]
    return "\n".join(parts)


def _component_order(path: Path) -> tuple[int, str]:
    if path.name in COMPONENTS_FIRST:
        return COMPONENTS_FIRST.index(path.name), path.name
    return len(COMPONENTS_FIRST) + (path.name in COMPONENTS_LAST), path.name


def build_script(static: Path = STATIC) -> str:
    """All script as one text: htmx with its extensions, then ours by name. Separate files would race."""
    paths = [static / HTMX, *sorted((static / "js").glob("*.js"))]
    return "\n;\n".join(path.read_text("utf-8") for path in paths)


@cache
def build(static: Path = STATIC) -> Mapping[str, Asset]:
    """Every asset by its plain name (``app.css``, ``app.js``, ``mark.svg``). Built once a process."""
    sources = {
        "app.css": (build_stylesheet(static), "text/css; charset=utf-8"),
        "app.js": (build_script(static), "text/javascript; charset=utf-8"),
    }
    sources |= {
        path.name: (path.read_text("utf-8"), "image/svg+xml") for path in (static / "img").glob("*.svg")
    }
    return {name: _asset(name, text.encode(), kind) for name, (text, kind) in sources.items()}


def _asset(name: str, body: bytes, media_type: str) -> Asset:
    stem, _, suffix = name.rpartition(".")
    digest = hashlib.sha256(body).hexdigest()[:16]
    return Asset(f"{stem}-{digest}.{suffix}", body, gzip.compress(body, mtime=0), media_type)


def asset_url(name: str) -> str:
    """The address of an asset, ``asset_url("app.css")``. Raises ``KeyError`` for a name that does not exist."""
    return BUILD_PATH + build()[name].name


def page_nonce() -> str:
    """The nonce of this answer.

    hx-csp leaves htmx dead without one and hands its Trusted Types policy to htmx only then. The policy's
    ``script-src`` does not name it, so it allows no inline script. ``base.html`` lets the whole body inherit
    it: what keeps foreign text from using htmx is escaping, and ``hx-ignore`` around what agents wrote.
    """
    if "page_nonce" not in g:
        g.page_nonce = secrets.token_urlsafe(16)
    nonce: str = g.page_nonce
    return nonce


def security_headers(response: Response) -> Response:
    """Put the headers on an answer that tell a browser what it may do with it; keeps what a view has set."""
    headers = response.headers
    headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("X-Frame-Options", "DENY")
    headers.setdefault("Referrer-Policy", "same-origin")
    headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
    headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=()")
    if request.is_secure:
        headers.setdefault("Strict-Transport-Security", f"max-age={ONE_YEAR_SECONDS}; includeSubDomains")
    return response


def init_assets(app: Flask) -> None:
    """Serve the assets and give templates ``asset_url`` and ``page_nonce``; put the headers on every answer."""
    assets = {asset.name: asset for asset in build().values()}

    @app.get(BUILD_PATH + "<name>", endpoint="asset")
    @access(Public)
    def asset(name: str) -> Response:
        found = assets.get(name)
        if found is None:
            abort(404)
        return _send(found)

    app.jinja_env.globals.update(asset_url=asset_url, page_nonce=page_nonce)
    app.after_request(security_headers)


def _send(asset: Asset) -> Response:
    packed = request.accept_encodings.quality("gzip") > 0
    response = Response(asset.packed if packed else asset.body, content_type=asset.media_type)
    if packed:
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    response.headers["Cache-Control"] = FOREVER
    return response


def vendored(static: Path = STATIC) -> dict[str, str]:
    """The files that ``static/vendor/VENDOR`` lists, each with its SHA-256."""
    lines = (static / "vendor" / "VENDOR").read_text("utf-8").splitlines()
    rows = (re.split(r"\s+", line) for line in lines if line and not line.startswith("#"))
    return {name: digest for name, _version, _licence, digest in rows}
