"""A network with something of everything, written through the product's own operations beside the running site.

The demo's orders, runs that were answered, failed, skipped and that still wait, a pause, a stopped schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import func, select

from tests.e2e.conftest import Site
from tests.support.databases import config_for, dispose_engines
from tests.support.processes import eventually
from webapp import create_app, demo
from webapp.identity import queries
from webapp.nodes import operations as nodes
from webapp.nodes.lifecycle import TaskStatus
from webapp.nodes.models import Node
from webapp.scheduling import operations as schedules
from webapp.scheduling.fields import NewSchedule, PauseRequest
from webapp.scheduling.lifecycle import OverlapPolicy, RunStatus
from webapp.scheduling.models import DailyCount, Run, Schedule, ScheduleDue
from webapp.store import reading
from webapp.store.transaction import Tx, operation
from webapp.targets import node as node_calls

MINUTE = "Count the words of the minute"
BUSY = "Minutes of all meetings"


@dataclass(frozen=True)
class Beginning:
    """How to get in, and the address of a schedule."""

    owner: str
    password: str
    schedule: str


@dataclass(frozen=True)
class Scene(Beginning):
    """The addresses that are worth a look, too."""

    paused_schedule: str
    run: str
    failed_run: str
    skipped_run: str
    node: str
    task: str


def begin(site: Site) -> Beginning:
    """Write the demo's people, nodes and orders into the site's database."""
    with product(site):
        return _begin(site)


def furnish(site: Site) -> Scene:
    """The same, then let the site's worker claim and a node answer; returns what was made."""
    with product(site):
        return furnish_orders(site)


def pause(site: Site, address: str) -> None:
    """Pause the schedule of this page as its owner, somewhere else than in the browser."""
    with product(site):
        pause_because(site, address, None)


def pause_because(site: Site, address: str, reason: str | None) -> None:
    """The same with a reason, or another reason for a pause that stands, inside of `product`."""
    with reading() as session:
        owner = queries.user_by_name(session, demo.OWNER)
        person = queries.person_of(session, user_pk=owner.id) if owner else None
    assert person is not None
    wish = PauseRequest(reason=reason)
    schedules.pause(person.actor, address.removeprefix("/schedules/"), lambda: wish, now=site.clock.now())


def long_history(site: Site) -> str:
    """A schedule with 28 runs, two of which failed; returns its address."""
    with product(site):
        now = site.clock.now()
        with reading() as session:
            owner = queries.user_by_name(session, demo.OWNER)
            person = queries.person_of(session, user_pk=owner.id) if owner else None
        assert person is not None
        node, _ = nodes.create_node(person.actor, min(person.actor.networks), "scribe", now=now)
        new = NewSchedule(
            name=BUSY,
            task="Take the minutes.",
            target_node_id=node.node_id,
            schedule={"type": "daily", "time": "03:00"},
            overlap_policy=OverlapPolicy.ALLOW,
        )
        made = schedules.create(person.actor, min(person.actor.networks), lambda: new, now=now).schedule
        for _ in range(2):
            schedules.run_now(person.actor, made.schedule_id, now=now)
        answer(site, node.id, TaskStatus.FAILED, "The pen is dry.")
        for _ in range(26):
            schedules.run_now(person.actor, made.schedule_id, now=now)
        return f"/schedules/{made.schedule_id}"


def remember_a_year(site: Site, address: str) -> None:
    """Give the schedule of this page a year of runs that were forgotten: what its calendar is drawn from."""
    with product(site):
        remember(address.removeprefix("/schedules/"), site.clock.now().date())


@operation
def remember(tx: Tx, schedule_id: str, today: date) -> None:
    """Count three hundred days of runs that are no longer kept."""
    pk = tx.session.scalars(select(Schedule.id).where(Schedule.schedule_id == schedule_id)).one()
    for back in range(1, 300):
        day = today - timedelta(days=back)
        if day.weekday() >= 5:
            continue
        status = {0: RunStatus.FAILED, 1: RunStatus.SKIPPED, 2: RunStatus.EXPIRED}.get(back % 31)
        count = 1 + back % 4 if day.weekday() == 0 else 1
        tx.session.add(DailyCount(schedule_pk=pk, day=day, status=status or RunStatus.COMPLETED, count=count))


