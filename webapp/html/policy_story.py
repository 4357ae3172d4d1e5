"""What the policies mean, told with a schedule's own next times: a sentence and a small picture each. Pure.

What would happen is asked of the engine (`scheduling/policy.py` and the plan); only the outage and the long run of
the example are made up here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from webapp.html.filters import duration, plural, wall
from webapp.scheduling import policy
from webapp.scheduling.lifecycle import MisfirePolicy, OverlapPolicy, RunStatus, Trigger
from webapp.scheduling.policy import Fate, Misfire, OpenRun, Slots
from webapp.timetable import Interval, Once, Plan, on_clock

_MISSED: Final = 3
_JUST: Final = timedelta(milliseconds=1)
_NO_PERIOD: Final = timedelta(hours=24)
# An outage of an example begins and ends at round times: the roundest that fit between the slots.
_ROUND: Final = tuple(timedelta(seconds=size) for size in (3600, 1800, 900, 300, 60, 30, 10, 1))
_MOST_DRAWN: Final = 5
_SIDE_BY_SIDE: Final = 3.0


@dataclass(frozen=True)
class Order:
    """What the examples are made of. `runs_left`: of `max_runs`, None without; `doer`: who does it, by name.

    The slots are those after `now`; instants UTC.
    """

    plan: Plan
    zone: str
    misfire: MisfirePolicy
    overlap: OverlapPolicy
    grace: timedelta
    catch_up_limit: int
    runs_left: int | None
    doer: str
    in_chat: bool
    now: datetime

    @property
    def is_once(self) -> bool:
        return isinstance(self.plan.timetable, Once)


@dataclass(frozen=True)
class Picture:
    """Marks on a line, places and widths in percent. Bars: (x, width, outage or work); pins: (x, missed or run)."""

    bars: tuple[tuple[float, float, str], ...]
    pins: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Example:
    """What a policy would do: `setting` what is supposed, `outcome` what follows, `code` how a run would say it."""

    question: str
    setting: str
    outcome: str
    code: str | None
    picture: Picture


def examples(order: Order) -> tuple[Example, ...]:
    """What the chosen policies would do with the next slots of an order; none where no slot is left."""
    slots = _next_slots(order.plan, order.now, _MISSED + 1)
    if not slots:
        return ()
    return (_after_outage(order, slots), _while_at_work(order, slots))


@lru_cache(maxsize=1)
def pictures() -> dict[str, Picture]:
    """The pictures beside the choices, of an hourly order; the values of both policies say which."""
    hour = datetime(2026, 1, 5, tzinfo=UTC)
    slots = [hour + timedelta(hours=number) for number in range(1, _MISSED + 2)]
    plan = Plan(Interval(3600, hour))
    found: dict[str, Picture] = {}
    for misfire in MisfirePolicy:
        order = Order(
            plan, "UTC", misfire, OverlapPolicy.SKIP, timedelta(seconds=60), 100, None, "", False, hour
        )
        found[f"misfire-{misfire.value}"] = _after_outage(order, slots).picture
    for overlap in OverlapPolicy:
        order = Order(
            plan, "UTC", MisfirePolicy.SKIP, overlap, timedelta(seconds=60), 100, None, "", False, hour
        )
        found[f"overlap-{overlap.value}"] = _while_at_work(order, slots).picture
    return found


def _next_slots(plan: Plan, after: datetime, limit: int) -> list[datetime]:
    found: list[datetime] = []
    slot = plan.next_after(after)
    while slot is not None and len(found) < limit:
        found.append(slot)
        slot = plan.next_after(slot)
    return found


def _shortest_gap(slots: Sequence[datetime]) -> timedelta:
    return min((later - earlier for earlier, later in pairwise(slots)), default=_NO_PERIOD)


# --- The worker was down ---


def _after_outage(order: Order, slots: Sequence[datetime]) -> Example:
    missed, following = list(slots[:_MISSED]), list(slots[_MISSED : _MISSED + 1])
    began, ended = _outage(order, missed, _shortest_gap(slots))
    due = policy.due_slots(order.plan, missed[0], ended)
    what = policy.misfire(
        order.plan,
        due,
        now=ended,
        policy=order.misfire,
        grace=order.grace,
        catch_up_limit=policy.room_for_catching_up(order.catch_up_limit, order.runs_left),
        draining=False,
    )
    ran = len(what.backlog) or int(what.run is not None)
    if order.runs_left is not None and ran >= order.runs_left:
        following = []
    fall = "One slot falls" if due.count == 1 else f"{plural(due.count, 'slot')} fall"
    return Example(
        question="If the worker was down",
        setting=f"Down from {_moment(order, began)} to {_moment(order, ended, began)}. {fall} into it.",
        outcome=_outage_words(order, what, ended, following),
        code="misfire_skipped" if what.skipped is not None else None,
        picture=_outage_picture(what, missed, following, began, ended),
    )


def _outage(order: Order, missed: Sequence[datetime], gap: timedelta) -> tuple[datetime, datetime]:
    """An outage around the missed slots: from now on where it can be, and over before the slot that follows."""
    fitting = [step for step in _ROUND if step <= gap / 2]
    before = [_floor(missed[0] - _JUST, step, order.zone) for step in fitting]
    began = next((moment for moment in before if moment >= order.now), before[-1])
    return began, _floor(missed[-1], fitting[0], order.zone) + fitting[0]


def _floor(moment: datetime, step: timedelta, zone: str) -> datetime:
    """The last round time of a zone's clock that is not after a moment."""
    shift = on_clock(moment, ZoneInfo(zone)).utcoffset() or timedelta()
    return moment - (moment - datetime(1970, 1, 1, tzinfo=UTC) + shift) % step


