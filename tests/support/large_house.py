"""A house of any size: one of everything made by the product's own operations, then copied inside the database.

The copies are made by one INSERT … SELECT for each table, so that a million runs take seconds. They are for reading:
their ids are counted up, not derived, and no counter knows of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from flask import Flask
from sqlalchemy import Connection, func, select, text

from tests.factories import actor_of
from tests.scheduling.stage import set_stage
from webapp.audit import AuditEntry
from webapp.chat import operations as chats
from webapp.chat.bodies import NewMessageBody
from webapp.chat.lifecycle import ApprovalStatus
from webapp.chat.models import Approval, Chat, Message, Turn
from webapp.clock import FrozenClock
from webapp.identity.models import Membership, User
from webapp.ids import new_id
from webapp.mandates.models import Mandate
from webapp.nodes.models import Node, NodePresence, Task, TaskEvent
from webapp.scheduling.lifecycle import RunStatus
from webapp.scheduling.models import Alert, DailyCount, Run, Schedule, ScheduleDue, WorkerSeen
from webapp.scheduling.queries import RunFilter, ScheduleFilter, find_schedule, list_by_next, list_runs
from webapp.store import dialect, engine, reading
from webapp.store.base import to_milliseconds
from webapp.store.paging import PageRequest
from webapp.store.transaction import Tx, operation

# The copies are numbered from here on; what the operations made lies below.
BASE = 1000
_DAY_MS = 86_400_000
_HISTORY_DAYS = 60
_DEEP = 5000
_KINDS: tuple[dict[str, Any], ...] = (
    {"type": "cron", "cron": "*/5 * * * *"},
    {"type": "interval", "every_seconds": 3600},
    {"type": "cron", "cron": "30 6 * * mon-fri"},
    {"type": "cron", "cron": "0 0 1 * *"},
    {"type": "cron", "cron": "15 2 * * *"},
)


_ENDED = (
    "WHEN i % 20 = 5 THEN 'failed' WHEN i % 10 = 7 THEN 'skipped'"
    " WHEN i % 100 = 9 THEN 'cancelled' WHEN i % 100 = 11 THEN 'expired'"
)


@dataclass(frozen=True)
class Size:
    """How many rows; a tenth of the runs belong to the first schedule."""

    schedules: int
    runs: int
    nodes: int
    chats: int
    people: int = 20

    @classmethod
    def of_all(cls, count: int) -> Size:
        """As many of everything."""
        return cls(count, count, count, count, count)


@dataclass(frozen=True)
class LargeHouse:
    """Who looks, and the public ids of what the pages are asked for."""

    size: Size
    viewer: User
    schedule: str
    chat_schedule: str
    run: str
    skipped_run: str
    node: str
    task: str
    chat: str
    mandate: str


def build(app: Flask, clock: FrozenClock, size: Size) -> LargeHouse:
    """Fill the empty, migrated database of `app`. The pages are looked at by Alice, owner of the network."""
    with app.app_context():
        stage = next(set_stage(app, clock))
        alice, network_pk = stage.cast.alice, stage.cast.network.id
        _make_seeds(stage)
        # Reading connections commit each statement by itself.
        with engine().connect() as connection:
            _trust(connection)
            _Copier(connection, size, network_pk, alice.id, clock.now()).copy_all()
            # It is not to go back into the pool as it is now.
            connection.invalidate()
    return house_of(size, alice)


def house_of(size: Size, viewer: User) -> LargeHouse:
    """The house that `build` has made in a database that exists."""
    number = BASE + 1
    return LargeHouse(
        size=size,
        viewer=viewer,
        schedule=f"sched_{_padded(number)}",
        chat_schedule=f"sched_{_padded(BASE + 4)}",
        run=f"srun_{_padded(number)}",
        skipped_run=f"srun_{_padded(BASE + 7)}",
        node=f"node_{_padded(number)}",
        task=f"task_{_padded(number)}",
        chat=f"chat_{_padded(number)}",
        mandate=f"mand_{_padded(number)}",
    )


def _trust(connection: Connection) -> None:
    """Let this one connection write millions of rows without a look at each one's references, and take its time."""
    if dialect.is_sqlite(connection):
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
    else:
        connection.exec_driver_sql("SET session_replication_role = replica")
        connection.exec_driver_sql("SET statement_timeout = 0")


