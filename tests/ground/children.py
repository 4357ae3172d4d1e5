"""What the children of the herd do in the herd's own tests."""

from __future__ import annotations

import signal
import threading


def wait_for_the_end(words: str) -> None:
    """Say something, then end cleanly on SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    print(words, flush=True)
    stop.wait()


def fail() -> None:
    """Raise."""
    raise RuntimeError("the bell is cracked")
