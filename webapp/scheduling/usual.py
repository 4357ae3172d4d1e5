"""The usual case of a claim, many at once: one slot is due and in time, nothing stands in its way, it is dispatched.

What is usual is said in SQL, condition by condition the same as in `policy.py`, `admission.py` and `claim.decide`;
whatever does not meet all of it is left to those, row by row. So nothing here decides anything but "as usual", and a
test compares every row that the two ways write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Insert,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    case,
    exists,
    insert,
    literal,
    or_,
    select,
    update,
)

from webapp.ids import run_id_at
from webapp.mandates.models import Mandate
from webapp.mandates.steps import UseRefused, use_runs_given
from webapp.scheduling import policy
from webapp.scheduling.admission import admits
from webapp.scheduling.lifecycle import MisfirePolicy, RunStatus, TargetKind, Trigger
from webapp.scheduling.models import Run, Schedule, ScheduleDue, is_open
from webapp.scheduling.plans import plan_of_stored
from webapp.scheduling.steps import WORKER
from webapp.scheduling.target import InBulk, bulk_targets
from webapp.store.base import from_milliseconds, to_milliseconds
from webapp.store.given import Given, GivenRows, bound_now, json_text, key_of, look_up, raw, take_keys
from webapp.store.transaction import Tx
from webapp.timetable import TimetableError

_due = cast(Table, ScheduleDue.__table__)
_runs = cast(Table, Run.__table__)
_KEYS = (("key", int),)
_WORK = (
    ("schedule_pk", int),
    ("network_pk", int),
    ("slot", int),
    ("claim_seq", int),
    ("next_run_at", int),
    ("run_pk", int),
    ("run_id", str),
    ("work_pk", int),
    ("work_id", str),
    ("mandate_pk", int),
    ("mandate_id", str),
    ("mandate_revision", int),
    ("from_end", int),
)


class Moved(Exception):
    """A row was no longer as it had been read under its lock; the transaction must not stand."""


@dataclass(frozen=True)
class Usual:
    """What was dispatched as usual: keys of the schedules, and for each network public ids (schedule, run)."""

    schedule_pks: tuple[int, ...] = ()
    ids: tuple[tuple[int, str, str], ...] = ()
    oldest_slot: datetime | None = None


def dispatch(tx: Tx, schedule_pks: Sequence[int], *, now: datetime) -> Usual:
    """Dispatch those of the locked, due schedules for which all is as usual, and move them on.

    Writes everything that a claim writes but the bell of the runs. Raises `Moved` when a row is not as it was read.
    """
    given = GivenRows(tx.session, "claim_keys", _KEYS, {"key": schedule_pks})
    parts = [_dispatch_kind(tx, given, kind, target, now=now) for kind, target in bulk_targets()]
    return Usual(
        schedule_pks=tuple(chain.from_iterable(part.schedule_pks for part in parts)),
        ids=tuple(chain.from_iterable(part.ids for part in parts)),
        oldest_slot=min((part.oldest_slot for part in parts if part.oldest_slot is not None), default=None),
    )


def _dispatch_kind(tx: Tx, given: GivenRows, kind: TargetKind, target: InBulk, *, now: datetime) -> Usual:
    rows = _choose(given, kind, target, now=now)
    if not rows:
        return Usual()
    columns = zip(*rows, strict=True)
    schedules, networks, public_ids, slots, seqs, mandates, mandate_ids, revisions, following = columns
    # The key of a slot is its number as text.
    run_ids = [run_id_at(public_id, str(slot)) for public_id, slot in zip(public_ids, slots, strict=True)]
    work = GivenRows(
        tx.session,
        "claim_work",
        _WORK,
        {
            "schedule_pk": schedules,
            "network_pk": networks,
            "slot": slots,
            "claim_seq": seqs,
            "next_run_at": following,
            "run_pk": take_keys(tx.session, _runs, len(rows)),
            "run_id": run_ids,
            "work_pk": target.take_keys(tx, len(rows)),
            "work_id": [target.work_id(run_id) for run_id in run_ids],
            "mandate_pk": mandates,
            "mandate_id": mandate_ids,
            "mandate_revision": revisions,
            "from_end": _places_from_end(networks),
        },
    )
    work.execute(_insert_runs, target, now=now)
    try:
        use_runs_given(tx, work, Counter(networks), actor=WORKER, now=now)
    except UseRefused:
        raise Moved from None
    target.write(tx, work, now=now)
    if work.execute(_advance).rowcount != work.count:
        raise Moved
    return Usual(
        schedule_pks=schedules,
        ids=tuple(zip(networks, public_ids, run_ids, strict=True)),
        oldest_slot=from_milliseconds(min(slots)),
    )


def _places_from_end(networks: Sequence[int]) -> list[int]:
    """How many of the same network come after each: with it the number of an entry follows from the last one's."""
    left = Counter(networks)
    places = []
    for network_pk in networks:
        left[network_pk] -= 1
        places.append(left[network_pk])
    return places


# --- Which are usual ---


