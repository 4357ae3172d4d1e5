"""What a preview says is what the call then does: each state, each act, one schedule and many."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, event, insert, select, update

from tests.doctor.hands import do
from tests.factories import actor_of
from tests.scheduling.stage import Stage
from tests.scheduling.test_operations import in_state
from webapp.errors import AppError
from webapp.identity.access import Actor
from webapp.mandates import operations as mandates
from webapp.mandates.bodies import PauseMandate, RevokeMandate
from webapp.mandates.models import Mandate
from webapp.scheduling import bulk, outlook
from webapp.scheduling.authority import Mending
from webapp.scheduling.fields import PauseRequest, ScheduleChanges
from webapp.scheduling.lifecycle import RunStatus, ScheduleStatus
from webapp.scheduling.models import Schedule, ScheduleDue
from webapp.scheduling.outlook import Act, EditEffect, Effect
from webapp.store import db, reading

BULK = (Act.PAUSE, Act.RESUME, Act.CANCEL)


def foresee(stage: Stage, schedule: Schedule, act: Act, actor: Actor | None = None, **wish: Any) -> Effect:
    with reading() as session:
        (effect,) = outlook.foresee(
            session,
            actor or stage.alice,
            [schedule.schedule_id],
            act,
            PauseRequest(**wish),
            now=stage.clock.now(),
        )
    return effect


def foresee_edit(
    stage: Stage, schedule: Schedule, actor: Actor | None = None, /, **fields: Any
) -> EditEffect:
    with reading() as session:
        saved = outlook.schedules_by_id(session, [schedule.network_pk], [schedule.schedule_id])
        return outlook.foresee_edit(
            session,
            actor or stage.alice,
            saved[schedule.schedule_id],
            ScheduleChanges(**fields),
            now=stage.clock.now(),
        )


def carry_out(
    stage: Stage, schedule: Schedule, act: Act, actor: Actor | None = None, **wish: Any
) -> bulk.Outcome:
    (outcome,) = bulk.carry_out(
        actor or stage.alice, [schedule.schedule_id], act, PauseRequest(**wish), now=stage.clock.now()
    )
    return outcome


def kept(stage: Stage, schedule: Schedule, effect: Effect, before: dict[str, RunStatus]) -> None:
    """The schedule is as the effect said it would be; `before` are the runs that were there."""
    saved = stage.schedule(schedule)
    assert saved.status is effect.becomes
    runs = stage.runs(schedule)
    taken_back = {
        run.run_id
        for run in runs
        if run.status is RunStatus.CANCELLED and before.get(run.run_id) is not RunStatus.CANCELLED
    }
    assert taken_back == {work.run_id for work in effect.withdrawn}
    new = [run for run in runs if run.run_id not in before]
    assert sum(run.missed_count + 1 for run in new) == effect.skipped
    if saved.status is ScheduleStatus.ACTIVE:
        assert saved.due.next_run_at == effect.next_slots[0]


@pytest.mark.parametrize("who", ["alice", "bob", "vera"])
@pytest.mark.parametrize("act", BULK)
@pytest.mark.parametrize("status", ["active", "paused", "needs_attention", "completed", "cancelled"])
def test_a_preview_says_what_then_happens(stage: Stage, status: str, act: Act, who: str) -> None:
    schedule = in_state(stage, ScheduleStatus(status))
    actor = actor_of(getattr(stage.cast, who))
    effect = foresee(stage, schedule, act, actor)
    outcome = carry_out(stage, schedule, act, actor)
    assert outcome.code == effect.code
    saved = stage.schedule(schedule)
    assert (saved.revision != schedule.revision) == effect.changes
    if effect.code is None:
        assert (outcome.status, outcome.revision) == (effect.becomes, saved.revision)
        kept(stage, schedule, effect, {})
    else:
        assert saved.status is schedule.status


def test_what_is_due_and_what_waits_is_foretold_with_what_is_at_work(stage: Stage) -> None:
    for act in (Act.PAUSE, Act.CANCEL):
        schedule = stage.create(overlap_policy="allow")
        stage.tick(hours=1)
        (task,) = stage.fetch()
        stage.acknowledge(task)
        stage.tick(hours=1)
        stage.clock.advance(hours=2, minutes=5)
        effect = foresee(stage, schedule, act)
        before = {run.run_id: run.status for run in stage.runs(schedule)}
        assert (len(effect.withdrawn), len(effect.at_work), effect.skipped) == (1, 1, 2)
        assert effect.asked_to_stop == (act is Act.CANCEL)
        carry_out(stage, schedule, act)
        kept(stage, schedule, effect, before)
        if act is Act.PAUSE:
            stage.cancel(schedule)


def test_a_resume_says_what_stays_missed_and_what_fires_next(stage: Stage) -> None:
    schedule = stage.create()
    stage.pause(schedule)
    stage.clock.set(stage.at(11, 30))
    effect = foresee(stage, schedule, Act.RESUME)
    assert (effect.missed, effect.missed_since) == (3, stage.at(9))
    assert effect.next_slots == tuple(stage.at(hour) for hour in range(12, 17))
    assert effect.mending is Mending.NOTHING
    carry_out(stage, schedule, Act.RESUME)
    kept(stage, schedule, effect, {})
    once = stage.create(schedule={"type": "once", "run_at": "2026-11-30T12:00:00Z"}, max_runs=1)
    stage.pause(once)
    assert foresee(stage, once, Act.RESUME).next_slots == (stage.at(12),)
    stage.clock.set(stage.at(12))
    assert foresee(stage, once, Act.RESUME).code == "schedule_has_no_future_occurrence"


@pytest.mark.parametrize(
    ("state", "who", "mending"),
    [
        ("expired", "bob", Mending.RENEW),
        ("paused", "bob", Mending.RESTORE),
        ("expired", "alice", Mending.TAKE_OVER),
        ("fine", "alice", Mending.NOTHING),
    ],
)
def test_a_resume_says_what_it_does_to_the_mandate(
    stage: Stage, state: str, who: str, mending: Mending
) -> None:
    schedule = stage.create(stage.bob)
    stage.run_now(schedule, stage.bob)
    if state == "paused":
        mandates.pause(stage.bob, str(schedule.mandate_id), PauseMandate, now=stage.clock.now())
    else:
        stage.pause(schedule, stage.bob)
        stage.clock.advance(seconds=1)
        stage.run_now(schedule, stage.bob)
    if state == "expired":
        row = update(Mandate).where(Mandate.id == schedule.mandate_pk)
        do(row.values(expires_at=stage.clock.now() - timedelta(seconds=1)))
    actor = actor_of(getattr(stage.cast, who))
    effect = foresee(stage, schedule, Act.RESUME, actor)
    before = {run.run_id: run.status for run in stage.runs(schedule)}
    assert (effect.code, effect.mending) == (None, mending)
    carry_out(stage, schedule, Act.RESUME, actor)
    saved = stage.schedule(schedule)
    assert (saved.mandate_id != schedule.mandate_id) == (mending in (Mending.RENEW, Mending.TAKE_OVER))
    assert (saved.sponsor_pk == actor.user_pk) == (who == "bob" or mending is Mending.TAKE_OVER)
    kept(stage, schedule, effect, before)


def test_a_pause_again_changes_what_it_names_and_a_time_needs_the_right_to_resume(stage: Stage) -> None:
    schedule = in_state(stage, ScheduleStatus.PAUSED)
    for wish, changes in (({}, False), ({"reason": "holidays"}, False), ({"reason": "other"}, True)):
        assert foresee(stage, schedule, Act.PAUSE, **wish).changes is changes
        carry_out(stage, schedule, Act.PAUSE, **wish)
        assert (stage.schedule(schedule).revision > schedule.revision) is changes
    past = {"resume_at": stage.clock.now()}
    assert foresee(stage, schedule, Act.PAUSE, **past).code == "invalid_resume_at"
    assert carry_out(stage, schedule, Act.PAUSE, **past).code == "invalid_resume_at"
    ahead = {"resume_at": stage.at(20)}
    assert foresee(stage, schedule, Act.PAUSE, stage.bob, **ahead).code == "permission_denied"
    assert carry_out(stage, schedule, Act.PAUSE, stage.bob, **ahead).code == "permission_denied"


def test_many_are_foretold_and_done_each_for_itself(stage: Stage) -> None:
    mine, done, theirs = stage.create(), in_state(stage, ScheduleStatus.COMPLETED), stage.create()
    stranger = actor_of(stage.cast.charlie)
    ids = [mine.schedule_id, "sched_nothere234", done.schedule_id, theirs.schedule_id]
    with reading() as session:
        foreign = outlook.foresee(session, stranger, ids, Act.CANCEL, now=stage.clock.now())
        effects = outlook.foresee(session, stage.alice, ids, Act.CANCEL, now=stage.clock.now())
    assert {effect.code for effect in foreign} == {"schedule_not_found"}
    outcomes = bulk.carry_out(stage.alice, ids, Act.CANCEL, now=stage.clock.now())
    assert [outcome.code for outcome in outcomes] == [None, "schedule_not_found", "schedule_completed", None]
    assert [effect.code for effect in effects] == [outcome.code for outcome in outcomes]
    assert [outcome.schedule_id for outcome in outcomes] == ids
    again = bulk.carry_out(stage.alice, ids, Act.CANCEL, now=stage.clock.now())
    assert [outcome.code for outcome in again] == [outcome.code for outcome in outcomes]
    with pytest.raises(ValueError, match="not done in bulk"):
        bulk.carry_out(stage.alice, ids, Act.REVOKE_MANDATE, now=stage.clock.now())


def test_one_that_raises_does_not_keep_the_others_from_being_told(stage: Stage) -> None:
    first, second = stage.create(), stage.create()
    table = ScheduleDue.__table__
    with reading() as session:
        row = dict(session.execute(select(table).where(table.c.schedule_pk == first.id)).mappings().one())
    do(delete(table).where(table.c.schedule_pk == first.id))
    ids = [first.schedule_id, second.schedule_id]
    outcomes = bulk.carry_out(stage.alice, ids, Act.CANCEL, now=stage.clock.now())
    assert [outcome.code for outcome in outcomes] == ["internal_error", None]
    do(insert(table).values(**row))
    assert stage.schedule(first).status is ScheduleStatus.ACTIVE


def test_a_preview_of_many_asks_as_often_as_of_one(stage: Stage) -> None:
    ids = [stage.create().schedule_id for _ in range(6)]
    stage.tick(hours=1)

    def statements(wanted: list[str]) -> int:
        seen: list[str] = []
        with reading() as session:
            engine = session.get_bind()
            listener = lambda *args: seen.append(args[2])  # noqa: E731
            event.listen(engine, "before_cursor_execute", listener)
            try:
                outlook.foresee(session, stage.alice, wanted, Act.PAUSE, now=stage.clock.now())
            finally:
                event.remove(engine, "before_cursor_execute", listener)
        return len(seen)

    assert 0 < statements(ids[:1]) == statements(ids)
    db.session.remove()


# --- Mandates ---


@pytest.mark.parametrize("act", [Act.PAUSE_MANDATE, Act.REVOKE_MANDATE])
@pytest.mark.parametrize("status", ["active", "paused"])
def test_what_a_stop_of_the_mandate_does_is_foretold(stage: Stage, act: Act, status: str) -> None:
    schedule = stage.create()
    stage.tick(hours=1)
    if status == "paused":
        stage.serve()
        stage.pause(schedule)
        stage.run_now(schedule)
    stage.clock.advance(hours=1, minutes=1)
    effect = foresee(stage, schedule, act)
    before = {run.run_id: run.status for run in stage.runs(schedule)}
    mandate_id, now = str(schedule.mandate_id), stage.clock.now()
    if act is Act.PAUSE_MANDATE:
        mandates.pause(stage.alice, mandate_id, PauseMandate, now=now)
    else:
        mandates.revoke(stage.alice, mandate_id, lambda: RevokeMandate(reason="Enough."), now=now)
    assert len(effect.withdrawn) == 1
    kept(stage, schedule, effect, before)
    assert foresee(stage, schedule, act, stage.bob).code == "permission_denied"


# --- Edits ---

EDITS: list[dict[str, Any]] = [
    {"name": "Renamed"},
    {"task": "Other words."},
    {"schedule": {"type": "daily", "time": "18:00"}},
    {"timezone": "Europe/Berlin"},
    {"overlap_policy": "skip"},
    {"priority": "high", "max_runs": 5},
    {"ends_at": "2026-11-30T09:30:00Z"},
    {"ends_at": "2026-11-30T10:30:00Z"},
    {"max_runs": 1},
    {"target_node_id": "other"},
    {},
]


@pytest.mark.parametrize("who", ["alice", "bob"])
@pytest.mark.parametrize("fields", EDITS, ids=lambda fields: "-".join(fields) or "nothing")
def test_a_preview_of_an_edit_says_what_it_then_does(stage: Stage, fields: dict[str, Any], who: str) -> None:
    """Of Bob's schedule, by Bob and by an admin; one run waits, one by hand too, and two slots are due."""
    schedule = stage.create(stage.bob, overlap_policy="allow", task="Words.")
    stage.tick(hours=1)
    stage.run_now(schedule, stage.bob)
    stage.clock.set(stage.at(11, 5))
    if "target_node_id" in fields:
        fields = {"target_node_id": stage.add_node("iris").node_id}
    actor = actor_of(getattr(stage.cast, who))
    effect = foresee_edit(stage, schedule, actor, **fields)
    before = {run.run_id: run.status for run in stage.runs(schedule)}
    was = stage.schedule(schedule)
    stage.edit(schedule, actor, **fields)
    saved = stage.schedule(schedule)
    assert (saved.revision > was.revision) == bool(effect.changed)
    assert (saved.timetable_version != was.timetable_version) == effect.slots_move
    assert (saved.sponsor_pk != was.sponsor_pk) == effect.sponsor_moves
    assert (saved.target_pk != was.target_pk) == effect.target_moves
    runs = stage.runs(schedule)
    cancelled = {run.run_id for run in runs if run.run_id in before and run.status is RunStatus.CANCELLED}
    assert cancelled == {work.run_id for work in effect.withdrawn}
    assert sum(run.missed_count + 1 for run in runs if run.run_id not in before) == effect.skipped
    if saved.status is ScheduleStatus.ACTIVE:
        assert effect.next_slots[:1] == tuple(slot for slot in (saved.due.next_run_at,) if slot)
    stage.tick()