@contextmanager
def product(site: Site) -> Iterator[None]:
    """The product in this process, on the site's database and clock."""
    app = create_app(config_for(site.database_url), site.clock)
    try:
        with app.app_context():
            yield
    finally:
        dispose_engines(app)


def _begin(site: Site) -> Beginning:
    sample = demo.furnish(now=site.clock.now())
    return Beginning(sample.owner, sample.password, f"/schedules/{public_id(schedule_named(MINUTE))}")


def furnish_orders(site: Site) -> Scene:
    """As `furnish`, inside of `product`."""
    beginning = _begin(site)
    minute = schedule_named(MINUTE)
    atlas = node_named(demo.WORKING_NODE)
    # The run that the demo starts by hand.
    answer(site, atlas, TaskStatus.REPLIED, "14 words")
    answered = ring(site, minute)
    answer(site, atlas, TaskStatus.REPLIED, "12 words")
    failed = ring(site, minute)
    answer(site, atlas, TaskStatus.FAILED, "The drum could not be read.\nIt is being mended.")
    open_run = ring(site, minute)
    skipped = ring(site, minute)
    with reading() as session:
        task = session.scalar(select(Run.task_id).where(Run.run_id == failed))
        node_id = session.scalar(select(Node.node_id).where(Node.id == atlas))
        paused = session.scalar(select(Schedule.schedule_id).where(Schedule.name == "Competitor watch"))
        status = session.scalar(select(Run.status).where(Run.run_id == skipped))
    assert status is RunStatus.SKIPPED, f"{open_run} is open, and {skipped} is {status}"
    return Scene(
        owner=beginning.owner,
        password=beginning.password,
        schedule=beginning.schedule,
        paused_schedule=f"/schedules/{paused}",
        run=f"/runs/{answered}",
        failed_run=f"/runs/{failed}",
        skipped_run=f"/runs/{skipped}",
        node=f"/nodes/{node_id}",
        task=f"/tasks/{task}",
    )


def ring(site: Site, schedule_pk: int) -> str:
    """Move the clock to the next slot and wait for the worker to claim it; returns the new run."""
    before = _count_runs(schedule_pk)
    site.clock.advance(seconds=timedelta(minutes=1).total_seconds())
    eventually(_one_more(schedule_pk, before), 20, "the worker claims the slot")
    newest = select(Run.run_id).where(Run.schedule_pk == schedule_pk).order_by(Run.scheduled_for.desc())
    with reading() as session:
        return session.scalars(newest.limit(1)).one()


def _one_more(schedule_pk: int, before: int) -> Callable[[], bool]:
    return lambda: _count_runs(schedule_pk) > before


def _count_runs(schedule_pk: int) -> int:
    with reading() as session:
        return session.scalar(select(func.count()).where(Run.schedule_pk == schedule_pk)) or 0


def answer(site: Site, node_pk: int, status: TaskStatus, words: str) -> None:
    """What the node does with everything that waits for it."""
    now = site.clock.now()
    for task in node_calls.fetch(node_pk, 10, now=now):
        node_calls.acknowledge(node_pk, task.task_id, task.attempt, now=now)
        node_calls.reply(node_pk, task.task_id, status, words, task.attempt, now=now)


def schedule_named(name: str) -> int:
    """The key of the schedule of that name."""
    with reading() as session:
        return session.scalars(select(Schedule.id).where(Schedule.name == name)).one()


def public_id(schedule_pk: int) -> str:
    """The id of a schedule as addresses name it."""
    with reading() as session:
        return session.scalars(select(Schedule.schedule_id).where(Schedule.id == schedule_pk)).one()


def next_slot(schedule_pk: int) -> datetime:
    """When it rings next."""
    with reading() as session:
        slot = session.scalars(
            select(ScheduleDue.next_run_at).where(ScheduleDue.schedule_pk == schedule_pk)
        ).one()
    assert slot is not None
    return slot


def node_named(alias: str) -> int:
    """The key of the node of that name."""
    with reading() as session:
        return session.scalars(select(Node.id).where(Node.alias == alias)).one()
