"""What happens elsewhere when somebody's authority changes, filled by `webapp/__init__`.

Schedules act on the authority of people, but stand above this package: they register a step here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from webapp.store.transaction import Tx

AuthorityChanged = Callable[[Tx, int, int | None, datetime], None]

_step: AuthorityChanged | None = None


def register_authority_changed(step: AuthorityChanged | None) -> AuthorityChanged | None:
    """Have `step(tx, user_pk, network_pk, now)` called by `authority_changed`; returns the one before it.

    One step a process: a later registration replaces the earlier one, None removes it.
    """
    global _step
    before, _step = _step, step
    return before


def authority_changed(tx: Tx, user_pk: int, network_pk: int | None, now: datetime) -> None:
    """Tell that the role of a person in one network, or (None) the person's active state, has changed.

    Called inside the transaction of the change, after the change has been written to `tx`.
    """
    if _step is not None:
        _step(tx, user_pk, network_pk, now)
