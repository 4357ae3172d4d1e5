"""A process that has the product built and holds no connection, and forks children that are going to die.

Runs as a child of a herd. What it builds once, its children need not: a child costs milliseconds. Whatever the nursery
itself does to the database (bringing a scene about, healing what a death left behind) it does before and after: at a
fork its pools are empty.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flask import Flask
from sqlalchemy import text

from tests.support.databases import config_for, dispose_engines
from tests.support.file_clock import FileClock
from webapp import create_app
from webapp.store import dialect, engine, reading


class Nursery:
    """The app of one scenario, its clock, and forked children."""

    def __init__(self, database_url: str, clock_file: str, **settings: Any) -> None:
        quieten()
        self.clock = FileClock(Path(clock_file))
        config = replace(config_for(database_url), **settings)
        self.app: Flask = create_app(config, self.clock, serves_web=False)
        self.app.app_context().push()

    def storage(self) -> str:
        """Which database this is, and how it keeps its journal."""
        with engine().connect() as connection:
            return dialect.storage_summary(connection)

    def fork(self, life: Callable[[], object]) -> int:
        """A child that lives `life` and leaves with 0, or with 1 and a traceback; returns its process id."""
        dispose_engines(self.app)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            life()
            status = 0
        except BaseException:  # noqa: BLE001 - a child's way out is its status and its log
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def dies(self, arm: Callable[[], object], deed: Callable[[], object]) -> bool:
        """Have a child do a deed for which it is armed; returns whether it was killed.

        Raises RuntimeError when it failed in another way.
        """

        def life() -> None:
            # The first connection asks this and that of the database: not part of the deed.
            with reading() as session:
                session.execute(text("SELECT 1"))
            arm()
            deed()

        _, status = os.waitpid(self.fork(life), 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"a child left with {code}")
        return code == -signal.SIGKILL


def quieten() -> None:
    """Log nothing but errors: a proof writes thousands of runs."""
    logging.disable(logging.WARNING)


def leave_report(path: str, report: dict[str, Any]) -> None:
    """Hand the outcome to the test."""
    Path(path).write_text(json.dumps(report))
