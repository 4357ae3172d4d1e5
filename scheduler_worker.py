"""The worker: `python scheduler_worker.py [--once]`. Any number of them, on any machine that reaches the database."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from types import FrameType

from webapp import create_app
from webapp.config import ConfigError
from webapp.worker import run, run_once


def main() -> int:
    """Run passes until SIGTERM or Ctrl-C; with `--once` make one pass and print what it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--once", action="store_true", help="make one pass, print its counts as JSON, and leave"
    )
    arguments = parser.parse_args()
    try:
        app = create_app(serves_web=False)
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    if arguments.once:
        print(json.dumps(run_once(app)))  # noqa: T201
        return 0
    stop = threading.Event()

    def leave(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    run(app, stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
