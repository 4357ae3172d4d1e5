"""Reading schedules, runs, cards and the worker's pulse. Nothing here writes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, or_, select, union_all
from sqlalchemy.orm import Session, joinedload

from webapp.errors import AppError, sentence_of
from webapp.identity.models import Network, User
from webapp.ids import is_public_id
from webapp.scheduling import policy, steps
from webapp.scheduling.admission import load_admission, load_targets
from webapp.scheduling.lifecycle import OPEN, RunStatus, ScheduleStatus, TargetKind, WaitReason
from webapp.scheduling.models import (
    AT_WORK,
    ENDED_AMISS,
    STILL_OPEN,
    Alert,
    Run,
    Schedule,
    ScheduleDue,
    WorkerSeen,
)
from webapp.store.base import from_milliseconds, to_milliseconds
from webapp.store.counting import AtLeast, count_each, count_up_to
from webapp.store.paging import Page, PageRequest, newest_first
from webapp.timetable import Plan, TimetableError, from_stored

MAX_SEARCH = 200


# --- Schedules ---


@dataclass(frozen=True)
class ScheduleFilter:
    """What a list of schedules is narrowed to; None = not narrowed. `q` looks into names and aliases."""

    status: ScheduleStatus | None = None
    target_kind: TargetKind | None = None
    target_id: str | None = None
    # The target's own key, together with `target_kind`: these have an index.
    target_pk: int | None = None
    q: str | None = None
    # Who searches: words that are private to another are not found, not even letter by letter.
    viewer_pk: int | None = None


def _with_parts(statement: Select[Schedule]) -> Select[Schedule]:
    return statement.options(
        joinedload(Schedule.due),
        joinedload(Schedule.text),
        joinedload(Schedule.sponsor),
        joinedload(Schedule.network),
    )


def list_schedules(
    session: Session, networks: Collection[int], wanted: ScheduleFilter, request: PageRequest
) -> Page[Schedule]:
    """A page of schedules, the one changed last first. Raises AppError `invalid_cursor`, `invalid_q`."""
    return newest_first(
        session,
        _narrowed(_with_parts(select(Schedule).where(Schedule.network_pk.in_(networks))), wanted),
        Schedule.updated_at,
        Schedule.id,
        request,
        lambda row: (row.updated_at, row.id),
    )


def _narrowed(statement: Select[Schedule], wanted: ScheduleFilter) -> Select[Schedule]:
    if wanted.status is not None:
        statement = statement.where(Schedule.status == wanted.status)
    if wanted.target_kind is not None:
        statement = statement.where(Schedule.target_kind == wanted.target_kind)
    if wanted.target_id is not None:
        statement = statement.where(Schedule.target_id == wanted.target_id)
    if wanted.target_pk is not None:
        statement = statement.where(Schedule.target_pk == wanted.target_pk)
    if wanted.q:
        check_search(wanted)
        readable = _readable(wanted)
        said = or_(
            Schedule.name.icontains(wanted.q, autoescape=True),
            Schedule.target_alias.icontains(wanted.q, autoescape=True),
        )
        statement = statement.where(or_(and_(readable, said), Schedule.short_id == wanted.q.lower()))
    return statement


def _readable(wanted: ScheduleFilter) -> ColumnElement[bool]:
    """The condition of schedules whose words are for whoever asks."""
    return or_(Schedule.target_kind == TargetKind.NODE, Schedule.sponsor_pk == wanted.viewer_pk)


def check_search(wanted: ScheduleFilter) -> None:
    """Raise AppError `invalid_q` for a text that cannot be searched."""
    if wanted.q is not None and (len(wanted.q) > MAX_SEARCH or "\x00" in wanted.q):
        raise AppError("invalid_q", field="q")


_PLACE = re.compile(r"(due|rest)-([0-9]{1,16})-([0-9]{1,18})", re.ASCII)


def list_by_next(
    session: Session, networks: Collection[int], wanted: ScheduleFilter, request: PageRequest
) -> Page[Schedule]:
    """A page of schedules: what is due first at the top, then what is not planned, the one changed last first.

    Raises AppError `invalid_cursor`, `invalid_q`.
    """
    part, at, after = _place(request.cursor)
    rows: list[Schedule] = []
    # What does not stand has no slot ahead.
    if part == "due" and wanted.status in (None, ScheduleStatus.ACTIVE):
        rows += session.scalars(_planned(networks, wanted, at, after).limit(request.limit + 1)).unique()
    if len(rows) <= request.limit:
        since = (at, after) if part == "rest" else (None, 0)
        most = request.limit + 1 - len(rows)
        rows += session.scalars(_not_planned(networks, wanted, *since).limit(most)).unique()
    if len(rows) <= request.limit:
        return Page(rows, None)
    last = rows[request.limit - 1]
    planned = last.due.due_at is not None
    instant = to_milliseconds(last.due.due_at if last.due.due_at is not None else last.updated_at)
    return Page(rows[:-1], f"{'due' if planned else 'rest'}-{instant}-{last.id}")


def _place(cursor: str | None) -> tuple[str, datetime | None, int]:
    if cursor is None:
        return "due", None, 0
    found = _PLACE.fullmatch(cursor)
    try:
        if found is None:
            raise ValueError("not a cursor of this list")
        return found[1], from_milliseconds(int(found[2])), int(found[3])
    except (ValueError, OverflowError):
        raise AppError("invalid_cursor", field="cursor") from None


def _planned(
    networks: Collection[int], wanted: ScheduleFilter, at: datetime | None, after: int
) -> Select[Schedule]:
    statement = (
        select(Schedule)
        .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(ScheduleDue.network_pk.in_(networks), ScheduleDue.due_at.is_not(None))
        .order_by(ScheduleDue.due_at, Schedule.id)
    )
    if at is not None:
        later = or_(ScheduleDue.due_at > at, Schedule.id > after)
        statement = statement.where(ScheduleDue.due_at >= at, later)
    return _narrowed(_with_parts(statement), wanted)


def _not_planned(
    networks: Collection[int], wanted: ScheduleFilter, at: datetime | None, after: int
) -> Select[Schedule]:
    statement = (
        select(Schedule)
        .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(Schedule.network_pk.in_(networks), ScheduleDue.due_at.is_(None))
        .order_by(Schedule.updated_at.desc(), Schedule.id.desc())
    )
    if at is not None:
        earlier = or_(Schedule.updated_at < at, Schedule.id < after)
        statement = statement.where(Schedule.updated_at <= at, earlier)
    return _narrowed(_with_parts(statement), wanted)


class Order(StrEnum):
    """In which order schedules are listed."""

    UPDATED = "updated"
    NEXT = "next"
    NAME = "name"
    STATE = "state"


# What needs a person first, what is over last.
STATES_IN_ORDER = (
    ScheduleStatus.NEEDS_ATTENTION,
    ScheduleStatus.PROPOSED,
    ScheduleStatus.ACTIVE,
    ScheduleStatus.PAUSED,
    ScheduleStatus.COMPLETED,
    ScheduleStatus.CANCELLED,
)


def list_ordered(
    session: Session,
    networks: Collection[int],
    wanted: ScheduleFilter,
    order: Order,
    request: PageRequest,
) -> Page[Schedule]:
    """A page of schedules in one of the orders, which all go on by keys: a later page costs no more than the first.

    Raises AppError `invalid_cursor` (also for one of another order), `invalid_q`.
    """
    listing = {
        Order.UPDATED: list_schedules,
        Order.NEXT: list_by_next,
        Order.NAME: list_by_name,
        Order.STATE: list_by_state,
    }
    return listing[order](session, networks, wanted, request)


def _within(networks: Collection[int]) -> ColumnElement[bool]:
    """The condition of these networks; of a single one in the form that keeps the order of an index."""
    if len(networks) == 1:
        return Schedule.network_pk == next(iter(networks))
    return Schedule.network_pk.in_(networks)


def list_by_name(
    session: Session, networks: Collection[int], wanted: ScheduleFilter, request: PageRequest
) -> Page[Schedule]:
    """A page of schedules from A to Z, as the database compares names in small letters.

    Those whose names are not for whoever asks come behind, in no order of their names. Raises AppError
    `invalid_cursor`, `invalid_q`.
    """
    part, after = _name_place(request.cursor)
    rows: list[Schedule] = []
    if part == "name":
        rows += session.scalars(_by_name(session, networks, wanted, after).limit(request.limit + 1)).unique()
    if len(rows) <= request.limit:
        hidden = select(Schedule).where(_within(networks), ~_readable(wanted)).order_by(Schedule.id)
        if part == "hidden":
            hidden = hidden.where(Schedule.id > after)
        most = request.limit + 1 - len(rows)
        rows += session.scalars(_narrowed(_with_parts(hidden), wanted).limit(most)).unique()
    if len(rows) <= request.limit:
        return Page(rows, None)
    last = rows[-2]
    hides = wanted.viewer_pk is None and last.target_kind is TargetKind.CHAT
    hides = hides or (wanted.viewer_pk is not None and last.is_private_to(wanted.viewer_pk))
    return Page(rows[:-1], f"{'hidden' if hides else 'name'}-{last.id}")


def _by_name(
    session: Session, networks: Collection[int], wanted: ScheduleFilter, after: int | None
) -> Select[Schedule]:
    name = func.lower(Schedule.name)
    statement = select(Schedule).where(_within(networks), _readable(wanted)).order_by(name, Schedule.id)
    if after is not None:
        # The database's own idea of the name's small letters, so that a page neither repeats nor leaves out.
        held = select(name).where(Schedule.id == after, Schedule.network_pk.in_(networks), _readable(wanted))
        reached = session.scalar(held)
        if reached is None:
            raise AppError("invalid_cursor", field="cursor")
        statement = statement.where(name >= reached, or_(name > reached, Schedule.id > after))
    return _narrowed(_with_parts(statement), wanted)


_NAME_PLACE = re.compile(r"(name|hidden)-([0-9]{1,18})", re.ASCII)


def _name_place(cursor: str | None) -> tuple[str, int | None]:
    if cursor is None:
        return "name", None
    found = _NAME_PLACE.fullmatch(cursor)
    if found is None:
        raise AppError("invalid_cursor", field="cursor")
    return found[1], int(found[2])


def list_by_state(
    session: Session, networks: Collection[int], wanted: ScheduleFilter, request: PageRequest
) -> Page[Schedule]:
    """A page of schedules by state, what needs a person first; in each state the one changed last first.

    One statement for each state that the page reaches. Raises AppError `invalid_cursor`, `invalid_q`.
    """
    place, at, after = _state_place(request.cursor)
    rows: list[Schedule] = []
    for status in STATES_IN_ORDER[place:]:
        if wanted.status not in (None, status):
            continue
        statement = select(Schedule).where(_within(networks), Schedule.status == status)
        if at is not None:
            earlier = or_(Schedule.updated_at < at, Schedule.id < after)
            statement = statement.where(Schedule.updated_at <= at, earlier)
            at = None
        newest = (Schedule.updated_at.desc(), Schedule.id.desc())
        most = request.limit + 1 - len(rows)
        statement = _narrowed(_with_parts(statement), wanted).order_by(*newest).limit(most)
        rows += session.scalars(statement).unique()
        if len(rows) > request.limit:
            last = rows[-2]
            number = STATES_IN_ORDER.index(last.status)
            return Page(rows[:-1], f"state-{number}-{to_milliseconds(last.updated_at)}-{last.id}")
    return Page(rows, None)


_STATE_PLACE = re.compile(r"state-([0-5])-([0-9]{1,16})-([0-9]{1,18})", re.ASCII)


def _state_place(cursor: str | None) -> tuple[int, datetime | None, int]:
    if cursor is None:
        return 0, None, 0
    found = _STATE_PLACE.fullmatch(cursor)
    try:
        if found is None:
            raise ValueError("not a cursor of this list")
        return int(found[1]), from_milliseconds(int(found[2])), int(found[3])
    except (ValueError, OverflowError):
        raise AppError("invalid_cursor", field="cursor") from None


# A list of more than so many is narrowed before anybody reads it, and is counted on each look at it.
MOST_LISTED_COUNTED = 2000


def count_by_status(session: Session, networks: Collection[int]) -> dict[ScheduleStatus, int]:
    """How many schedules are in each state, up to a bound (`AtLeast`)."""
    return count_each(
        session,
        {
            status: select(Schedule.id).where(_within(networks), Schedule.status == status)
            for status in ScheduleStatus
        },
        most=MOST_LISTED_COUNTED,
    )


def any_schedule(session: Session, networks: Collection[int]) -> bool:
    """Whether a schedule was ever written in these networks."""
    return session.scalar(select(Schedule.id).where(_within(networks)).limit(1)) is not None


def soonest(session: Session, networks: Collection[int]) -> datetime | None:
    """The slot that is looked at next."""
    statement = (
        select(ScheduleDue.next_run_at)
        .where(ScheduleDue.network_pk.in_(networks), ScheduleDue.due_at.is_not(None))
        .order_by(ScheduleDue.due_at)
        .limit(1)
    )
    return session.scalar(statement)


def find_schedule(session: Session, networks: Collection[int], schedule_id: str) -> Schedule:
    """One schedule with due row, text, sponsor and network. Raises AppError `schedule_not_found`."""
    if not is_public_id(schedule_id):
        raise AppError("schedule_not_found")
    statement = _with_parts(
        select(Schedule).where(Schedule.schedule_id == schedule_id, Schedule.network_pk.in_(networks))
    )
    schedule = session.scalars(statement).unique().one_or_none()
    if schedule is None:
        raise AppError("schedule_not_found")
    return schedule


def schedules_by_id(
    session: Session, networks: Collection[int], schedule_ids: Collection[str]
) -> dict[str, Schedule]:
    """Those of these schedules that exist in these networks, by their public id, in one statement."""
    statement = _with_parts(
        # The sum keeps the database from walking through the network instead of looking up these few.
        select(Schedule).where(
            Schedule.schedule_id.in_(schedule_ids), (Schedule.network_pk + 0).in_(networks)
        )
    )
    return {schedule.schedule_id: schedule for schedule in session.scalars(statement)} if schedule_ids else {}


def proposals_to(
    session: Session, networks: Collection[int], sponsor_pk: int, *, limit: int
) -> Sequence[Schedule]:
    """What agents propose that this person could confirm, the oldest first."""
    return session.scalars(proposed_to(networks, sponsor_pk).order_by(Schedule.id).limit(limit)).all()


def proposed_to(networks: Any, sponsor_pk: Any) -> Select[Schedule]:
    """The same as a statement; the values may be bound later."""
    return select(Schedule).where(
        Schedule.network_pk.in_(networks),
        Schedule.status == ScheduleStatus.PROPOSED,
        Schedule.sponsor_pk == sponsor_pk,
    )


def paused_by(session: Session, schedule: Schedule) -> str | None:
    """The name of the person who paused it, if somebody did."""
    return session.scalar(select(User.name).where(User.id == schedule.paused_by_pk))


def plan_for(schedule: Schedule) -> Plan | None:
    """The plan of a schedule, or None when what is stored cannot be read."""
    try:
        return Plan(from_stored(schedule.timetable, schedule.timezone), schedule.starts_at, schedule.ends_at)
    except TimetableError:
        return None


def upcoming_schedules(
    session: Session, networks: Collection[int], *, until: datetime, limit: int
) -> Sequence[Schedule]:
    """The schedules that fall due next, soonest first, up to `until`; a moved slot counts where it was moved to."""
    statement = _with_parts(
        select(Schedule)
        .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(ScheduleDue.network_pk.in_(networks), ScheduleDue.due_at <= until)
        .order_by(ScheduleDue.due_at, Schedule.id)
        .limit(limit)
    )
    return session.scalars(statement).unique().all()


def count_upcoming(session: Session, networks: Collection[int], *, until: datetime) -> int:
    """How many schedules fall due up to `until`; beyond 1000 it gives up counting (`AtLeast`)."""
    due = select(ScheduleDue.schedule_pk).where(
        ScheduleDue.network_pk.in_(networks), ScheduleDue.due_at <= until
    )
    return count_up_to(session, due, most=1000)


# --- Admission, explained ---


@dataclass(frozen=True)
class Verdict:
    """Whether a schedule would fire, and every question that was asked (`permanent`: no slot heals it)."""

    would_fire: bool
    checks: tuple[policy.Check, ...]


def admission(session: Session, schedule: Schedule, *, now: datetime) -> Verdict:
    """Would it fire at its next slot? The same facts and rules that dispatch uses."""
    facts = load_admission(session, [schedule], load_targets(session, [schedule]), now=now)
    checks = policy.admission_checks(facts[schedule.id])
    checks.insert(0, _state_check(schedule))
    plan = plan_for(schedule)
    if plan is None:
        checks.append(policy.Check("unreadable_timetable", ok=False, permanent=True))
    elif schedule.status is not ScheduleStatus.ACTIVE or schedule.due.next_run_at is None:
        left = steps.next_slot(plan, schedule.due, max_runs=schedule.max_runs, now=now)
        checks.append(policy.Check("schedule_has_no_future_occurrence", left is not None, permanent=True))
    return Verdict(all(check.ok for check in checks), tuple(checks))


def _state_check(schedule: Schedule) -> policy.Check:
    codes = {
        ScheduleStatus.PROPOSED: "schedule_proposed",
        ScheduleStatus.PAUSED: "schedule_paused",
        ScheduleStatus.NEEDS_ATTENTION: "schedule_stopped",
        ScheduleStatus.COMPLETED: "schedule_completed",
        ScheduleStatus.CANCELLED: "schedule_cancelled",
    }
    code = codes.get(schedule.status, "schedule_active")
    ended = schedule.status in (ScheduleStatus.COMPLETED, ScheduleStatus.CANCELLED)
    return policy.Check(code, schedule.status is ScheduleStatus.ACTIVE, permanent=ended)


# What each check says when the answer is yes; when it is no, the code's own sentence says why.
_FINE = {
    "schedule_active": "The schedule is active.",
    "sponsor_inactive": "The person it acts for is active.",
    "sponsor_not_permitted": "The person it acts for may send tasks in this network.",
    "mandate_missing": "It acts under a mandate of that person.",
    "mandate_revoked": "The mandate is not revoked.",
    "mandate_unconfirmed": "The mandate is confirmed.",
    "mandate_expired": "The mandate has not expired.",
    "mandate_paused": "The mandate is not paused.",
    "mandate_changed": "The mandate is the one that the schedule knows.",
    "mandate_exhausted": "The mandate has runs and tokens left.",
    "mandate_denies": "The mandate permits it.",
    "chat_not_found": "The chat is there.",
    "chat_archived": "The chat is not archived.",
    "chat_not_owned": "The chat belongs to the person it acts for.",
    "model_unavailable": "The model is set up here.",
    "target_node_not_found": "The node is in this network.",
    "target_not_active": "The node takes work.",
    "schedule_has_no_future_occurrence": "A slot lies ahead.",
}


def check_sentence(check: policy.Check) -> str:
    """A check in words."""
    return _FINE.get(check.code, "Fine.") if check.ok else sentence_of(check.code)


# --- Runs ---


@dataclass(frozen=True)
class RunFilter:
    """What a list of runs is narrowed to; instants UTC, `to` exclusive."""

    status: RunStatus | None = None
    schedule_pk: int | None = None
    schedule_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_runs(
    session: Session, networks: Collection[int], wanted: RunFilter, request: PageRequest
) -> Page[Run]:
    """A page of runs, newest slot first, with their schedules and texts. Raises AppError `invalid_cursor`."""
    # Of one schedule its own history is to be read; the sum keeps the database from reading the network's.
    one = wanted.schedule_pk is not None or wanted.schedule_id is not None
    where = Run.network_pk + 0 if one else Run.network_pk
    statement = select(Run).where(where.in_(networks)).options(joinedload(Run.schedule), joinedload(Run.text))
    if wanted.status is not None:
        statement = statement.where(Run.status == wanted.status)
        # Said twice, so that the index over these few is taken.
        if wanted.status is RunStatus.RUNNING:
            statement = statement.where(AT_WORK)
        elif wanted.status in OPEN:
            statement = statement.where(_open_in(networks))
        elif wanted.status is not RunStatus.COMPLETED:
            statement = statement.where(ENDED_AMISS)
    if wanted.schedule_pk is not None:
        statement = statement.where(Run.schedule_pk == wanted.schedule_pk)
    if wanted.schedule_id is not None:
        named = select(Schedule.id).where(Schedule.schedule_id == wanted.schedule_id)
        statement = statement.where(Run.schedule_pk == named.scalar_subquery())
    if wanted.since is not None:
        statement = statement.where(Run.scheduled_for >= wanted.since)
    if wanted.until is not None:
        statement = statement.where(Run.scheduled_for < wanted.until)
    return newest_first(
        session, statement, Run.scheduled_for, Run.id, request, lambda row: (row.scheduled_for, row.id)
    )


def find_run(session: Session, networks: Collection[int], run_id: str) -> Run:
    """One run with its schedule and text. Raises AppError `run_not_found`."""
    if not is_public_id(run_id):
        raise AppError("run_not_found")
    statement = (
        select(Run)
        .where(Run.run_id == run_id, Run.network_pk.in_(networks))
        .options(joinedload(Run.schedule), joinedload(Run.text))
    )
    run = session.scalars(statement).one_or_none()
    if run is None:
        raise AppError("run_not_found")
    return run


def changed_since(run: Run) -> bool:
    """Whether timetable, text or target of the schedule changed since the run began."""
    return steps.is_stale(run.schedule, run)


@dataclass(frozen=True)
class RunCounts:
    """How many runs a schedule has, and how many in each state, up to a bound (`AtLeast`).

    What went well is the rest of the total: None where that was given up.
    """

    total: int
    by_status: Mapping[RunStatus, int | None]


def count_runs_by_status(session: Session, schedule_pk: int) -> RunCounts:
    """How many runs of a schedule are in each state; costs no more for a long history than for a short one."""
    own = select(Run.id).where(Run.schedule_pk == schedule_pk)
    statements: dict[RunStatus | None, Select[int]] = {None: own}
    for status in RunStatus:
        if status is not RunStatus.COMPLETED:
            among = STILL_OPEN if status in OPEN else ENDED_AMISS
            statements[status] = own.where(Run.status == status, among)
    found = count_each(session, statements)
    total = found.pop(None, 0)
    counts: dict[RunStatus, int | None] = {status: found[status] for status in found if status is not None}
    well = None if isinstance(total, AtLeast) else total - sum(found.values())
    return RunCounts(total, counts if well == 0 else {**counts, RunStatus.COMPLETED: well})


def count_open_runs(session: Session, schedule_pk: int) -> dict[RunStatus, int]:
    """How many runs of a schedule are in each of the open states."""
    rows = session.execute(
        select(Run.status, func.count())
        .where(Run.schedule_pk == schedule_pk, STILL_OPEN)
        .group_by(Run.status)
    )
    return {status: count for status, count in rows}  # noqa: C416 - rows are not pairs to the type checker


@lru_cache(maxsize=256)
def _last_runs_of(count: int, limit: int) -> Select[Any]:
    """One look into the index for each: numbering the rows would read the whole history of each.

    Kept, because writing the statement takes longer than answering it.
    """
    newest = [
        select(Run.schedule_pk, Run.run_id, Run.status, Run.scheduled_for, Run.id)
        .where(Run.schedule_pk == bindparam(f"pk_{number}"))
        .order_by(Run.scheduled_for.desc(), Run.id.desc())
        .limit(limit)
        .subquery()
        for number in range(count)
    ]
    together = union_all(*(select(part) for part in newest)).subquery()
    return select(together)


def last_runs(
    session: Session, schedule_pks: Iterable[int], *, limit: int
) -> dict[int, list[tuple[str, RunStatus]]]:
    """The last runs of each schedule (public id and state), oldest first; one statement for all."""
    pks = list(schedule_pks)
    if not pks:
        return {}
    rows = session.execute(_last_runs_of(len(pks), limit), {f"pk_{n}": pk for n, pk in enumerate(pks)}).all()
    found: dict[int, list[tuple[str, RunStatus]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.scheduled_for, row.id)):
        found[row.schedule_pk].append((row.run_id, row.status))
    return found


def _open_in(networks: Collection[int]) -> ColumnElement[bool]:
    """The condition of the open runs of these networks: few among many, and all in one small index.

    The sum keeps the database from walking through every run of the network instead.
    """
    return and_(STILL_OPEN, (Run.network_pk + 0).in_(networks))


# Beyond so many, how many runs wait says nothing new.
MOST_OPEN_COUNTED = 500


def count_open(session: Session, networks: Collection[int]) -> dict[RunStatus, int]:
    """How many runs are fetched, and are at work, up to a bound (`AtLeast`); what waits: `count_waiting`."""
    still_open = select(Run.id).where(_open_in(networks))
    statements = {
        RunStatus.DELIVERED: still_open.where(Run.status == RunStatus.DELIVERED),
        RunStatus.RUNNING: select(Run.id).where(Run.network_pk.in_(networks), AT_WORK),
    }
    return count_each(session, statements, most=MOST_OPEN_COUNTED)


# --- Cards and pulse ---


@dataclass(frozen=True)
class Card:
    """An open card with the schedule that it is about, if any."""

    alert: Alert
    schedule: Schedule | None


def open_cards(
    session: Session, networks: Collection[int], *, limit: int = 50, alert_pks: Collection[int] | None = None
) -> list[Card]:
    """What needs a person now (of it these, if some are named), newest first."""
    statement = (
        open_alerts(networks)
        .outerjoin(Schedule, Schedule.id == Alert.schedule_pk)
        .add_columns(Schedule)
        .limit(limit)
    )
    if alert_pks is not None:
        statement = statement.where(Alert.id.in_(alert_pks))
    return [Card(alert, schedule) for alert, schedule in session.execute(statement)]


def open_alerts(networks: Any) -> Select[Alert]:
    """The open cards of these networks, newest first; the networks may be bound later."""
    return (
        select(Alert)
        .where(Alert.network_pk.in_(networks), Alert.resolved_at.is_(None))
        .order_by(Alert.created_at.desc(), Alert.id.desc())
    )


def open_card_keys(
    session: Session, networks: Collection[int], *, limit: int
) -> Sequence[tuple[int, str, str, str | None]]:
    """(key, kind, code, id of the schedule's target) of each open card, newest first."""
    return session.execute(
        open_alerts(networks)
        .outerjoin(Schedule, Schedule.id == Alert.schedule_pk)
        .with_only_columns(Alert.id, Alert.kind, Alert.code, Schedule.target_id)
        .limit(limit)
    ).all()


@dataclass(frozen=True)
class Pulse:
    """The workers as one: how many are alive, when one last made a pass, the lag of the last claim."""

    alive: int
    last_tick_at: datetime | None
    lag_seconds: float
    due_unclaimed: int


def due_unclaimed(now: Any) -> Select[int]:
    """The keys of the schedules that are due and not claimed; the instant may be bound later."""
    # By network, as the index is.
    networks = select(Network.id)
    return select(ScheduleDue.schedule_pk).where(
        ScheduleDue.network_pk.in_(networks), ScheduleDue.due_at <= now
    )


_WORKERS = (
    select(WorkerSeen.last_tick_at, WorkerSeen.stopped_at, WorkerSeen.lag_ms)
    .order_by(WorkerSeen.last_tick_at.desc())
    .limit(50)
)


def pulse(session: Session, *, tick_seconds: float, now: datetime, due: int | None = None) -> Pulse:
    """Whether somebody is ticking: a worker counts as alive for three ticks after its last pass.

    `due`: how many schedules are due and not claimed, where the caller has counted them.
    """
    workers = session.execute(_WORKERS).all()
    alive = [
        worker
        for worker in workers
        if worker.stopped_at is None and worker.last_tick_at >= now - timedelta(seconds=3 * tick_seconds)
    ]
    return Pulse(
        alive=len(alive),
        last_tick_at=workers[0].last_tick_at if workers else None,
        lag_seconds=max((worker.lag_ms for worker in alive), default=0) / 1000,
        due_unclaimed=count_up_to(session, due_unclaimed(now)) if due is None else due,
    )


# --- For pages ---


def schedule_names(
    session: Session, networks: Collection[int], *, viewer_pk: int, limit: int
) -> list[tuple[str, str]]:
    """(public id, name) of schedules in the order of their names; for a choice in a list of runs.

    Those whose names are private to another are not among them.
    """
    rows = session.execute(
        select(Schedule.schedule_id, Schedule.name)
        .where(_within(networks), _readable(ScheduleFilter(viewer_pk=viewer_pk)))
        .order_by(func.lower(Schedule.name), Schedule.id)
        .limit(limit)
    )
    return [(schedule_id, name) for schedule_id, name in rows]


def count_sponsored(session: Session, user_pk: int, *, network_pk: int | None = None) -> int:
    """How many active schedules act on a person's authority, in one network or everywhere; bounded (`AtLeast`)."""
    own = select(Schedule.id).where(Schedule.sponsor_pk == user_pk, Schedule.status == ScheduleStatus.ACTIVE)
    if network_pk is not None:
        own = own.where(Schedule.network_pk == network_pk)
    return count_up_to(session, own, most=1000)


def count_of_target(session: Session, kind: TargetKind, target_pk: int) -> tuple[int, int]:
    """How many schedules that have not ended aim at a target: active ones, and others; up to a bound (`AtLeast`)."""
    own = select(Schedule.id).where(Schedule.target_kind == kind, Schedule.target_pk == target_pk)
    ended = (ScheduleStatus.COMPLETED, ScheduleStatus.CANCELLED)
    statements = {
        "active": own.where(Schedule.status == ScheduleStatus.ACTIVE),
        "others": own.where(Schedule.status.not_in((ScheduleStatus.ACTIVE, *ended))),
    }
    found = count_each(session, statements, most=1000)
    return found.get("active", 0), found.get("others", 0)


def schedules_of_target(
    session: Session, kind: TargetKind, target_pk: int, *, active: bool | None = None, limit: int
) -> Sequence[Schedule]:
    """The schedules that aim at a target and have not ended, what rings first at the top.

    `active` narrows them to those that are, or are not.
    """
    statement = _with_parts(
        select(Schedule)
        .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
        .where(
            Schedule.target_kind == kind,
            Schedule.target_pk == target_pk,
            Schedule.status.not_in((ScheduleStatus.COMPLETED, ScheduleStatus.CANCELLED)),
        )
        .order_by(ScheduleDue.next_run_at.is_(None), ScheduleDue.next_run_at, Schedule.id)
        .limit(limit)
    )
    if active is not None:
        stands = Schedule.status == ScheduleStatus.ACTIVE
        statement = statement.where(stands if active else ~stands)
    return session.scalars(statement).unique().all()


def count_runs_since(
    session: Session, networks: Collection[int], since: datetime, *, most: int
) -> dict[RunStatus, int]:
    """How the runs of all slots from `since` on stand; of more than `most` of them, the newest `most` + 1."""
    newest = (
        select(Run.status)
        .where(Run.network_pk.in_(networks), Run.scheduled_for >= since)
        .order_by(Run.scheduled_for.desc(), Run.id.desc())
        .limit(most + 1)
        .subquery()
    )
    rows = session.execute(select(newest.c.status, func.count()).group_by(newest.c.status))
    return {status: count for status, count in rows}  # noqa: C416 - rows are not pairs to the type checker


def count_waiting(session: Session, networks: Collection[int]) -> dict[WaitReason | None, int]:
    """What the queued runs wait for; of more than `MOST_OPEN_COUNTED` of them, so many."""
    some = (
        select(Run.wait_reason)
        .where(Run.status == RunStatus.QUEUED, _open_in(networks))
        .limit(MOST_OPEN_COUNTED)
        .subquery()
    )
    rows = session.execute(select(some.c.wait_reason, func.count()).group_by(some.c.wait_reason))
    return {reason: count for reason, count in rows}  # noqa: C416 - rows are not pairs to the type checker


def longest_running(session: Session, networks: Collection[int]) -> Run | None:
    """The run that has been at work for the longest time, with its schedule."""
    statement = (
        select(Run)
        .where(Run.network_pk.in_(networks), AT_WORK)
        .options(joinedload(Run.schedule))
        .order_by(Run.started_at, Run.id)
        .limit(1)
    )
    return session.scalars(statement).first()


def find_blocker(session: Session, run: Run) -> Run | None:
    """The run that held this one up, if any did and it is still kept."""
    if run.blocked_by is None:
        return None
    statement = select(Run).where(Run.run_id == run.blocked_by, Run.network_pk == run.network_pk)
    return session.scalars(statement).one_or_none()


def runs_blocked_by(session: Session, run: Run, *, limit: int) -> Sequence[Run]:
    """The newest runs of the same schedule that were skipped because this one was open."""
    statement = (
        select(Run)
        .where(
            Run.schedule_pk == run.schedule_pk,
            Run.scheduled_for >= run.scheduled_for,
            Run.blocked_by == run.run_id,
        )
        .order_by(Run.scheduled_for.desc(), Run.id.desc())
        .limit(limit)
    )
    return session.scalars(statement).all()
