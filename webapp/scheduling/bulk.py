"""The same to many schedules: each is a transaction of its own, and one that is refused keeps no other back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from webapp.errors import AppError
from webapp.identity.access import Actor
from webapp.logs import get_logger
from webapp.scheduling import operations
from webapp.scheduling.fields import PauseRequest
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.scheduling.outlook import Act

_log = get_logger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What became of one schedule: its state and revision now, or the code of the refusal."""

    schedule_id: str
    status: ScheduleStatus | None = None
    revision: int | None = None
    code: str | None = None


def carry_out(
    actor: Actor,
    schedule_ids: Iterable[str],
    act: Act,
    wish: PauseRequest | None = None,
    *,
    now: datetime,
) -> list[Outcome]:
    """Pause, resume or cancel these schedules (public ids), one after the other; returns what became of each.

    `wish`: reason and end of a pause. What `outlook.foresee` said before may have changed meanwhile: each is
    decided anew, under its own lock. Raises ValueError for what is done to a mandate.
    """
    if act not in (Act.PAUSE, Act.RESUME, Act.CANCEL):
        raise ValueError(f"{act} is not done in bulk")
    return [_one(actor, schedule_id, act, wish or PauseRequest(), now=now) for schedule_id in schedule_ids]


def _one(actor: Actor, schedule_id: str, act: Act, wish: PauseRequest, *, now: datetime) -> Outcome:
    try:
        saved = _do(actor, schedule_id, act, wish, now=now)
    except AppError as refusal:
        return Outcome(schedule_id, code=refusal.code)
    except Exception:  # noqa: BLE001 - what was done before stands, and must be told
        _log.exception("one of many could not be changed", schedule_id=schedule_id, act=act.value)
        return Outcome(schedule_id, code="internal_error")
    return Outcome(schedule_id, saved.status, saved.revision)


def _do(actor: Actor, schedule_id: str, act: Act, wish: PauseRequest, *, now: datetime) -> Schedule:
    if act is Act.PAUSE:
        return operations.pause(actor, schedule_id, lambda: wish, now=now)
    if act is Act.RESUME:
        return operations.resume(actor, schedule_id, now=now)
    return operations.cancel(actor, schedule_id, now=now)