def _padded(number: int) -> str:
    return str(10**9 + number)


def _make_seeds(stage: Any) -> None:
    """One of each, with the lowest keys: five schedules, a run with its task, a chat with a turn and its question."""
    for place, timetable in enumerate(_KINDS):
        stage.create(name=f"Seed {place}", schedule=timetable)
    stage.tick(hours=2)
    assert stage.serve() > 0
    actor = actor_of(stage.cast.alice)
    chat = chats.create_chat(actor, stage.cast.network.id, "Seed", now=stage.clock.now())
    chats.post_message(actor, chat.chat_id, NewMessageBody(text="What is **new**?"), now=stage.clock.now())
    _make_rest(network_pk=stage.cast.network.id, now=stage.clock.now())


@operation
def _make_rest(tx: Tx, *, network_pk: int, now: datetime) -> None:
    session = tx.session
    turn, run = session.get_one(Turn, 1), session.scalars(select(Run).order_by(Run.id)).first()
    assert run is not None
    session.add_all(
        [
            Approval(
                approval_id=new_id("appr"),
                network_pk=network_pk,
                chat_pk=turn.chat_pk,
                turn_pk=turn.id,
                call_id="seed",
                operation="nodes.send_task",
                arguments={"node": "atlas", "text": "Sweep.", "priority": "normal"},
                status=ApprovalStatus.PENDING,
                deadline_at=now + timedelta(days=1),
                created_at=now,
            ),
            Alert(
                network_pk=network_pk,
                kind="needs_attention",
                subject_id="seed",
                schedule_pk=run.schedule_pk,
                code="target_not_active",
                detail={},
                created_at=now,
                resolved_at=now,
            ),
            DailyCount(schedule_pk=run.schedule_pk, day=now.date(), status=RunStatus.COMPLETED, count=1),
        ]
    )
    if not session.scalars(select(NodePresence)).first():
        session.add(NodePresence(node_pk=1, status="idle", last_seen_at=now))
    session.add(
        WorkerSeen(
            worker_id="bench", started_at=now, last_tick_at=now, zone_version="1", lag_ms=3, stopped_at=None
        )
    )


def _nth(i: str, first: int, of: int) -> str:
    """True for number `first`, and then for one of each `of`: so every kind is there in a small house too."""
    return f"({i} % {of} = {first})"


