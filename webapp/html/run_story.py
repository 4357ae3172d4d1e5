"""A run told in words: one sentence, the receipts with the gaps between them, where the time went. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from webapp.errors import sentence_of
from webapp.html.filters import duration as in_words
from webapp.html.filters import plural, size
from webapp.nodes.models import Task
from webapp.scheduling.lifecycle import FINAL, OPEN, RunStatus, TargetKind, Trigger, WaitReason
from webapp.scheduling.models import Run

# Up to this a run is on time, as the default grace of a schedule says.
GRACE: Final = timedelta(seconds=60)
_LONG: Final = timedelta(seconds=10)

WAITS: Final = {
    WaitReason.NOT_FETCHED: "It waits in the inbox of {alias}, which has not fetched it yet.",
    WaitReason.PREVIOUS_RUN_ACTIVE: "It waits for an earlier run to end.",
    WaitReason.CATCH_UP: "It waits its turn: missed slots are worked off one after the other.",
    WaitReason.CHAT_BUSY: "It waits for the turn that is at work in its chat.",
}
_TONES: Final = {
    RunStatus.FAILED: "bad",
    RunStatus.EXPIRED: "warn",
    RunStatus.CANCELLED: "rest",
    RunStatus.SKIPPED: "rest",
}
_ENDS: Final = {
    RunStatus.COMPLETED: "Replied",
    RunStatus.FAILED: "Failed",
    RunStatus.CANCELLED: "Cancelled",
    RunStatus.EXPIRED: "Expired",
    RunStatus.SKIPPED: "Skipped",
}


@dataclass(frozen=True)
class Stamp:
    """One receipt: when (None: not yet), what, a shape, the gap since the one before, and a line of text."""

    at: datetime | None
    what: str
    mark: str
    gap: str | None = None
    gap_long: bool = False
    late: bool = False
    text: str | None = None
    tone: str | None = None


@dataclass(frozen=True)
class Spent:
    """Where the time went; percentages of the whole, None where a part is not known."""

    worker: timedelta | None
    node: timedelta | None
    work: timedelta | None
    wait_percent: float
    work_percent: float


def in_chat(run: Run) -> bool:
    """Whether a turn of a chat does it (its schedule loaded), and not a node."""
    return run.schedule.target_kind is TargetKind.CHAT


def doer(run: Run) -> str:
    """Who does it, to begin a sentence with: a node by its alias, or the turn."""
    return "The turn" if in_chat(run) else run.target_alias


def lateness(run: Run) -> timedelta | None:
    """How long after its slot a scheduled run was claimed; None for one by hand."""
    return None if run.trigger is Trigger.MANUAL else run.created_at - run.scheduled_for


def duration(run: Run, now: datetime) -> timedelta | None:
    """How long the work took, or has taken so far; None where it was never taken up."""
    if run.started_at is None:
        return None
    return (run.completed_at or now) - run.started_at


def sentence(run: Run, now: datetime) -> str:
    """What happened, or happens, in a sentence or two."""
    if run.status in OPEN:
        return _of_open(run, now)
    if run.status is RunStatus.COMPLETED:
        took = duration(run, now)
        began = _began(run)
        work = f"{doer(run)} took {in_words(took)}." if took is not None else f"{doer(run)} replied."
        return f"{began} {work}" if began else work
    reason = sentence_of(run.error_code) if run.error_code else ""
    return f"{_what_ended(run, now)} {reason}".rstrip()


def _began(run: Run) -> str:
    late = lateness(run)
    if late is None:
        return f"Asked for by {run.actor}."
    return "Claimed on time." if late <= GRACE else f"Claimed {in_words(late)} late."


def _of_open(run: Run, now: datetime) -> str:
    if run.status is RunStatus.RUNNING:
        return f"{doer(run)} has been at work for {in_words(duration(run, now))}."
    if run.status is RunStatus.DELIVERED and run.delivered_at is not None:
        since = in_words(now - run.delivered_at)
        if in_chat(run):
            return f"Its turn was written into the chat {since} ago and waits for its place."
        return f"{run.target_alias} fetched it {since} ago and has not acknowledged it yet."
    return WAITS[run.wait_reason or WaitReason.NOT_FETCHED].format(alias=run.target_alias)


def _what_ended(run: Run, now: datetime) -> str:
    if run.status is RunStatus.SKIPPED:
        return "Nothing was sent."
    took = duration(run, now)
    if took is not None:
        return f"{_ENDS[run.status]} after {in_words(took)} of work."
    if run.task_id is None and run.turn_id is None:
        return "Nothing was sent."
    waited = in_words(run.completed_at - run.created_at) if run.completed_at else "some time"
    if in_chat(run):
        return f"{_ENDS[run.status]} after {waited}; its turn had not begun."
    return f"{_ENDS[run.status]} after {waited}; {run.target_alias} had not taken it up."


def stamps(run: Run, task: Task | None, retried_at: datetime | None) -> list[Stamp]:
    """The receipts in their order, the longest wait of ten seconds or more marked; what has not come, at the end."""
    known = list(_known(run, task, retried_at))
    gaps = [None, *(later.at - earlier.at for earlier, later in pairwise(known))]
    waits = [gap for gap, stamp in zip(gaps, known, strict=True) if gap is not None and not stamp.works]
    longest = max(waits, default=timedelta())
    told = []
    for gap, stamp in zip(gaps, known, strict=True):
        long = gap is not None and gap >= _LONG and gap == longest and not stamp.works
        words = (
            None if gap is None else f"+{in_words(gap)}" + (" late" if stamp.claims and gap > GRACE else "")
        )
        mark = "waiting" if long else stamp.mark
        told.append(Stamp(stamp.at, stamp.what, mark, words, long, long, stamp.text, stamp.tone))
    return told + [Stamp(None, what, "queued") for what in _to_come(run, task)]


@dataclass(frozen=True)
class _Known:
    at: datetime
    what: str
    mark: str = "completed"
    text: str | None = None
    claims: bool = False
    # The gap before it is work and not waiting.
    works: bool = False
    tone: str | None = None


def _known(run: Run, task: Task | None, retried_at: datetime | None) -> Iterator[_Known]:
    if run.trigger is Trigger.MANUAL:
        yield _Known(run.created_at, f"Asked for by {run.actor}", text="By hand; the timetable did not move.")
    else:
        yield _Known(run.scheduled_for, "Planned", "queued", _stands_for(run))
        yield _Known(run.created_at, "Claimed", claims=True)
    if task is not None:
        text = f"For {run.target_alias}; its bell was rung."
        yield _Known(task.created_at, "Put in the inbox", text=text)
        if retried_at is not None:
            yield _Known(retried_at, f"Put in again, attempt {run.attempt}")
        yield from _of_task(run, task)
    elif in_chat(run):
        yield from _of_turn(run)
    elif run.started_at is not None:
        yield _Known(run.started_at, "Acknowledged")
    if run.completed_at is not None and run.status in FINAL:
        yield _Known(
            run.completed_at,
            _ENDS[run.status],
            run.status.value,
            _end_text(run, task),
            works=run.started_at is not None,
            tone=_TONES.get(run.status),
        )


def _of_task(run: Run, task: Task) -> Iterator[_Known]:
    if task.delivered_at is not None:
        yield _Known(task.delivered_at, "Fetched, so delivered", text=f"{run.target_alias} pulled it.")
    if task.acked_at is not None:
        yield _Known(task.acked_at, "Acknowledged", text="The run starts here.")
    if task.started_at is not None:
        yield _Known(task.started_at, "Started", text=f"{run.target_alias} said that it works on it.")


def _of_turn(run: Run) -> Iterator[_Known]:
    if run.delivered_at is not None:
        yield _Known(run.delivered_at, "Turn created", text="The prompt was written into the chat.")
    if run.started_at is not None:
        yield _Known(run.started_at, "Turn begun", text="The run starts here.")


def _stands_for(run: Run) -> str | None:
    return f"Stands for {plural(run.missed_count, 'older slot')} too." if run.missed_count else None


def _end_text(run: Run, task: Task | None) -> str | None:
    if run.error_code is not None:
        return sentence_of(run.error_code)
    if task is None or task.result is None:
        return None
    kept = "cut at 64 KiB" if task.result_truncated else "stored whole"
    return f"Answer {kept}, {size(len(task.result.encode()))}."


def _to_come(run: Run, task: Task | None) -> list[str]:
    """What an open run still waits for."""
    if run.status not in OPEN:
        return []
    if in_chat(run):
        steps: list[tuple[str, object]] = [("Turn created", run.delivered_at), ("Turn begun", run.started_at)]
        return [what for what, reached in steps if reached is None] + ["Answered"]
    steps = [
        ("Put in the inbox", task),
        ("Fetched, so delivered", run.delivered_at),
        ("Acknowledged", run.started_at),
    ]
    return [what for what, reached in steps if reached is None] + ["Replied"]


def spent(run: Run, now: datetime) -> Spent | None:
    """Where the time of a run went that was taken up; None for another."""
    work = duration(run, now)
    if work is None or run.started_at is None:
        return None
    worker = lateness(run)
    node = run.started_at - run.created_at
    whole = ((worker or timedelta()) + node + work).total_seconds()
    share = 100 * work.total_seconds() / whole if whole else 100.0
    return Spent(worker, node, work, round(100 - share, 1), round(share, 1))
