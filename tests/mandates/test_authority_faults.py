"""Each way in which authority can fail a node's schedule: its state, its code, no work, an audit row, a card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from sqlalchemy import select

from tests.factories import actor_of, make_member, make_user
from tests.mandates.scene import MandateScene, tamper, tamper_mandate
from tests.scheduling.stage import code_of
from webapp.audit import AuditEntry
from webapp.errors import AppError
from webapp.identity import operations as people
from webapp.identity.models import Role
from webapp.mandates.policy import talk_only
from webapp.scheduling import maintenance
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.store import reading


@dataclass(frozen=True)
class Fault:
    """What is broken, whether the slot's own run tells of it, and whether the sponsor's resume mends it."""

    code: str
    do: Callable[[MandateScene, Schedule], object]
    seen_at_once: bool = False
    run_status: str = "failed"
    status: ScheduleStatus = ScheduleStatus.NEEDS_ATTENTION
    mended: bool = True


def deactivate_bob(scene: MandateScene, _schedule: Schedule) -> None:
    people.deactivate_user(None, scene.stage.cast.bob.user_id, now=scene.now)


def remove_bob(scene: MandateScene, _schedule: Schedule) -> None:
    cast = scene.stage.cast
    people.remove_member(scene.stage.alice, cast.network.network_id, cast.bob.user_id, now=scene.now)


def use_up(scene: MandateScene, schedule: Schedule) -> None:
    mandate = scene.mandate(schedule)
    limited = {**mandate.policy, "limits": {"max_runs": 1}}
    scene.change(mandate, scene.stage.bob, policy=limited)
    scene.stage.run_now(schedule, scene.stage.bob)
    scene.stage.serve()


FAULTS = {
    "missing": Fault("mandate_missing", lambda scene, it: tamper(it, mandate_pk=None)),
    "of another": Fault(
        "mandate_missing", lambda scene, it: tamper_mandate(scene.mandate(it), workload="schedule:other")
    ),
    "unconfirmed": Fault(
        "mandate_unconfirmed", lambda scene, it: tamper_mandate(scene.mandate(it), confirmed_at=None)
    ),
    "expired": Fault(
        "mandate_expired",
        lambda scene, it: tamper_mandate(
            scene.mandate(it), created_at=scene.now - timedelta(days=90), expires_at=scene.now
        ),
    ),
    "revoked": Fault(
        "mandate_revoked",
        lambda scene, it: scene.revoke(scene.mandate(it), scene.stage.bob),
        seen_at_once=True,
    ),
    "revoked behind its back": Fault(
        "mandate_revoked", lambda scene, it: tamper_mandate(scene.mandate(it), state="revoked")
    ),
    "changed": Fault("mandate_changed", lambda scene, it: tamper_mandate(scene.mandate(it), revision=7)),
    "exhausted": Fault("mandate_exhausted", use_up, mended=False),
    "denies": Fault(
        "mandate_denies",
        lambda scene, it: tamper_mandate(scene.mandate(it), policy=talk_only().to_json()),
        mended=False,
    ),
    "paused": Fault(
        "mandate_paused",
        lambda scene, it: scene.pause(scene.mandate(it), scene.stage.bob),
        seen_at_once=True,
        status=ScheduleStatus.PAUSED,
    ),
    "paused behind its back": Fault(
        "mandate_paused",
        lambda scene, it: tamper_mandate(scene.mandate(it), state="paused"),
        run_status="skipped",
        status=ScheduleStatus.PAUSED,
    ),
    "sponsor deactivated": Fault("sponsor_inactive", deactivate_bob, seen_at_once=True, mended=False),
    "sponsor gone": Fault("sponsor_not_permitted", remove_bob, seen_at_once=True, mended=False),
}


def audited(schedule: Schedule) -> set[tuple[str, str | None]]:
    """Verbs and codes that the audit holds about a schedule and its mandate."""
    with reading() as session:
        subjects = [schedule.schedule_id, schedule.mandate_id]
        rows = session.scalars(select(AuditEntry).where(AuditEntry.subject_id.in_(subjects)))
        return {(row.verb, row.detail.get("reason") or row.detail.get("code")) for row in rows}


@pytest.mark.parametrize("name", FAULTS)
def test_a_slot_without_authority_makes_no_work(scene: MandateScene, name: str) -> None:
    """The run says why (where the change itself did not stop the schedule), and somebody is told."""
    fault, stage = FAULTS[name], scene.stage
    schedule = stage.create(stage.bob)
    before = stage.clock.now()
    fault.do(scene, schedule)
    work = len(stage.tasks())
    stage.tick(hours=1)
    seen = stage.schedule(schedule)
    assert (seen.status, seen.status_reason) == (fault.status, fault.code)
    assert len(stage.tasks()) == work
    told = [run for run in stage.runs(schedule) if run.trigger.value == "scheduled"]
    expected = [] if fault.seen_at_once else [(fault.run_status, fault.code)]
    assert [(run.status.value, run.error_code) for run in told] == expected
    assert all(run.created_at > before and run.task_id is None for run in told)
    assert (f"schedule.{fault.status.value}", fault.code) in audited(schedule)
    if not fault.seen_at_once and seen.mandate_pk is not None:
        assert ("mandate.deny", fault.code) in audited(schedule)
    cards = [(kind, code) for kind, subject, code in stage.open_alerts() if subject == schedule.schedule_id]
    wanted = ("needs_attention", fault.code)
    assert (wanted in cards) is (fault.status is ScheduleStatus.NEEDS_ATTENTION)
    # Nothing more is tried.
    stage.tick(hours=3)
    assert len(stage.tasks()) == work
    _mend(scene, schedule, fault)


def _mend(scene: MandateScene, schedule: Schedule, fault: Fault) -> None:
    """The sponsor's resume puts right what it may; the rest is a refusal."""
    stage = scene.stage
    if stage.schedule(schedule).status is ScheduleStatus.ACTIVE:
        stage.pause(schedule)
    if not fault.mended:
        with pytest.raises(AppError) as refused:
            stage.resume(schedule)
        assert code_of(refused.value) == (fault.code, 409)
        stage.cancel(schedule)
        return
    stage.resume(schedule, stage.bob)
    seen = stage.schedule(schedule)
    assert (seen.status, seen.sponsor_pk) == (ScheduleStatus.ACTIVE, stage.cast.bob.id)
    done = len(stage.tasks())
    stage.tick(days=7)
    assert len(stage.tasks()) == done + 1


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.seen_at_once])
def test_by_hand_it_is_refused_with_the_same_code_and_written_down(scene: MandateScene, name: str) -> None:
    fault, stage = FAULTS[name], scene.stage
    schedule = stage.create(stage.bob)
    fault.do(scene, schedule)
    runs, work = len(stage.runs(schedule)), len(stage.tasks())
    with pytest.raises(AppError) as refused:
        stage.run_now(schedule, stage.bob)
    assert code_of(refused.value) == (fault.code, 409)
    assert (len(stage.runs(schedule)), len(stage.tasks())) == (runs, work)
    assert ("schedule.run_now_refused", fault.code) in audited(schedule)
    _mend(scene, schedule, fault)


