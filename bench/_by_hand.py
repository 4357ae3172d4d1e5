"""What somebody would write who wants nothing but speed: the rows of a dispatch by a handful of statements a batch.

It writes the same rows in the same tables as the product (run, task, its event, the use of the mandate in the audit,
events, counters, due row, mandate), and asks the same questions of overlap and admission. It has it easier: ids are
random and not derived, the next slot is the same time tomorrow, nothing is decided row by row, and there is no way
out for whatever is unusual.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from webapp.nodes.lifecycle import DEFAULT_MAX_RUN_SECONDS, DEFAULT_SCHEDULED_TTL_SECONDS
from webapp.store import dialect

BATCH = 5000
_DAY_MS = 86_400_000

_TEMPORARY = """
CREATE TEMPORARY TABLE IF NOT EXISTS batch (
    place {key}, schedule_pk bigint, network_pk bigint, slot bigint, run_id text, task_id text,
    mandate_pk bigint, mandate_id text, revision bigint, schedule_id text
)"""

_CHOOSE = """
INSERT INTO batch (schedule_pk, network_pk, slot, run_id, task_id, mandate_pk, mandate_id, revision, schedule_id)
SELECT d.schedule_pk, d.network_pk, d.next_run_at, 'srun_' || {chance}, 'task_' || {chance},
    m.id, m.mandate_id, m.revision, s.schedule_id
FROM schedule_due d
CROSS JOIN schedules s CROSS JOIN mandates m CROSS JOIN nodes n CROSS JOIN users u CROSS JOIN memberships p
WHERE d.network_pk = :network AND d.due_at <= :now
    AND s.id = d.schedule_pk AND s.target_kind = 'node' AND s.next_change IS NULL
    AND m.id = s.mandate_pk AND m.subject_pk = s.sponsor_pk AND m.network_pk = s.network_pk
    AND m.workload = 'schedule:' || s.schedule_id AND m.state = 'active' AND m.confirmed_at IS NOT NULL
    AND m.revision = s.mandate_revision AND (m.expires_at IS NULL OR m.expires_at > :now)
    AND (m.max_runs IS NULL OR m.used_runs < m.max_runs)
    AND n.id = s.target_pk AND n.network_pk = s.network_pk AND n.deleted_at IS NULL AND n.lifecycle_state = 'active'
    AND u.id = s.sponsor_pk AND u.active
    AND p.user_pk = u.id AND p.network_pk = s.network_pk AND p.role IN ('owner', 'admin', 'member')
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.schedule_pk = d.schedule_pk
        AND r.status IN ('queued', 'delivered', 'running'))
ORDER BY d.due_at LIMIT :limit {lock}"""

_RUNS = """
INSERT INTO runs (run_id, schedule_pk, network_pk, scheduled_for, trigger, actor, missed_count, status, wait_reason,
    backlog, task_id, attempt, schedule_revision, timetable_version, text_pk, target_pk, target_id, target_alias,
    created_at)
SELECT b.run_id, s.id, s.network_pk, b.slot, 'scheduled', 'worker', 0, 'queued', 'not_fetched',
    false, b.task_id, 1, s.revision, s.timetable_version, s.text_pk, s.target_pk, s.target_id, s.target_alias, :now
FROM batch b CROSS JOIN schedules s WHERE s.id = b.schedule_pk ORDER BY b.place"""

_TASKS = """
INSERT INTO tasks (task_id, network_pk, node_pk, run_pk, text_pk, priority_rank, status, attempt, ttl_seconds,
    max_run_seconds, deadline_at, result_truncated, created_at)
SELECT b.task_id, s.network_pk, s.target_pk, r.id, s.text_pk, s.priority_rank, 'created', 1,
    coalesce(s.ttl_seconds, :ttl), coalesce(s.max_run_seconds, :run),
    :now + 1000 * coalesce(s.ttl_seconds, :ttl), false, :now
FROM batch b CROSS JOIN runs r CROSS JOIN schedules s
WHERE r.run_id = b.run_id AND s.id = b.schedule_pk ORDER BY b.place"""

_TASK_EVENTS = """
INSERT INTO task_events (task_pk, seq, at, kind, actor, attempt, detail)
SELECT t.id, 1, :now, 'created', 'scheduler', 1, '{{}}'
FROM batch b CROSS JOIN tasks t WHERE t.task_id = b.task_id ORDER BY b.place"""

_MANDATES = """
UPDATE mandates SET used_runs = used_runs + 1
WHERE id IN (SELECT mandate_pk FROM batch) AND state = 'active' AND (max_runs IS NULL OR used_runs < max_runs)"""

_DUE = f"""
UPDATE schedule_due SET claimed_through = next_run_at, last_run_at = next_run_at,
    next_run_at = next_run_at + {_DAY_MS}, due_at = next_run_at + {_DAY_MS}, claim_seq = claim_seq + 1,
    claim_not_before = NULL, claim_failures = 0, dispatched_count = dispatched_count + 1, skips_in_a_row = 0
