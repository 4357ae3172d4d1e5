"""The browser edge: translates between forms, pages and the operations."""

from __future__ import annotations

from flask import Flask


def init_html(app: Flask) -> None:
    """Put the frame and every page behind the door."""
    from webapp.html import (
        approvals,
        audit,
        chats,
        mandates,
        nodes,
        overview,
        runs,
        schedule_bulk,
        schedule_editing,
        schedule_next,
        schedules,
        session,
        settings,
        shell,
        tasks,
    )

    shell.init_shell(app)
    for module in (
        session,
        settings,
        overview,
        schedules,
        schedule_bulk,
        schedule_editing,
        schedule_next,
        runs,
        nodes,
        tasks,
        chats,
        approvals,
        mandates,
        audit,
    ):
        app.register_blueprint(module.blueprint)
