"""What happens to tasks inside a transaction: order, delivery, attempts, ends, history, bells."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select, text

from tests.nodes.world import World, build, give
from webapp.clock import FrozenClock
from webapp.errors import AppError
from webapp.events.models import Event
from webapp.ids import new_id
from webapp.nodes import steps
from webapp.nodes.lifecycle import MAX_RESULT_BYTES, NodeStatus, Priority, TaskStatus
from webapp.nodes.models import NodePresence, Task, TaskEvent
from webapp.store import db, dialect, reading
from webapp.store.texts import keep_text
from webapp.store.transaction import Tx, operation


@pytest.fixture
def world(app: Flask, clock: FrozenClock) -> World:
    with app.app_context():
        return build(("atlas", "borg"), now=clock.now())


@pytest.fixture(autouse=True)
def in_app(app: Flask, world: World) -> Any:
    with app.app_context():
        yield


@operation
def inside(tx: Tx, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """One step as a transaction of its own."""
    return work(tx, *args, **kwargs)


@operation
def on_task(tx: Tx, task_id: str, work: Callable[..., Any], **kwargs: Any) -> Any:
    task = steps.lock_task(tx, task_id)
    assert task is not None
    return work(tx, task, **kwargs)


def fetch(world: World, now: datetime, limit: int = 10, alias: str = "atlas") -> list[str]:
    tasks = inside(steps.take_from_inbox, world.node_pk(alias), limit, now, actor=f"node:{alias}")
    return [task.task_id for task in tasks]


def stored(task_id: str) -> Task:
    with reading() as session:
        return session.scalars(select(Task).where(Task.task_id == task_id)).one()


def history(task_id: str) -> list[tuple[int, str]]:
    statement = (
        select(TaskEvent.seq, TaskEvent.kind)
        .join(Task, Task.id == TaskEvent.task_pk)
        .where(Task.task_id == task_id)
        .order_by(TaskEvent.seq)
    )
    with reading() as session:
        return [(seq, kind) for seq, kind in session.execute(statement)]


def bells(kind: str) -> list[dict[str, Any]]:
    with reading() as session:
        return list(session.scalars(select(Event.data).where(Event.type == kind).order_by(Event.seq)))


def test_an_inbox_serves_high_before_normal_before_low_and_the_oldest_first(
    world: World, clock: FrozenClock
) -> None:
    given = {}
    for name, priority in (
        ("low", Priority.LOW),
        ("first normal", Priority.NORMAL),
        ("second normal", Priority.NORMAL),
        ("high", Priority.HIGH),
    ):
        given[name] = give(world, priority=priority, now=clock.now())
        clock.advance(seconds=1)
    twin = give(world, priority=Priority.HIGH, now=clock.now())
    later_twin = give(world, priority=Priority.HIGH, now=clock.now())
    wanted = [given["high"], twin, later_twin, given["first normal"], given["second normal"], given["low"]]
    assert fetch(world, clock.now()) == wanted


def test_fetching_again_gives_again_what_was_not_acknowledged(world: World, clock: FrozenClock) -> None:
    first, second = give(world, now=clock.now()), give(world, now=clock.now())
    assert fetch(world, clock.now()) == [first, second]
    on_task(first, steps.acknowledge, actor="node:atlas", now=clock.now())
    assert fetch(world, clock.now()) == [second]
    assert history(second) == [(1, "created"), (2, "delivered")]
    assert stored(second).delivered_at == clock.now()


def test_a_limit_and_a_choice_of_tasks_are_kept(world: World, clock: FrozenClock) -> None:
    tasks = [give(world, now=clock.now()) for _ in range(3)]
    assert fetch(world, clock.now(), limit=2) == tasks[:2]
    chosen = inside(
        steps.take_from_inbox, world.node_pk("atlas"), 10, clock.now(), actor="n", only=[stored(tasks[2]).id]
    )
    assert [task.task_id for task in chosen] == [tasks[2]]
    assert [task.text.body for task in chosen] == ["Read the news"]
    assert chosen[0].node.alias == "atlas"


def test_what_is_past_its_ttl_is_not_handed_out_although_nobody_swept_yet(
    world: World, clock: FrozenClock
) -> None:
    give(world, ttl_seconds=60, now=clock.now())
    clock.advance(seconds=60)
    assert fetch(world, clock.now()) == []
    with reading() as session:
        assert steps.peek_inbox(session, world.node_pk("atlas"), 5, clock.now()) == []


def test_overdue_names_open_tasks_alone_the_longest_overdue_first(world: World, clock: FrozenClock) -> None:
    late = give(world, ttl_seconds=120, now=clock.now())
    later = give(world, ttl_seconds=60, now=clock.now())
    acked = give(world, ttl_seconds=60, now=clock.now())
    on_task(acked, steps.acknowledge, actor="n", now=clock.now())
    ended = give(world, ttl_seconds=60, now=clock.now())
    on_task(ended, steps.end, status=TaskStatus.EXPIRED, actor="worker", now=clock.now(), code="task_expired")
    clock.advance(seconds=120)
    with reading() as session:
        assert [ref.task_id for ref in steps.overdue(session, clock.now(), 10)] == [later, late]
        assert [ref.task_id for ref in steps.overdue(session, clock.now(), 1)] == [later]
    clock.advance(days=1)
    with reading() as session:
        assert acked in [ref.task_id for ref in steps.overdue(session, clock.now(), 10)]


def test_acknowledging_starts_the_running_time_and_repeats_harmlessly(
    world: World, clock: FrozenClock
) -> None:
    task_id = give(world, ttl_seconds=60, now=clock.now())
    fetch(world, clock.now())
    clock.advance(seconds=10)
    assert on_task(task_id, steps.acknowledge, actor="n", now=clock.now()) is True
    first = clock.now()
    clock.advance(seconds=10)
    assert on_task(task_id, steps.acknowledge, actor="n", now=clock.now()) is False
    task = stored(task_id)
    assert (task.status, task.acked_at) == (TaskStatus.ACKED, first)
    assert task.deadline_at == first + timedelta(seconds=task.max_run_seconds)
    assert [kind for _, kind in history(task_id)] == ["created", "delivered", "acked"]


def test_starting_without_an_acknowledgement_stands_for_both(world: World, clock: FrozenClock) -> None:
    task_id = give(world, now=clock.now())
    fetch(world, clock.now())
    assert on_task(task_id, steps.start, actor="n", now=clock.now()) is True
    assert on_task(task_id, steps.start, actor="n", now=clock.now()) is False
    assert on_task(task_id, steps.acknowledge, actor="n", now=clock.now()) is False
    task = stored(task_id)
    assert (task.status, task.acked_at, task.started_at) == (TaskStatus.RUNNING, clock.now(), clock.now())
    assert [kind for _, kind in history(task_id)] == ["created", "delivered", "acked", "running"]


def test_an_end_is_final(world: World, clock: FrozenClock) -> None:
    task_id = give(world, now=clock.now())
    fetch(world, clock.now())
    on_task(
        task_id, steps.end, status=TaskStatus.FAILED, actor="n", now=clock.now(), code="task_failed",
        message="m" * 900, result="broke",
    )  # fmt: skip
    task = stored(task_id)
    assert (task.status, task.error_code, task.result) == (TaskStatus.FAILED, "task_failed", "broke")
    assert len(task.error_message or "") == 500
    assert task.completed_at == clock.now()
    for again in TaskStatus:
        with pytest.raises(AppError) as refused:
            on_task(task_id, steps.end, status=again, actor="n", now=clock.now())
            pytest.fail(f"{again} was accepted after failed")
        assert refused.value.code == "task_already_final"
    assert stored(task_id).status is TaskStatus.FAILED


def test_a_task_that_was_never_handed_out_cannot_be_answered(world: World, clock: FrozenClock) -> None:
    task_id = give(world, now=clock.now())
    with pytest.raises(AppError):
        on_task(task_id, steps.end, status=TaskStatus.REPLIED, actor="n", now=clock.now(), result="x")


def test_a_long_result_is_cut_between_two_characters_and_marked(world: World, clock: FrozenClock) -> None:
    task_id = give(world, now=clock.now())
    fetch(world, clock.now())
    body = "x" + "€" * (MAX_RESULT_BYTES // 3 + 10)
    on_task(task_id, steps.end, status=TaskStatus.REPLIED, actor="n", now=clock.now(), result=body)
    task = stored(task_id)
    assert task.result is not None
    assert task.result == "x" + "€" * ((MAX_RESULT_BYTES - 1) // 3)
    assert task.result_truncated is True


def test_a_result_with_letters_no_database_takes_is_kept_without_them(
    world: World, clock: FrozenClock
) -> None:
    task_id = give(world, now=clock.now())
    fetch(world, clock.now())
    on_task(task_id, steps.end, status=TaskStatus.REPLIED, actor="n", now=clock.now(), result="a\x00b\ud800c")
    assert stored(task_id).result == "a\ufffdb?c"


def test_a_retry_is_the_next_attempt_of_the_same_task_with_its_ttl_anew(
    world: World, clock: FrozenClock
) -> None:
    task_id = give(world, ttl_seconds=600, now=clock.now())
    fetch(world, clock.now())
    on_task(task_id, steps.start, actor="n", now=clock.now())
    on_task(
        task_id, steps.end, status=TaskStatus.FAILED, actor="n", now=clock.now(), code="task_failed",
        result="broke",
    )  # fmt: skip
    clock.advance(hours=2)
    on_task(task_id, steps.reopen, actor="alice", now=clock.now())
    task = stored(task_id)
    assert (task.status, task.attempt, task.result, task.error_code) == (TaskStatus.CREATED, 2, None, None)
    assert task.deadline_at == clock.now() + timedelta(seconds=600)
    assert (task.delivered_at, task.acked_at, task.started_at, task.completed_at) == (None,) * 4
    assert bells("new_task")[-1]["from"] == "alice"
    assert fetch(world, clock.now()) == [task_id]
    with reading() as session:
        detail = session.scalars(select(TaskEvent.detail).where(TaskEvent.kind == "retried")).one()
    assert detail["earlier"] == {"status": "failed", "code": "task_failed", "result": "broke"}
    with pytest.raises(AppError) as refused:
        on_task(task_id, steps.reopen, actor="alice", now=clock.now())
    assert refused.value.code == "task_not_retryable"


def test_withdrawing_leaves_acknowledged_and_final_work_alone(world: World, clock: FrozenClock) -> None:
    created, delivered, acked, ended = (give(world, now=clock.now()) for _ in range(4))
    on_task(ended, steps.end, status=TaskStatus.CANCELLED, actor="n", now=clock.now())
    fetch(world, clock.now())
    on_task(acked, steps.acknowledge, actor="n", now=clock.now())
    late = give(world, now=clock.now())
    pks = [stored(task_id).id for task_id in (created, delivered, acked, ended, late)]

    def withdraw_all(tx: Tx) -> list[str]:
        tasks = steps.lock_tasks(tx, pks)
        gone = steps.withdraw(tx, tasks, code="schedule_paused", actor="bob", now=clock.now())
        return [task.task_id for task in gone]

    assert inside(withdraw_all) == [created, delivered, late]
    assert [stored(task_id).error_code for task_id in (created, delivered, late)] == ["schedule_paused"] * 3
    assert stored(acked).status is TaskStatus.ACKED
    assert stored(ended).error_code is None
    assert inside(withdraw_all) == []
    assert fetch(world, clock.now()) == []


def test_a_cancel_request_rings_and_is_noted_once(world: World, clock: FrozenClock) -> None:
    task_id = give(world, now=clock.now())
    on_task(task_id, steps.acknowledge, actor="n", now=clock.now())
    for _ in range(2):
        on_task(task_id, steps.request_cancel, actor="alice", now=clock.now())
    assert bells("cancel") == [{"node_id": world.node_id("atlas"), "task_id": task_id}] * 2
    assert [kind for _, kind in history(task_id)].count("cancel_requested") == 1


def test_refused_reports_are_kept_but_not_without_end(world: World, clock: FrozenClock) -> None:
    task_id = give(world, now=clock.now())
    for _ in range(25):
        on_task(
            task_id, steps.note_refusal, error=AppError("task_already_final"), report="reply", attempt=1,
            actor="n", now=clock.now(),
        )  # fmt: skip
    assert [kind for _, kind in history(task_id)].count("report_refused") == 20


def test_one_bell_names_all_nodes_of_one_priority(world: World, clock: FrozenClock) -> None:
    def write(tx: Tx) -> list[int]:
        text_pk = keep_text(tx.session, "x").id
        tasks = [
            steps.NewTask(
                new_id("task"), world.network_pk, world.node_pk(alias), None, text_pk, rank, 60, 60, None
            )
            for alias, rank in (("atlas", 1), ("borg", 1), ("atlas", 1), ("borg", 0))
        ]
        return steps.write_tasks(tx, tasks, actor="scheduler", sender="scheduler", now=clock.now())

    assert len(inside(write)) == 4
    both = sorted([world.node_id("atlas"), world.node_id("borg")], key=lambda i: world.nodes["atlas"][1] != i)
    assert bells("new_task") == [
        {"nodes": [world.node_id("borg")], "count": 1, "priority": "high", "from": "scheduler"},
        {"nodes": both, "count": 3, "priority": "normal", "from": "scheduler"},
    ]


def test_the_same_task_written_by_many_at_once_is_written_once(
    app: Flask, world: World, clock: FrozenClock
) -> None:
    def write(_turn: int) -> int:
        def step(tx: Tx) -> int:
            text_pk = keep_text(tx.session, "x").id
            task = steps.NewTask(
                "task_same23", world.network_pk, world.node_pk("atlas"), None, text_pk, 1, 60, 60, None
            )
            return len(steps.write_tasks(tx, [task], actor="s", sender="scheduler", now=clock.now()))

        with app.app_context():
            return int(inside(step))

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(write, range(8))) == [0] * 7 + [1]
    assert history("task_same23") == [(1, "created")]
    assert len(bells("new_task")) == 1


def test_presence_is_written_at_most_once_a_minute_unless_it_changes(
    world: World, clock: FrozenClock
) -> None:
    pk = world.node_pk("atlas")

    def seen() -> tuple[NodeStatus, datetime | None, str | None]:
        with reading() as session:
            row = session.get_one(NodePresence, pk)
            return row.status, row.last_seen_at, row.task_id

    first = clock.now()
    inside(steps.touch_presence, pk, None, None, first)
    assert seen() == (NodeStatus.IDLE, first, None)
    clock.advance(seconds=59)
    inside(steps.touch_presence, pk, NodeStatus.IDLE, None, clock.now())
    assert seen() == (NodeStatus.IDLE, first, None)
    inside(steps.touch_presence, pk, NodeStatus.WORKING, "task_abc234", clock.now())
    assert seen() == (NodeStatus.WORKING, clock.now(), "task_abc234")
    clock.advance(seconds=60)
    inside(steps.touch_presence, pk, None, None, clock.now())
    assert seen() == (NodeStatus.WORKING, clock.now(), "task_abc234")
    assert len(bells("node")) == 2


def test_a_node_that_returns_from_silence_has_the_bell_rung_for_what_it_holds(
    world: World, clock: FrozenClock
) -> None:
    pk = world.node_pk("atlas")
    inside(steps.touch_presence, pk, NodeStatus.IDLE, None, clock.now())
    assert bells("new_task") == []
    clock.advance(seconds=600)
    give(world, priority=Priority.LOW, now=clock.now())
    give(world, priority=Priority.HIGH, now=clock.now())
    rung = len(bells("new_task"))
    inside(steps.touch_presence, pk, NodeStatus.IDLE, None, clock.now())
    assert bells("new_task")[rung:] == [
        {"nodes": [world.node_id("atlas")], "count": 2, "priority": "high", "from": "alice"}
    ]
    clock.advance(seconds=61)
    inside(steps.touch_presence, pk, NodeStatus.IDLE, None, clock.now())
    assert len(bells("new_task")) == rung + 1


def test_the_inbox_and_the_sweep_use_their_indexes(world: World, clock: FrozenClock) -> None:
    if not dialect.is_sqlite(db.engine):
        pytest.skip("the planner of PostgreSQL prefers a scan on an empty table")
    with reading() as session:
        for statement, index in (
            (
                select(Task.id)
                .where(*steps.waits_for(1, clock.now()))
                .order_by(Task.priority_rank, Task.created_at),
                "ix_tasks_inbox",
            ),
            (select(Task.id).where(steps.STILL_OPEN, Task.deadline_at <= clock.now()), "ix_tasks_due"),
        ):
            sql = str(statement.compile(db.engine, compile_kwargs={"literal_binds": True}))
            plan = " ".join(str(row) for row in session.execute(text("EXPLAIN QUERY PLAN " + sql)))
            assert index in plan, plan


def test_history_is_gapless_and_one_transaction_tells_the_pages_once(
    world: World, clock: FrozenClock
) -> None:
    task_id = give(world, now=clock.now())
    fetch(world, clock.now())
    on_task(task_id, steps.start, actor="n", now=clock.now())
    on_task(task_id, steps.end, status=TaskStatus.REPLIED, actor="n", now=clock.now(), result="done")
    assert [seq for seq, _ in history(task_id)] == [1, 2, 3, 4, 5]
    with reading() as session:
        assert session.scalar(select(func.count()).select_from(Event).where(Event.type == "task")) == 3
