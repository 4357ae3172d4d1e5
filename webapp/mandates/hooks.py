"""What happens elsewhere when a mandate changes, filled by `webapp/__init__`.

Schedules act under mandates, but stand above this package: they register their steps here. `before_change` runs
before the row of the mandate is locked, so that its schedule and runs can be locked first, as the one lock order
says; `mandate_changed` runs after a person's change was written, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from webapp.mandates.models import Mandate
from webapp.store.transaction import Tx

BeforeChange = Callable[[Tx, str], None]
Changed = Callable[[Tx, Mandate, str, datetime], None]


@dataclass
class _Steps:
    before_change: BeforeChange | None = None
    mandate_changed: Changed | None = None


_steps = _Steps()


def register(*, before_change: BeforeChange | None, mandate_changed: Changed | None) -> None:
    """Have these steps called. One pair a process: a later call replaces it."""
    _steps.before_change, _steps.mandate_changed = before_change, mandate_changed


def before_change(tx: Tx, workload: str) -> None:
    """Tell that the mandate of `workload` (`schedule:<id>`) is about to change; nothing of it is locked yet."""
    if _steps.before_change is not None:
        _steps.before_change(tx, workload)


def mandate_changed(tx: Tx, mandate: Mandate, *, actor: str, now: datetime) -> None:
    """Tell that a person has changed a mandate: its policy, its end, its state."""
    if _steps.mandate_changed is not None:
        _steps.mandate_changed(tx, mandate, actor, now)
