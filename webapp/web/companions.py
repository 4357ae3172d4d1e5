"""The web server and what runs beside it, as child processes that start and stop together."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webapp.clock import Clock
from webapp.logs import get_logger

_LOOK_SECONDS: Final = 0.2
_STOP_SECONDS: Final = 20.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_WELL_AFTER_SECONDS: Final = 60.0
_log = get_logger(__name__)


@dataclass
class Companion:
    """A program that runs beside the web server and is started again when it ends.

    `environment` is laid over this process's own: a secret belongs there, since everybody can read a command.
    It is not started before `ready` says so.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    ready: Callable[[], bool] = lambda: True
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_not_before: float = 0.0
    pause_seconds: float = field(default=_FIRST_PAUSE_SECONDS)


def run_together(web: Sequence[str], companions: Sequence[Companion], clock: Clock) -> int:
    """Run the command `web` and its companions until SIGTERM, SIGINT or SIGHUP, or until the web ends.

    Returns 0 after a clean stop, else the status with which the web server left. Must be called in the main
    thread, which handles signals.
    """
    asked_to_stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: asked_to_stop.set())
    server = subprocess.Popen(web)  # noqa: S603 - our own program
    try:
        while not asked_to_stop.wait(_LOOK_SECONDS) and server.poll() is None:
            for companion in companions:
                _keep_running(companion, clock.monotonic())
    finally:
        companion_processes = [companion.process for companion in companions if companion.process is not None]
        _stop([server, *companion_processes])
    return 0 if asked_to_stop.is_set() and server.returncode >= 0 else abs(server.returncode)


def _keep_running(companion: Companion, now: float) -> None:
    """Start a companion that does not run; the more often it dies young, the longer it waits."""
    process = companion.process
    if process is not None:
        status = process.poll()
        if status is None:
            return
        companion.process = None
        if now - companion.started_at > _WELL_AFTER_SECONDS:
            companion.pause_seconds = _FIRST_PAUSE_SECONDS
        companion.start_not_before = now + companion.pause_seconds
        _log.error(
            "it ended and will be started again",
            program=companion.name,
            status=status,
            in_seconds=companion.pause_seconds,
        )
        companion.pause_seconds = min(_LONGEST_PAUSE_SECONDS, companion.pause_seconds * 2)
    if now >= companion.start_not_before and companion.ready():
        environment = {**os.environ, **companion.environment}
        companion.process = subprocess.Popen(companion.command, env=environment)  # noqa: S603 - our own program
        companion.started_at = now


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """SIGTERM to all that live; whoever has not left in time is killed."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _log.error("a process did not leave in time and was killed", pid=process.pid)
            process.kill()
            process.wait()
