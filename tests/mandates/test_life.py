"""What the life of a schedule does to its mandate: edits, sponsors, ends, proposals, repeats."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from tests.factories import actor_of
from tests.mandates.scene import MandateScene, tamper
from tests.scheduling.stage import code_of
from tests.support.races import at_once
from webapp.errors import AppError
from webapp.mandates.models import Mandate
from webapp.mandates.policy import node_policy
from webapp.scheduling import maintenance, operations
from webapp.scheduling.fields import NewSchedule, ScheduleChanges
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.store import reading
from webapp.targets import node as bridge


def test_creating_twice_with_one_key_leaves_no_orphan(scene: MandateScene) -> None:
    stage = scene.stage
    values: dict[str, Any] = {
        "name": "Sweep",
        "task": "Sweep.",
        "target_node_id": stage.node.node_id,
        "schedule": {"type": "cron", "cron": "0 * * * *"},
    }

    def create() -> Schedule:
        return operations.create(
            stage.alice,
            stage.cast.network.id,
            lambda: NewSchedule(**values),
            request_key="one",
            now=scene.now,
        ).schedule

    made = [outcome for outcome in at_once(stage.app, [create] * 4) if isinstance(outcome, Schedule)]
    assert len({schedule.schedule_id for schedule in made}) == 1
    with reading() as session:
        assert session.scalar(select(func.count()).select_from(Mandate)) == 1


def test_cancelling_revokes_and_completing_rests(scene: MandateScene) -> None:
    stage = scene.stage
    cancelled = stage.create()
    stage.cancel(cancelled)
    stage.cancel(cancelled)
    assert scene.mandates(cancelled) == [("revoked", 2, 0)]
    assert scene.trail(scene.mandate(cancelled))[-1] == ("mandate.revoke", "Alice")
    once = stage.create(schedule={"type": "once", "run_at": stage.at(9).isoformat()})
    stage.tick(hours=1)
    stage.serve()
    assert scene.mandates(once) == [("paused", 2, 1)]
    assert scene.trail(scene.mandate(once)) == [
        ("mandate.create", "Alice"),
        ("mandate.use", "worker"),
        ("mandate.pause", "worker"),
    ]


def test_a_cancel_needs_no_healthy_mandate(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    scene.revoke(scene.mandate(schedule))
    assert stage.cancel(schedule).status is ScheduleStatus.CANCELLED
    bare = stage.create()
    tamper(bare, mandate_pk=None)
    assert stage.cancel(bare).status is ScheduleStatus.CANCELLED
    assert scene.mandates(bare) == [("revoked", 2, 0)]
    tamper(bare, mandate_pk=scene.stage.schedule(bare).mandate_pk or _pk_of(bare))


def _pk_of(schedule: Schedule) -> int:
    with reading() as session:
        workload = f"schedule:{schedule.schedule_id}"
        return session.scalars(select(Mandate.id).where(Mandate.workload == workload)).one()


def test_pausing_and_stopping_leave_the_mandate_alone(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    stage.pause(schedule)
    stage.resume(schedule)
    assert scene.mandates(schedule) == [("active", 1, 0)]


def test_another_target_is_another_revision_and_takes_the_work_along(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    stage.tick(hours=1)
    other = stage.add_node("boreas")
    stage.edit(schedule, target_node_id=other.node_id)
    mandate = scene.mandate(schedule)
    assert (mandate.revision, mandate.policy) == (2, node_policy(other.node_id).to_json())
    assert stage.told(schedule) == [("09:00", "cancelled", "schedule_changed")]
    stage.tick(hours=1)
    assert stage.told(schedule)[-1] == ("10:00", "queued", None)
    assert scene.mandates(schedule) == [("active", 2, 2)]


def test_an_admins_words_run_under_the_admins_own_mandate(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create(stage.bob)
    end = scene.now + timedelta(days=9)
    scene.change(scene.mandate(schedule), stage.bob, expires_at=end)
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    stage.edit(schedule, task="Sweep harder.")
    seen = stage.schedule(schedule)
    assert (seen.sponsor.name, seen.status) == ("Alice", ScheduleStatus.ACTIVE)
    new = scene.mandate(schedule)
    assert (new.subject_pk, new.expires_at, new.revision) == (stage.cast.alice.id, end, 1)
    assert scene.mandates(schedule) == [("revoked", 3, 1), ("active", 1, 0)]
    # It is no revocation: work that was taken up is left to end.
    assert stage.told(schedule) == [("09:00", "running", None)]
    stage.reply(task)
    stage.tick(hours=1)
    assert stage.told(schedule)[-1] == ("10:00", "queued", None)
    assert scene.mandates(schedule)[-1] == ("active", 1, 1)


def test_an_admins_new_name_leaves_the_mandate(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create(stage.bob)
    stage.edit(schedule, name="Another name", timezone="Europe/Berlin")
    assert scene.mandates(schedule) == [("active", 1, 0)]


def test_an_edit_of_what_needs_attention_mends_the_mandate_and_goes_on(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    scene.revoke(scene.mandate(schedule))
    stage.edit(schedule, name="Only a name")
    assert stage.schedule(schedule).status is ScheduleStatus.NEEDS_ATTENTION
    other = stage.add_node("boreas")
    stage.edit(schedule, target_node_id=other.node_id)
    assert stage.schedule(schedule).status is ScheduleStatus.ACTIVE
    assert scene.mandate(schedule).policy == node_policy(other.node_id).to_json()
    assert scene.mandates(schedule) == [("revoked", 2, 0), ("active", 1, 0)]


def test_every_dispatch_is_a_use(scene: MandateScene) -> None:
    """A slot, a run by hand, a late delivery, and a task that is tried again."""
    stage = scene.stage
    schedule = stage.create(overlap_policy="queue_one")
    stage.tick(hours=1)
    stage.run_now(schedule)
    assert scene.mandates(schedule) == [("active", 1, 1)]
    stage.serve()
    assert scene.mandates(schedule) == [("active", 1, 2)]
    (task,) = stage.fetch()
    bridge.cancel(stage.alice, task.task_id, now=scene.now)
    bridge.retry(stage.alice, task.task_id, now=scene.now)
    assert scene.mandates(schedule) == [("active", 1, 3)]
    uses = [actor for verb, actor in scene.trail(scene.mandate(schedule)) if verb == "mandate.use"]
    assert uses == ["worker", "Alice", "Alice"]


def test_a_retry_passes_admission(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    stage.tick(hours=1)
    (task,) = stage.fetch()
    scene.pause(scene.mandate(schedule))
    with pytest.raises(AppError) as refused:
        bridge.retry(stage.alice, task.task_id, now=scene.now)
    assert code_of(refused.value) == ("mandate_paused", 409)
    assert scene.trail(scene.mandate(schedule))[-1] == ("mandate.deny", "Alice")


# --- What an agent proposed ---


def test_a_proposal_waits_for_its_sponsor(scene: MandateScene) -> None:
    stage = scene.stage
    proposal = scene.propose()
    seen = stage.schedule(proposal)
    assert (seen.status, seen.due.next_run_at, seen.sponsor.name) == (ScheduleStatus.PROPOSED, None, "Alice")
    mandate = scene.mandate(proposal)
    assert (mandate.confirmed_at, mandate.confirmed_by_pk) == (None, None)
    stage.tick(hours=3)
    assert stage.runs(proposal) == []
    for way in (stage.pause, stage.resume, stage.run_now):
        with pytest.raises(AppError) as refused:
            way(proposal)
        assert code_of(refused.value) == ("schedule_proposed", 409)
    confirmed = operations.confirm(stage.alice, proposal.schedule_id, now=scene.now)
    assert confirmed.status is ScheduleStatus.ACTIVE
    mandate = scene.mandate(proposal)
    assert (mandate.confirmed_at, mandate.confirmed_by_pk) == (scene.now, stage.cast.alice.id)
    stage.tick(hours=1)
    assert stage.told(proposal) == [("12:00", "queued", None)]


@pytest.mark.parametrize("way", [operations.confirm, operations.reject])
def test_only_what_is_proposed_can_be_answered_and_only_by_whom_it_is_for(
    scene: MandateScene, way: object
) -> None:
    stage = scene.stage
    answer = operations.confirm if way is operations.confirm else operations.reject
    proposal = scene.propose(sponsor_pk=stage.cast.bob.id)
    outsiders = [(stage.cast.vera, "permission_denied"), (stage.cast.charlie, "schedule_not_found")]
    if answer is operations.confirm:
        outsiders.append((stage.cast.alice, "permission_denied"))
    for person, code in outsiders:
        with pytest.raises(AppError) as refused:
            answer(actor_of(person), proposal.schedule_id, now=scene.now)
        assert refused.value.code == code
    with pytest.raises(AppError) as stale:
        answer(stage.bob, proposal.schedule_id, revision=lambda: 9, now=scene.now)
    assert code_of(stale.value) == ("revision_conflict", 409)
    answer(stage.bob, proposal.schedule_id, now=scene.now)
    with pytest.raises(AppError) as again:
        answer(stage.bob, proposal.schedule_id, now=scene.now)
    assert code_of(again.value) == ("not_proposed", 409)


def test_a_proposal_is_edited_by_its_sponsor_and_stays_one(scene: MandateScene) -> None:
    stage = scene.stage
    proposal = scene.propose(sponsor_pk=stage.cast.bob.id)
    other = stage.add_node("boreas")
    with pytest.raises(AppError) as refused:
        stage.edit(proposal, stage.alice, task="Mine.")
    assert code_of(refused.value) == ("permission_denied", 403)
    stage.edit(proposal, stage.bob, task="Sweep the quay.", target_node_id=other.node_id)
    seen = stage.schedule(proposal)
    assert (seen.status, seen.revision, seen.text.body) == (ScheduleStatus.PROPOSED, 2, "Sweep the quay.")
    assert seen.due.next_run_at is None
    mandate = scene.mandate(proposal)
    assert (mandate.policy, mandate.confirmed_at) == (node_policy(other.node_id).to_json(), None)
    with pytest.raises(AppError) as status:
        operations.edit(
            stage.bob,
            proposal.schedule_id,
            lambda: ScheduleChanges(status="active"),
            revision=lambda: 2,
            wants_status_alone=True,
            now=scene.now,
        )
    assert code_of(status.value) == ("schedule_proposed", 409)


def test_what_ends_a_proposal(scene: MandateScene) -> None:
    stage = scene.stage
    rejected, cancelled, revoked, forgotten = (scene.propose() for _ in range(4))
    operations.reject(stage.alice, rejected.schedule_id, now=scene.now)
    stage.cancel(cancelled)
    scene.revoke(scene.mandate(revoked))
    stage.clock.advance(days=7)
    young = scene.propose()
    assert maintenance.drop_old_proposals(now=scene.now) == 1
    assert maintenance.drop_old_proposals(now=scene.now) == 0
    assert stage.schedule(young).status is ScheduleStatus.PROPOSED
    reasons = {
        rejected: "proposal_rejected",
        cancelled: None,
        revoked: "mandate_revoked",
        forgotten: "proposal_expired",
    }
    for proposal, reason in reasons.items():
        seen = stage.schedule(proposal)
        assert (seen.status, seen.status_reason) == (ScheduleStatus.CANCELLED, reason)
        assert scene.mandates(proposal) == [("revoked", 2, 0)]


def test_a_proposal_whose_time_has_passed_cannot_be_confirmed(scene: MandateScene) -> None:
    stage = scene.stage
    proposal = scene.propose(schedule={"type": "once", "run_at": stage.at(9).isoformat()})
    stage.clock.advance(hours=2)
    with pytest.raises(AppError) as refused:
        operations.confirm(stage.alice, proposal.schedule_id, now=scene.now)
    assert code_of(refused.value) == ("schedule_has_no_future_occurrence", 409)
    assert scene.mandate(proposal).confirmed_at is None


def test_to_confirm_the_mandate_alone_starts_nothing(scene: MandateScene) -> None:
    stage = scene.stage
    proposal = scene.propose()
    scene.confirm(scene.mandate(proposal))
    assert stage.schedule(proposal).status is ScheduleStatus.PROPOSED
    operations.confirm(stage.alice, proposal.schedule_id, now=scene.now)
    assert scene.mandates(proposal) == [("active", 2, 0)]


def test_a_confirmation_and_a_rejection_at_once_have_one_winner(scene: MandateScene) -> None:
    stage = scene.stage
    proposal = scene.propose()
    answers = [
        lambda: operations.confirm(stage.alice, proposal.schedule_id, now=scene.now),
        lambda: operations.reject(stage.alice, proposal.schedule_id, now=scene.now),
    ]
    refused = [outcome.code for outcome in at_once(stage.app, answers) if isinstance(outcome, AppError)]
    assert refused == ["not_proposed"]
