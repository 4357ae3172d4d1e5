"""The production server: gunicorn with threads, which leaves within seconds although streams are open."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from webapp.web.shutdown import stopping

# A stream and a long poll each hold a thread while they last; the feed caps streams well below this.
THREADS: Final = 64
CONNECTIONS: Final = 1000
_STOP_SECONDS: Final = 8
_WORKER_TIMEOUT_SECONDS: Final = 60
_KEEPALIVE_SECONDS: Final = 30


class _Log(Logger):  # type: ignore[misc]
    """Sends the server's lines where ours go. There is no access log: addresses may hold a secret."""

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self._access_log_enabled = False
        self.error_log.handlers.clear()
        self.error_log.propagate = True
        self.error_log.setLevel(logging.INFO)


class _Server(BaseApplication):  # type: ignore[misc]
    def __init__(self, make_app: Callable[[], Flask], options: dict[str, Any]) -> None:
        self._make_app = make_app
        self._options = options
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        # In the worker process, after the fork: no connection to the database may cross one.
        return self._make_app()


def serve(make_app: Callable[[], Flask], host: str, port: int, *, processes: int) -> None:
    """Answer on `host`:`port` until SIGTERM or SIGINT, then leave the process with status 0.

    `make_app` is called in each of the `processes`. No connection to the database may be open here.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    options = {
        "bind": address,
        "workers": processes,
        "worker_class": "gthread",
        "threads": THREADS,
        "worker_connections": CONNECTIONS,
        "keepalive": _KEEPALIVE_SECONDS,
        "timeout": _WORKER_TIMEOUT_SECONDS,
        "graceful_timeout": _STOP_SECONDS,
        "post_worker_init": _hear_the_end,
        "logger_class": _Log,
        "proc_name": "carillon",
        # Whom to believe about the caller's address is said once, by CARILLON_TRUSTED_PROXIES.
        "forwarded_allow_ips": "",
        "control_socket_disable": True,
    }
    _Server(make_app, options).run()


def _hear_the_end(_worker: object) -> None:
    """Have open streams end when this process is told to, instead of being waited for."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, _and_then(signal.getsignal(number)))


def _and_then(before: Any) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        stopping.set()
        if callable(before):
            before(number, frame)

    return handle
