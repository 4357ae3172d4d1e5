"""Test entry: the product's worker under a file clock. The product itself has no setting for a clock."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

import webapp.worker

from tests.support.file_clock import FileClock
from webapp import create_app


def work(clock_file: str) -> None:
    """Run the worker's loop, configured by the environment, until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    webapp.worker.run(create_app(clock=FileClock(Path(clock_file))), stop)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clock", required=True, help="the file that holds the instant")
    work(parser.parse_args().clock)
