"""What a policy may be, what it permits, and when one is narrower than another."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webapp.errors import AppError
from webapp.mandates.lifecycle import MandateState
from webapp.mandates.policy import (
    MandateFacts,
    Policy,
    Verdict,
    ask_each_time,
    exactly,
    is_narrower,
    node_policy,
    parse_policy,
    permits,
    refusal,
    standing_refusal,
    stored_policy,
    talk_only,
)

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
USUAL: dict[str, Any] = {
    "version": 1,
    "apps": ["nodes"],
    "operations": ["nodes.send_task"],
    "actions": "preapproved",
    "targets": ["node:node_atlas"],
}


def test_the_policies_of_the_product_are_what_they_say() -> None:
    assert node_policy("node_atlas").to_json() == USUAL
    assert talk_only().to_json() == {"version": 1, "apps": [], "operations": [], "actions": "deny"}
    assert ask_each_time().to_json() == {
        "version": 1,
        "apps": "*",
        "operations": "*",
        "actions": "require_approval",
    }
    some = exactly(["schedules.list", "nodes.send_task", "nodes.send_task"])
    assert some.to_json() == {
        "version": 1,
        "apps": ["nodes", "schedules"],
        "operations": ["nodes.send_task", "schedules.list"],
        "actions": "preapproved",
    }
    with pytest.raises(AppError):
        exactly([])


def test_what_is_read_is_written_unique_and_sorted() -> None:
    policy = parse_policy(
        {
            "limits": {"max_tokens": 5},
            "targets": ["node:b_node", "node:a_node", "node:b_node"],
            "actions": "require_approval",
            "operations": "*",
            "apps": ["schedules", "nodes", "nodes"],
            "version": 1,
        }
    )
    assert policy.to_json() == {
        "version": 1,
        "apps": ["nodes", "schedules"],
        "operations": "*",
        "actions": "require_approval",
        "targets": ["node:a_node", "node:b_node"],
        "limits": {"max_tokens": 5},
    }
    assert "limits" not in parse_policy({**USUAL, "limits": {}}).to_json()


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "*",
        {},
        {**USUAL, "version": 2},
        {**USUAL, "version": True},
        {**USUAL, "version": "1"},
        {**USUAL, "version": 1.0},
        {**USUAL, "unknown": 1},
        {**USUAL, "actions": "allow"},
        {**USUAL, "actions": None},
        {**USUAL, "actions": ["deny"]},
        {**USUAL, "apps": None},
        {**USUAL, "apps": {}},
        {**USUAL, "apps": "nodes"},
        {**USUAL, "apps": ["*"]},
        {**USUAL, "apps": [1]},
        {**USUAL, "apps": ["Nodes"]},
        {**USUAL, "apps": ["nodes.send_task"]},
        {**USUAL, "operations": ["nodes"]},
        {**USUAL, "operations": ["nodes.*"]},
        {**USUAL, "operations": [f"nodes.o{number}" for number in range(101)]},
        {**USUAL, "apps": "*"},
        {**USUAL, "operations": "*"},
        {**USUAL, "apps": "*", "actions": "deny"},
        {**USUAL, "apps": []},
        {**USUAL, "operations": []},
        {**USUAL, "targets": "*"},
        {**USUAL, "targets": None},
        {**USUAL, "targets": ["atlas"]},
        {**USUAL, "targets": ["node:"]},
        {**USUAL, "limits": None},
        {**USUAL, "limits": []},
        {**USUAL, "limits": {"max_runs": 0}},
        {**USUAL, "limits": {"max_runs": True}},
        {**USUAL, "limits": {"max_runs": 1.0}},
        {**USUAL, "limits": {"max_runs": None}},
        {**USUAL, "limits": {"max_days": 1}},
        {**USUAL, "limits": {"max_tokens": 10**13}},
        {**USUAL, "targets": [f"node:{number:0190}" for number in range(100)]},
    ],
)
def test_what_is_no_policy_is_refused_and_stored_it_permits_nothing(wrong: Any) -> None:
    with pytest.raises(AppError) as refused:
        parse_policy(wrong)
    assert (refused.value.code, refused.value.field) == ("invalid_policy", "policy")
    if isinstance(wrong, dict):
        assert stored_policy(wrong) == talk_only()


@pytest.mark.parametrize(
    ("policy", "operation", "target", "verdict"),
    [
        (node_policy("node_a"), "nodes.send_task", "node:node_a", Verdict.PREAPPROVED),
        (node_policy("node_a"), "nodes.send_task", "node:node_b", Verdict.DENIED),
        (node_policy("node_a"), "nodes.list", None, Verdict.DENIED),
        (node_policy("node_a"), "schedules.propose", None, Verdict.DENIED),
        (talk_only(), "nodes.list", None, Verdict.DENIED),
        (ask_each_time(), "nodes.list", None, Verdict.NEEDS_APPROVAL),
        (ask_each_time(), "nodes.send_task", "node:node_b", Verdict.NEEDS_APPROVAL),
        (exactly(["nodes.send_task"]), "nodes.send_task", "node:node_b", Verdict.PREAPPROVED),
        (exactly(["nodes.send_task"], []), "nodes.send_task", "node:node_b", Verdict.DENIED),
        (exactly(["nodes.list"]), "nodes.send_task", None, Verdict.DENIED),
        (
            parse_policy({**USUAL, "apps": ["schedules"], "operations": ["nodes.send_task"]}),
            "nodes.send_task",
            "node:node_atlas",
            Verdict.DENIED,
        ),
        (
            parse_policy({**USUAL, "actions": "deny"}),
            "nodes.send_task",
            "node:node_atlas",
            Verdict.DENIED,
        ),
        (
            parse_policy({**USUAL, "operations": "*", "actions": "require_approval"}),
            "nodes.list",
            None,
            Verdict.NEEDS_APPROVAL,
        ),
        (
            parse_policy({**USUAL, "operations": "*", "actions": "require_approval"}),
            "schedules.list",
            None,
            Verdict.DENIED,
        ),
    ],
)
def test_what_a_policy_says_to_a_call(
    policy: Policy, operation: str, target: str | None, verdict: Verdict
) -> None:
    assert permits(policy, operation, target) is verdict


# --- Properties ---

APPS = st.sampled_from(["nodes", "schedules", "mail"])
OPERATIONS = st.sampled_from(["nodes.send_task", "nodes.list", "schedules.propose", "mail.send"])
TARGETS = st.sampled_from(["node:node_a", "node:node_b", "node:node_c"])
LIMITS = st.dictionaries(st.sampled_from(["max_runs", "max_tokens"]), st.integers(1, 50))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    actions = draw(st.sampled_from(["deny", "require_approval", "preapproved"]))
    least = 1 if actions == "preapproved" else 0
    written: dict[str, Any] = {
        "version": 1,
        "actions": actions,
        "apps": draw(st.lists(APPS, min_size=least)),
        "operations": draw(st.lists(OPERATIONS, min_size=least)),
        "limits": draw(LIMITS),
    }
    if actions == "require_approval":
        for name in ("apps", "operations"):
            if draw(st.booleans()):
                written[name] = "*"
    if draw(st.booleans()):
        written["targets"] = draw(st.lists(TARGETS))
    return parse_policy(written)


@given(policies())
def test_a_policy_is_read_back_as_itself_and_is_as_narrow_as_itself(policy: Policy) -> None:
    assert parse_policy(json.loads(json.dumps(policy.to_json()))) == policy
    assert is_narrower(policy, policy)
    assert is_narrower(talk_only(), talk_only())


_RANK = {Verdict.DENIED: 0, Verdict.NEEDS_APPROVAL: 1, Verdict.PREAPPROVED: 2}


@given(policies(), policies(), OPERATIONS, st.none() | TARGETS)
def test_a_narrower_policy_never_says_more(
    new: Policy, old: Policy, operation: str, target: str | None
) -> None:
    if is_narrower(new, old):
        assert _RANK[permits(new, operation, target)] <= _RANK[permits(old, operation, target)]
        assert old.max_runs is None or (new.max_runs or 0) <= old.max_runs
        assert old.max_tokens is None or (new.max_tokens or 0) <= old.max_tokens


@given(policies(), policies(), policies())
def test_narrower_is_transitive(one: Policy, two: Policy, three: Policy) -> None:
    if is_narrower(one, two) and is_narrower(two, three):
        assert is_narrower(one, three)


# --- The state of a mandate ---


def mandate(**fields: Any) -> MandateFacts:
    values: dict[str, Any] = {
        "pk": 1,
        "mandate_id": "mand_a",
        "network_pk": 1,
        "subject_pk": 1,
        "workload": "schedule:sched_a",
        "state": MandateState.ACTIVE,
        "revision": 3,
        "confirmed": True,
        "expires_at": None,
        "policy": USUAL,
    }
    return MandateFacts(**(values | fields))


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (None, "mandate_missing"),
        (mandate(), None),
        (mandate(state=MandateState.REVOKED, expires_at=NOON, confirmed=False), "mandate_revoked"),
        (mandate(confirmed=False, state=MandateState.PAUSED), "mandate_unconfirmed"),
        (mandate(expires_at=NOON), "mandate_expired"),
        (mandate(expires_at=NOON, state=MandateState.PAUSED), "mandate_expired"),
        (mandate(expires_at=NOON + timedelta(milliseconds=1)), None),
        (mandate(state=MandateState.PAUSED, revision=4), "mandate_paused"),
        (mandate(revision=4), "mandate_changed"),
        (mandate(revision=2), "mandate_changed"),
        (mandate(max_runs=2, used_runs=1), None),
        (mandate(max_runs=2, used_runs=2), "mandate_exhausted"),
        (mandate(max_runs=2, used_runs=3), "mandate_exhausted"),
        (mandate(max_tokens=100, used_tokens=99), None),
        (mandate(max_tokens=100, used_tokens=100), "mandate_exhausted"),
    ],
)
def test_when_a_mandate_may_not_be_used(facts: MandateFacts | None, code: str | None) -> None:
    assert refusal(facts, 3, NOON) == code
    standing = None if code == "mandate_exhausted" else code
    assert standing_refusal(facts, 3, NOON) == standing


def test_a_workload_that_knows_no_revision_may_not_use_it() -> None:
    assert refusal(mandate(), None, NOON) == "mandate_changed"
