"""Due schedules become runs: exactly once per slot, in batches, in one transaction each.

Lock first, compute inside: what is decided is decided on rows that nobody else can change meanwhile. The
unique key of (schedule, slot) and the compare-and-set of `claim_seq` hold even where row locks do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from sqlalchemy import Select, Table, bindparam, exists, select, update
from sqlalchemy.orm import Session

from webapp.events import outbox
from webapp.identity.models import Network
from webapp.ids import scheduled_run_id
from webapp.logs import get_logger
from webapp.mandates.models import Mandate
from webapp.mandates.steps import Use, UseRefused, use_runs
from webapp.scheduling import alerts, policy, steps, usual
from webapp.scheduling.admission import load_admission, load_targets
from webapp.scheduling.lifecycle import (
    MisfirePolicy,
    RunStatus,
    TargetKind,
    Trigger,
    WaitReason,
)
from webapp.scheduling.models import STILL_OPEN, Run, Schedule, ScheduleDue
from webapp.scheduling.next_change import SKIPPED_BY_PERSON, ChangeKind, change_of, falls_due_at
from webapp.scheduling.plans import is_once, plan_of
from webapp.scheduling.policy import Admission, Fate, OpenRun, Slots
from webapp.scheduling.target import Dispatch, TargetFacts, target_for
from webapp.store import dialect
from webapp.store.transaction import Tx, operation
from webapp.timetable import Plan, TimetableError

POISON_FIRST_DELAY = timedelta(seconds=5)
POISON_MAX_DELAY = timedelta(minutes=10)
POISON_STRIKES = 10
_IDS_IN_AN_EVENT = 100
_IDS_IN_A_LINE = 10
_log = get_logger(__name__)

_due = cast(Table, ScheduleDue.__table__)
_runs = cast(Table, Run.__table__)


class LostRace(Exception):
    """Somebody else moved a claimed row; the transaction must not stand."""


@dataclass(frozen=True)
class Claimed:
    """What a batch did. `oldest_slot` is when the oldest slot that was claimed fell due, for the lag.

    `held_seconds`: how long its locks were held until the commit; waiting for them is not part of it.
    `drained`: nothing that was due at its instant is left, but what somebody else has locked.
    """

    schedules: int = 0
    dispatched: int = 0
    skipped: int = 0
    queued: int = 0
    failed: int = 0
    slots: int = 0
    oldest_slot: datetime | None = None
    last_network_pk: int = 0
    schedule_pks: tuple[int, ...] = ()
    held_seconds: float = 0.0
    drained: bool = False


@dataclass
class Decision:
    """What is to be written for one schedule; `runs` are rows, `dispatch` names those that become work."""

    definition: Any
    runs: list[dict[str, Any]] = field(default_factory=list)
    dispatch: list[str] = field(default_factory=list)
    expire: tuple[OpenRun, ...] = ()
    supersede: tuple[OpenRun, ...] = ()
    next_run_at: datetime | None = None
    claimed_through: datetime | None = None
    last_run_at: datetime | None = None
    skips_in_a_row: int = 0
    slots: int = 0
    refused: str | None = None
    alert_blocker: OpenRun | None = None


@dataclass(frozen=True)
class Facts:
    """Everything that deciding needs, loaded as sets.

    `idle`: the targets that do one piece of work at a time and have none; whoever gets one takes it out.
    """

    open_runs: Mapping[int, Sequence[OpenRun]]
    targets: Mapping[tuple[TargetKind, int], TargetFacts]
    admission: Mapping[int, Admission]
    idle: set[tuple[TargetKind, int]] = field(default_factory=set)


# --- Operations: each one transaction ---


@operation
def claim_batch(
    tx: Tx,
    *,
    limit: int,
    after_network_pk: int,
    monotonic: Callable[[], float] = lambda: 0.0,
    now: datetime,
) -> Claimed:
    """Claim up to `limit` due schedules, every network that has due work in its turn.

    `after_network_pk` is the network served last; the answer says which one to pass next time. `monotonic`
    counts seconds, for `held_seconds`. Raises whatever handling one of them raises: the caller then takes
    them one by one.
    """
    # The first statement waits for the write lock where there is one for all.
    networks = _networks_with_due(tx.session, now)
    began = monotonic()
    pks, last_network_pk = _lock_due_batch(tx, networks, limit, after_network_pk, now)
    claimed = _claim(tx, pks, now=now)
    tx.session.flush()
    return replace(
        claimed,
        last_network_pk=last_network_pk,
        schedule_pks=tuple(pks),
        held_seconds=monotonic() - began,
        # Fewer than the least share of a network: no network had more than was taken.
        drained=not networks or len(pks) < limit // len(networks),
    )


@operation
def due_keys(tx: Tx, *, limit: int, after_network_pk: int, now: datetime) -> tuple[int, ...]:
    """The keys of the schedules that a batch would claim; for taking a failed batch apart."""
    networks = _networks_with_due(tx.session, now)
    return tuple(_lock_due_batch(tx, networks, limit, after_network_pk, now)[0])


@operation
def claim_one(tx: Tx, schedule_pk: int, *, now: datetime) -> Claimed:
    """Claim one schedule by itself, if it is (still) due, by the way that decides row by row."""
    statement = (
        select(ScheduleDue.schedule_pk)
        .where(ScheduleDue.schedule_pk == schedule_pk, ScheduleDue.due_at <= now)
        .with_for_update(skip_locked=True)
    )
    return _claim_row_by_row(tx, list(tx.session.scalars(statement)), now=now)


@operation
def set_aside(tx: Tx, schedule_pk: int, *, now: datetime) -> None:
    """Put a schedule whose handling raised aside for a growing while; after ten times, stop it.

    Its slot is not moved, so nothing is lost; it can neither stop the loop nor starve the others. Raises what
    stopping it raises: then `hold_back` is what is left.
    """
    due = steps.lock_due_row(tx, schedule_pk)
    if due.next_run_at is None:
        return
    if due.claim_failures + 1 >= POISON_STRIKES:
        steps.stop(tx, steps.load_locked(tx, schedule_pk), "internal_error", now=now)
        return
    delay = min(POISON_FIRST_DELAY * 2**due.claim_failures, POISON_MAX_DELAY)
    steps.hold_slot(due, until=now + delay)


@operation
def hold_back(tx: Tx, schedule_pk: int, *, now: datetime) -> None:
    """Put a schedule aside that cannot even be stopped; touches nothing of it but its narrow row."""
    due = steps.lock_due_row(tx, schedule_pk)
    if due.next_run_at is not None:
        steps.hold_slot(due, until=now + POISON_MAX_DELAY)


# --- Locking what is due ---

# Built once: in a batch there is one for each network.
_LOCKING_DUE = (
    select(_due.c.schedule_pk)
    .where(_due.c.network_pk == bindparam("network"), _due.c.due_at <= bindparam("now"))
    .order_by(_due.c.due_at)
    .limit(bindparam("share"))
    .with_for_update(skip_locked=True)
)


def _lock_due_batch(
    tx: Tx, networks: list[int], limit: int, after_network_pk: int, now: datetime
) -> tuple[list[int], int]:
    if not networks:
        return [], after_network_pk
    # In turn: those behind the one served last come first, and each gets an equal share of the batch.
    networks = [pk for pk in networks if pk > after_network_pk] + [
        pk for pk in networks if pk <= after_network_pk
    ]
    networks = networks[:limit]
    pks: list[int] = []
    for place, network_pk in enumerate(networks):
        share = -(-(limit - len(pks)) // (len(networks) - place))
        about = {"network": network_pk, "now": now, "share": share}
        pks.extend(tx.session.connection().execute(_LOCKING_DUE, about).scalars())
    return pks, networks[-1]


def _networks_with_due(session: Session, now: datetime) -> list[int]:
    due = exists().where(ScheduleDue.network_pk == Network.id, ScheduleDue.due_at <= now)
    return list(session.scalars(select(Network.id).where(due).order_by(Network.id)))


# --- Reading, deciding, writing ---


def _claim(tx: Tx, pks: Sequence[int], *, now: datetime) -> Claimed:
    if not pks:
        return Claimed()
    # Measured: the statements for many are cheaper even for one.
    try:
        dispatched = usual.dispatch(tx, pks, now=now)
    except usual.Moved:
        raise LostRace from None
    _ring_usual(tx, dispatched, now=now)
    _log_written(tx, [run_id for _, _, run_id in dispatched.ids], len(dispatched.ids))
    done = set(dispatched.schedule_pks)
    rest = _claim_row_by_row(tx, [pk for pk in pks if pk not in done], now=now)
    oldest = [slot for slot in (dispatched.oldest_slot, rest.oldest_slot) if slot is not None]
    return replace(
        rest,
        schedules=rest.schedules + len(done),
        dispatched=rest.dispatched + len(done),
        slots=rest.slots + len(done),
        oldest_slot=min(oldest, default=None),
    )


def _claim_row_by_row(tx: Tx, pks: Sequence[int], *, now: datetime) -> Claimed:
    if not pks:
        return Claimed()
    definitions = load_definitions(tx.session, pks)
    facts = load_facts(tx.session, definitions, now=now)
    facts.idle.update(reserve_targets(tx, definitions))
    if facts.idle:
        definitions = _in_turn(definitions, now=now)
    decisions = [decide(definition, facts, now=now) for definition in definitions]
    dispatched = write(tx, decisions, facts, now=now)
    _advance(tx, decisions)
    _forget_changes(tx, decisions)
    _follow_up(tx, decisions, now=now)
    return _count(decisions, dispatched)


def load_definitions(session: Session, pks: Sequence[int]) -> Sequence[Any]:
    """The columns of these schedules with their due rows (`seq`, `next_run_at`, …), as plain rows."""
    statement = (
        select(
            *(column for column in cast(Table, Schedule.__table__).columns),
            ScheduleDue.next_run_at,
            ScheduleDue.claimed_through,
            ScheduleDue.claim_seq,
            ScheduleDue.last_run_at,
            ScheduleDue.dispatched_count,
            ScheduleDue.skips_in_a_row,
        )
        .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(Schedule.id.in_(pks))
    )
    return session.execute(statement).all()


def load_facts(session: Session, definitions: Sequence[Any], *, now: datetime) -> Facts:
    """Open runs, targets, sponsors and mandates of these schedules: a few statements, whatever their number."""
    targets = load_targets(session, definitions)
    return Facts(
        open_runs=_load_open_runs(session, definitions),
        targets=targets,
        admission=load_admission(session, definitions, targets, now=now),
    )


def reserve_targets(tx: Tx, definitions: Sequence[Any]) -> set[tuple[TargetKind, int]]:
    """Lock the targets of locked schedules that do one piece of work at a time; returns those that are idle.

    One for which runs wait is not idle: they are older, and are delivered first. Mandates are locked before, as
    the one lock order says.
    """
    wanted: dict[TargetKind, set[int]] = defaultdict(set)
    mandates: set[int] = set()
    for definition in definitions:
        if target_for(definition.target_kind).one_at_a_time:
            wanted[definition.target_kind].add(definition.target_pk)
            if definition.mandate_pk is not None:
                mandates.add(definition.mandate_pk)
    if not wanted:
        return set()
    lock_mandates(tx, mandates)
    idle: set[tuple[TargetKind, int]] = set()
    for kind, pks in wanted.items():
        free = target_for(kind).reserve(tx, pks)
        waited_for = set(tx.session.scalars(waiting_for(kind, free).with_only_columns(Schedule.target_pk)))
        idle |= {(kind, pk) for pk in free - waited_for}
    return idle


def lock_mandates(tx: Tx, mandate_pks: Iterable[int]) -> None:
    """Lock mandates whose schedules are locked, in the order of their keys."""
    statement = select(Mandate.id).where(Mandate.id.in_(sorted(mandate_pks))).order_by(Mandate.id)
    tx.session.execute(statement.with_for_update()).all()


def waiting_for(kind: TargetKind, target_pks: Collection[int]) -> Select[int, int]:
    """The runs (run, schedule) that have no work yet at these targets, the oldest slot first."""
    return (
        select(Run.id, Run.schedule_pk)
        .join(Schedule, Schedule.id == Run.schedule_pk)
        .where(
            Schedule.target_kind == kind,
            Schedule.target_pk.in_(target_pks),
            STILL_OPEN,
            Run.task_id.is_(None),
            Run.turn_id.is_(None),
        )
        .order_by(Run.scheduled_for, Run.id)
    )


def _in_turn(definitions: Sequence[Any], *, now: datetime) -> Sequence[Any]:
    """Those that share a target which takes one at a time in the order of their slots; the others before them."""
    queueing = [row for row in definitions if target_for(row.target_kind).one_at_a_time]
    others = [row for row in definitions if not target_for(row.target_kind).one_at_a_time]
    # Of two at one instant the schedule that was made first goes first.
    return [*others, *sorted(queueing, key=lambda row: (_turn_of(row, now=now), row.id))]


def _turn_of(definition: Any, *, now: datetime) -> datetime:
    """The slot of the run to come."""
    due: datetime = definition.next_run_at
    if definition.misfire_policy is MisfirePolicy.CATCH_UP_ALL:
        return due
    try:
        return policy.due_slots(plan_of(definition), due, now).newest
    except TimetableError:
        return due


def _load_open_runs(session: Session, definitions: Iterable[Any]) -> dict[int, list[OpenRun]]:
    kinds = {definition.id: definition.target_kind for definition in definitions}
    columns = (
        Run.id,
        Run.run_id,
        Run.schedule_pk,
        Run.trigger,
        Run.status,
        Run.task_id,
        Run.turn_id,
        Run.backlog,
        Run.created_at,
        Run.scheduled_for,
    )
    statement = (
        select(*columns).where(Run.schedule_pk.in_(kinds), STILL_OPEN).order_by(Run.scheduled_for, Run.id)
    )
    rows = session.execute(statement).all()
    dispatched: dict[TargetKind, list[int]] = defaultdict(list)
    for row in rows:
        if row.task_id or row.turn_id:
            dispatched[kinds[row.schedule_pk]].append(row.id)
    progress = {
        pk: facts
        for kind, keys in dispatched.items()
        for pk, facts in target_for(kind).progress(session, keys).items()
    }
    found: dict[int, list[OpenRun]] = defaultdict(list)
    for row in rows:
        work = progress.get(row.id)
        found[row.schedule_pk].append(
            OpenRun(
                pk=row.id,
                run_id=row.run_id,
                trigger=row.trigger,
                status=row.status,
                dispatched=bool(row.task_id or row.turn_id),
                backlog=row.backlog,
                created_at=row.created_at,
                scheduled_for=row.scheduled_for,
                received=work.received if work else False,
                acknowledged=work.acknowledged if work else False,
                heard_at=work.heard_at if work else None,
                limited=work.limited if work else False,
            )
        )
    return found


def decide(definition: Any, facts: Facts, *, now: datetime) -> Decision:
    """What becomes of the due slots of one schedule.

    Raises TimetableError when its stored timetable cannot be read.
    """
    plan, first = plan_of(definition), definition.next_run_at
    decision = Decision(
        definition,
        claimed_through=steps.max_instant(definition.claimed_through, first),
        last_run_at=definition.last_run_at,
        skips_in_a_row=definition.skips_in_a_row,
    )
    change = change_of(definition.next_change, first)
    if change is not None and change.kind is ChangeKind.SKIP:
        decision.runs.append(_born(definition, Slots(first), RunStatus.SKIPPED, SKIPPED_BY_PERSON, now=now))
        decision.slots = 1
        first = plan.next_after(first)
    if change is None or change.kind is ChangeKind.MOVE or (first is not None and first <= now):
        _decide_due(decision, policy.due_slots(plan, first, now), plan, facts, now=now)
    decision.next_run_at = _following(decision, plan, now)
    return decision


def _decide_due(decision: Decision, due: policy.DueSlots, plan: Plan, facts: Facts, *, now: datetime) -> None:
    definition = decision.definition
    open_runs = facts.open_runs.get(definition.id, ())
    misfire = policy.misfire(
        plan,
        due,
        now=now,
        policy=definition.misfire_policy,
        grace=timedelta(seconds=definition.misfire_grace_seconds),
        catch_up_limit=_room_for_catching_up(definition, open_runs),
        draining=any(run.backlog for run in open_runs),
        late_from=falls_due_at(definition.next_change, due.newest),
    )
    decision.claimed_through = steps.max_instant(decision.claimed_through, due.newest)
    decision.slots += due.count
    if misfire.skipped is not None:
        decision.runs.append(
            _born(definition, misfire.skipped, RunStatus.SKIPPED, "misfire_skipped", now=now)
        )
    refusal = policy.refusal(facts.admission[definition.id])
    if misfire.run is not None:
        _decide_slot(decision, misfire.run, plan, facts, refusal, now=now)
    elif misfire.backlog:
        _decide_backlog(decision, misfire.backlog, plan, facts, refusal, now=now)


def _room_for_catching_up(definition: Any, open_runs: Sequence[OpenRun]) -> int:
    limit = int(definition.catch_up_limit)
    if definition.max_runs is None:
        return policy.room_for_catching_up(limit, None)
    waiting = sum(1 for run in open_runs if run.trigger is Trigger.SCHEDULED and not run.dispatched)
    left = int(definition.max_runs) - int(definition.dispatched_count) - waiting
    return policy.room_for_catching_up(limit, left)


def _overlap_of(
    definition: Any,
    slot: datetime,
    plan: Plan,
    open_runs: Sequence[OpenRun],
    *,
    backlog: bool = False,
    now: datetime,
) -> policy.Overlap:
    return policy.overlap(
        open_runs,
        policy=definition.overlap_policy,
        trigger=Trigger.SCHEDULED,
        once=is_once(definition),
        now=now,
        period=steps.period_after(plan, slot) if open_runs else None,
        backlog=backlog,
    )


def _scheduled_run(definition: Any, slots: Slots, *, now: datetime) -> dict[str, Any]:
    run_id = scheduled_run_id(definition.schedule_id, slots.slot)
    return steps.run_row(
        definition, run_id=run_id, slots=slots, trigger=Trigger.SCHEDULED, actor=steps.WORKER, now=now
    )


def _decide_slot(
    decision: Decision,
    slots: Slots,
    plan: Plan,
    facts: Facts,
    refusal: str | None,
    *,
    now: datetime,
) -> None:
    definition = decision.definition
    open_runs = facts.open_runs.get(definition.id, ())
    overlap = _overlap_of(definition, slots.slot, plan, open_runs, now=now)
    decision.expire = overlap.expire
    decision.supersede = overlap.supersede
    if overlap.fate is Fate.SKIP:
        _skip_for(decision, slots, cast(OpenRun, overlap.blocker), now=now)
        return
    run = _scheduled_run(definition, slots, now=now)
    decision.runs.append(run)
    if overlap.fate is Fate.WAIT:
        run |= {
            "wait_reason": WaitReason.PREVIOUS_RUN_ACTIVE,
            "blocked_by": overlap.blocker.run_id if overlap.blocker else None,
            "blocker_received": overlap.blocker.received if overlap.blocker else None,
        }
    else:
        _start_or_fail(decision, run, facts, refusal, now=now)


def _start_or_fail(
    decision: Decision, run: dict[str, Any], facts: Facts, refusal: str | None, *, now: datetime
) -> None:
    if refusal is not None:
        run |= {
            "status": policy.status_of_refused(refusal),
            "error_code": refusal,
            "completed_at": now,
        }
        decision.refused = refusal
        return
    if start(decision, run, facts, now=now):
        decision.last_run_at = steps.max_instant(decision.last_run_at, run["scheduled_for"])
        decision.skips_in_a_row = 0


def start(decision: Decision, run: dict[str, Any], facts: Facts, *, now: datetime) -> bool:
    """Have a new run dispatched, or let it wait for a target that is busy; returns whether it is dispatched."""
    definition = decision.definition
    target, place = target_for(definition.target_kind), (definition.target_kind, definition.target_pk)
    if target.one_at_a_time and place not in facts.idle:
        run["wait_reason"] = WaitReason.CHAT_BUSY
        return False
    facts.idle.discard(place)
    run |= target.dispatched(run["run_id"], now=now)
    decision.dispatch.append(run["run_id"])
    return True


def _skip_for(decision: Decision, slots: Slots, blocker: OpenRun, *, now: datetime) -> None:
    run = _born(decision.definition, slots, RunStatus.SKIPPED, "previous_run_active", now=now)
    run |= {"blocked_by": blocker.run_id, "blocker_received": blocker.received}
    decision.runs.append(run)
    decision.skips_in_a_row += 1
    if decision.skips_in_a_row == policy.SKIPS_BEFORE_ALERT:
        decision.alert_blocker = blocker


def _decide_backlog(
    decision: Decision,
    backlog: Sequence[datetime],
    plan: Plan,
    facts: Facts,
    refusal: str | None,
    *,
    now: datetime,
) -> None:
    definition = decision.definition
    open_runs = facts.open_runs.get(definition.id, ())
    overlap = _overlap_of(definition, backlog[-1], plan, open_runs, backlog=True, now=now)
    decision.expire = overlap.expire
    if overlap.fate is Fate.SKIP:
        standing = Slots(backlog[-1]).joined_by_older(len(backlog) - 1, backlog[0])
        _skip_for(decision, standing, cast(OpenRun, overlap.blocker), now=now)
        return
    draining = any(run.backlog for run in open_runs)
    for place, slot in enumerate(backlog):
        run = _scheduled_run(definition, Slots(slot), now=now)
        run |= {"backlog": True}
        decision.runs.append(run)
        if refusal is not None or (place == 0 and not draining and overlap.fate is Fate.DISPATCH):
            _start_or_fail(decision, run, facts, refusal, now=now)
        else:
            run |= {"wait_reason": WaitReason.CATCH_UP}


def _born(definition: Any, slots: Slots, status: RunStatus, code: str, *, now: datetime) -> dict[str, Any]:
    run = _scheduled_run(definition, slots, now=now)
    return run | {"status": status, "error_code": code, "completed_at": now}


def _following(decision: Decision, plan: Plan, now: datetime) -> datetime | None:
    definition = decision.definition
    if definition.max_runs is not None:
        dispatched = definition.dispatched_count + len(decision.dispatch)
        if dispatched >= definition.max_runs:
            return None
    return plan.next_after(steps.max_instant(decision.claimed_through, now))


def write(tx: Tx, decisions: Sequence[Decision], facts: Facts, *, now: datetime) -> int:
    """Insert the runs, close what they displace, and have the targets write their work.

    A run that is there already is left alone (its slot was claimed by somebody who won the race). Returns
    how many runs were dispatched.
    """
    _close_displaced(tx, decisions, now=now)
    rows = [row for decision in decisions for row in decision.runs]
    inserted = dict(
        dialect.insert_new(tx.session, _runs, rows, returning=[_runs.c.run_id, _runs.c.id]) if rows else []
    )
    dispatches: dict[TargetKind, list[Dispatch]] = defaultdict(list)
    for decision in decisions:
        definition = decision.definition
        decision.dispatch = [run_id for run_id in decision.dispatch if run_id in inserted]
        for run_id in decision.dispatch:
            dispatches[definition.target_kind].append(dispatch_of(definition, inserted[run_id], run_id))
        _refresh_alias(tx, decision, facts)
    _use_mandates(tx, decisions, facts, now=now)
    for kind, group in dispatches.items():
        target_for(kind).write(tx, group, now=now)
    _ring(tx, decisions, now=now)
    _log_runs(tx, decisions)
    return sum(len(group) for group in dispatches.values())


def _use_mandates(tx: Tx, decisions: Sequence[Decision], facts: Facts, *, now: datetime) -> None:
    """Count what is dispatched against its mandates, as they were when it was decided. Raises LostRace."""
    uses = [
        mandate_use(facts.admission[decision.definition.id], row["run_id"], row["actor"])
        for decision in decisions
        for row in decision.runs
        if row["run_id"] in decision.dispatch
    ]
    try:
        use_runs(tx, uses, now=now)
    except UseRefused:
        raise LostRace from None


def mandate_use(admission: Admission, run_id: str, actor: str) -> Use:
    """One run that starts under the mandate that admission has looked at."""
    mandate = admission.mandate
    if mandate is None:
        raise RuntimeError("a run was admitted without a mandate")
    return Use(mandate.pk, mandate.mandate_id, mandate.revision, mandate.network_pk, actor, run_id)


def _log_runs(tx: Tx, decisions: Sequence[Decision]) -> None:
    runs = [row["run_id"] for decision in decisions for row in decision.runs]
    _log_written(tx, runs, sum(len(decision.dispatch) for decision in decisions))


def _log_written(tx: Tx, runs: Sequence[str], dispatched: int) -> None:
    """One line for a batch, once it has committed; a herd names its first runs and their number."""
    if runs:
        named = runs[:_IDS_IN_A_LINE]
        say = partial(_log.info, "runs written", count=len(runs), dispatched=dispatched, run_ids=named)
        tx.after_commit(say)


def dispatch_of(definition: Any, run_pk: int, run_id: str) -> Dispatch:
    """What the target must know of a run of this schedule."""
    return Dispatch(
        run_pk=run_pk,
        run_id=run_id,
        network_pk=definition.network_pk,
        target_pk=definition.target_pk,
        text_pk=definition.text_pk,
        priority_rank=definition.priority_rank,
        ttl_seconds=definition.ttl_seconds,
        max_run_seconds=definition.max_run_seconds,
        sponsor_pk=definition.sponsor_pk,
    )


def _close_displaced(tx: Tx, decisions: Sequence[Decision], *, now: datetime) -> None:
    expire: dict[TargetKind, list[OpenRun]] = defaultdict(list)
    for decision in decisions:
        expire[decision.definition.target_kind].extend(decision.expire)
    for kind, open_runs in expire.items():
        silent = _runs_by_key(tx, open_runs)
        if silent:
            target_for(kind).expire(tx, silent, code="blocker_timed_out", now=now)
        for run in silent:
            steps.close_run(run, RunStatus.EXPIRED, code="blocker_timed_out", now=now)
    superseded = [run for decision in decisions for run in decision.supersede]
    for run in _runs_by_key(tx, superseded):
        steps.close_run(run, RunStatus.SKIPPED, code="superseded", now=now)
    tx.session.flush()


def _runs_by_key(tx: Tx, runs: Sequence[OpenRun]) -> Sequence[Run]:
    if not runs:
        return ()
    return tx.session.scalars(select(Run).where(Run.id.in_([run.pk for run in runs]))).all()


def _refresh_alias(tx: Tx, decision: Decision, facts: Facts) -> None:
    definition = decision.definition
    target = facts.targets.get((definition.target_kind, definition.target_pk))
    if decision.dispatch and target is not None and target.alias != definition.target_alias:
        tx.session.execute(
            update(Schedule).where(Schedule.id == definition.id).values(target_alias=target.alias)
        )


def _ring_usual(tx: Tx, dispatched: usual.Usual, *, now: datetime) -> None:
    by_network: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for network_pk, schedule_id, run_id in dispatched.ids:
        by_network[network_pk].append((schedule_id, run_id))
    for network_pk, group in by_network.items():
        for start in range(0, len(group), _IDS_IN_AN_EVENT):
            schedules, runs = zip(*group[start : start + _IDS_IN_AN_EVENT], strict=True)
            outbox.emit(tx, network_pk, "run", {"schedules": list(schedules), "runs": list(runs)}, now=now)


def _ring(tx: Tx, decisions: Sequence[Decision], *, now: datetime) -> None:
    by_network: dict[int, list[Decision]] = defaultdict(list)
    for decision in decisions:
        by_network[decision.definition.network_pk].append(decision)
    for network_pk, group in by_network.items():
        for start in range(0, len(group), _IDS_IN_AN_EVENT):
            part = group[start : start + _IDS_IN_AN_EVENT]
            data = {
                "schedules": [decision.definition.schedule_id for decision in part],
                "runs": [row["run_id"] for decision in part for row in decision.runs][:_IDS_IN_AN_EVENT],
            }
            outbox.emit(tx, network_pk, "run", data, now=now)


def _advance(tx: Tx, decisions: Sequence[Decision]) -> None:
    statement = (
        update(_due)
        .where(_due.c.schedule_pk == bindparam("key"), _due.c.claim_seq == bindparam("seen"))
        .values(
            next_run_at=bindparam("next"),
            due_at=bindparam("next"),
            claimed_through=bindparam("through"),
            claim_seq=_due.c.claim_seq + 1,
            claim_not_before=None,
            claim_failures=0,
            last_run_at=bindparam("last"),
            dispatched_count=_due.c.dispatched_count + bindparam("dispatched"),
            skips_in_a_row=bindparam("skips"),
        )
    )
    moved = tx.session.connection().execute(
        statement,
        [
            {
                "key": decision.definition.id,
                "seen": decision.definition.claim_seq,
                "next": decision.next_run_at,
                "through": decision.claimed_through,
                "last": decision.last_run_at,
                "dispatched": len(decision.dispatch),
                "skips": decision.skips_in_a_row,
            }
            for decision in decisions
        ],
    )
    if moved.rowcount != len(decisions):
        raise LostRace


def _forget_changes(tx: Tx, decisions: Sequence[Decision]) -> None:
    """A change is of one slot: it goes with it. No revision is counted, as with all that the engine does."""
    keys = [d.definition.id for d in decisions if d.definition.next_change is not None]
    if keys:
        tx.session.execute(update(Schedule).where(Schedule.id.in_(keys)).values(next_change=None))


def _follow_up(tx: Tx, decisions: Sequence[Decision], *, now: datetime) -> None:
    """What a claim means for the state of a schedule: rare, so it is done row by row."""
    for decision in decisions:
        definition = decision.definition
        if decision.alert_blocker is not None:
            alerts.raise_alert(
                tx,
                definition.network_pk,
                "blocked",
                definition.schedule_id,
                "previous_run_active",
                schedule_pk=definition.id,
                detail={"run_id": decision.alert_blocker.run_id, "received": decision.alert_blocker.received},
                now=now,
            )
        elif decision.dispatch and definition.skips_in_a_row >= policy.SKIPS_BEFORE_ALERT:
            alerts.resolve_alerts(tx, definition.network_pk, definition.schedule_id, kind="blocked", now=now)
        ended = [row["run_id"] for row in decision.runs if row["completed_at"] is not None]
        if decision.refused is not None or (ended and decision.next_run_at is None):
            _account_for_ends(tx, definition.id, ended, now=now)
        elif decision.next_run_at is None and not decision.dispatch:
            steps.complete_if_over(tx, steps.load_locked(tx, definition.id), now=now)


def _account_for_ends(tx: Tx, schedule_pk: int, run_ids: Sequence[str], *, now: datetime) -> None:
    schedule = steps.load_locked(tx, schedule_pk)
    runs = tx.session.scalars(select(Run).where(Run.run_id.in_(run_ids)).order_by(Run.scheduled_for)).all()
    for run in runs:
        steps.after_end(tx, schedule, run, now=now)


def _count(decisions: Sequence[Decision], dispatched: int) -> Claimed:
    rows = [row for decision in decisions for row in decision.runs]

    def having(status: RunStatus) -> int:
        return sum(1 for row in rows if row["status"] is status)

    return Claimed(
        schedules=len(decisions),
        dispatched=dispatched,
        skipped=having(RunStatus.SKIPPED),
        queued=sum(1 for row in rows if row["status"] is RunStatus.QUEUED and not _has_work(row)),
        failed=having(RunStatus.FAILED),
        slots=sum(decision.slots for decision in decisions),
        oldest_slot=min(_due_since(decision.definition) for decision in decisions),
    )


def _due_since(definition: Any) -> datetime:
    return falls_due_at(definition.next_change, definition.next_run_at)


def _has_work(row: Mapping[str, Any]) -> bool:
    return row["task_id"] is not None or row["turn_id"] is not None


def next_due_at(session: Session) -> datetime | None:
    """When the engine must look next: a schedule falls due, or a pause ends by itself.

    One look into an index for each network, and one for the pauses.
    """
    first = (
        select(ScheduleDue.due_at)
        .where(ScheduleDue.network_pk == Network.id, ScheduleDue.due_at.is_not(None))
        .order_by(ScheduleDue.due_at)
        .limit(1)
        .correlate(Network)
        .scalar_subquery()
    )
    resume = select(Schedule.resume_at).where(Schedule.resume_at.is_not(None)).order_by(Schedule.resume_at)
    instants = [
        *session.scalars(select(first).select_from(Network)),
        session.scalars(resume.limit(1)).first(),
    ]
    return min((instant for instant in instants if instant is not None), default=None)
