"""What happens when a slot is late, blocked, refused or failing. Pure: facts in, decision out.

The rules are those of the product's section "From slot to run".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from webapp.mandates.policy import MandateFacts
from webapp.scheduling.lifecycle import MisfirePolicy, OverlapPolicy, RunStatus, TargetKind, Trigger
from webapp.timetable import Plan

_MILLISECOND = timedelta(milliseconds=1)
SEEN_LATELY = timedelta(minutes=10)
MIN_BLOCKING, MAX_BLOCKING = timedelta(hours=1), timedelta(hours=24)
NO_PERIOD = timedelta(hours=24)
BLOCKING_PERIODS = 6
THRESHOLD_MIN_SPAN = timedelta(hours=1)
SKIPS_BEFORE_ALERT = 3


# --- Misfire: which of the due slots run, and what stands for the others ---


@dataclass(frozen=True)
class Slots:
    """A slot that gets a run of its own, and the older ones that the run stands for."""

    slot: datetime
    missed_count: int = 0
    missed_since: datetime | None = None

    def joined_by_older(self, count: int, since: datetime | None) -> Slots:
        """The same slot, standing for `count` more slots that begin at `since`."""
        if count == 0:
            return self
        return Slots(self.slot, self.missed_count + count, since)


@dataclass(frozen=True)
class Misfire:
    """What becomes of all due slots: at most one to run now, or a backlog; and a skipped remainder."""

    run: Slots | None = None
    backlog: tuple[datetime, ...] = ()
    skipped: Slots | None = None

    @property
    def newest(self) -> datetime:
        """The newest slot that is accounted for."""
        newest = [*self.backlog[-1:]]
        newest += [slots.slot for slots in (self.run, self.skipped) if slots is not None]
        return max(newest)


@dataclass(frozen=True)
class DueSlots:
    """All slots of a schedule in [its next slot, now]."""

    count: int
    oldest: datetime
    newest: datetime
    before_newest: datetime | None


def due_slots(plan: Plan, next_run_at: datetime, now: datetime) -> DueSlots:
    """Count the slots from `next_run_at` (a slot itself) up to `now`, by calendar arithmetic."""
    later = plan.span(next_run_at, now)
    if not later.count or later.newest is None:
        return DueSlots(1, next_run_at, next_run_at, None)
    before = next_run_at
    if later.count > 1:
        before = plan.newest(next_run_at, now, 2)[0]
    return DueSlots(later.count + 1, next_run_at, later.newest, before)


def misfire(
    plan: Plan,
    due: DueSlots,
    *,
    now: datetime,
    policy: MisfirePolicy,
    grace: timedelta,
    catch_up_limit: int,
    draining: bool,
    late_from: datetime | None = None,
) -> Misfire:
    """Decide what becomes of the due slots.

    `draining` says that a backlog of an earlier `catch_up_all` is still being worked off. `late_from`: since when
    the newest slot is due, where a person moved it (None: since its own time).
    """
    on_time = now - (late_from or due.newest) <= grace
    older = due.count - 1
    if policy is MisfirePolicy.CATCH_UP_ONCE:
        return Misfire(run=Slots(due.newest).joined_by_older(older, due.oldest))
    if policy is MisfirePolicy.SKIP:
        if not on_time:
            return Misfire(skipped=Slots(due.newest).joined_by_older(older, due.oldest))
        if due.before_newest is None:
            return Misfire(run=Slots(due.newest))
        skipped = Slots(due.before_newest).joined_by_older(older - 1, due.oldest)
        return Misfire(run=Slots(due.newest), skipped=skipped)
    return _catch_up_all(plan, due, now=now, on_time=on_time, limit=catch_up_limit, draining=draining)


def room_for_catching_up(limit: int, runs_left: int | None) -> int:
    """How many missed slots may run: the schedule's limit, within what `max_runs` leaves (None: no limit)."""
    return limit if runs_left is None else max(1, min(limit, runs_left))


