"""The throw-away PostgreSQL really is a server, really is isolated, and really goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support import postgres
from tests.support.databases import ROOT

_HOLDER = """
import sys, time
from tests.support.postgres import throwaway_cluster
with throwaway_cluster() as cluster:
    print(cluster.socket_dir, flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[postgres.Cluster]:
    with postgres.throwaway_cluster() as running:
        yield running


def _connect(cluster: postgres.Cluster, database: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(host=str(cluster.socket_dir), user="postgres", dbname=database, autocommit=True)


def test_a_clone_has_the_rows_of_its_template_and_changes_to_it_stay_in_it(cluster: postgres.Cluster) -> None:
    cluster.create("pattern")
    with _connect(cluster, "pattern") as connection:
        connection.execute("CREATE TABLE bell (name text)")
        connection.execute("INSERT INTO bell VALUES ('low')")
    cluster.create("one", "pattern")
    cluster.create("two", "pattern")
    with _connect(cluster, "one") as connection:
        connection.execute("INSERT INTO bell VALUES ('high')")
    with _connect(cluster, "two") as connection:
        assert connection.execute("SELECT name FROM bell").fetchall() == [("low",)]


def test_it_listens_on_no_network(cluster: postgres.Cluster) -> None:
    assert cluster.admin.execute("SHOW listen_addresses").fetchall() == [("",)]


def test_dropping_cuts_off_who_is_still_connected(cluster: postgres.Cluster) -> None:
    cluster.create("busy")
    with _connect(cluster, "busy"):
        cluster.drop("busy")
    names = cluster.admin.execute("SELECT datname FROM pg_database").fetchall()
    assert ("busy",) not in names


def test_nothing_is_left_when_the_process_that_started_it_is_killed() -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        home = Path(holder.stdout.readline().strip())
        server = int((home / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(holder.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while home.exists() or _alive(server):
        assert time.monotonic() < deadline, f"{home} or process {server} is still there"
        time.sleep(0.05)


def test_a_machine_without_it_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POSTGRESQL_BIN", str(tmp_path))
    with (
        pytest.raises(postgres.PostgresMissing, match="install the package postgresql"),
        postgres.throwaway_cluster(),
    ):
        pass


def test_a_server_that_does_not_start_shows_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(postgres._SETTINGS, "max_connections", "none")
    with (
        pytest.raises(RuntimeError, match='invalid value for parameter "max_connections"'),
        postgres.throwaway_cluster(),
    ):
        pass


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
