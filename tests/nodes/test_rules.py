"""Which reports are accepted, which moves exist, what is shown: pure tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from webapp.errors import AppError
from webapp.nodes import rules
from webapp.nodes.lifecycle import (
    FINAL,
    MAX_RESULT_BYTES,
    MOVES,
    OPEN,
    RETRYABLE,
    NodeLifecycle,
    NodeStatus,
    TaskStatus,
)

NOW = datetime(2026, 11, 30, 8, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


@dataclass(frozen=True)
class ATask:
    status: TaskStatus = TaskStatus.DELIVERED
    attempt: int = 2
    deadline_at: datetime = LATER
    result: str | None = None


def code_of(check: object, *args: object) -> str | None:
    assert callable(check)
    try:
        check(*args)
    except AppError as refused:
        return refused.code
    return None


S = TaskStatus


@pytest.mark.parametrize(
    ("before", "allowed"),
    [
        (S.CREATED, {S.DELIVERED, S.ACKED, S.CANCELLED, S.EXPIRED}),
        (S.DELIVERED, {S.ACKED, S.RUNNING, S.REPLIED, S.FAILED, S.CANCELLED, S.EXPIRED}),
        (S.ACKED, {S.RUNNING, S.REPLIED, S.FAILED, S.CANCELLED, S.EXPIRED}),
        (S.RUNNING, {S.REPLIED, S.FAILED, S.CANCELLED, S.EXPIRED}),
        (S.REPLIED, set()),
        (S.FAILED, {S.CREATED}),
        (S.CANCELLED, {S.CREATED}),
        (S.EXPIRED, {S.CREATED}),
    ],
)
def test_each_state_leads_where_it_may_and_nowhere_else(before: S, allowed: set[S]) -> None:
    assert {after for after in S if rules.may_move(before, after)} == allowed
    assert set(MOVES) == set(S)


@pytest.mark.parametrize(
    ("status", "ack", "answer", "retry"),
    [
        (S.CREATED, None, "task_not_delivered", "task_not_retryable"),
        (S.DELIVERED, None, None, "task_not_retryable"),
        (S.ACKED, None, None, "task_not_retryable"),
        (S.RUNNING, None, None, "task_not_retryable"),
        (S.REPLIED, "task_already_final", "task_already_final", "task_not_retryable"),
        (S.FAILED, "task_already_final", "task_already_final", None),
        (S.CANCELLED, "task_withdrawn", "task_already_final", None),
        (S.EXPIRED, "task_already_final", "task_already_final", None),
    ],
)
def test_which_reports_each_state_takes(
    status: S, ack: str | None, answer: str | None, retry: str | None
) -> None:
    task = ATask(status)
    assert code_of(rules.check_report, task, 2, NOW) == ack
    assert code_of(rules.check_report, task, None, NOW) == ack
    assert code_of(rules.check_answer, task, 2, NOW) == answer
    assert code_of(rules.check_answer, task, None, NOW) == answer
    assert code_of(rules.check_retry, task) == retry


@pytest.mark.parametrize("status", list(S))
def test_an_older_attempt_is_superseded_whatever_the_state(status: S) -> None:
    for check in (rules.check_report, rules.check_answer):
        with pytest.raises(AppError) as refused:
            check(ATask(status), 1, NOW)
        assert refused.value.code == "task_attempt_superseded"
        assert refused.value.details == {"current_attempt": 2}
        assert code_of(check, ATask(status), 3, NOW) == "invalid_attempt"


@pytest.mark.parametrize("status", sorted(OPEN))
def test_a_report_after_its_time_is_refused_before_anybody_swept(status: S) -> None:
    task = ATask(status, deadline_at=NOW)
    assert rules.is_overdue(task, NOW)
    assert not rules.is_overdue(task, NOW - timedelta(milliseconds=1))
    assert code_of(rules.check_report, task, 2, NOW) == "task_already_final"
    assert code_of(rules.check_answer, task, 2, NOW) == "task_already_final"


def test_a_final_task_is_never_overdue() -> None:
    assert not any(rules.is_overdue(ATask(status, deadline_at=NOW), LATER) for status in FINAL)
    assert RETRYABLE < FINAL


@pytest.mark.parametrize(
    ("status", "result", "attempt", "same"),
    [
        (S.REPLIED, "done", 2, True),
        (S.REPLIED, "done", None, True),
        (S.REPLIED, "done", 1, False),
        (S.REPLIED, "Done", 2, False),
        (S.REPLIED, None, 2, False),
        (S.FAILED, "done", 2, False),
    ],
)
def test_an_answer_repeats_only_if_all_of_it_does(
    status: S, result: str | None, attempt: int | None, same: bool
) -> None:
    assert rules.repeats_answer(ATask(S.REPLIED, result="done"), status, result, attempt) is same


def test_a_long_answer_repeats_although_it_was_cut() -> None:
    long = "€" * MAX_RESULT_BYTES
    kept, was_cut = rules.cut_result(long)
    assert was_cut
    assert rules.repeats_answer(ATask(S.REPLIED, result=kept), S.REPLIED, long, 2)


@pytest.mark.parametrize("letter", ["a", "é", "€", "🕭"])
@pytest.mark.parametrize("shift", range(4))
def test_a_cut_falls_between_characters(letter: str, shift: int) -> None:
    whole = "x" * shift + letter * (MAX_RESULT_BYTES + 1)
    kept, was_cut = rules.cut_result(whole)
    assert kept is not None
    assert was_cut
    assert whole.startswith(kept)
    size = len(kept.encode())
    assert MAX_RESULT_BYTES - len(letter.encode()) < size <= MAX_RESULT_BYTES


def test_what_fits_is_not_cut() -> None:
    assert rules.cut_result("x" * MAX_RESULT_BYTES) == ("x" * MAX_RESULT_BYTES, False)
    assert rules.cut_result("") == ("", False)
    assert rules.cut_result(None) == (None, False)


@pytest.mark.parametrize(
    ("lifecycle", "accepts", "fetches"),
    [
        ("active", True, True),
        ("stopping", False, True),
        ("stopped", False, False),
        ("deleting", False, False),
    ],
)
def test_what_a_lifecycle_allows(lifecycle: str, accepts: bool, fetches: bool) -> None:
    assert rules.accepts_work(NodeLifecycle(lifecycle)) is accepts
    assert rules.may_fetch(NodeLifecycle(lifecycle)) is fetches


def test_ten_minutes_of_silence_are_offline() -> None:
    seen = NOW - timedelta(seconds=600)
    assert rules.shown_status(NodeStatus.WORKING, seen, NOW) is NodeStatus.OFFLINE
    just_before = NOW - timedelta(milliseconds=1)
    assert rules.shown_status(NodeStatus.WORKING, seen, just_before) is NodeStatus.WORKING
    assert rules.shown_status(NodeStatus.IDLE, None, NOW) is NodeStatus.OFFLINE
