"""History that is old enough is forgotten, in small transactions, beside workers and people at work.

Open work is never touched, what was claimed stays claimed, and how the forgotten runs ended stays counted by
the day. A history only loses its oldest part: what is kept has no gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import Any, cast

from sqlalchemy import ColumnElement, Table, and_, delete, exists, func, or_, select, update
from sqlalchemy.orm import aliased

from webapp.audit import AuditCounter, AuditEntry
from webapp.chat.lifecycle import FINAL_TURN
from webapp.chat.models import Approval, Turn
from webapp.events.models import Event, EventCounter
from webapp.identity import steps as identity_steps
from webapp.identity.models import Network, RequestKey
from webapp.nodes.lifecycle import FINAL as FINAL_TASK
from webapp.nodes.models import Task, TaskEvent
from webapp.scheduling.lifecycle import ScheduleStatus, Trigger
from webapp.scheduling.models import STILL_OPEN, Alert, DailyCount, Run, Schedule, ScheduleDue, is_open
from webapp.scheduling.steps import DEFINING_VERBS
from webapp.store import app_config, dialect, reading
from webapp.store.texts import WorkText
from webapp.store.transaction import Tx, operation

EVENTS_KEPT = timedelta(days=7)
KEYS_KEPT = timedelta(days=30)
_BATCH = 500
_TEXTS_A_PAGE = 1000
_KINDS = (
    "runs",
    "tasks",
    "task_events",
    "texts",
    "events",
    "audit_entries",
    "request_keys",
    "alerts",
    "approvals",
    "door_rows",
)
_ENDED = (ScheduleStatus.COMPLETED, ScheduleStatus.CANCELLED)

Forgotten = Counter[str]


def prune(*, now: datetime) -> dict[str, int]:
    """Forget all that is older than its retention; returns how many rows of each kind went.

    Runs go after `CARILLON_RUN_RETENTION_DAYS` with their tasks, resolved alerts, answered approvals and
    people's tasks too; messages and turns of chats stay. Events go after 7 days, request keys after 30. Needs an
    app context. Doing it again at once forgets nothing more.
    """
    total: Forgotten = Counter()
    for forgotten in batches(now=now):
        total += forgotten
    return {kind: total[kind] for kind in _KINDS}


def batches(*, now: datetime) -> Iterator[Forgotten]:
    """The same, one short transaction each time that the next value is asked for."""
    cutoff = now - timedelta(days=app_config().run_retention_days)
    # What an Idempotency-Key made is what a repeat of the request is answered with.
    cutoff_of_keyed = min(cutoff, now - KEYS_KEPT)
    yield from _until_done(partial(_forget_runs, cutoff, cutoff_of_keyed))
    yield from _until_done(partial(_forget_tasks_of_people, cutoff_of_keyed))
    yield from _until_done(partial(_forget_request_keys, now - KEYS_KEPT))
    yield from _until_done(partial(_forget_alerts, cutoff))
    yield from _until_done(partial(_forget_approvals, cutoff))
    yield from _until_done(partial(_forget_door_rows, now))
    yield from _orphaned_texts()
    for network_pk in _networks():
        old = now - EVENTS_KEPT
        yield from _until_done(partial(_forget_head, Event, EventCounter, network_pk, old, None))
        needed = _first_needed_entry(network_pk)
        yield from _until_done(partial(_forget_head, AuditEntry, AuditCounter, network_pk, cutoff, needed))


def _until_done(batch: Callable[[], Forgotten]) -> Iterator[Forgotten]:
    while forgotten := batch():
        yield forgotten


def _networks() -> Sequence[int]:
    with reading() as session:
        return session.scalars(select(Network.id).order_by(Network.id)).all()


# --- Runs and tasks ---


@operation
def _forget_runs(tx: Tx, cutoff: datetime, cutoff_of_keyed: datetime) -> Forgotten:
    """The oldest ended runs. One that has an older open run of its schedule waits for that: no gaps."""
    older = aliased(Run, name="older")
    blocked = exists().where(
        older.schedule_pk == Run.schedule_pk, older.scheduled_for <= Run.scheduled_for, is_open(older)
    )
    may_go = and_(
        Run.created_at < cutoff,
        or_(Run.trigger == Trigger.SCHEDULED, Run.created_at < cutoff_of_keyed),
        ~STILL_OPEN,
        ~blocked,
    )
    candidates = select(Run.id, Run.schedule_pk).where(may_go).order_by(Run.created_at, Run.id).limit(_BATCH)
    rows = tx.session.execute(candidates).all()
    locked = _lock_schedules(tx, {row.schedule_pk for row in rows})
    # Looked at again under the lock: somebody may just have had one of them tried again.
    runs = tx.session.execute(
        select(Run.id, Run.schedule_pk, Run.scheduled_for, Run.status)
        .where(Run.id.in_([row.id for row in rows]), Run.schedule_pk.in_(locked), ~STILL_OPEN)
        .order_by(Run.id)
    ).all()
    _count_days(tx, runs)
    keys = [run.id for run in runs]
    tasks = tx.session.scalars(select(Task.id).where(Task.run_pk.in_(keys)).order_by(Task.id)).all()
    forgotten = _delete_tasks(tx, tasks)
    # A chat keeps its words: the turn stays, and knows no run any more.
    turns = cast(Table, Turn.__table__)
    tx.session.connection().execute(update(turns).where(turns.c.run_pk.in_(keys)).values(run_pk=None))
    forgotten["runs"] = _delete(tx, Run, Run.id.in_(keys))
    return +forgotten


def _lock_schedules(tx: Tx, schedule_pks: set[int]) -> Sequence[int]:
    """Lock these schedules, but for those that are at work just now: their turn comes again."""
    statement = (
        select(ScheduleDue.schedule_pk)
        .where(ScheduleDue.schedule_pk.in_(schedule_pks))
        .order_by(ScheduleDue.schedule_pk)
        .with_for_update(skip_locked=True)
    )
    return tx.session.scalars(statement).all()


def _count_days(tx: Tx, runs: Sequence[Any]) -> None:
    """Keep how many runs of a schedule ended how, by the UTC day of their slots."""
    table = cast(Table, DailyCount.__table__)
    days = Counter((run.schedule_pk, run.scheduled_for.date(), run.status) for run in runs)
    for schedule_pk, day, status in sorted(days):
        count = days[schedule_pk, day, status]
        row = {"schedule_pk": schedule_pk, "day": day, "status": status, "count": count}
        dialect.upsert(
            tx.session, table, row, ["schedule_pk", "day", "status"], {"count": table.c.count + count}
        )


@operation
def _forget_tasks_of_people(tx: Tx, cutoff: datetime) -> Forgotten:
    """Ended tasks that no run made."""
    statement = (
        select(Task.id)
        .where(Task.run_pk.is_(None), Task.created_at < cutoff, Task.status.in_(FINAL_TASK))
        .order_by(Task.id)
        .limit(_BATCH)
        .with_for_update(skip_locked=True)
    )
    return _delete_tasks(tx, tx.session.scalars(statement).all())


def _delete_tasks(tx: Tx, task_pks: Sequence[int]) -> Forgotten:
    events = _delete(tx, TaskEvent, TaskEvent.task_pk.in_(task_pks))
    return +Counter(task_events=events, tasks=_delete(tx, Task, Task.id.in_(task_pks)))


def _delete(tx: Tx, model: type[Any], condition: ColumnElement[bool]) -> int:
    statement = delete(cast(Table, model.__table__)).where(condition)
    return int(tx.session.connection().execute(statement).rowcount)


# --- What stands alone ---


@operation
def _forget_request_keys(tx: Tx, cutoff: datetime) -> Forgotten:
    return _forget_some(tx, "request_keys", RequestKey, RequestKey.created_at < cutoff)


@operation
def _forget_alerts(tx: Tx, cutoff: datetime) -> Forgotten:
    return _forget_some(tx, "alerts", Alert, Alert.resolved_at < cutoff)


@operation
def _forget_approvals(tx: Tx, cutoff: datetime) -> Forgotten:
    """Answered approvals of turns that have ended; what became of the calls stands in the chat."""
    ended = exists().where(Turn.id == Approval.turn_pk, Turn.status.in_(FINAL_TURN))
    return _forget_some(tx, "approvals", Approval, and_(Approval.created_at < cutoff, ended))


@operation
def _forget_door_rows(tx: Tx, now: datetime) -> Forgotten:
    """Counters of failed sign-ins, and sessions whose cookie is dead by age."""
    return +Counter({"door_rows": identity_steps.forget_old_door_rows(tx, now)})


def _forget_some(tx: Tx, kind: str, model: type[Any], condition: ColumnElement[bool]) -> Forgotten:
    keys = tx.session.scalars(select(model.id).where(condition).limit(_BATCH)).all()
    return +Counter({kind: _delete(tx, model, model.id.in_(keys))})


def _unused() -> ColumnElement[bool]:
    users = (Schedule, Run, Task)
    return and_(*(~exists().where(user.text_pk == WorkText.id) for user in users))


def _orphaned_texts() -> Iterator[Forgotten]:
    """Texts that no schedule, run or task refers to any more; looked for without the write lock."""
    after = 0
    while True:
        with reading() as session:
            page = session.scalars(
                select(WorkText.id).where(WorkText.id > after).order_by(WorkText.id).limit(_TEXTS_A_PAGE)
            ).all()
            if not page:
                return
            orphans = session.scalars(
                select(WorkText.id).where(WorkText.id.between(page[0], page[-1]), _unused())
            ).all()
        after = page[-1]
        yield _forget_texts(orphans) if orphans else Counter()


@operation
def _forget_texts(tx: Tx, keys: Sequence[int]) -> Forgotten:
    return +Counter(texts=_delete(tx, WorkText, and_(WorkText.id.in_(keys), _unused())))


# --- Sequences ---


@operation
def _forget_head(
    tx: Tx, model: type[Any], counter: type[Any], network_pk: int, cutoff: datetime, needed: int | None
) -> Forgotten:
    """The oldest entries of a network's sequence, up to the first that is younger than `cutoff` or `needed`.

    The newest always stays, so that the sequence can be checked against its counter.
    """
    newest = tx.session.scalar(select(counter.seq).where(counter.network_pk == network_pk))
    stop = min(seq for seq in (newest, needed) if seq is not None) if newest is not None else 0
    statement = (
        select(model.seq, model.at)
        .where(model.network_pk == network_pk, model.seq < stop)
        .order_by(model.seq)
        .limit(_BATCH)
    )
    old = list(takewhile(lambda row: row.at < cutoff, tx.session.execute(statement).all()))
    if not old:
        return Counter()
    gone = _delete(tx, model, and_(model.network_pk == network_pk, model.seq <= old[-1].seq))
    return +Counter({model.__tablename__: gone})


def _first_needed_entry(network_pk: int) -> int | None:
    """The oldest audit entry that a kept run or a living schedule of this network needs.

    From it and what follows, every slot since the oldest kept run can be derived again. None where no
    schedule is left that needs one.
    """
    oldest_slot = (
        select(func.coalesce(Run.missed_since, Run.scheduled_for))
        .where(Run.schedule_pk == Schedule.id, Run.trigger == Trigger.SCHEDULED)
        .order_by(Run.scheduled_for)
        .limit(1)
        .scalar_subquery()
    )
    of_schedule = and_(
        AuditEntry.network_pk == network_pk,
        AuditEntry.subject_id == Schedule.schedule_id,
        AuditEntry.verb.in_(DEFINING_VERBS),
    )
    in_force = (
        select(func.max(AuditEntry.seq))
        .where(of_schedule, or_(oldest_slot.is_(None), AuditEntry.at <= oldest_slot))
        .correlate(Schedule)
        .scalar_subquery()
    )
    first = select(func.min(AuditEntry.seq)).where(of_schedule).correlate(Schedule).scalar_subquery()
    lives = or_(Schedule.status.not_in(_ENDED), oldest_slot.is_not(None))
    statement = select(func.min(func.coalesce(in_force, first))).where(
        Schedule.network_pk == network_pk, lives
    )
    with reading() as session:
        return session.scalar(statement)
