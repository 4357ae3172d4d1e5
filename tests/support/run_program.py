"""Test entry: a program of the product, whole and unchanged but for the clock, which is a file.

The product has no setting for a clock, so this hands one to `create_app`, the one place where it comes in.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from flask import Flask

import webapp
from tests.support.databases import ROOT
from tests.support.file_clock import FileClock
from webapp.clock import Clock
from webapp.config import Config

_create_app = webapp.create_app


def run(program: str, arguments: Sequence[str], clock_file: str | None) -> None:
    """Run `app.py` or `scheduler_worker.py` as if it had been called with these arguments.

    Without a file it has the system's clock, as it would by itself.
    """

    def create_app(
        config: Config | None = None, clock: Clock | None = None, *, serves_web: bool = True
    ) -> Flask:
        own = FileClock(Path(clock_file)) if clock_file else None
        return _create_app(config, clock or own, serves_web=serves_web)

    webapp.create_app = create_app
    sys.argv = [program, *arguments]
    runpy.run_path(str(ROOT / program), run_name="__main__")
