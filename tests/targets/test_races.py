"""Two at once into one chat: one turn, the other waits, whoever delivers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.support.races import at_once
from tests.targets.parlour import Parlour
from webapp.errors import AppError
from webapp.scheduling import deliver
from webapp.scheduling.lifecycle import RunStatus, TargetKind
from webapp.scheduling.tick import tick
from webapp.worker import new_worker

ROUNDS = 4


def _statuses(parlour: Parlour, *schedules: object) -> list[str]:
    return sorted(run.status.value for one in schedules for run in parlour.runs(one))  # type: ignore[arg-type]


def test_two_runs_by_hand_at_once_are_one_turn_and_one_that_waits(parlour: Parlour) -> None:
    for _ in range(ROUNDS):
        one, two = parlour.prompt(name="One"), parlour.prompt(name="Two")
        bob = parlour.bob
        made = at_once(
            parlour.app,
            [partial(parlour.run_now, one, bob), partial(parlour.run_now, two, bob)],
        )
        assert not [result for result in made if isinstance(result, Exception)]
        assert _statuses(parlour, one, two) == ["delivered", "queued"]
        assert len([turn for turn in parlour.turns() if turn.completed_at is None]) == 1
        assert parlour.talk() == 2
        assert _statuses(parlour, one, two) == ["completed", "completed"]
        parlour.cancel(one, bob)
        parlour.cancel(two, bob)


def test_two_workers_at_one_slot_make_one_turn(parlour: Parlour) -> None:
    schedules = [parlour.prompt(name=f"News {number}") for number in range(4)]
    parlour.clock.advance(minutes=48)
    workers = [new_worker(parlour.app) for _ in range(3)]
    at_once(parlour.app, [lambda worker=worker: tick(worker, parlour.clock) for worker in workers])  # type: ignore[misc]
    parlour.tick()
    assert _statuses(parlour, *schedules) == ["delivered", "queued", "queued", "queued"]
    assert len(parlour.turns()) == 1
    assert parlour.talk() == 4
    assert _statuses(parlour, *schedules) == ["completed"] * 4


def test_several_deliveries_at_once_deliver_one(parlour: Parlour) -> None:
    """The bell of an ended turn, the recovery of each minute, and another worker's."""
    schedules = [parlour.prompt(name=f"News {number}") for number in range(3)]
    turn = parlour.say()
    parlour.tick(minutes=48)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deliver, "deliver_next", lambda *_args, **_named: 0)
        parlour.abort(turn)

    def delivered() -> int:
        return deliver.deliver_next(TargetKind.CHAT, parlour.chat.id, now=parlour.clock.now())

    results = at_once(parlour.app, [delivered] * 4)
    assert sorted(results) == [0, 0, 0, 1]  # type: ignore[type-var]
    assert _statuses(parlour, *schedules) == ["delivered", "queued", "queued"]


def test_a_pause_and_the_begin_of_a_turn_at_once_agree_about_the_run(parlour: Parlour) -> None:
    bob = parlour.bob
    for _ in range(ROUNDS):
        schedule = parlour.prompt()
        parlour.run_now(schedule, bob)
        calls: list[Callable[[], object]] = [parlour.take, partial(parlour.pause, schedule, bob)]
        held = at_once(parlour.app, calls)
        assert not [result for result in held if isinstance(result, Exception)]
        (run,) = parlour.runs(schedule)
        hold = held[0]
        if hold is None:
            assert (run.status, run.error_code) == (RunStatus.CANCELLED, "schedule_paused")
        else:
            assert run.status is RunStatus.RUNNING
            parlour.answer(hold)  # type: ignore[arg-type]
        parlour.cancel(schedule, bob)


def test_archiving_and_making_a_schedule_at_once_leave_none_active(parlour: Parlour) -> None:
    bob = parlour.bob
    for _ in range(ROUNDS):
        chat = parlour.open_chat()
        calls: list[Callable[[], object]] = [
            partial(parlour.prompt, bob, chat=chat),
            partial(parlour.archive, chat),
        ]
        made = at_once(parlour.app, calls)
        first = made[0]
        if isinstance(first, Exception):
            assert isinstance(first, AppError)
            assert first.code == "chat_not_found"
        else:
            assert parlour.schedule(first).status_reason == "chat_archived"  # type: ignore[arg-type]
