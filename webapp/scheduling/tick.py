"""One bounded pass of the worker. Any number of workers may make passes at once; the unique row decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.exc import InterfaceError, OperationalError

from webapp.clock import Clock
from webapp.ids import new_id
from webapp.logs import get_logger
from webapp.scheduling import claim, maintenance
from webapp.scheduling.target import all_targets

_MAX_BATCHES = 400
_LOCK_GOAL_SECONDS = 0.05
# A claim of fewer takes hardly less time: on a busy machine it would only fall behind.
_SMALLEST_BATCH = 200
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)
_log = get_logger(__name__)

Counts = Counter[str]

# What others have done in each pass: a name for the counts, and a step that says how much it did.
_chores: dict[str, Callable[[datetime], int]] = {}


def register_chore(name: str, step: Callable[[datetime], int] | None) -> None:
    """Have `step(now)` called in each pass, isolated like every step of it; None takes it out again."""
    if step is None:
        _chores.pop(name, None)
    else:
        _chores[name] = step


@dataclass
class BatchSize:
    """How many schedules a claim takes at once: adapted so that it holds its locks for about 50 ms."""

    first: int
    fixed: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.first

    def learn(self, taken: int, seconds: float) -> None:
        """Draw the lesson of a batch of `taken` schedules that took `seconds`."""
        if self.fixed or taken == 0:
            return
        if seconds > 2 * _LOCK_GOAL_SECONDS:
            wanted = int(taken * _LOCK_GOAL_SECONDS / seconds)
            self.size = max(min(self.first, _SMALLEST_BATCH), wanted)
        elif taken >= self.size and seconds < _LOCK_GOAL_SECONDS:
            self.size = min(self.first * 10, self.size * 2)


@dataclass
class Worker:
    """What a worker remembers from pass to pass; losing it costs nothing but a little time."""

    batch: BatchSize
    started_at: datetime
    worker_id: str = field(default_factory=lambda: new_id("wrk"))
    # Whether it is to leave: asked between two batches, so that the one in hand is finished first.
    is_stopping: Callable[[], bool] = lambda: False
    last_network_pk: int = 0
    may_claim: bool = True
    zone_checked: bool = False
    minute_done_at: datetime | None = None
    hour_done_at: datetime | None = None
    lag_ms: int = 0
    # What fell due after this instant has not been looked for yet.
    looked_at: datetime | None = None


def tick(worker: Worker, clock: Clock, *, claims_only: bool = False) -> Counts:
    """Make one pass: claim what is due, end what is overdue, wake what may wake; returns what was done.

    `claims_only`: leave out what may wait for the next whole pass. `more` in the answer says that due work was left
    for the next pass. Raises when the database is away.
    """
    counts: Counts = Counter()
    verdict = maintenance.judge_zone_data() if not worker.zone_checked else None
    if verdict is not None:
        worker.may_claim = verdict.may_claim
        if not verdict.may_claim:
            _log.error("this worker has older zone data than another one had; it does not claim")
    if worker.may_claim:
        counts["resumed"] = _attempt(partial(maintenance.resume_due, now=clock.now()), "resuming")
        _claim_all(worker, clock, counts)
        if verdict is not None and verdict.newer and not counts["more"]:
            counts["moved_by_zone_data"] = len(maintenance.adopt_zone_data(now=clock.now()))
        worker.zone_checked = worker.zone_checked or not counts["more"]
    if claims_only:
        return counts
    for target in all_targets():
        counts["expired"] += _attempt(partial(target.expire_overdue, now=clock.now()), "expiring")
    for name, chore in _chores.items():
        counts[name] += _attempt(partial(chore, clock.now()), name)
    _now_and_then(worker, clock, counts)
    return counts


def single_pass(worker: Worker, clock: Clock) -> Counts:
    """One pass by a worker that leaves again: the pass and its mark; returns what was done."""
    counts = tick(worker, clock)
    mark(worker, clock, stopped=True)
    return counts


def mark(worker: Worker, clock: Clock, *, stopped: bool) -> None:
    """Leave word that this worker has made a pass, or that it has stopped."""
    maintenance.worker_seen(
        worker.worker_id,
        started_at=worker.started_at,
        lag_ms=worker.lag_ms,
        stopped=stopped,
        now=clock.now(),
    )


def _claim_all(worker: Worker, clock: Clock, counts: Counts) -> None:
    for _ in range(_MAX_BATCHES):
        if worker.is_stopping():
            break
        claimed = _claim_some(worker, clock, counts)
        if claimed is None or not claimed.schedule_pks:
            return
        worker.last_network_pk = claimed.last_network_pk
        for name in ("schedules", "dispatched", "skipped", "queued", "failed", "slots"):
            counts[name] += getattr(claimed, name)
        if claimed.oldest_slot is not None:
            worker.lag_ms = max(0, round((clock.now() - claimed.oldest_slot).total_seconds() * 1000))
        if claimed.drained:
            return
    counts["more"] = 1


def _claim_some(worker: Worker, clock: Clock, counts: Counts) -> claim.Claimed | None:
    limit, after, now = worker.batch.size, worker.last_network_pk, clock.now()
    try:
        claimed = claim.claim_batch(limit=limit, after_network_pk=after, monotonic=clock.monotonic, now=now)
    except (OperationalError, InterfaceError):
        # The database is away or overloaded: nobody's fault, nothing to set aside.
        raise
    except Exception:  # noqa: BLE001 - whatever it was, it must cost only the schedule that raised it
        _log.exception("a batch failed; its schedules are taken one by one")
        _claim_one_by_one(worker, clock, counts)
        return None
    worker.looked_at = now
    worker.batch.learn(claimed.schedules, claimed.held_seconds)
    return claimed


def _claim_one_by_one(worker: Worker, clock: Clock, counts: Counts) -> None:
    now = clock.now()
    keys = claim.due_keys(limit=worker.batch.size, after_network_pk=worker.last_network_pk, now=now)
    for schedule_pk in keys:
        try:
            claimed = claim.claim_one(schedule_pk, now=now)
        except (OperationalError, InterfaceError):
            raise
        except claim.LostRace:
            continue
        except Exception:  # noqa: BLE001 - set aside, counted, and stopped after ten times
            _log.exception("a schedule cannot be handled; it is set aside", schedule_pk=schedule_pk)
            _set_aside(schedule_pk, now=now)
            counts["set_aside"] += 1
        else:
            for name in ("schedules", "dispatched", "skipped", "queued", "failed", "slots"):
                counts[name] += getattr(claimed, name)
    counts["more"] = 1


def _set_aside(schedule_pk: int, *, now: datetime) -> None:
    try:
        claim.set_aside(schedule_pk, now=now)
    except (OperationalError, InterfaceError):
        raise
    except Exception:  # noqa: BLE001 - what cannot even be stopped must not stop the pass
        _log.exception("a schedule cannot be stopped; it is held back", schedule_pk=schedule_pk)
        claim.hold_back(schedule_pk, now=now)


def _now_and_then(worker: Worker, clock: Clock, counts: Counts) -> None:
    now = clock.now()
    if _is_time(worker.minute_done_at, now, _MINUTE):
        worker.minute_done_at = now
        counts["unblocked"] = _attempt(partial(maintenance.unblock, now=now), "unblocking")
    if worker.may_claim and _is_time(worker.hour_done_at, now, _HOUR):
        worker.hour_done_at = now
        counts["would_not_fire"] = _attempt(partial(maintenance.look_ahead, now=now), "looking ahead")
        _attempt(partial(maintenance.drop_old_proposals, now=now), "dropping old proposals")
        _attempt(partial(maintenance.forget_old_workers, now=now), "forgetting old workers")


def _is_time(done_at: datetime | None, now: datetime, every: timedelta) -> bool:
    # A clock that was set back must not put this off for the size of the jump.
    return done_at is None or now - done_at >= every or now < done_at


def _attempt(step: Callable[[], int], what: str) -> int:
    """One step of recovery must not keep the others from their work."""
    try:
        return step()
    except (OperationalError, InterfaceError):
        raise
    except Exception:  # noqa: BLE001 - logged; tried again in the next pass
        _log.exception("a step of the pass failed", step=what)
        return 0
