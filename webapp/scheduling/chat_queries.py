"""Reading one's own schedules of prompts, which chats call tasks, and what became of each. Nothing here writes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, joinedload

from webapp.errors import AppError
from webapp.ids import is_public_id
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus, TargetKind
from webapp.scheduling.models import Run, Schedule
from webapp.scheduling.target import target_for
from webapp.store.paging import Page, PageRequest, newest_first

MAX_SHORT_ID = 12
_FAILED = (RunStatus.FAILED, RunStatus.EXPIRED)
_ENDED = (*_FAILED, RunStatus.COMPLETED, RunStatus.CANCELLED)


@dataclass(frozen=True)
class ChatTask:
    """A schedule of prompts with the title of its chat as it is now, and what went wrong last."""

    schedule: Schedule
    chat_title: str
    last_error: str | None


@dataclass(frozen=True)
class ChatTaskFilter:
    """What a list of chat tasks is narrowed to; None = not narrowed. `chat_id` is a public id."""

    chat_id: str | None = None
    state: ScheduleStatus | None = None


def list_own(
    session: Session,
    networks: Collection[int],
    owner_pk: int,
    wanted: ChatTaskFilter,
    request: PageRequest,
) -> Page[ChatTask]:
    """A page of a person's chat tasks, the newest first, without cancelled ones. Raises AppError `invalid_cursor`."""
    statement = _own(networks, owner_pk).where(Schedule.status != ScheduleStatus.CANCELLED)
    if wanted.chat_id is not None:
        statement = statement.where(Schedule.target_id == wanted.chat_id)
    if wanted.state is not None:
        statement = statement.where(Schedule.status == wanted.state)
    page = newest_first(
        session,
        statement,
        Schedule.created_at,
        Schedule.id,
        request,
        lambda row: (row.created_at, row.id),
    )
    return Page(_as_tasks(session, page.rows), page.next_cursor)


def find_own(
    session: Session, networks: Collection[int], owner_pk: int, task_id: str, *, cancelled: bool = False
) -> ChatTask:
    """A chat task of a person by its short id, or by the id of its schedule.

    `cancelled` finds one that is cancelled too. Raises AppError `schedule_not_found`, and `network_id_required`
    where two of the person's networks have one of this short id.
    """
    statement = _own(networks, owner_pk)
    if is_public_id(task_id):
        statement = statement.where(Schedule.schedule_id == task_id)
    elif task_id.isascii() and task_id.isalnum() and len(task_id) <= MAX_SHORT_ID:
        statement = statement.where(Schedule.short_id == task_id)
    else:
        raise AppError("schedule_not_found")
    if not cancelled:
        statement = statement.where(Schedule.status != ScheduleStatus.CANCELLED)
    found = session.scalars(statement.limit(2)).unique().all()
    if not found:
        raise AppError("schedule_not_found")
    if len(found) > 1:
        raise AppError("network_id_required", field="network_id")
    return _as_tasks(session, found)[0]


def occurrences(session: Session, schedule_pk: int, request: PageRequest) -> Page[Run]:
    """A page of the runs of a chat task, newest slot first. Raises AppError `invalid_cursor`."""
    return newest_first(
        session,
        select(Run).where(Run.schedule_pk == schedule_pk).options(joinedload(Run.schedule)),
        Run.scheduled_for,
        Run.id,
        request,
        lambda row: (row.scheduled_for, row.id),
    )


def _own(networks: Collection[int], owner_pk: int) -> Select[Schedule]:
    return (
        select(Schedule)
        .where(
            Schedule.network_pk.in_(networks),
            Schedule.sponsor_pk == owner_pk,
            Schedule.target_kind == TargetKind.CHAT,
        )
        .options(joinedload(Schedule.due), joinedload(Schedule.text))
    )


def _as_tasks(session: Session, schedules: Iterable[Schedule]) -> list[ChatTask]:
    rows = list(schedules)
    chats = target_for(TargetKind.CHAT).load(session, {row.target_pk for row in rows})
    errors = _last_errors(session, [row.id for row in rows])
    return [
        ChatTask(
            row,
            chats[row.target_pk].alias if row.target_pk in chats else row.target_alias,
            _last_error(row, errors.get(row.id)),
        )
        for row in rows
    ]


def _last_error(schedule: Schedule, of_run: str | None) -> str | None:
    """Why it needs attention, said by the run that failed where that is what stopped it; else how it last failed."""
    if schedule.status is ScheduleStatus.NEEDS_ATTENTION:
        stopped_by_failures = schedule.status_reason == "failure_threshold_reached"
        return of_run if stopped_by_failures and of_run else schedule.status_reason
    return of_run


def _last_errors(session: Session, schedule_pks: Collection[int]) -> dict[int, str | None]:
    """The code of the newest ended run of each schedule, where it failed."""
    newest = (
        select(Run.id)
        .where(Run.schedule_pk == Schedule.id, Run.status.in_(_ENDED))
        .order_by(Run.scheduled_for.desc(), Run.id.desc())
        .limit(1)
        .correlate(Schedule)
        .scalar_subquery()
    )
    rows = session.execute(
        select(Run.schedule_pk, Run.status, Run.error_code).where(
            Run.id.in_(select(newest).where(Schedule.id.in_(schedule_pks)))
        )
    )
    return {row.schedule_pk: row.error_code for row in rows if row.status in _FAILED}