def _outage_words(order: Order, what: Misfire, ended: datetime, following: Sequence[datetime]) -> str:
    end = _clock(ended, order.zone)
    if what.backlog:
        return f"{_backlog_words(order, what.backlog, ended, end)}{_left_out(what.skipped)}"
    if what.run is not None:
        slot = _moment(order, what.run.slot, ended)
        words = f"One run at {end}, for the slot of {slot}"
        words += ", which is still on time." if _on_time(order, what.run, ended) else "."
        if what.run.missed_count:
            words += f" It says that it stands for {plural(what.run.missed_count, 'older slot')}."
        return f"{words}{_left_out(what.skipped)}"
    records = (
        "records it" if what.skipped and not what.skipped.missed_count else "records all that was missed"
    )
    then = "It is then completed." if order.is_once else _next_words(order, following, ended)
    return f"Nothing runs late: one skipped run {records}. {then}"


def _on_time(order: Order, slots: Slots, ended: datetime) -> bool:
    return ended - slots.slot <= order.grace


def _backlog_words(order: Order, backlog: Sequence[datetime], ended: datetime, end: str) -> str:
    if len(backlog) == 1:
        return f"One run at {end}, for the slot of {_moment(order, backlog[0], ended)}."
    return f"{plural(len(backlog), 'run')} from {end} on, oldest first, each after the one before has ended."


def _left_out(skipped: Slots | None) -> str:
    if skipped is None:
        return ""
    older = "older slot" if not skipped.missed_count else f"{1 + skipped.missed_count} older slots"
    return f" One skipped run records the {older}."


def _next_words(order: Order, following: Sequence[datetime], ended: datetime) -> str:
    return f"Next: {_moment(order, following[0], ended)}." if following else "No slot follows."


def _outage_picture(
    what: Misfire,
    missed: Sequence[datetime],
    following: Sequence[datetime],
    began: datetime,
    ended: datetime,
) -> Picture:
    scale = _Scale([began, *missed, ended, *following])
    left, right = scale.x(began), scale.x(ended)
    runs = len(what.backlog[:_MOST_DRAWN]) or int(what.run is not None)
    late = [(min(right + place * _SIDE_BY_SIDE, 99.0), "run") for place in range(runs)]
    return Picture(
        bars=((left, round(right - left, 2), "outage"),),
        pins=(
            *((scale.x(slot), "missed") for slot in missed),
            *((round(x, 2), kind) for x, kind in late),
            *((scale.x(slot), "run") for slot in following),
        ),
    )


# --- The run before is still at work ---


def _while_at_work(order: Order, slots: Sequence[datetime]) -> Example:
    question = "If the run before is still at work"
    if len(slots) == 1 or order.runs_left == 1:
        return _alone(order, question, slots[0])
    first, second, *more = slots[:3]
    third = more[0] if more else None
    period = None if third is None else third - second
    fate = _fate(order, [_at_work(first, second, order.in_chat)], second, period)
    again = _moment(order, second, first)
    then = None if third is None else _moment(order, third, second)
    if fate is Fate.DISPATCH:
        outcome, code = f"{order.doer} gets the task of {again} as well, and has both at once.", None
    elif fate is Fate.SKIP:
        outcome = f"The slot of {again} is recorded as skipped, with a link to the run that held it up."
        outcome += f" Next: {then}." if then else " No slot follows."
        code = "previous_run_active"
    else:
        outcome, code = f"The run of {again} waits, and starts when the one before has ended.", None
        if then is not None and third is not None and _gives_way(order, first, second, third):
            outcome, code = f"{outcome} If {then} comes first, that one takes its place.", "superseded"
    if fate is not Fate.DISPATCH and not order.in_chat:
        outcome += f" Work that nobody took up gives way after {duration(policy.blocking_limit(period))}."
    return Example(
        question,
        f"The run of {_moment(order, first)} is still at work when {again} comes.",
        outcome,
        code,
        _work_picture(fate, first, second, third),
    )