class _Copier:
    def __init__(
        self, connection: Connection, size: Size, network_pk: int, viewer_pk: int, now: datetime
    ) -> None:
        self.connection, self.size, self.network_pk, self.viewer_pk = connection, size, network_pk, viewer_pk
        self.now = to_milliseconds(now)
        self.today = now.date()

    def copy(self, model: type[Any], count: int, seed: str, where: str = "TRUE", **values: object) -> None:
        """`count` copies of the seed row `s`, the i-th with these expressions of `i` in place of its values."""
        table = model.__table__
        columns = [c.name for c in table.columns if c.name != "id" or "id" in values]
        chosen = [str(values.get(name, f"s.{name}")) for name in columns]
        self.connection.execute(
            text(
                f"INSERT INTO {table.name} ({', '.join(columns)}) "
                "WITH RECURSIVE numbers(i) AS (SELECT CAST(1 AS bigint) UNION ALL "
                f"SELECT i + 1 FROM numbers WHERE i < {count}) "
                f"SELECT {', '.join(chosen)} FROM numbers JOIN {table.name} AS s ON {seed} WHERE {where}"
            )
        )

    def copy_all(self) -> None:
        self.people()
        self.nodes()
        self.chats()
        self.mandates()
        self.schedules()
        self.runs()
        self.tasks()
        self.counts_and_cards()
        self.talk()
        self.audit()

    def people(self) -> None:
        key = f"{BASE} + i"
        self.copy(
            User,
            self.size.people,
            f"s.id = {self.viewer_pk}",
            id=key,
            user_id=f"'user_' || (1000000000 + {key})",
            name="'Person ' || i",
            name_key="'person ' || i",
        )
        self.copy(
            Membership,
            self.size.people,
            f"s.user_pk = {self.viewer_pk}",
            user_pk=key,
            role="'member'",
        )

    def nodes(self) -> None:
        key = f"{BASE} + i"
        self.copy(
            Node,
            self.size.nodes,
            "s.id = 1",
            id=key,
            node_id=f"'node_' || (1000000000 + {key})",
            alias="'node-' || i",
        )
        seen = f"CASE WHEN {_nth('i', 3, 10)} THEN {self.now - _DAY_MS} ELSE {self.now} END"
        self.copy(NodePresence, self.size.nodes, "s.node_pk = 1", node_pk=key, last_seen_at=seen)

    def chats(self) -> None:
        key = f"{BASE} + i"
        self.copy(
            Chat,
            self.size.chats,
            "s.id = 1",
            id=key,
            chat_id=f"'chat_' || (1000000000 + {key})",
            title="'Chat ' || i",
            message_seq=f"CASE WHEN i = 1 THEN {self._long_talk} ELSE 2 END",
            updated_at=f"{self.now} - i * 1000",
        )

    # Of schedule number `i`.
    @property
    def _sponsor(self) -> str:
        return (
            f"CASE WHEN i % 4 = 1 OR {self._is_chat} THEN {self.viewer_pk}"
            f" ELSE {BASE} + 1 + i % {self.size.people} END"
        )

    _is_chat = _nth("i", 4, 50)
    _status = (
        f"CASE WHEN {_nth('i', 2, 100)} THEN 'paused' WHEN {_nth('i', 6, 1000)} THEN 'needs_attention'"
        f" WHEN {_nth('i', 9, 1000)} THEN 'proposed' WHEN i % 10 IN (3, 8) THEN 'completed'"
        f" WHEN {_nth('i', 10, 20)} THEN 'cancelled' ELSE 'active' END"
    )

    def mandates(self) -> None:
        key = f"{BASE} + i"
        self.copy(
            Mandate,
            self.size.schedules,
            "s.id = 1",
            id=key,
            mandate_id=f"'mand_' || (1000000000 + {key})",
            subject_pk=self._sponsor,
            workload=f"'schedule:sched_' || (1000000000 + {key})",
            state="CASE WHEN i % 10 IN (3, 8) THEN 'revoked' ELSE 'active' END",
            # Ninety days each: so a seventh ends within a fortnight.
            expires_at=f"{self.now + _DAY_MS} + (i % 90) * {_DAY_MS}",
            updated_at=f"{self.now} - i * 1000",
        )

    def schedules(self) -> None:
        key, size = f"{BASE} + i", self.size
        node, chat = f"{BASE} + 1 + (i - 1) % {size.nodes}", f"{BASE} + 1 + (i - 1) % {size.chats}"
        self.copy(
            Schedule,
            size.schedules,
            "s.id = 1 + i % 5",
            id=key,
            schedule_id=f"'sched_' || (1000000000 + {key})",
            short_id="'x' || i",
            name="CASE i % 3 WHEN 0 THEN 'Nightly sweep ' WHEN 1 THEN 'Invoice check ' ELSE 'Report ' END || i",
            target_kind=f"CASE WHEN {self._is_chat} THEN 'chat' ELSE 'node' END",
            target_pk=f"CASE WHEN {self._is_chat} THEN {chat} ELSE {node} END",
            target_id=f"CASE WHEN {self._is_chat} THEN 'chat_' || (1000000000 + {chat})"
            f" ELSE 'node_' || (1000000000 + {node}) END",
            target_alias=f"CASE WHEN {self._is_chat} THEN 'Chat' ELSE 'node-' || ({node} - {BASE}) END",
            status=self._status,
            sponsor_pk=self._sponsor,
            mandate_pk=key,
            mandate_id=f"'mand_' || (1000000000 + {key})",
            created_at=f"{self.now} - i * 1000",
            updated_at=f"{self.now} - i * 1000",
        )
        slot = f"CASE WHEN {self._status} = 'active' THEN {self.now + 1000} + (i * 7919) % {7 * _DAY_MS} END"
        self.copy(
            ScheduleDue,
            size.schedules,
            "s.schedule_pk = 1 + i % 5",
            schedule_pk=key,
            next_run_at=slot,
            due_at=slot,
        )

    # Of run number `i`, the newest first; the first tenth of the numbers belong to the first schedule.
    @property
    def _own_schedule(self) -> str:
        return f"CASE WHEN i <= {self.size.runs // 10} THEN 1 ELSE 1 + i % {self.size.schedules} END"

    @property
    def _slot(self) -> str:
        return f"{self.now} - i * {max(1, _HISTORY_DAYS * _DAY_MS // self.size.runs)}"

    # What waits or is at work: of the first schedule a few, as one that overlaps has at most a short backlog.
    @property
    def _may_be_open(self) -> str:
        return f"(i <= 300 OR i > {self.size.runs // 10})"

    @property
    def _queued(self) -> str:
        return f"({self._may_be_open} AND i % 150 = 3)"

    @property
    def _delivered(self) -> str:
        return f"({self._may_be_open} AND i % 150 = 53)"

    @property
    def _running(self) -> str:
        return f"({self._may_be_open} AND i % 3000 = 103)"

    def runs(self) -> None:
        key, size = f"{BASE} + i", self.size
        schedule, node = self._own_schedule, f"1 + ({self._own_schedule} - 1) % {size.nodes}"
        self.copy(
            Run,
            size.runs,
            f"s.id = {self._first(Run, 'task_id IS NOT NULL')}",
            id=key,
            run_id=f"'srun_' || (1000000000 + {key})",
            schedule_pk=f"{BASE} + {schedule}",
            scheduled_for=self._slot,
            created_at=self._slot,
            started_at=f"{self._slot} + 1500",
            missed_count="CASE WHEN i % 50 = 1 THEN 3 ELSE 0 END",
            completed_at=f"CASE WHEN {self._queued} OR {self._delivered} OR {self._running} THEN NULL"
            f" ELSE {self._slot} + 9500 END",
            status=f"CASE WHEN {self._queued} THEN 'queued' WHEN {self._delivered} THEN 'delivered'"
            f" WHEN {self._running} THEN 'running' {_ENDED} ELSE 'completed' END",
            wait_reason=f"CASE WHEN {self._queued} THEN 'not_fetched' END",
            error_code="CASE WHEN i % 20 = 5 THEN 'node_failed' WHEN i % 10 = 7 THEN 'overlap' END",
            task_id=f"CASE WHEN i % 10 = 7 THEN NULL ELSE 'task_' || (1000000000 + {key}) END",
            target_pk=f"{BASE} + {node}",
            target_id=f"'node_' || (1000000000 + {BASE} + {node})",
            target_alias=f"'node-' || ({node})",
        )

    def tasks(self) -> None:
        key, size = f"{BASE} + i", self.size
        self.copy(
            Task,
            size.runs,
            "s.id = 1",
            "i % 10 <> 7",
            id=key,
            task_id=f"'task_' || (1000000000 + {key})",
            run_pk=key,
            node_pk=f"{BASE} + 1 + ({self._own_schedule} - 1) % {size.nodes}",
            created_at=self._slot,
            deadline_at=f"{self.now + _DAY_MS}",
            status=f"CASE WHEN {self._queued} THEN 'created' WHEN {self._delivered} THEN 'delivered'"
            f" WHEN {self._running} THEN 'running' {_ENDED}"
            " ELSE 'replied' END",
        )
        # Three steps for each of the newest tasks; the page of a task reads its own alone.
        number = "((i - 1) / 3 + 1)"
        self.copy(
            TaskEvent,
            3 * max(size.runs // 10, min(size.runs, 10)),
            f"s.id = {self._first(TaskEvent, 'task_pk = 1')}",
            f"{number} % 10 <> 7",
            task_pk=f"{BASE} + {number}",
            seq="1 + (i - 1) % 3",
        )

    def counts_and_cards(self) -> None:
        self.copy(
            DailyCount,
            365 * min(self.size.schedules, 1000),
            f"s.schedule_pk = {self._first(DailyCount, 'TRUE', 'schedule_pk')}",
            schedule_pk=f"{BASE} + 1 + (i - 1) / 365",
            day=self._day("(i - 1) % 365"),
        )
        for kind, code, number in (
            ("needs_attention", "target_not_active", 6),
            ("blocked", "overlap", 1),
        ):
            self.copy(
                Alert,
                self.size.schedules,
                f"s.id = {self._first(Alert, 'TRUE')}",
                _nth("i", number, 1000),
                kind=f"'{kind}'",
                code=f"'{code}'",
                subject_id=f"'sched_' || (1000000000 + {BASE} + i)",
                schedule_pk=f"{BASE} + i",
                resolved_at="NULL",
            )
        # And those that are past: ten for each that is open.
        self.copy(
            Alert,
            max(10, self.size.schedules // 50),
            f"s.id = {self._first(Alert, 'TRUE')}",
            subject_id="'past-' || i",
            schedule_pk=f"{BASE} + 1 + i % {self.size.schedules}",
        )

    def _day(self, back: str) -> str:
        if dialect.is_sqlite(self.connection):
            return f"date('{self.today}', '-' || ({back} + 1) || ' days')"
        return f"CAST('{self.today}' AS date) - CAST({back} + 1 AS integer)"

    @property
    def _long_talk(self) -> int:
        return max(10, self.size.chats * 10)

    def talk(self) -> None:
        """Chat 1 has a long history; every other one turn, of which a tenth waits for an approval."""
        size, long = self.size, self._long_talk // 2
        first_key, key = f"{2 * BASE + self.size.chats} + i", f"{BASE} + i"
        turn = {
            "turn_id": "'turn_' || (1000000000 + {key})",
            "lease_owner": "NULL",
            "lease_until": "NULL",
            "history": "NULL",
        }
        for count, own_key, chat, status, where in (
            (
                size.chats,
                key,
                f"{BASE} + i",
                "CASE WHEN i % 10 = 2 THEN 'waiting_for_action' ELSE 'completed' END",
                "i > 1",
            ),
            (long, first_key, f"{BASE} + 1", "'completed'", "TRUE"),
        ):
            values = {**turn, "turn_id": f"'turn_' || (1000000000 + {own_key})"}
            self.copy(Turn, count, "s.id = 1", where, id=own_key, chat_pk=chat, status=status, **values)
            place = "1" if chat.endswith("i") else "2 * i - 1"
            for role, seq in (("user", place), ("assistant", f"{place} + 1")):
                self.copy(
                    Message,
                    count,
                    f"s.id = {self._first(Message, 'TRUE')}",
                    where,
                    message_id=f"'msg_{role[0]}' || (1000000000 + {own_key})",
                    chat_pk=chat,
                    turn_pk=own_key,
                    seq=seq,
                    role=f"'{role}'",
                )
            decided = "TRUE" if not chat.endswith("i") else "i % 10 = 2"
            self.copy(
                Approval,
                count,
                "s.id = 1",
                f"({where}) AND ({decided})",
                approval_id=f"'appr_' || (1000000000 + {own_key})",
                chat_pk=chat,
                turn_pk=own_key,
                status="'pending'" if chat.endswith("i") else "'denied'",
                created_at=f"{self.now} - i * 1000",
            )

    def audit(self) -> None:
        last = f"(SELECT max(seq) FROM {AuditEntry.__tablename__} WHERE network_pk = {self.network_pk})"
        count = max(20, self.size.runs)
        self.copy(
            AuditEntry,
            count,
            f"s.network_pk = {self.network_pk} AND s.seq = 1",
            seq=f"{last} + i",
            at=f"{self.now} - ({count} - i) * {max(1, _HISTORY_DAYS * _DAY_MS // count)}",
            actor="CASE i % 500 WHEN 0 THEN 'Alice' ELSE 'worker' END",
            verb="CASE i % 500 WHEN 0 THEN 'schedule.edit' ELSE 'mandate.use' END",
            subject_kind="CASE i % 500 WHEN 0 THEN 'schedule' ELSE 'mandate' END",
            subject_id=f"'mand_' || (1000000000 + {BASE} + 1 + i % {self.size.schedules})",
        )

    def _first(self, model: type[Any], where: str, key: str = "id") -> int:
        statement = f"SELECT min({key}) FROM {model.__tablename__} WHERE {where}"
        return int(self.connection.execute(text(statement)).scalar_one())


def pages_of(house: LargeHouse) -> dict[str, str]:
    """The address of every page that shows data, by what it is; inside the context of its app."""
    own = {
        "schedule": f"/schedules/{house.schedule}",
        "run": f"/runs/{house.run}",
        "node": f"/nodes/{house.node}",
        "mandate": f"/mandates/{house.mandate}",
    }
    cursors = _deep_cursors(house)
    return {
        "overview": "/",
        "schedules": "/schedules",
        "schedules, active": "/schedules?status=active",
        "schedules, paused": "/schedules?status=paused",
        "schedules, stopped": "/schedules?status=needs_attention",
        "schedules, search for many": "/schedules?q=sweep",
        "schedules, search for one": "/schedules?q=check+10",
        "schedules, search in vain": "/schedules?q=zebra",
        "schedules, deep": f"/schedules?cursor={cursors['schedules']}",
        "schedule": own["schedule"],
        "schedule, failed runs": f"{own['schedule']}?status=failed",
        "schedule, expired runs": f"{own['schedule']}?status=expired",
        "schedule, deep": f"{own['schedule']}?cursor={cursors['history']}",
        "schedule of a chat": f"/schedules/{house.chat_schedule}",
        "schedule, new": "/schedules/new",
        "schedule, edit": f"{own['schedule']}/edit",
        "schedule, pause": f"{own['schedule']}/pause",
        "schedule, cancel": f"{own['schedule']}/cancel",
        "runs": "/runs",
        "runs, failed": "/runs?status=failed",
        "runs, running": "/runs?status=running",
        "runs, expired": "/runs?status=expired",
        "runs, of one schedule": f"/runs?schedule_id={house.schedule}",
        "runs, deep": f"/runs?cursor={cursors['runs']}",
        "run": own["run"],
        "run, skipped": f"/runs/{house.skipped_run}",
        "nodes": "/nodes",
        "node": own["node"],
        "node, delete": f"{own['node']}/delete",
        "task": f"/tasks/{house.task}",
        "chats": "/chats",
        "chat": f"/chats/{house.chat}",
        "approvals": "/approvals",
        "mandates": "/mandates",
        "mandates, paused": "/mandates?state=paused",
        "mandate": own["mandate"],
        "mandate, pause": f"{own['mandate']}/pause",
        "mandate, revoke": f"{own['mandate']}/revoke",
        "mandate, change": f"{own['mandate']}/change",
        "mandate, renew": f"{own['mandate']}/renew",
        "audit": "/audit",
        "audit, of one person": "/audit?actor=Alice",
        "audit, of one thing": f"/audit?subject={house.mandate}",
        "audit, of one day": "/audit?from=2026-10-20T00:00Z&to=2026-10-21T00:00Z",
        "audit, deep": f"/audit?cursor={cursors['audit']}",
        "settings": "/settings",
    }


def _deep_cursors(house: LargeHouse) -> dict[str, str]:
    """Where a page far down each list goes on."""
    with reading() as session:
        (network_pk,) = actor_of(house.viewer).networks
        networks, own = [network_pk], find_schedule(session, [network_pk], house.schedule).id

        def middle_of(*where: Any) -> datetime:
            first, last = session.execute(
                select(func.min(Run.scheduled_for), func.max(Run.scheduled_for)).where(*where)
            ).one()
            return first + (last - first) / 2

        one, many = PageRequest(limit=1), PageRequest(limit=min(house.size.schedules // 2, _DEEP))
        history = RunFilter(schedule_pk=own, until=middle_of(Run.schedule_pk == own))
        entries = session.scalar(select(func.max(AuditEntry.seq)).where(AuditEntry.network_pk == network_pk))
        return {
            "schedules": list_by_next(session, networks, ScheduleFilter(), many).next_cursor or "",
            "history": list_runs(session, networks, history, one).next_cursor or "",
            "runs": list_runs(session, networks, RunFilter(until=middle_of()), one).next_cursor or "",
            "audit": str((entries or 2) // 2),
        }
