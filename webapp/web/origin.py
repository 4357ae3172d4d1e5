"""Where a request says it comes from and goes to."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from flask import current_app, request

from webapp.config import Config
from webapp.errors import AppError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_FORWARDING_HEADERS = ("X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Forwarded-Host", "Via")


def _config() -> Config:
    config: Config = current_app.extensions["carillon_config"]
    return config


def _origin(url: str) -> tuple[str, str, int | None] | None:
    """Scheme, host and port of an address, as browsers compare them; None where it cannot be read."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None


def is_loopback(host: str | None) -> bool:
    """Whether a name or an address is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def check_host() -> None:
    """Refuse a request for another host than the one of CARILLON_PUBLIC_URL, if that is set.

    Addresses of this machine itself stay open, for health checks and nodes beside us. Raises AppError
    `bad_request`.
    """
    public_url = _config().public_url
    if public_url is None:
        return
    asked, ours = _origin(f"{request.scheme}://{request.headers.get('Host', '')}"), _origin(public_url)
    if asked is None or ours is None or (asked[1] != ours[1] and not is_loopback(asked[1])):
        raise AppError("bad_request", message="This host name is not served here.")


def comes_from_elsewhere() -> bool:
    """Whether the browser says that another site sent this request.

    `Sec-Fetch-Site` is the browser's own judgement and comes first; it is sent over https and to this machine
    alone. Without both headers nothing is known: then the token alone decides.
    """
    fetch_site = request.headers.get("Sec-Fetch-Site")
    if fetch_site is not None:
        return fetch_site != "same-origin"
    header = request.headers.get("Origin")
    if header is None:
        return False
    origin = _origin(header)
    if origin is None:
        return True
    public_url = _config().public_url
    if public_url is not None and origin == _origin(public_url):
        return False
    here = _origin(request.host_url)
    if public_url is not None or here is None:
        return origin != here
    # A proxy that ends TLS without telling us changes the scheme, and with it the default port, not the host.
    return origin != here and urlsplit(header).netloc != request.host


def caller_is_this_machine() -> bool:
    """Whether the request comes over loopback, and from no proxy that speaks for somebody else."""
    if any(name in request.headers for name in _FORWARDING_HEADERS):
        return False
    original = request.environ.get("werkzeug.proxy_fix.orig", {})
    return is_loopback(original.get("REMOTE_ADDR") or request.remote_addr)


def is_local_path(path: str | None) -> bool:
    r"""Whether `path` leads to this site: `//host` and `/\host` do not, nor do control characters."""
    return (
        bool(path)
        and path is not None
        and path.startswith("/")
        and not path.startswith(("//", "/\\"))
        and "\\" not in path
        and all(" " < letter != "\x7f" for letter in path)
    )


def safe_next(path: str | None, default: str = "/") -> str:
    """`path` if it leads to a page of this site that may be gone to after signing in, else `default`."""
    if path is None or not is_local_path(path) or len(path) > 2000:
        return default
    return default if path.split("?")[0] in ("/sign-in", "/sign-out", "/setup") else path