# What is used up by a run by hand leaves nothing that could wait.
LATE = [name for name, fault in FAULTS.items() if not fault.seen_at_once and name != "exhausted"]


@pytest.mark.parametrize("name", LATE)
def test_a_run_that_waited_is_refused_when_its_turn_comes(scene: MandateScene, name: str) -> None:
    fault, stage = FAULTS[name], scene.stage
    schedule = stage.create(stage.bob, overlap_policy="queue_one")
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    stage.tick(hours=1)
    assert stage.told(schedule)[-1] == ("10:00", "queued", None)
    fault.do(scene, schedule)
    stage.reply(task)
    assert stage.told(schedule)[-1] == ("10:00", fault.run_status, fault.code)
    assert stage.schedule(schedule).status is fault.status
    assert len(stage.tasks()) == 1
    _mend(scene, schedule, fault)


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.seen_at_once])
def test_looking_ahead_raises_a_card_before_the_day(scene: MandateScene, name: str) -> None:
    fault, stage = FAULTS[name], scene.stage
    weekly = {"type": "weekly", "time": "07:00", "weekdays": [0]}
    schedule = stage.create(stage.bob, schedule=weekly)
    fault.do(scene, schedule)
    assert maintenance.look_ahead(now=scene.now) == 1
    assert ("would_not_fire", schedule.schedule_id, fault.code) in stage.open_alerts()
    _mend(scene, schedule, fault)