def _catch_up_all(
    plan: Plan, due: DueSlots, *, now: datetime, on_time: bool, limit: int, draining: bool
) -> Misfire:
    if on_time and due.count == 1 and not draining:
        return Misfire(run=Slots(due.newest))
    # The limit is on what was missed; a newest slot that is on time comes on top of it.
    wanted = min(due.count, limit + (1 if on_time else 0))
    # One more than wanted, to know the slot at which the skipped remainder ends.
    newest = [due.oldest, *plan.newest(due.oldest, now, wanted + 1)][-(wanted + 1) :]
    backlog = tuple(newest[-wanted:])
    rest = due.count - wanted
    if rest == 0:
        return Misfire(backlog=backlog)
    return Misfire(backlog=backlog, skipped=Slots(newest[0]).joined_by_older(rest - 1, due.oldest))


# --- Overlap: what an open earlier run means for a slot ---


@dataclass(frozen=True)
class OpenRun:
    """An open run of the same schedule, as far as overlap cares.

    `dispatched`: its target has work for it. `received`: the target has taken the work up (fetched it).
    `acknowledged`: the work was acknowledged. `heard_at`: when the target was last heard, if ever. `limited`: it
    ends within a limit of its own.
    """

    pk: int
    run_id: str
    trigger: Trigger
    status: RunStatus
    dispatched: bool
    backlog: bool
    created_at: datetime
    scheduled_for: datetime
    received: bool = False
    acknowledged: bool = False
    heard_at: datetime | None = None
    limited: bool = False


def blocked_too_long(run: OpenRun, *, now: datetime, period: timedelta | None) -> bool:
    """Whether a blocker has lost its right to block: nobody took it up, or nobody was heard for long.

    Acknowledged work whose target was heard within ten minutes is healthy and keeps blocking; what ends within
    a limit of its own is left to that.
    """
    if run.limited:
        return False
    since = run.created_at
    if run.acknowledged and run.heard_at is not None:
        if now - run.heard_at <= SEEN_LATELY:
            return False
        since = max(since, run.heard_at)
    return now - since > blocking_limit(period)


def blocking_limit(period: timedelta | None) -> timedelta:
    """How long work that nobody took up may block a slot; `period`: from that slot to the one after it."""
    return min(max(BLOCKING_PERIODS * (period or NO_PERIOD), MIN_BLOCKING), MAX_BLOCKING)


class Fate(StrEnum):
    """What overlap decides for a slot."""

    DISPATCH = "dispatch"
    WAIT = "wait"
    SKIP = "skip"


@dataclass(frozen=True)
class Overlap:
    """The fate of a slot; `blocker` explains it, `expire` and `supersede` are to be closed first."""

    fate: Fate
    blocker: OpenRun | None = None
    expire: tuple[OpenRun, ...] = ()
    supersede: tuple[OpenRun, ...] = ()


def overlap(
    open_runs: Sequence[OpenRun],
    *,
    policy: OverlapPolicy,
    trigger: Trigger,
    once: bool,
    now: datetime,
    period: timedelta | None,
    backlog: bool = False,
) -> Overlap:
    """Decide whether a new run may be dispatched beside the open ones.

    `period` is the time from the slot to the one after it (None where there is none). A slot of a backlog
    looks only at runs outside the backlog.
    """
    if policy is OverlapPolicy.ALLOW:
        return Overlap(Fate.DISPATCH)
    considered = [run for run in open_runs if not (backlog and run.backlog)]
    dispatched = [run for run in considered if run.dispatched]
    waiting = [run for run in considered if not run.dispatched]
    expire = tuple(run for run in dispatched if blocked_too_long(run, now=now, period=period))
    blockers = [run for run in dispatched if run not in expire]
    if not blockers and not waiting:
        return Overlap(Fate.DISPATCH, expire=expire)
    blocker = (blockers or waiting)[0]
    if once and trigger is Trigger.SCHEDULED:
        return Overlap(Fate.WAIT, blocker, expire)
    if policy is OverlapPolicy.SKIP:
        return Overlap(Fate.SKIP, blocker, expire)
    # Manual and scheduled waiters never supersede each other, and a backlog is never superseded.
    superseded = tuple(run for run in waiting if run.trigger is trigger and not run.backlog and not backlog)
    if not blockers and len(superseded) == len(waiting):
        return Overlap(Fate.DISPATCH, expire=expire, supersede=superseded)
    return Overlap(Fate.WAIT, blocker, expire, superseded)


