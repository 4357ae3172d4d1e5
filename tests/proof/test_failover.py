"""A PostgreSQL primary dies in mid-storm and its synchronous standby takes over: nothing lost, nothing doubled.

Workers and web processes know both servers by one address (`target_session_attrs=read-write`) and are told nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.proof import test_storm
from tests.support.databases import migrate
from tests.support.postgres import Cluster, _find_programs, _run, _server_identity, throwaway_cluster
from tests.support.processes import Herd, eventually
from tests.support.scratch import scratch_folder

pytestmark = [pytest.mark.processes, pytest.mark.long]

SECONDS = 90.0
# So many runs are written before the primary dies.
IN_MID_STORM = 400
_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "wal_level": "replica",
    "max_wal_senders": "5",
    "hot_standby": "on",
}


@dataclass
class Pair:
    """Two servers, of which one writes; what became of the first is noted in seconds."""

    primary: Cluster
    standby: Path
    failed_over: dict[str, float] = field(default_factory=dict)

    def url(self, database: str) -> str:
        """One address for both."""
        hosts = f"host={self.primary.socket_dir}&host={self.standby}"
        return f"postgresql+psycopg://postgres@/{database}?{hosts}&target_session_attrs=read-write"

    def fail_over(self) -> None:
        """`kill -9` to the primary in mid-storm and promote the standby, once; called again it does nothing."""
        if self.failed_over or self.runs(self.primary.socket_dir) < IN_MID_STORM:
            return
        before = self.runs(self.primary.socket_dir)
        began = time.monotonic()
        postmaster = self.primary.socket_dir / "data" / "postmaster.pid"
        os.kill(int(postmaster.read_text().split()[0]), signal.SIGKILL)
        _control(self.standby, "promote", "-w")
        self.failed_over["promoted"] = time.monotonic() - began
        assert self.runs(self.standby) >= before, "what the primary had acknowledged is lost"
        before = self.runs(self.standby)
        eventually(lambda: self.runs(self.standby) > before, 60, "work goes on at the new primary")
        self.failed_over["at work again"] = time.monotonic() - began
        print(
            {name: f"{seconds:.1f} s after the kill" for name, seconds in self.failed_over.items()},
            flush=True,
        )

    def runs(self, socket_dir: Path) -> int:
        """How many runs that server shows."""
        with _connect(socket_dir, "storm") as connection:
            row = connection.execute("SELECT count(*) FROM runs").fetchone()
            assert row is not None
            return int(row[0])


@contextmanager
def _pair() -> Iterator[Pair]:
    """A primary that commits nothing before its standby has it."""
    with throwaway_cluster(settings=_SETTINGS) as primary:
        migrate(primary.create("storm"))
        identity = _server_identity()
        home = Path(tempfile.mkdtemp(prefix="carillon-pg-", dir=scratch_folder()))
        if identity:
            os.chown(home, identity["user"], identity["group"])
        try:
            _copy(primary, home, identity)
            primary.admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.admin.execute("SELECT pg_reload_conf()")
            eventually(lambda: _is_synchronous(primary), 30, "the standby is synchronous")
            yield Pair(primary, home)
        finally:
            if (home / "data" / "postmaster.pid").exists():
                _control(home, "stop", "-m", "immediate")
            shutil.rmtree(home, ignore_errors=True)


def _copy(primary: Cluster, home: Path, identity: dict[str, Any]) -> None:
    """`pg_basebackup` of the primary into `home`, started as its standby."""
    programs, source = _find_programs(), f"host={primary.socket_dir} user=postgres application_name=standby"
    backup: list[str | Path] = [programs / "pg_basebackup", "-d", source, "-D", home / "data"]
    _run([*backup, "-R", "-X", "stream", "-c", "fast", "--no-sync"], home, identity)
    settings = {**_SETTINGS, "listen_addresses": "", "max_connections": "200", "shared_buffers": "64MB"}
    options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
    _control(home, "start", "-w", "-t", "60", "-l", str(home / "log"), "-o", f"{options} -k {home}")


def _control(home: Path, *words: str) -> None:
    _run([_find_programs() / "pg_ctl", *words, "-D", home / "data"], home, _server_identity())


def _is_synchronous(primary: Cluster) -> bool:
    row = primary.admin.execute(
        "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
    ).fetchone()
    return row is not None and row[0] == 1


def _connect(socket_dir: Path, database: str) -> psycopg.Connection[Any]:
    return psycopg.connect(host=str(socket_dir), user="postgres", dbname=database, autocommit=True)


def test_nothing_is_lost_or_doubled_when_the_primary_dies(
    tmp_path: Path, herd: Herd, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_storm, "SECONDS", SECONDS)
    monkeypatch.setattr(test_storm, "LEAST_DEATHS", 100)
    monkeypatch.setattr(test_storm, "LEAST_SLOTS", 1_000)
    with _pair() as pair:
        test_storm._storm(pair.url("storm"), tmp_path, herd, seed, every_so_often=pair.fail_over)
        assert pair.failed_over, "the primary lives still"