WHERE schedule_pk IN (SELECT schedule_pk FROM batch)"""

_COUNTER = """
INSERT INTO {table} (network_pk, seq) VALUES (:network, :amount)
ON CONFLICT (network_pk) DO UPDATE SET seq = {table}.seq + :amount RETURNING seq"""

_AUDIT = """
INSERT INTO audit_entries (network_pk, seq, at, actor, verb, subject_kind, subject_id, detail)
SELECT b.network_pk, :first + row_number() OVER (ORDER BY b.place), :now, 'worker', 'mandate.use', 'mandate',
    b.mandate_id, {json_open}'{{"run_id": "' || b.run_id || '", "revision": ' || b.revision || '}}'{json_close}
FROM batch b"""

_EVENTS = """
INSERT INTO events (network_pk, seq, type, data, at)
SELECT :network, :first + row_number() OVER (ORDER BY min(b.place)), 'run',
    {object}('schedules', {array}(b.schedule_id), 'runs', {array}(b.run_id)), :now
FROM batch b GROUP BY b.place / 100"""

_BELL = """
INSERT INTO events (network_pk, seq, type, data, at)
SELECT :network, :last, 'new_task', {object}('nodes', {array}(q.node_id), 'count', :amount, 'priority', 'normal',
    'from', 'scheduler'), :now
FROM (SELECT DISTINCT n.node_id FROM batch b CROSS JOIN schedules s CROSS JOIN nodes n
    WHERE s.id = b.schedule_pk AND n.id = s.target_pk) q"""


@dataclass(frozen=True)
class _Words:
    """Where the two engines need other words."""

    key: str
    chance: str
    lock: str
    json_open: str
    json_close: str
    object: str
    array: str


_FILE = _Words(
    key="INTEGER PRIMARY KEY",
    chance="lower(hex(randomblob(10)))",
    lock="",
    json_open="",
    json_close="",
    object="json_object",
    array="json_group_array",
)
_SERVER = _Words(
    key="bigint GENERATED ALWAYS AS IDENTITY",
    chance="substr(md5(random()::text || d.schedule_pk), 1, 20)",
    lock="FOR UPDATE OF d SKIP LOCKED",
    json_open="CAST(",
    json_close=" AS json)",
    object="json_build_object",
    array="json_agg",
)


class ByHand:
    """One connection that claims batch by batch. Each call of `batch` is one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        words = vars(_FILE if dialect.is_sqlite(connection) else _SERVER)
        self._words = words
        with connection.begin():
            connection.execute(text(_TEMPORARY.format(**words)))

    def batch(self, network_pk: int, now_ms: int) -> int:
        """Dispatch up to `BATCH` due schedules of one network; returns how many."""
        with self._connection.begin():
            return self._dispatch(network_pk, now_ms)

    def _dispatch(self, network_pk: int, now_ms: int) -> int:
        self._run("DELETE FROM batch")
        about = {"network": network_pk, "now": now_ms}
        amount = self._run(_CHOOSE, limit=BATCH, **about)
        if amount == 0:
            return 0
        self._run(_RUNS, now=now_ms)
        times = {"ttl": DEFAULT_SCHEDULED_TTL_SECONDS, "run": DEFAULT_MAX_RUN_SECONDS}
        self._run(_TASKS, now=now_ms, **times)
        self._run(_TASK_EVENTS, now=now_ms)
        assert self._run(_MANDATES) == amount
        assert self._run(_DUE) == amount
        first = self._raise("audit_counters", network_pk, amount)
        self._run(_AUDIT, first=first, now=now_ms)
        bells = self._connection.execute(text("SELECT count(DISTINCT place / 100) FROM batch")).scalar_one()
        first = self._raise("event_counters", network_pk, bells + 1)
        self._run(_EVENTS, first=first, **about)
        self._run(_BELL, last=first + bells + 1, amount=amount, **about)
        return amount

    def _run(self, statement: str, **values: int) -> int:
        return self._connection.execute(text(statement.format(**self._words)), values).rowcount

    def _raise(self, table: str, network_pk: int, amount: int) -> int:
        statement = text(_COUNTER.format(table=table))
        last = self._connection.execute(statement, {"network": network_pk, "amount": amount}).scalar_one()
        return int(last) - amount