def _alone(order: Order, question: str, slot: datetime) -> Example:
    """The last slot, or the only one: an earlier run of it can only be one by hand."""
    run = _at_work(slot - _JUST, slot, order.in_chat, by_hand=True)
    fate = _fate(order, [run], slot, None)
    outcome, code = "It waits, and starts when that run has ended.", None
    if fate is Fate.SKIP:
        outcome, code = (
            "It is recorded as skipped, with a link to the run that held it up.",
            "previous_run_active",
        )
    elif fate is Fate.DISPATCH:
        outcome = f"{order.doer} gets its task as well, and has both at once."
    if order.is_once and fate is not Fate.DISPATCH:
        outcome += " A single slot is never lost to an earlier run, whatever is chosen here."
    return Example(
        question,
        f"A run by hand is still at work when {_moment(order, slot)} comes.",
        outcome,
        code,
        _work_picture(fate, slot - timedelta(hours=1), slot, None),
    )


def _fate(order: Order, open_runs: Sequence[OpenRun], slot: datetime, period: timedelta | None) -> Fate:
    return policy.overlap(
        open_runs,
        policy=order.overlap,
        trigger=Trigger.SCHEDULED,
        once=order.is_once,
        now=slot,
        period=period,
    ).fate


def _gives_way(order: Order, first: datetime, second: datetime, third: datetime) -> bool:
    """Whether a run that waits since the second slot is displaced by the third."""
    waiting = OpenRun(
        pk=2,
        run_id="",
        trigger=Trigger.SCHEDULED,
        status=RunStatus.QUEUED,
        dispatched=False,
        backlog=False,
        created_at=second,
        scheduled_for=second,
    )
    found = policy.overlap(
        [_at_work(first, third, order.in_chat), waiting],
        policy=order.overlap,
        trigger=Trigger.SCHEDULED,
        once=order.is_once,
        now=third,
        period=third - second,
    )
    return bool(found.supersede)


def _at_work(since: datetime, heard_at: datetime, in_chat: bool, *, by_hand: bool = False) -> OpenRun:
    """A run that was taken up, whose node was heard just now, or whose turn has limits of its own."""
    return OpenRun(
        pk=1,
        run_id="",
        trigger=Trigger.MANUAL if by_hand else Trigger.SCHEDULED,
        status=RunStatus.RUNNING,
        dispatched=True,
        backlog=False,
        created_at=since,
        scheduled_for=since,
        received=True,
        acknowledged=True,
        heard_at=heard_at,
        limited=in_chat,
    )


def _work_picture(fate: Fate, first: datetime, second: datetime, third: datetime | None) -> Picture:
    ended = second + (second - first) / 2
    scale = _Scale([first, second, ended, third or ended])
    begins, ends = scale.x(first), scale.x(ended)
    here = (scale.x(second), "run" if fate is Fate.DISPATCH else "missed")
    later = [(ends, "run")] if fate is Fate.WAIT else []
    return Picture(
        bars=((begins, round(ends - begins, 2), "work"),),
        pins=((begins, "run"), here, *later, *([(scale.x(third), "run")] if third else [])),
    )


# --- Words and places ---


class _Scale:
    """Instants as places on a line with a margin at both ends."""

    _MARGIN: Final = 4.0

    def __init__(self, moments: Sequence[datetime]) -> None:
        self._from = min(moments)
        self._span = max(moments) - self._from

    def x(self, at: datetime) -> float:
        share = (at - self._from) / self._span if self._span else 0.5
        return round(self._MARGIN + share * (100 - 2 * self._MARGIN), 2)


def _moment(order: Order, at: datetime, near: datetime | None = None) -> str:
    """ "Tue 1 Dec 02:30", without the day where it is the same as that of `near`."""
    date = wall(at, order.zone, "date", order.now)
    if near is not None and date == wall(near, order.zone, "date", order.now):
        return _clock(at, order.zone)
    return f"{date} {_clock(at, order.zone)}"


def _clock(at: datetime, zone: str) -> str:
    return wall(at, zone, "seconds" if at.second else "clock")
