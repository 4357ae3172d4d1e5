"""Random lives of a chat and its schedules against the rules said plainly: no difference, and a clean doctor.

Each life is a new chat with two schedules in the same database; what people, time and the worker do comes in any
order. A wish that the plain rules refuse must be refused with the same code, and change nothing.

`CARILLON_INTERLEAVINGS=1000` lives that many, by chance; without it the same few are lived each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from tests.factories import make_member
from tests.support.refusals import Refused, code_of
from tests.targets.parlour import Parlour
from tests.targets.plain_rules import Hourly, Once, PlainMandate, PlainRoom, PlainSchedule, Times
from webapp.chat.execution import Hold
from webapp.errors import AppError
from webapp.identity import operations as people
from webapp.identity.access import Actor
from webapp.identity.models import Role
from webapp.mandates import operations as mandates
from webapp.mandates.bodies import RevokeMandate
from webapp.mandates.models import Mandate
from webapp.scheduling.models import Run, Schedule, ScheduleDue
from webapp.store import reading
from webapp.store.texts import WorkText

LIVES = int(os.environ.get("CARILLON_INTERLEAVINGS", "30"))
STEPS = 15
# No two slots ever fall on one instant, so that the order of turns is never a matter of taste.
MINUTES = ((0, 30), (10, 40))
OFFSETS = (timedelta(minutes=13, milliseconds=7), timedelta(minutes=17, milliseconds=11))

_STATE = (
    select(Schedule.status, Schedule.status_reason, ScheduleDue.next_run_at, Mandate.state, WorkText.body)
    .join(ScheduleDue, ScheduleDue.schedule_pk == Schedule.id)
    .join(Mandate, Mandate.id == Schedule.mandate_pk)
    .join(WorkText, WorkText.id == Schedule.text_pk)
)
_HISTORY = select(Run.scheduled_for, Run.trigger, Run.status, Run.error_code)

which = st.integers(0, 1)


class Life(RuleBasedStateMachine):
    """One chat of Bob's. Every rule does the same to the product and to the plain rules."""

    parlour: ClassVar[Parlour]
    alice: ClassVar[Actor]
    bob: ClassVar[Actor]

    def __init__(self) -> None:
        super().__init__()
        self.hold: Hold | None = None
        self.words = 0

    @initialize(once=st.booleans(), minute=st.integers(0, 1))
    def begin(self, once: bool, minute: int) -> None:
        parlour = self.parlour
        # Every life begins at the same time of a day of its own, so that it can be lived again.
        tomorrow = (parlour.clock.now() + timedelta(days=1)).replace(
            hour=8, minute=12, second=0, microsecond=0
        )
        parlour.clock.advance(seconds=(tomorrow - parlour.clock.now()).total_seconds())
        self.room = PlainRoom(parlour.clock.now())
        parlour.chat = parlour.open_chat()
        self.real: list[Schedule] = []
        for place in (0, 1):
            times: Times = Hourly(MINUTES[place][minute])
            if once and place == 0:
                times = Once(parlour.clock.now() + OFFSETS[0])
            self.real.append(parlour.prompt(prompt="Words.", schedule=spec(times), max_run_seconds=86_400))
            mandate = PlainMandate(parlour.clock.now())
            following = times.after(parlour.clock.now())
            self.room.schedules.append(PlainSchedule(times, "Words.", mandate, following))
        self.compare()

    def both(self, product: Callable[[], Any], plain: Callable[[], Any]) -> None:
        """Do it twice; refusals must agree."""
        product_says, rules_say = code_of(product, AppError), code_of(plain, Refused)
        assert product_says == rules_say, f"the product says {product_says}, the rules {rules_say}"
        self.compare()

    def sponsor_there(self) -> bool:
        return self.room.sponsor_active and self.room.sponsor_member

    # --- People ---

    @rule(place=which)
    def pause(self, place: int) -> None:
        self.both(
            lambda: self.parlour.pause(self.real[place], self.alice),
            lambda: self.room.pause(self.room.schedules[place]),
        )

    @precondition(sponsor_there)
    @rule(place=which)
    def resume(self, place: int) -> None:
        self.both(
            lambda: self.parlour.resume(self.real[place], self.bob),
            lambda: self.room.resume(self.room.schedules[place]),
        )

    @precondition(sponsor_there)
    @rule(place=which)
    def edit_text(self, place: int) -> None:
        self.words += 1
        words = f"Other words {self.words}."
        self.both(
            lambda: self.parlour.change(self.real[place], self.bob, task=words),
            lambda: self.room.edit_text(self.room.schedules[place], words),
        )

    @precondition(sponsor_there)
    @rule(place=which, kind=st.integers(0, 2))
    def edit_timetable(self, place: int, kind: int) -> None:
        times: Times = Once(self.room.now + OFFSETS[place])
        if kind < 2:
            times = Hourly(MINUTES[place][kind])
        self.both(
            lambda: self.parlour.change(self.real[place], self.bob, schedule=spec(times)),
            lambda: self.room.edit_times(self.room.schedules[place], times),
        )

    @rule(place=which)
    def revoke(self, place: int) -> None:
        mandate_id = self.parlour.mandate(self.real[place]).mandate_id
        self.both(
            lambda: mandates.revoke(
                self.alice,
                mandate_id,
                lambda: RevokeMandate(reason="Enough."),
                now=self.room.now,
            ),
            lambda: self.room.revoke(self.room.schedules[place]),
        )

    @precondition(sponsor_there)
    @rule(place=which)
    def expire(self, place: int) -> None:
        until = self.room.now + timedelta(seconds=1)
        self.both(
            lambda: self.parlour.expire_mandate(self.real[place], until),
            lambda: self.room.end_mandate_at(self.room.schedules[place], until),
        )
        self.pass_time(timedelta(seconds=1))

    @precondition(sponsor_there)
    @rule(what=st.sampled_from(["deactivate", "remove", "archive"]))
    def something_grave(self, what: str) -> None:
        """One rule for three, so that lives do not consist of them."""
        cast, now = self.parlour.cast, self.room.now
        if what == "deactivate":
            self.both(
                lambda: people.deactivate_user(None, cast.bob.user_id, now=now),
                lambda: self.room.lose_sponsor(how="deactivated"),
            )
        elif what == "remove":
            self.both(
                lambda: people.remove_member(self.alice, cast.network.network_id, cast.bob.user_id, now=now),
                lambda: self.room.lose_sponsor(how="removed"),
            )
        else:
            self.both(self.parlour.archive, self.room.archive)

    @precondition(lambda self: not self.sponsor_there())
    @rule()
    def sponsor_returns(self) -> None:
        self.both(self._bring_bob_back, self.room.sponsor_returns)

    def _bring_bob_back(self) -> None:
        cast = self.parlour.cast
        if not self.room.sponsor_active:
            people.reactivate_user(None, cast.bob.user_id, now=self.room.now)
        if not self.room.sponsor_member:
            make_member(cast.bob, cast.network, Role.MEMBER)

    @precondition(lambda self: self.room.archived and self.sponsor_there())
    @rule()
    def take_the_chat_up_again(self) -> None:
        self.both(self.parlour.unarchive, self.room.unarchive)

    @precondition(sponsor_there)
    @rule(place=which)
    def run_now(self, place: int) -> None:
        self.both(
            lambda: self.parlour.run_now(self.real[place], self.bob),
            lambda: self.room.run_now(self.room.schedules[place]),
        )

    @precondition(sponsor_there)
    @rule()
    def say(self) -> None:
        self.both(self.parlour.say, self.room.say)

    # --- Time and the worker ---

    @rule()
    def half_an_hour_passes(self) -> None:
        self.pass_time(timedelta(minutes=30))
        self.both(self.parlour.tick, self.room.tick)

    @rule()
    def another_half_hour_passes(self) -> None:
        self.half_an_hour_passes()

    @rule(minutes=st.sampled_from([1, 10, 30]))
    def time_passes_unnoticed(self, minutes: int) -> None:
        self.pass_time(timedelta(minutes=minutes))

    @rule()
    def tick(self) -> None:
        self.both(self.parlour.tick, self.room.tick)

    @precondition(lambda self: self.room.something_to_do)
    @rule(well=st.booleans())
    def turn_moves(self, well: bool) -> None:
        """The turn at work ends; where none is, the next one begins, and a person's is answered at once."""
        at_work = self.room.at_work
        if at_work is not None:
            assert self.hold is not None
            hold, self.hold = self.hold, None
            self.both(
                lambda: self.parlour.answer(hold) if well else self.parlour.end_badly(hold),
                lambda: self.room.turn_ends(at_work, well=well),
            )
            return
        whose = self.room.turn_begins()
        self.hold = self.parlour.take()
        assert (self.hold is not None) is (whose is not None), whose
        if whose == "person" and self.hold is not None:
            self.parlour.answer(self.hold)
            self.hold = None
        self.compare()

    @precondition(lambda self: self.room.something_to_do)
    @rule(well=st.booleans())
    def turn_moves_on(self, well: bool) -> None:
        self.turn_moves(well=well)

    def pass_time(self, span: timedelta) -> None:
        self.parlour.clock.advance(seconds=span.total_seconds())
        self.room.now = self.parlour.clock.now()

    # --- Comparing ---

    def compare(self) -> None:
        said = [
            (
                plain.status,
                plain.reason,
                plain.next,
                plain.mandate.state,
                plain.text,
                sorted(
                    (run.slot, "manual" if run.by_hand else "scheduled", run.status, run.code or "")
                    for run in plain.runs
                ),
            )
            for plain in self.room.schedules
        ]
        assert [self.told(real) for real in self.real] == said

    def told(self, real: Schedule) -> tuple[Any, ...]:
        """A schedule, its mandate and its history, as they are stored; narrow rows, as this is asked often."""
        with reading() as session:
            row = session.execute(_STATE.where(Schedule.id == real.id)).one()
            history = session.execute(_HISTORY.where(Run.schedule_pk == real.id)).all()
        runs = sorted((slot, by.value, status.value, code or "") for slot, by, status, code in history)
        return row[0].value, row[1], row[2], row[3].value, row[4], runs

    def teardown(self) -> None:
        """Leave nothing open, so that the next life is alone."""
        if not hasattr(self, "room"):
            return
        self._bring_bob_back()
        self.parlour.archive()
        if self.hold is not None:
            self.parlour.answer(self.hold)
        assert self.parlour.take() is None


def spec(times: Times) -> dict[str, Any]:
    """A plain timetable as the product wants it."""
    if isinstance(times, Hourly):
        return {"type": "cron", "cron": f"{times.minute} * * * *"}
    return {"type": "once", "run_at": times.at.isoformat()}


def test_no_life_differs_from_the_plain_rules(parlour: Parlour) -> None:
    life = type("LifeHere", (Life,), {"parlour": parlour, "alice": parlour.alice, "bob": parlour.bob})
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=LIVES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize="CARILLON_INTERLEAVINGS" not in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )
