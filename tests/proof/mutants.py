"""Broken variants of our own code, and the scenario that must catch each; run in a herd's child, one a child.

A mutant is made by patching the child. Every scenario is also played with the product as it is, which must come out
clean: so a finding is the mutant's doing. The scenarios without row locks take them away from the product as well;
that is how a promise of the code is proved: locks are speed, unique keys and compare-and-set are correctness.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, event, insert, select, text, update

from tests.concurrency.planting import every, plant, prepare_ground
from tests.concurrency.scene import nothing_is_usual
from tests.doctor.hands import do
from tests.factories import actor_of
from tests.proof import ledger
from tests.proof.deeds import DEEDS, set_scene
from tests.proof.hurt import Steps, die_at_step, put_in_place_of
from tests.proof.nursery import Nursery, leave_report
from webapp import ids, retention
from webapp.errors import AppError
from webapp.events import outbox
from webapp.events.models import Event, EventCounter
from webapp.identity.models import User
from webapp.nodes.lifecycle import TaskStatus
from webapp.scheduling import claim, maintenance, operations, usual
from webapp.scheduling import tick as tick_module
from webapp.scheduling.fields import NewSchedule
from webapp.scheduling.models import Run, ScheduleDue
from webapp.scheduling.tick import BatchSize, Worker, tick
from webapp.store import dialect, engine, reading
from webapp.store.transaction import Tx, operation
from webapp.targets import node as bridge

_LAST_STEPS, _LOOK_EVERY_STEPS = 16, 4
_WRITERS, _WRITES = 8, 25
_PATIENCE_SECONDS = 15.0

Findings = list[str]


# --- Scenarios: each returns what it found ---


def deaths(nursery: Nursery) -> Findings:
    """A claim dies at each of its last steps, from the end backwards: what is written, and the COMMITs around it."""
    scene = set_scene(nursery.clock)
    deed = DEEDS["claim"]
    for _ in range(2):
        # The second is like all that follow: runs are open, and stand in the way.
        deed.prepare(scene)
        steps = Steps(engine(), lambda _count, _what: None)
        deed.do(scene, None)
    for number in range(steps.count, max(0, steps.count - _LAST_STEPS), -1):
        deed.prepare(scene)
        nursery.dies(lambda number=number: die_at_step(engine(), number), partial(deed.do, scene, None))
        deed.do(scene, None)
        if number % _LOOK_EVERY_STEPS == 0:
            found, _ = ledger.look(nursery.app, calm=False)
            if found:
                return found
    return ledger.look(nursery.app)[0]


def replay(nursery: Nursery) -> Findings:
    """The narrow rows are set back to what they were before a claim, as by a restore of that table alone."""
    now = nursery.clock.now()
    ground = prepare_ground(now)
    plant(ground, 4, every(60, now.replace(second=0) + timedelta(minutes=1)), now=now)
    nursery.clock.advance(minutes=1)
    columns = (
        ScheduleDue.schedule_pk,
        ScheduleDue.next_run_at,
        ScheduleDue.due_at,
        ScheduleDue.claimed_through,
    )
    with reading() as session:
        before = session.execute(select(*columns)).all()
    _pass(nursery)
    for row in before:
        values = {
            "next_run_at": row.next_run_at,
            "due_at": row.due_at,
            "claimed_through": row.claimed_through,
        }
        do(update(ScheduleDue).where(ScheduleDue.schedule_pk == row.schedule_pk).values(**values))
    _pass(nursery)
    return ledger.look(nursery.app)[0]


def race(nursery: Nursery) -> Findings:
    """Two workers without row locks hold the same due rows at the same moment."""
    now = nursery.clock.now()
    plant(prepare_ground(now), 12, every(60, now.replace(second=0) + timedelta(minutes=1)), now=now)
    nursery.clock.advance(minutes=1)
    _take_row_locks_away()
    gate, met = threading.Barrier(2), threading.local()

    def meet(_connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        # Only the first time: from then on each goes its way.
        if statement.startswith("INSERT INTO runs") and not hasattr(met, "once"):
            met.once = True
            with suppress(threading.BrokenBarrierError):
                gate.wait(3)

    event.listen(engine(), "before_cursor_execute", meet)
    _at_once([partial(_pass, nursery)] * 2, nursery)
    return ledger.look(nursery.app)[0]


def overtaken(nursery: Nursery) -> Findings:
    """A claim without row locks has read and not yet written when another worker claims twice; two runs are allowed."""
    now = nursery.clock.now()
    first = now.replace(second=0) + timedelta(minutes=1)
    ground = prepare_ground(now)
    plant(ground, 1, every(60, first), now=now, max_runs=2, overlap_policy="allow")
    nursery.clock.set(first)
    _take_row_locks_away()
    # One by one, because reading and writing are two calls there.
    usual.dispatch = nothing_is_usual
    read, written = threading.Event(), threading.Event()
    slow = threading.local()

    def pause(original: Callable[..., Any]) -> Callable[..., Any]:
        def load(*args: Any) -> Any:
            rows = original(*args)
            if getattr(slow, "here", False):
                read.set()
                written.wait(_PATIENCE_SECONDS)
            return rows

        return load

    put_in_place_of("webapp.scheduling.claim:load_definitions", pause)

    def late() -> None:
        slow.here = True
        with suppress(claim.LostRace):
            claim.claim_batch(limit=10, after_network_pk=0, now=first)

    def quick() -> None:
        assert read.wait(_PATIENCE_SECONDS), "the slow one has read"
        for minutes in (0, 1):
            claim.claim_batch(limit=10, after_network_pk=0, now=first + timedelta(minutes=minutes))
        written.set()

    _at_once([late, quick], nursery)
    nursery.clock.set(first + timedelta(minutes=3))
    _pass(nursery)
    return ledger.look(nursery.app)[0]


def late_answer(nursery: Nursery) -> Findings:
    """A node answers its first attempt while the second is in other hands."""
    scene = set_scene(nursery.clock)
    task = DEEDS["settle"].prepare(scene)
    with reading() as session:
        actor = actor_of(session.get_one(User, scene.ground.sponsor_pk))
    bridge.reply(task.node_pk, task.task_id, TaskStatus.FAILED, "no", 1, now=scene.now)
    bridge.retry(actor, task.task_id, now=scene.now)
    bridge.fetch(scene.ground.node_pk, 50, now=scene.now)
    try:
        bridge.reply(task.node_pk, task.task_id, TaskStatus.REPLIED, "late", 1, now=scene.now)
    except AppError as refused:
        return [] if refused.code == "task_attempt_superseded" else [f"refused as {refused.code}"]
    return ["overwritten: a late worker has ended the work of its replacement"]


def repeated_request(nursery: Nursery) -> Findings:
    """A request is repeated with its key, after a pruning in between."""
    scene = set_scene(nursery.clock)
    with reading() as session:
        actor = actor_of(session.get_one(User, scene.ground.sponsor_pk))
    values = {"name": "Once", "task": "Once.", "target_node_id": scene.ground.node_id}
    new = NewSchedule(**values, schedule={"type": "cron", "cron": "0 * * * *"})
    made = set()
    for _ in range(2):
        schedule = operations.create(
            actor, scene.ground.network_pk, lambda: new, request_key="the-same", now=scene.now
        ).schedule
        made.add(schedule.schedule_id)
        nursery.clock.advance(hours=1)
        retention.prune(now=scene.now)
    return [] if len(made) == 1 else [f"made_twice: one request made {sorted(made)}"]


def busy_writers(nursery: Nursery) -> Findings:
    """Eight processes write at once; each waits for its turn, and none is told that the database is busy."""
    now = nursery.clock.now()

    def write() -> None:
        def count_busy(context: Any) -> None:
            raise SystemExit(f"busy: {context.original_exception}")

        event.listen(engine(), "handle_error", count_busy)
        for number in range(_WRITES):
            at = now + timedelta(milliseconds=os.getpid() % 1000 + number)
            maintenance.worker_seen("wrk_one", started_at=now, lag_ms=number, stopped=False, now=at)

    pids = [nursery.fork(write) for _ in range(_WRITERS)]
    failed = sum(1 for pid in pids if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0)
    return [f"busy: {failed} of {_WRITERS} writers were turned away"] if failed else []


def _pass(nursery: Nursery) -> None:
    worker = Worker(BatchSize(500, fixed=True), started_at=nursery.clock.now())
    for _ in range(3):
        if not tick(worker, nursery.clock)["more"]:
            return


def _at_once(calls: Sequence[Callable[[], None]], nursery: Nursery) -> None:
    failures: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            with nursery.app.app_context():
                call()
        except BaseException as failure:  # noqa: BLE001 - told to the trial below
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE_SECONDS * 2)
    if failures:
        raise failures[0]


def _rewrite(pattern: str, replacement: str) -> None:
    """Change every statement before it is sent."""

    def rewritten(
        _connection: Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool
    ) -> tuple[str, Any]:
        return re.sub(pattern, replacement, statement), parameters

    event.listen(engine(), "before_cursor_execute", rewritten, retval=True)


def _take_row_locks_away() -> None:
    _rewrite(r" FOR UPDATE( SKIP LOCKED| OF \w+)*", "")


# --- Mutants: each changes this process ---


def advance_before_dispatch() -> None:
    """The due rows move on in a transaction of their own, and the runs are written in the next one."""

    @operation
    def advance(tx: Tx, limit: int, now: datetime) -> tuple[Any, Any]:
        networks = claim._networks_with_due(tx.session, now)
        pks, _ = claim._lock_due_batch(tx, networks, limit, 0, now)
        definitions = claim.load_definitions(tx.session, pks)
        facts = claim.load_facts(tx.session, definitions, now=now)
        decisions = [claim.decide(definition, facts, now=now) for definition in definitions]
        if decisions:
            claim._advance(tx, decisions)
        return decisions, facts

    @operation
    def dispatch(tx: Tx, decisions: Any, facts: Any, now: datetime) -> claim.Claimed:
        claim.write(tx, decisions, facts, now=now)
        claim._follow_up(tx, decisions, now=now)
        return claim.Claimed(schedules=len(decisions))

    def claim_batch(*, limit: int, now: datetime, **_: Any) -> claim.Claimed:
        return dispatch(*advance(limit, now), now)

    put_in_place_of("webapp.scheduling.claim:claim_batch", lambda _: claim_batch)


def outbox_after_commit() -> None:
    """Events are written when the change is committed already."""

    def make(emit: Callable[..., None]) -> Callable[..., None]:
        late = operation(emit)

        def emit_late(tx: Tx, network_pk: int, kind: str, data: dict[str, Any], *, now: datetime) -> None:
            tx.after_commit(partial(late, network_pk, kind, data, now=now))

        return emit_late

    put_in_place_of("webapp.events.outbox:emit", make)


def no_unique_key() -> None:
    """Nothing says that a slot has one run, and ids are given by chance."""
    do(text("DROP INDEX uq_runs_slot"))
    by_chance = lambda _: lambda *_args: ids.new_id("srun")  # noqa: E731 - two places, one meaning
    put_in_place_of("webapp.ids:scheduled_run_id", by_chance)
    put_in_place_of("webapp.ids:run_id_at", by_chance)


def check_then_insert() -> None:
    """Whether a slot has its run is looked up, and then it is written: no key, no guard."""
    no_unique_key()
    unguarded_advance()

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def insert_new(session: Any, table: Any, rows: Sequence[Any], returning: Sequence[Any] = ()) -> Any:
            if table.name != "runs":
                return original(session, table, rows, returning)
            there = select(Run.schedule_pk, Run.scheduled_for)
            taken = {tuple(row) for row in session.execute(there)}
            new = [row for row in rows if (row["schedule_pk"], row["scheduled_for"]) not in taken]
            if not new:
                return []
            return session.connection().execute(insert(table).returning(*returning), new).all()

        return insert_new

    put_in_place_of("webapp.store.dialect:insert_new", make)
    put_in_place_of("webapp.scheduling.claim:_claim", lambda _: claim._claim_row_by_row)


def unguarded_advance() -> None:
    """The due row is moved on whoever has moved it meanwhile."""
    _rewrite(
        r"(UPDATE schedule_due SET .* AND )schedule_due\.claim_seq = (\S+)",
        r"\1(schedule_due.claim_seq >= 0 OR schedule_due.claim_seq = \2)",
    )


def conflict_swallowed() -> None:
    """A slot that has its run already is left alone, and so is the due row that names it."""
    written: set[str] = set()

    def note(original: Callable[..., Any]) -> Callable[..., Any]:
        def insert_new(session: Any, table: Any, rows: Sequence[Any], returning: Sequence[Any] = ()) -> Any:
            found = original(session, table, rows, returning)
            if table.name == "runs":
                written.clear()
                written.update(row[0] for row in found)
            return found

        return insert_new

    def leave_alone(original: Callable[..., Any]) -> Callable[..., Any]:
        def advance(tx: Tx, decisions: Sequence[Any]) -> None:
            won = [each for each in decisions if {row["run_id"] for row in each.runs} & written]
            if won:
                original(tx, won)

        return advance

    put_in_place_of("webapp.store.dialect:insert_new", note)
    put_in_place_of("webapp.scheduling.claim:_advance", leave_alone)


def key_pruned() -> None:
    """What makes a repeated request harmless is forgotten at the next pruning."""
    retention.KEYS_KEPT = timedelta(0)


def deferred_begin() -> None:
    """A transaction takes the write lock when it first writes, after it has read."""
    _rewrite("BEGIN IMMEDIATE", "BEGIN")


def serial_event_ids() -> None:
    """Events take their numbers from a sequence, which a rollback does not give back."""
    with engine().connect() as connection:
        connection.execute(text("CREATE SEQUENCE of_the_mutant"))

    def write(tx: Tx) -> None:
        for network_pk, entries in tx.notes["events"].items():
            for kind, data, at in entries:
                seq = tx.session.execute(text("SELECT nextval('of_the_mutant')")).scalar_one()
                row = {"network_pk": network_pk, "seq": seq, "type": kind, "data": data, "at": at}
                tx.session.execute(insert(Event), [row])
                counter = {"network_pk": network_pk, "seq": seq}
                dialect.upsert(tx.session, EventCounter.__table__, counter, ["network_pk"], {"seq": seq})

    outbox._write = write


def no_attempt_fence() -> None:
    """Whichever attempt a node speaks of is taken for the present one."""
    put_in_place_of("webapp.nodes.rules:_check_attempt", lambda _: lambda *_args: None)


@dataclass(frozen=True)
class Mutant:
    """What is broken, the scenario that must notice, how its finding begins, and where it can be played."""

    breaks: Callable[[], None]
    scenario: Callable[[Nursery], Findings]
    found_as: tuple[str, ...]
    engines: tuple[str, ...] = ("sqlite", "postgresql")

    @property
    def name(self) -> str:
        return self.breaks.__name__


MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(advance_before_dispatch, deaths, ("unaccounted", "miscounted", "doctor/slot_without_run")),
        Mutant(outbox_after_commit, deaths, ("unheard",)),
        Mutant(no_unique_key, replay, ("accounted_twice", "doctor/slot_with_two_runs")),
        Mutant(check_then_insert, race, ("accounted_twice", "doctor/slot_with_two_runs"), ("postgresql",)),
        Mutant(unguarded_advance, overtaken, ("too_many", "doctor/next_slot"), ("postgresql",)),
        Mutant(conflict_swallowed, replay, ("left_due",)),
        Mutant(key_pruned, repeated_request, ("made_twice",)),
        Mutant(deferred_begin, busy_writers, ("busy",), ("sqlite",)),
        Mutant(serial_event_ids, deaths, ("gap", "doctor/event_gap"), ("postgresql",)),
        Mutant(no_attempt_fence, late_answer, ("overwritten",)),
    )
}


def trial(name: str, broken: bool, database_url: str, clock_file: str, report: str) -> None:
    """Play the scenario of a mutant, with the mutant or with the product as it is; leaves what was found."""
    mutant = MUTANTS[name]
    nursery = Nursery(database_url, clock_file)
    # A mutant may never be done with what is due.
    tick_module._MAX_BATCHES = 5
    if broken:
        mutant.breaks()
    leave_report(report, {"found": mutant.scenario(nursery)})
