"""What happens elsewhere when a node changes, filled by `webapp/__init__`.

Schedules dispatch to nodes, but stand beside this package: they register their steps here. `before_change` runs
before the row of the node is locked, so that schedules and runs can be locked first, as the one lock order
says; `node_changed` runs after the change was written, in the same transaction, and withdraws or reschedules
what hangs on the node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from webapp.store.transaction import Tx

Step = Callable[[Tx, int, datetime], None]


@dataclass
class _Steps:
    before_change: Step | None = None
    node_changed: Step | None = None


_steps = _Steps()


def register(*, node_changed: Step | None, before_change: Step | None = None) -> None:
    """Have these steps called with (tx, node_pk, now). One pair a process: a later call replaces it."""
    _steps.before_change, _steps.node_changed = before_change, node_changed


def before_change(tx: Tx, node_pk: int, now: datetime) -> None:
    """Tell that a node is about to change; nothing of it is locked yet."""
    if _steps.before_change is not None:
        _steps.before_change(tx, node_pk, now)


def node_changed(tx: Tx, node_pk: int, now: datetime) -> None:
    """Tell that the alias or the lifecycle of a node has changed, or that it was deleted."""
    if _steps.node_changed is not None:
        _steps.node_changed(tx, node_pk, now)
