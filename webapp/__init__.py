"""Carillon: standing orders for AI agents."""

from __future__ import annotations

from pathlib import Path

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from webapp.clock import Clock, SystemClock
from webapp.config import Config
from webapp.logs import configure_logs
from webapp.store import init_store
from webapp.web import auth, policy, problems, requests, sessions

_ROOT = Path(__file__).resolve().parent.parent


def create_app(config: Config | None = None, clock: Clock | None = None, *, serves_web: bool = True) -> Flask:
    """Build the application: the only place that wires the parts.

    A worker asks for it without pages and calls (`serves_web=False`), which it has no use for. Raises
    ConfigError when a setting cannot be used.
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
    _join_packages()
    if serves_web:
        _init_web(app, config)
        _init_commands(app)
        policy.check_routes(app)
    return app


def _init_web(app: Flask, config: Config) -> None:
    """Guard the door, then hang every page and call behind it."""
    from webapp.api import (
        approvals,
        audit,
        chat_tasks,
        chats,
        events,
        health,
        mandates,
        node,
        nodes,
        openapi,
        people,
        runs,
        schedules,
        tasks,
        turns,
    )
    from webapp.html import init_html
    from webapp.html import problems as page_problems
    from webapp.web.live import init_live

    if config.trusted_proxies:
        hops = config.trusted_proxies
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=hops, x_proto=hops, x_host=hops)  # type: ignore[method-assign]
    app.config["MAX_CONTENT_LENGTH"] = requests.MAX_BODY_BYTES
    app.config["MAX_FORM_MEMORY_SIZE"] = requests.MAX_BODY_BYTES
    app.json.sort_keys = False  # type: ignore[attr-defined]
    sessions.init_sessions(app, config)
    auth.init_auth(app)
    problems.init_problems(app, page=page_problems.draw)
    init_html(app)
    init_live(app)
    work = (nodes, tasks, node, schedules, runs, chats, chat_tasks, turns, approvals, mandates)
    for module in (health, people, events, audit, openapi, *work):
        app.register_blueprint(module.blueprint)


def _join_packages() -> None:
    """Fill the hooks of packages that must reach others beside or above them."""
    from webapp.chat import actions, execution
    from webapp.chat import hooks as chat_hooks
    from webapp.identity import hooks as identity_hooks
    from webapp.mandates import hooks as mandate_hooks
    from webapp.nodes import hooks as node_hooks
    from webapp.scheduling import reactions, tick
    from webapp.scheduling.lifecycle import TargetKind
    from webapp.scheduling.target import register_target
    from webapp.targets import conversation
    from webapp.targets.node import NodeTarget
    from webapp.tools import schedules as schedule_tools
    from webapp.tools.box import TOOLS

    register_target(TargetKind.NODE, NodeTarget())
    register_target(TargetKind.CHAT, conversation.ConversationTarget())
    chat_hooks.register(
        before_turn_change=conversation.before_turn_change,
        turn_changed=conversation.turn_changed,
        before_chat_change=conversation.before_chat_change,
        chat_changed=conversation.chat_changed,
        approval_unanswered=conversation.approval_unanswered,
    )
    chat_hooks.register_tools(TOOLS)
    actions.register_origin(schedule_tools.origin_of)
    tick.register_chore("turns_mended", execution.recover)
    identity_hooks.register_authority_changed(reactions.authority_changed)
    node_hooks.register(node_changed=reactions.node_changed, before_change=reactions.lock_schedules_of_node)
    mandate_hooks.register(
        before_change=reactions.lock_schedule_of_mandate, mandate_changed=reactions.mandate_changed
    )


def _init_commands(app: Flask) -> None:
    from webapp.cli import init_cli

    init_cli(app)


def _load_models() -> None:
    """Import every module with models, so that migrations see all tables."""
    import webapp.audit
    import webapp.chat.models
    import webapp.events.models
    import webapp.identity.models
    import webapp.mandates.models
    import webapp.nodes.models
    import webapp.scheduling.models
    import webapp.store.texts  # noqa: F401
