"""Limits are exact, whoever comes at once: threads, processes, the worker beside people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.mandates.scene import MandateScene, tamper_mandate
from tests.support.processes import eventually, herd
from tests.support.races import at_once
from webapp.errors import AppError
from webapp.identity import operations as people
from webapp.mandates import steps
from webapp.mandates.models import Mandate
from webapp.mandates.policy import Verdict, ask_each_time, exactly, talk_only
from webapp.scheduling import claim
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule
from webapp.store.transaction import Tx, operation

TOGETHER = 8


def limited(scene: MandateScene, runs: int, **fields: Any) -> Schedule:
    """A schedule whose mandate is good for so many runs, which may all be open at once."""
    schedule = scene.stage.create(overlap_policy="allow", **fields)
    mandate = scene.mandate(schedule)
    scene.change(mandate, policy={**mandate.policy, "limits": {"max_runs": runs}})
    return schedule


def test_the_last_permitted_run_is_dispatched_and_the_next_slot_is_refused(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = limited(scene, 2)
    for _ in range(4):
        stage.tick(hours=1)
    assert [(status, code) for _, status, code in stage.told(schedule)] == [
        ("cancelled", "schedule_stopped"),
        ("cancelled", "schedule_stopped"),
        ("failed", "mandate_exhausted"),
    ]
    assert stage.schedule(schedule).status is ScheduleStatus.NEEDS_ATTENTION
    assert scene.mandates(schedule) == [("active", 2, 2)]
    # Only another limit helps, and only its subject sets one.
    mandate = scene.mandate(schedule)
    scene.change(mandate, policy={**mandate.policy, "limits": {"max_runs": 3}})
    stage.resume(schedule)
    stage.tick(hours=1)
    assert scene.mandates(schedule) == [("active", 3, 3)]


def test_eight_threads_get_exactly_what_is_left(scene: MandateScene) -> None:
    """People start runs by hand while workers claim the slot that is due."""
    stage = scene.stage
    schedule = limited(scene, 5)
    stage.clock.advance(hours=1)
    hands: list[Callable[[], object]] = [lambda: stage.run_now(schedule)] * (TOGETHER - 2)
    workers: list[Callable[[], object]] = [
        lambda: claim.claim_batch(limit=10, after_network_pk=0, now=scene.now)
    ] * 2
    outcomes = at_once(stage.app, [*hands, *workers])
    refused = {outcome.code for outcome in outcomes if isinstance(outcome, Exception)}
    assert refused <= {"mandate_exhausted"}
    assert len(stage.tasks()) == 5
    assert scene.mandate(schedule).used_runs == 5


def test_eight_processes_get_exactly_what_is_left(
    scene: MandateScene, database_url: str, tmp_path: Path
) -> None:
    stage = scene.stage
    schedule = limited(scene, 7)
    gun = tmp_path / "gun"
    with herd(database_url, tmp_path, modules=["tests.mandates.children"]) as children:
        pids = [
            children.start(
                "tests.mandates.children:run_by_hand",
                database_url=database_url,
                user_pk=stage.cast.alice.id,
                schedule_id=schedule.schedule_id,
                times=2,
                instant=scene.now.isoformat(),
                starting_gun=str(gun),
            )
            for _ in range(TOGETHER)
        ]
        eventually(lambda: all("ready" in children.words(pid) for pid in pids), 60, "all are ready")
        gun.touch()
        assert [children.wait(pid, 60) for pid in pids] == [0] * TOGETHER
        words = Counter(word for pid in pids for word in children.words(pid).split())
    assert words["dispatched"] == 7
    assert words["mandate_exhausted"] == 2 * TOGETHER - 7
    assert len(stage.tasks()) == 7
    assert scene.mandate(schedule).used_runs == 7


def test_a_revocation_that_commits_first_leaves_nothing_to_start(scene: MandateScene) -> None:
    """Eight times: a revocation and a claim at once. Either the run is there and taken back, or it never was."""
    stage = scene.stage
    for _ in range(TOGETHER):
        schedule = stage.create()
        mandate = scene.mandate(schedule)
        stage.clock.advance(hours=1)
        at_once(
            stage.app,
            [
                lambda mandate=mandate: scene.revoke(mandate),
                lambda: claim.claim_batch(limit=50, after_network_pk=0, now=scene.now),
            ],
        )
        assert stage.schedule(schedule).status is ScheduleStatus.NEEDS_ATTENTION
        assert {status for _, status, _ in stage.told(schedule)} <= {"cancelled", "skipped", "failed"}
        assert stage.fetch() == []


# --- Tokens ---


@operation
def reserve(tx: Tx, mandate: Mandate, amount: int) -> bool:
    return steps.reserve_tokens(tx, mandate.id, amount)


@operation
def settle(tx: Tx, mandate: Mandate, reserved: int, used: int) -> None:
    steps.settle_tokens(tx, mandate.id, reserved=reserved, used=used)


def test_tokens_are_set_aside_exactly_and_the_rest_is_given_back(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create()
    mandate = scene.mandate(schedule)
    mandate = scene.change(mandate, policy={**mandate.policy, "limits": {"max_tokens": 1000}})

    def ask() -> list[bool]:
        return [reserve(mandate, 90) for _ in range(4)]

    answers = at_once(stage.app, [ask] * TOGETHER)
    granted = sum(sum(answer) for answer in answers if isinstance(answer, list))
    assert granted == 11
    assert scene.mandate(schedule).reserved_tokens == 990
    for _ in range(granted):
        settle(mandate, 90, 50)
    left = scene.mandate(schedule)
    assert (left.used_tokens, left.reserved_tokens) == (550, 0)
    assert not reserve(mandate, 451)
    assert reserve(mandate, 450)
    # What was used beyond what was set aside is counted too, and leaves nothing.
    settle(mandate, 450, 460)
    assert not reserve(mandate, 1)
    with pytest.raises(AppError) as refused:
        stage.run_now(schedule)
    assert refused.value.code == "mandate_exhausted"


def test_without_a_limit_any_number_is_set_aside(scene: MandateScene) -> None:
    mandate = scene.mandate(scene.stage.create())
    assert reserve(mandate, 10**9)
    settle(mandate, 10**9, 12)
    assert not reserve(Mandate(id=10**6), 1)


# --- What a turn asks before each thing that it does ---


@operation
def authorize(tx: Tx, mandate: Mandate, *, now: Any, known: int | None = None, **asked: Any) -> Verdict | str:
    values = {"operation": "nodes.send_task", "target": "node:node_a", "actor": "turn"} | asked
    return steps.authorize(tx, mandate.id, mandate.revision if known is None else known, now=now, **values)


def test_a_turn_asks_and_every_answer_is_written_down(scene: MandateScene) -> None:
    stage = scene.stage
    schedule = stage.create(stage.bob)
    mandate = scene.mandate(schedule)
    tamper_mandate(mandate, policy=exactly(["nodes.send_task"], ["node:node_a"]).to_json())
    assert authorize(mandate, now=scene.now) is Verdict.PREAPPROVED
    assert authorize(mandate, now=scene.now, target="node:node_b") is Verdict.DENIED
    assert authorize(mandate, now=scene.now, operation="schedules.propose", target=None) is Verdict.DENIED
    tamper_mandate(mandate, policy=ask_each_time().to_json())
    assert authorize(mandate, now=scene.now) is Verdict.NEEDS_APPROVAL
    assert authorize(mandate, now=scene.now, approved=True) is Verdict.PREAPPROVED
    tamper_mandate(mandate, policy=talk_only().to_json())
    assert authorize(mandate, now=scene.now, approved=True) is Verdict.DENIED
    assert authorize(mandate, now=scene.now, known=9) == "mandate_changed"
    assert [verb for verb, _ in scene.trail(mandate)][1:] == [
        "mandate.use",
        "mandate.deny",
        "mandate.deny",
        "mandate.ask",
        "mandate.use",
        "mandate.deny",
        "mandate.deny",
    ]
    stage.cancel(schedule)


def test_a_turn_may_do_nothing_once_authority_has_gone(scene: MandateScene) -> None:
    stage, cast = scene.stage, scene.stage.cast
    paused, revoked, expired, used_up, of_bob = (stage.create(stage.bob) for _ in range(5))
    scene.pause(scene.mandate(paused), stage.bob)
    scene.revoke(scene.mandate(revoked), stage.bob)
    scene.change(scene.mandate(expired), stage.bob, expires_at=scene.now + timedelta(minutes=1))
    tamper_mandate(scene.mandate(used_up), max_runs=1, used_runs=1)
    stage.clock.advance(minutes=1)
    target = f"node:{stage.node.node_id}"

    def answer(schedule: Schedule) -> str:
        return str(authorize(scene.mandate(schedule), now=scene.now, target=target))

    assert answer(paused) == "mandate_paused"
    assert answer(revoked) == "mandate_revoked"
    assert answer(expired) == "mandate_expired"
    # The run that was the last one may be brought to its end.
    assert answer(used_up) == "preapproved"
    people.remove_member(stage.alice, cast.network.network_id, cast.bob.user_id, now=scene.now)
    assert answer(of_bob) == "sponsor_not_permitted"
    people.deactivate_user(None, cast.bob.user_id, now=scene.now)
    assert answer(of_bob) == "sponsor_inactive"
