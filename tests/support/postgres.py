"""A throw-away PostgreSQL: made by initdb, reached over a unix socket, gone when its user is gone."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.support.scratch import scratch_folder

# Reads until the pipe from the test process closes, however that process ended, then leaves nothing behind.
_GUARDIAN = 'cat >/dev/null; "$1" stop --silent -m immediate -D "$2/data" >/dev/null 2>&1; rm -rf "$2"'
# Nothing in here is worth keeping over a power cut, and autovacuum would only disturb the clones.
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
}


class PostgresMissing(Exception):
    """The server programs are not on this machine; the text says what to install."""


@dataclass(frozen=True)
class Cluster:
    """A running server. Databases in it are made from a template and dropped again."""

    socket_dir: Path
    admin: psycopg.Connection[Any]

    def url(self, database: str) -> str:
        """The address of a database in the form that `CARILLON_DATABASE_URL` takes."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.socket_dir}"

    def create(self, database: str, template: str = "template0") -> str:
        """Make a database as a copy of another one, to which nobody may be connected; returns its address."""
        # Copying files in memory takes 30 ms where logging each page takes 120; before version 15 it was the
        # only way.
        strategy = sql.SQL("STRATEGY file_copy" if self.admin.info.server_version >= 150_000 else "")
        self.admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} {}").format(
                sql.Identifier(database), sql.Identifier(template), strategy
            )
        )
        return self.url(database)

    def drop(self, database: str) -> None:
        """Remove a database, cutting off whoever is still connected."""
        self.admin.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database))
        )


@contextmanager
def throwaway_cluster(
    *, folder: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Run a new server for as long as the block lasts, about a second to start.

    It lies in `folder` (None: in memory, where the system has a place for that). `settings` replace those that
    suit tests: a benchmark wants commits that last.
    Raises PostgresMissing when the programs are not installed and RuntimeError with the server's own log
    when it does not start.
    """
    programs = _find_programs()
    # A socket's path may have 107 bytes, so the folder's own is short even when TMPDIR points elsewhere.
    home = Path(tempfile.mkdtemp(prefix="carillon-pg-", dir=folder or scratch_folder()))
    identity = _server_identity()
    if identity:
        os.chown(home, identity["user"], identity["group"])
    guardian = subprocess.Popen(
        ["/bin/sh", "-c", _GUARDIAN, "guardian", programs / "pg_ctl", home],
        stdin=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
        **identity,
    )
    try:
        _make_and_start(programs, home, identity, _SETTINGS | dict(settings or {}))
        with psycopg.connect(host=str(home), user="postgres", dbname="postgres", autocommit=True) as admin:
            yield Cluster(home, admin)
    finally:
        guardian.communicate()


def _make_and_start(
    programs: Path, home: Path, identity: dict[str, Any], settings: Mapping[str, str]
) -> None:
    data = home / "data"
    _run(
        [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ],
        home,
        identity,
    )
    options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
    start: list[str | Path] = [programs / "pg_ctl", "start", "-w", "-t", "60", "-D", data, "-l", home / "log"]
    _run([*start, "-o", f"{options} -k {home}"], home, identity)


def _run(command: list[str | Path], home: Path, identity: dict[str, Any]) -> None:
    # To a file: a server started by pg_ctl keeps open what it inherits, and reading a pipe would hang.
    with (home / "output").open("w+") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=home, check=False, **identity
        )
        if done.returncode != 0:
            output.seek(0)
            log = home / "log"
            words = output.read() + (log.read_text() if log.exists() else "")
            raise RuntimeError(f"{Path(command[0]).name} failed with {done.returncode}:\n{words}")


def _find_programs() -> Path:
    """The folder with initdb and pg_ctl; the newest version where several are installed."""
    named = os.environ.get("POSTGRESQL_BIN")
    on_path = shutil.which("initdb")
    installed = sorted(
        [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")],
        key=lambda folder: int("".join(filter(str.isdigit, folder.parent.name)) or 0),
        reverse=True,
    )
    candidates = (
        [Path(named)] if named else [*([Path(on_path).resolve().parent] if on_path else []), *installed]
    )
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise PostgresMissing(
        "PostgreSQL's initdb and pg_ctl are not on this machine: install the package postgresql "
        "(postgresql-server on Fedora), or name their folder with POSTGRESQL_BIN."
    )


def _server_identity() -> dict[str, Any]:
    """What makes subprocess start a program as somebody else: the server refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise PostgresMissing(
        "PostgreSQL refuses to run as root and there is no user postgres: install the package."
    )
