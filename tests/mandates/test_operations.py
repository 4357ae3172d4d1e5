"""What people do to mandates: it works, outsiders may not, states are checked, repeats are harmless."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.factories import actor_of
from tests.mandates.scene import MandateScene
from tests.scheduling.stage import code_of
from tests.support.races import at_once
from webapp.errors import AppError
from webapp.identity.access import Actor
from webapp.mandates.models import Mandate
from webapp.mandates.policy import node_policy, talk_only
from webapp.scheduling.lifecycle import ScheduleStatus

WAYS = ("change", "confirm", "pause", "resume", "revoke")


def act(
    scene: MandateScene, way: str, mandate: Mandate, actor: Actor, revision: int | None = None
) -> Mandate:
    if way == "change":
        return scene.change(
            mandate, actor, revision=revision or mandate.revision, expires_at=scene.now + timedelta(days=90)
        )
    method = getattr(scene, way)
    done: Mandate = method(mandate, actor, revision)
    return done


def test_a_new_schedule_has_a_confirmed_mandate_of_exactly_what_it_needs(scene: MandateScene) -> None:
    schedule = scene.stage.create()
    mandate = scene.mandate(schedule)
    assert mandate.mandate_id == scene.stage.schedule(schedule).mandate_id
    assert mandate.policy == node_policy(scene.stage.node.node_id).to_json()
    assert (mandate.state.value, mandate.revision, mandate.expires_at) == ("active", 1, None)
    assert (mandate.confirmed_by_pk, mandate.subject_pk) == (scene.stage.cast.alice.id,) * 2
    assert scene.trail(mandate) == [("mandate.create", "Alice")]


def test_a_change_is_a_new_revision_that_the_schedule_knows_and_goes_on_with(scene: MandateScene) -> None:
    schedule = scene.stage.create()
    end = scene.now + timedelta(days=30)
    changed = scene.change(scene.mandate(schedule), expires_at=end)
    assert (changed.revision, changed.expires_at) == (2, end)
    assert scene.stage.schedule(schedule).mandate_revision == 2
    assert scene.stage.schedule(schedule).revision == 1
    scene.stage.tick(hours=1)
    assert scene.stage.told(schedule) == [("09:00", "queued", None)]
    again = scene.change(scene.mandate(schedule), expires_at=end)
    assert again.revision == 2
    assert scene.change(again, expires_at=None).expires_at is None


def test_the_audit_says_whether_a_change_broadens(scene: MandateScene) -> None:
    mandate = scene.mandate(scene.stage.create())
    limited = {**mandate.policy, "limits": {"max_runs": 3}}
    sooner, later = scene.now + timedelta(days=3), scene.now + timedelta(days=9)
    steps: list[tuple[dict[str, object], bool]] = [
        ({"policy": limited}, False),
        ({"policy": {**limited, "limits": {"max_runs": 4}}}, True),
        ({"expires_at": sooner}, False),
        ({"expires_at": later}, True),
        ({"expires_at": None}, True),
    ]
    for fields, _ in steps:
        mandate = scene.change(mandate, **fields)
    said = [detail["broadens"] for detail in scene.details(mandate, "mandate.change")]
    assert said == [broadens for _, broadens in steps]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"policy": {"version": 1}}, "invalid_policy"),
        ({"policy": None}, "invalid_policy"),
        ({"expires_at": "the present"}, "invalid_expires_at"),
    ],
)
def test_a_change_that_is_none_is_refused(scene: MandateScene, fields: dict[str, object], code: str) -> None:
    mandate = scene.mandate(scene.stage.create())
    if "expires_at" in fields:
        fields = {"expires_at": scene.now}
    with pytest.raises(AppError) as refused:
        scene.change(mandate, **fields)
    assert code_of(refused.value) == (code, 400)
    assert scene.trail(mandate) == [("mandate.create", "Alice")]


@pytest.mark.parametrize("revision", [None, 2, 99])
def test_a_change_needs_the_revision_that_stands(scene: MandateScene, revision: int | None) -> None:
    mandate = scene.mandate(scene.stage.create())
    with pytest.raises(AppError) as refused:
        scene.change(mandate, revision=revision, expires_at=None)
    assert code_of(refused.value) == ("mandate_revision_conflict", 409)
    assert refused.value.details == {"current_revision": 1}


@pytest.mark.parametrize("way", WAYS)
def test_who_is_not_its_subject_may_only_stop_it_and_only_as_an_admin(scene: MandateScene, way: str) -> None:
    """403 comes before revision and policy are looked at; a foreign network sees nothing."""
    stage = scene.stage
    of_bob = scene.mandate(stage.create(stage.bob))
    cast = stage.cast
    with pytest.raises(AppError) as foreign:
        act(scene, way, of_bob, actor_of(cast.charlie))
    assert code_of(foreign.value) == ("mandate_not_found", 404)
    for outsider in (cast.vera, cast.alice):
        may = outsider is cast.alice and way in ("pause", "revoke")
        if may:
            act(scene, way, of_bob, actor_of(outsider))
            continue
        with pytest.raises(AppError) as refused:
            act(scene, way, of_bob, actor_of(outsider), 99)
        assert code_of(refused.value) == ("permission_denied", 403)
    with pytest.raises(AppError) as refused:
        act(scene, way, scene.mandate(stage.create()), stage.bob)
    assert code_of(refused.value) == ("permission_denied", 403)


@pytest.mark.parametrize("way", WAYS)
def test_a_revoked_mandate_is_revoked_for_good(scene: MandateScene, way: str) -> None:
    schedule = scene.stage.create()
    revoked = scene.revoke(scene.mandate(schedule))
    assert (revoked.state.value, revoked.state_reason, revoked.ended_at) == ("revoked", "Enough.", scene.now)
    if way == "revoke":
        # Also with an old revision, and nothing is written twice.
        assert scene.revoke(revoked, revision=1).revision == 2
    else:
        with pytest.raises(AppError) as refused:
            act(scene, way, revoked, scene.stage.alice)
        assert code_of(refused.value) == ("mandate_is_revoked", 409)
    assert [verb for verb, _ in scene.trail(revoked)] == ["mandate.create", "mandate.revoke"]


def test_a_revocation_says_why(scene: MandateScene) -> None:
    mandate = scene.mandate(scene.stage.create())
    with pytest.raises(AppError) as refused:
        scene.revoke(mandate, reason="")
    assert code_of(refused.value) == ("reason_required", 400)


@pytest.mark.parametrize("way", ["confirm", "pause", "resume", "revoke"])
def test_a_revision_that_is_named_must_be_the_one_that_stands(scene: MandateScene, way: str) -> None:
    mandate = scene.mandate(scene.stage.create())
    with pytest.raises(AppError) as refused:
        act(scene, way, mandate, scene.stage.alice, 7)
    assert code_of(refused.value) == ("mandate_revision_conflict", 409)


def test_to_pause_and_to_resume_again_changes_nothing(scene: MandateScene) -> None:
    schedule = scene.stage.create()
    assert scene.pause(scene.mandate(schedule)).revision == 2
    assert scene.pause(scene.mandate(schedule)).revision == 2
    assert scene.resume(scene.mandate(schedule)).revision == 3
    assert scene.resume(scene.mandate(schedule)).revision == 3
    assert scene.confirm(scene.mandate(schedule)).revision == 3
    assert [verb for verb, _ in scene.trail(scene.mandate(schedule))] == [
        "mandate.create",
        "mandate.pause",
        "mandate.resume",
    ]


def test_a_paused_mandate_pauses_its_schedule_and_resuming_it_alone_resumes_nothing(
    scene: MandateScene,
) -> None:
    stage = scene.stage
    schedule = stage.create()
    stage.tick(hours=1)
    stage.clock.advance(hours=2, minutes=20)
    scene.pause(scene.mandate(schedule))
    seen = stage.schedule(schedule)
    assert (seen.status, seen.status_reason) == (ScheduleStatus.PAUSED, "mandate_paused")
    assert (seen.due.next_run_at, seen.mandate_revision) == (None, 2)
    # What nobody had taken up is taken back, what had fallen due is one skipped run.
    assert stage.told(schedule) == [
        ("09:00", "cancelled", "mandate_paused"),
        ("11:00", "skipped", "mandate_paused"),
    ]
    assert stage.fetch() == []
    scene.resume(scene.mandate(schedule))
    assert stage.schedule(schedule).status is ScheduleStatus.PAUSED
    stage.resume(schedule)
    stage.tick(hours=1)
    assert stage.told(schedule)[-1] == ("12:00", "queued", None)


def test_revoking_stops_the_schedule_takes_back_what_waits_and_tells_who_works(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create(overlap_policy="allow")
    stage.tick(hours=1)
    (task,) = stage.fetch()
    stage.acknowledge(task)
    stage.tick(hours=1)
    scene.revoke(scene.mandate(schedule), actor_of(stage.cast.alice))
    seen = stage.schedule(schedule)
    assert (seen.status, seen.status_reason) == (ScheduleStatus.NEEDS_ATTENTION, "mandate_revoked")
    assert stage.told(schedule) == [("09:00", "running", None), ("10:00", "cancelled", "mandate_revoked")]
    assert stage.open_alerts() == [("needs_attention", schedule.schedule_id, "mandate_revoked")]
    # Bookkeeping after the end needs no live authority.
    stage.reply(task)
    assert stage.told(schedule)[0] == ("09:00", "completed", None)


def test_a_policy_that_permits_no_more_stops_the_schedule_at_once(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    scene.change(scene.mandate(schedule), policy=talk_only().to_json())
    seen = stage.schedule(schedule)
    assert (seen.status, seen.status_reason) == (ScheduleStatus.NEEDS_ATTENTION, "mandate_denies")
    with pytest.raises(AppError) as refused:
        stage.resume(schedule)
    assert code_of(refused.value) == ("mandate_denies", 409)
    scene.change(scene.mandate(schedule), policy=node_policy(stage.node.node_id).to_json())
    assert stage.resume(schedule).status is ScheduleStatus.ACTIVE


def test_the_mandate_of_what_is_completed_cannot_be_resumed(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create(schedule={"type": "once", "run_at": stage.at(9).isoformat()})
    stage.tick(hours=1)
    stage.serve()
    assert stage.schedule(schedule).status is ScheduleStatus.COMPLETED
    with pytest.raises(AppError) as refused:
        scene.resume(scene.mandate(schedule))
    assert code_of(refused.value) == ("schedule_completed", 409)
    assert scene.revoke(scene.mandate(schedule)).state.value == "revoked"
    assert stage.schedule(schedule).status is ScheduleStatus.COMPLETED


def test_two_who_change_it_at_once_are_one_change_and_one_conflict(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    mandate = scene.mandate(schedule)
    ends = [scene.now + timedelta(days=days) for days in (30, 60)]
    outcomes = at_once(stage.app, [lambda end=end: scene.change(mandate, expires_at=end) for end in ends])
    refused = [outcome for outcome in outcomes if isinstance(outcome, AppError)]
    assert [code_of(error) for error in refused] == [("mandate_revision_conflict", 409)]
    assert scene.mandate(schedule).revision == 2


def test_a_pause_and_a_revocation_at_once_end_revoked(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    mandate = scene.mandate(schedule)
    calls = [lambda: scene.pause(mandate), lambda: scene.revoke(mandate), lambda: scene.revoke(mandate)]
    outcomes = at_once(stage.app, calls)
    codes = {outcome.code for outcome in outcomes if isinstance(outcome, AppError)}
    assert codes <= {"mandate_is_revoked"}
    assert all(isinstance(outcome, AppError | Mandate) for outcome in outcomes)
    assert scene.mandate(schedule).state.value == "revoked"