def test_a_mandate_that_ends_or_is_used_up_before_a_slot_of_the_week_is_seen(scene: MandateScene) -> None:
    stage = scene.stage
    ends_between = stage.create(schedule={"type": "daily", "time": "07:00"})
    scene.change(scene.mandate(ends_between), expires_at=scene.now + timedelta(days=3))
    ends_after = stage.create(schedule={"type": "weekly", "time": "07:00", "weekdays": [2]})
    scene.change(scene.mandate(ends_after), expires_at=scene.now + timedelta(days=3))
    few = stage.create(schedule={"type": "daily", "time": "07:00"})
    limited = {**scene.mandate(few).policy, "limits": {"max_runs": 6}}
    scene.change(scene.mandate(few), policy=limited)
    enough = stage.create(schedule={"type": "daily", "time": "07:00"})
    scene.change(scene.mandate(enough), policy={**scene.mandate(enough).policy, "limits": {"max_runs": 7}})
    assert maintenance.look_ahead(now=scene.now) == 2
    assert {(subject, code) for _, subject, code in stage.open_alerts()} == {
        (ends_between.schedule_id, "mandate_expired"),
        (few.schedule_id, "mandate_exhausted"),
    }
    # Renewed, the card goes.
    scene.change(scene.mandate(ends_between), expires_at=None)
    assert maintenance.look_ahead(now=scene.now) == 1


def test_a_member_who_lifts_their_own_pause_mends_nobody_elses_mandate(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    stage.pause(schedule, stage.bob)
    scene.expire(scene.mandate(schedule))
    with pytest.raises(AppError) as refused:
        stage.resume(schedule, stage.bob)
    assert code_of(refused.value) == ("mandate_expired", 409)
    assert stage.schedule(schedule).status is ScheduleStatus.PAUSED


def test_an_admin_who_resumes_what_needs_mending_becomes_the_sponsor(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create(stage.bob)
    old = scene.revoke(scene.mandate(schedule), stage.bob)
    stage.resume(schedule, stage.alice)
    seen = stage.schedule(schedule)
    assert (seen.status, seen.sponsor.name) == (ScheduleStatus.ACTIVE, "Alice")
    new = scene.mandate(schedule)
    assert (new.subject_pk, new.policy) == (stage.cast.alice.id, old.policy)
    assert scene.mandates(schedule) == [("revoked", 2, 0), ("active", 1, 0)]
    with reading() as session:
        entry = session.scalars(
            select(AuditEntry).where(AuditEntry.verb == "schedule.active").order_by(AuditEntry.seq.desc())
        ).first()
        assert entry is not None
        assert (entry.detail["sponsor"], entry.detail["sponsor_was"]) == ("Alice", "Bob")


def test_an_admin_who_resumes_what_is_sound_leaves_the_sponsor(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create(stage.bob)
    stage.pause(schedule, stage.bob)
    stage.resume(schedule, stage.alice)
    assert stage.schedule(schedule).sponsor.name == "Bob"
    assert scene.mandates(schedule) == [("active", 1, 0)]


def test_the_worker_mends_nothing_when_a_pause_ends_by_itself(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    stage.pause(schedule, resume_at=stage.at(10))
    scene.pause(scene.mandate(schedule))
    stage.tick(hours=2)
    seen = stage.schedule(schedule)
    assert (seen.status, seen.status_reason, seen.resume_at) == (
        ScheduleStatus.PAUSED,
        "mandate_paused",
        None,
    )
    assert stage.open_alerts() == [("resume_refused", schedule.schedule_id, "mandate_paused")]


def test_a_sponsor_who_comes_back_is_permitted_again(scene: MandateScene) -> None:
    stage, cast = scene.stage, scene.stage.cast
    dora = make_user("Dora")
    make_member(dora, cast.network, Role.MEMBER)
    schedule = stage.create(actor_of(dora))
    people.deactivate_user(None, dora.user_id, now=scene.now)
    assert stage.schedule(schedule).status_reason == "sponsor_inactive"
    people.reactivate_user(None, dora.user_id, now=scene.now)
    stage.resume(schedule, actor_of(dora))
    assert scene.mandates(schedule) == [("active", 1, 0)]
    stage.tick(hours=1)
    assert stage.told(schedule) == [("09:00", "queued", None)]