def test_a_preview_of_an_edit_says_whether_it_wakes_a_stopped_schedule(stage: Stage) -> None:
    schedule = in_state(stage, ScheduleStatus.NEEDS_ATTENTION)
    for fields, wakes in (({"name": "Other"}, False), ({"task": "Other."}, True)):
        effect = foresee_edit(stage, schedule, **fields)
        assert (effect.activates, effect.still_stopped_by) == (wakes, None)
        stage.edit(schedule, **fields)
        saved = stage.schedule(schedule)
        assert (saved.status is ScheduleStatus.ACTIVE) is wakes
    assert saved.due.next_run_at == effect.next_slots[0]
    assert effect.sponsor_moves


def test_a_preview_of_an_edit_is_refused_as_the_edit_is(stage: Stage) -> None:
    schedule, done = stage.create(), in_state(stage, ScheduleStatus.COMPLETED)
    for who, what, fields, code in (
        (stage.bob, schedule, {"name": "x"}, "permission_denied"),
        (stage.alice, done, {"name": "x"}, "schedule_completed"),
        (stage.alice, schedule, {"schedule": {"type": "cron", "cron": "x"}}, "invalid_cron"),
        (stage.alice, schedule, {"target_node_id": "node_gone234"}, "target_node_not_found"),
    ):
        with pytest.raises(AppError) as foretold:
            foresee_edit(stage, what, who, **fields)
        with pytest.raises(AppError) as refused:
            stage.edit(what, who, **fields)
        assert (foretold.value.code, refused.value.code) == (code, code)