def _choose(given: GivenRows, kind: TargetKind, target: InBulk, *, now: datetime) -> list[tuple[Any, ...]]:
    """The usual ones of a kind, each with its next slot or None where none follows; instants are ms since 1970."""
    now_ms = to_milliseconds(now)
    found = []
    rows: Sequence[Any] = given.execute(_usual_ones, kind, target, now=now, now_ms=now_ms).all()
    for *columns, timetable, timezone, starts_at, ends_at in rows:
        try:
            following = _next_of(timetable, timezone, starts_at, ends_at, columns[3])
        except (TimetableError, ValueError):
            continue
        # A slot that is due as well makes it a question of what was missed.
        if following is None or following > now_ms:
            found.append((*columns, following))
    return found


def _usual_ones(given: Given, kind: TargetKind, target: InBulk) -> Select[*tuple[Any, ...]]:
    keys = given.table("key")
    return (
        select(
            Schedule.id,
            Schedule.network_pk,
            Schedule.schedule_id,
            raw(ScheduleDue.next_run_at),
            ScheduleDue.claim_seq,
            Mandate.id,
            Mandate.mandate_id,
            Mandate.revision,
            json_text(Schedule.timetable),
            Schedule.timezone,
            raw(Schedule.starts_at),
            raw(Schedule.ends_at),
        )
        .select_from(
            look_up(
                keys,
                (ScheduleDue, ScheduleDue.schedule_pk == keys.c.key),
                (Schedule, Schedule.id == ScheduleDue.schedule_pk),
                (Mandate, Mandate.id == Schedule.mandate_pk),
            )
        )
        .where(Schedule.target_kind == kind, _is_usual(), admits(bound_now()), target.takes())
    )


def _is_usual() -> ColumnElement[bool]:
    """One slot is due as far as the row can tell, it is in time, and nothing of the schedule is in its way."""
    slot = ScheduleDue.next_run_at
    late_ms = bindparam("now_ms", type_=BigInteger) - raw(slot)
    change = json_text(Schedule.next_change)
    open_run = exists().where(Run.schedule_pk == ScheduleDue.schedule_pk, is_open(Run))
    claimed = exists().where(
        Run.schedule_pk == ScheduleDue.schedule_pk,
        Run.scheduled_for == slot,
        Run.trigger == Trigger.SCHEDULED,
    )
    return and_(
        slot.is_not(None),
        or_(change.is_(None), change == "null"),
        or_(
            Schedule.misfire_policy == MisfirePolicy.CATCH_UP_ONCE,
            late_ms <= Schedule.misfire_grace_seconds * 1000,
        ),
        or_(ScheduleDue.claimed_through.is_(None), ScheduleDue.claimed_through < slot),
        # Its last run leaves it without a next slot.
        or_(Schedule.max_runs.is_(None), ScheduleDue.dispatched_count + 1 < Schedule.max_runs),
        # A card about it would have to be taken away.
        ScheduleDue.skips_in_a_row < policy.SKIPS_BEFORE_ALERT,
        ~open_run,
        ~claimed,
    )


@lru_cache(maxsize=8192)
def _next_of(
    timetable: str, timezone: str, starts_at: int | None, ends_at: int | None, slot: int
) -> int | None:
    """The slot after `slot`; instants are milliseconds since 1970. A herd shares it with its whole timetable."""
    plan = plan_of_stored(timetable, timezone, _instant(starts_at), _instant(ends_at))
    following = plan.next_after(from_milliseconds(slot))
    return None if following is None else to_milliseconds(following)


def _instant(value: int | None) -> datetime | None:
    return None if value is None else from_milliseconds(value)


# --- What is written ---


def _insert_runs(work: Given, target: InBulk) -> Insert:
    given = work.table("schedule_pk", "run_pk", "run_id", "slot", "work_id")
    values: dict[str, Any] = {
        "id": given.c.run_pk,
        "run_id": given.c.run_id,
        "schedule_pk": Schedule.id,
        "network_pk": Schedule.network_pk,
        "scheduled_for": given.c.slot,
        "trigger": literal(Trigger.SCHEDULED, _runs.c.trigger.type),
        "actor": literal(WORKER),
        "status": literal(RunStatus.QUEUED, _runs.c.status.type),
        target.work_column: given.c.work_id,
        "schedule_revision": Schedule.revision,
        "timetable_version": Schedule.timetable_version,
        "text_pk": Schedule.text_pk,
        "target_pk": Schedule.target_pk,
        "target_id": Schedule.target_id,
        "target_alias": Schedule.target_alias,
        "created_at": bound_now(),
    }
    values |= {name: literal(value, _runs.c[name].type) for name, value in target.run_columns.items()}
    definitions = look_up(given, (Schedule, Schedule.id == given.c.schedule_pk))
    source = select(*values.values()).select_from(definitions)
    return insert(_runs).from_select(list(values), source)


def _advance(work: Given) -> Update:
    given = work.table("schedule_pk", "claim_seq", "next_run_at")
    slot, last = _due.c.next_run_at, _due.c.last_run_at
    return (
        update(_due)
        .where(_due.c.schedule_pk == key_of(given.c.schedule_pk), _due.c.claim_seq == given.c.claim_seq)
        .values(
            next_run_at=given.c.next_run_at,
            due_at=given.c.next_run_at,
            claimed_through=slot,
            claim_seq=_due.c.claim_seq + 1,
            claim_not_before=None,
            claim_failures=0,
            # A run by hand may have been later than this slot.
            last_run_at=case((last > slot, last), else_=slot),
            dispatched_count=_due.c.dispatched_count + 1,
            skips_in_a_row=0,
        )
    )