# --- Admission: may it act at all ---

# A refusal of these stops the schedule: authority is broken, and no later slot can heal it.
AUTHORITY = frozenset(
    {
        "sponsor_inactive",
        "sponsor_not_permitted",
        "mandate_missing",
        "mandate_revoked",
        "mandate_unconfirmed",
        "mandate_expired",
        "mandate_changed",
        "mandate_exhausted",
        "mandate_denies",
        "chat_archived",
        "chat_not_owned",
    }
)
PERMANENT = AUTHORITY | {"target_node_not_found", "chat_not_found"}
# A refusal that is somebody's wish and no fault: the slot is skipped, the schedule paused.
MANDATE_PAUSED = "mandate_paused"

MANDATE_CODES = (
    "mandate_missing",
    "mandate_revoked",
    "mandate_unconfirmed",
    "mandate_expired",
    MANDATE_PAUSED,
    "mandate_changed",
    "mandate_exhausted",
    "mandate_denies",
)
_TARGET_CODES = {
    TargetKind.NODE: ("target_node_not_found", "target_not_active"),
    TargetKind.CHAT: ("chat_not_found", "chat_archived", "chat_not_owned", "model_unavailable"),
}


@dataclass(frozen=True)
class Admission:
    """The facts of one schedule, loaded as sets.

    `target_refusal` is the target's own code, if any, and `mandate_refusal` that of the mandate `mandate`.
    `asks_mandate` is False for a schedule that is only typed: saving it makes its mandate.
    """

    target_refusal: str | None
    sponsor_active: bool
    sponsor_permitted: bool
    mandate_refusal: str | None = None
    mandate: MandateFacts | None = None
    kind: TargetKind = TargetKind.NODE
    asks_mandate: bool = True


@dataclass(frozen=True)
class Check:
    """One question of admission and its answer."""

    code: str
    ok: bool
    permanent: bool = field(default=False)


def admission_checks(facts: Admission) -> list[Check]:
    """Every question, answered; in the order in which a refusal is reported."""
    answers = [
        ("sponsor_inactive", facts.sponsor_active),
        ("sponsor_not_permitted", facts.sponsor_permitted or not facts.sponsor_active),
    ]
    if facts.asks_mandate:
        answers += [(code, facts.mandate_refusal != code) for code in MANDATE_CODES]
    answers += [(code, facts.target_refusal != code) for code in _TARGET_CODES[facts.kind]]
    return [Check(code, ok, code in PERMANENT) for code, ok in answers]


def refusal(facts: Admission) -> str | None:
    """The code that keeps the work from being dispatched, or None. Asked for each slot, so it builds no list."""
    if not facts.sponsor_active:
        return "sponsor_inactive"
    if not facts.sponsor_permitted:
        return "sponsor_not_permitted"
    return facts.mandate_refusal or facts.target_refusal


def status_of_refused(code: str) -> RunStatus:
    """How a run ends that admission refuses with this code."""
    return RunStatus.SKIPPED if code in (MANDATE_PAUSED, "max_runs_reached") else RunStatus.FAILED


# --- Failure: when does a schedule stop by itself ---

# Endings that say nothing about whether the order itself works.
_NEVER_COUNT = frozenset({"target_not_active", "blocker_timed_out", "task_expired"})


def counts_as_failure(status: RunStatus, code: str | None, *, trigger: Trigger, stale: bool) -> bool:
    """Whether this end of a run is one of the failures that stop a schedule in the end."""
    if trigger is not Trigger.SCHEDULED or stale or code in _NEVER_COUNT:
        return False
    return status in (RunStatus.FAILED, RunStatus.EXPIRED)


def threshold_reached(
    consecutive: int,
    threshold: int | None,
    *,
    kind: TargetKind,
    first_failure_at: datetime | None,
    now: datetime,
) -> bool:
    """Whether failures in a row are so many that the schedule must stop; at a node also whether they last long.

    A node may be away for a while; in a chat nothing gets better by waiting.
    """
    if threshold is None or first_failure_at is None or consecutive < threshold:
        return False
    return kind is TargetKind.CHAT or now - first_failure_at >= THRESHOLD_MIN_SPAN
