"""The same moment in several threads, each with an app context of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from flask import Flask

T = TypeVar("T")


def at_once(app: Flask, calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Make all calls at the same moment; returns what each gave or raised, in their order."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | Exception:
        with app.app_context():
            gate.wait(20)
            try:
                return call()
            except Exception as error:  # noqa: BLE001 - what was raised is the result
                return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
