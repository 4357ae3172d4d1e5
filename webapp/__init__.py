"""Carillon: standing orders for AI agents."""

from __future__ import annotations

from pathlib import Path

from flask import Flask

from webapp.clock import Clock, SystemClock
from webapp.config import Config
from webapp.logs import configure_logs
from webapp.store import init_store

_ROOT = Path(__file__).resolve().parent.parent


def create_app(config: Config | None = None, clock: Clock | None = None) -> Flask:
    """Build the application: the only place that wires the parts.

    Raises ConfigError when a setting cannot be used.
    """
    config = config or Config.from_environment()
    configure_logs(config.log_format)
    app = Flask("carillon", root_path=str(_ROOT), template_folder="templates", static_folder=None)
    app.extensions["carillon_config"] = config
    app.extensions["carillon_clock"] = clock or SystemClock()
    app.secret_key = config.secret_key
    app.testing = config.testing
    init_store(app, config.database_url)
    _load_models()
    return app


def _load_models() -> None:
    """Import every module with models, so that migrations see all tables."""
    import webapp.audit
    import webapp.events.models
    import webapp.identity.models
    import webapp.nodes.models
    import webapp.scheduling.models
    import webapp.store.texts  # noqa: F401
