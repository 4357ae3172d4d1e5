"""How a process of a proof is hurt: it dies at a point of the code or of a transaction, it stumbles.

All of it is done by patching in a forked child that is about to die; nothing of it reaches the test process.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from sqlalchemy import Engine, event


def die() -> NoReturn:
    """`kill -9`, by its own hand: no handler, no finally, no goodbye to the database."""
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(1)


def resolve(place: str) -> tuple[Any, str, Any]:
    """The owner, the name and the function of `module:function` or `module:Class.method`.

    Raises AttributeError or ImportError when it does not exist (any more).
    """
    module_name, _, path = place.partition(":")
    owner: Any = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return owner, name, getattr(owner, name)


def put_in_place_of(place: str, make: Callable[[Any], Any]) -> None:
    """Replace a function by what `make(original)` returns, wherever the product has imported it by name."""
    owner, name, original = resolve(place)
    replacement = make(original)
    setattr(owner, name, replacement)
    for module in [module for key, module in sys.modules.items() if key.startswith("webapp")]:
        for known, value in list(vars(module).items()):
            if value is original:
                setattr(module, known, replacement)


def die_at(place: str, when: str) -> None:
    """Have this process die `before` or `after` a function is called."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if when == "before":
                die()
            original(*args, **kwargs)
            die()

        return call

    put_in_place_of(place, make)


class Steps:
    """Counts the places at which the database could be left: before each statement, before and after each COMMIT."""

    def __init__(self, engine: Engine, visit: Callable[[int, str], None]) -> None:
        self.count = 0
        self._visit = visit
        event.listen(engine, "before_cursor_execute", self._statement)
        commit = engine.dialect.do_commit

        def do_commit(connection: Any) -> None:
            self._step("before COMMIT")
            commit(connection)
            self._step("after COMMIT")

        engine.dialect.do_commit = do_commit  # type: ignore[method-assign]

    def _statement(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self._step(statement)

    def _step(self, what: str) -> None:
        self.count += 1
        self._visit(self.count, what)


def die_at_step(engine: Engine, number: int) -> None:
    """Have this process die at the `number`-th place at which the database could be left."""

    def visit(count: int, _what: str) -> None:
        if count == number:
            die()

    Steps(engine, visit)


def stumble(engine: Engine, chance: random.Random, *, dies: float, sleeps: float, longest: float) -> None:
    """At every step: die with one probability, sleep for up to `longest` seconds with another."""

    def visit(_count: int, _what: str) -> None:
        fate = chance.random()
        if fate < dies:
            die()
        if fate < dies + sleeps:
            time.sleep(chance.random() * longest)

    Steps(engine, visit)
