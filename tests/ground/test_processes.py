"""The herd forks, kills and stops real processes and tells how each of them ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.databases import ROOT
from tests.support.file_clock import FileClock
from tests.support.processes import Herd, eventually, herd

pytestmark = pytest.mark.processes

WAIT = "tests.ground.children:wait_for_the_end"
_HOLDER = """
import pathlib, sys, time
from tests.support.processes import herd
with herd("sqlite:///never-opened", pathlib.Path(sys.argv[1]), modules=["tests.ground.children"]) as children:
    print(children.start("tests.ground.children:wait_for_the_end", words="here"), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Herd]:
    with herd(
        f"sqlite:///{tmp_path}/never-opened.db", tmp_path, modules=["tests.ground.children"]
    ) as running:
        yield running


def _start_and_hear(children: Herd, words: str) -> int:
    pid = children.start(WAIT, words=words)
    eventually(lambda: words in children.words(pid), 20, f"the child says {words}")
    return pid


def test_one_is_killed_and_the_other_ends_by_itself(children: Herd) -> None:
    first, second = _start_and_hear(children, "first"), _start_and_hear(children, "second")
    children.kill(first)
    assert children.living() == [second]
    children.stop()
    assert children.living() == []
    assert children.wait(second) == 0


def test_a_child_that_raises_is_told_by_its_status_and_its_words(children: Herd) -> None:
    pid = children.start("tests.ground.children:fail")
    assert children.wait(pid) == 1
    assert "RuntimeError: the bell is cracked" in children.words(pid)


def test_stop_refuses_a_child_that_did_not_end_cleanly(children: Herd) -> None:
    pid = children.start("time:sleep")
    assert children.wait(pid) == 1
    pid = children.start("signal:pause")
    with pytest.raises(AssertionError, match=f"process {pid} left with -15"):
        children.stop()


def test_the_herd_dies_with_the_test_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        os.kill(holder.pid, signal.SIGKILL)
    eventually(lambda: not _alive(child), 20, "the child of a killed test process is gone")


def test_every_reader_of_a_file_clock_sees_what_one_of_them_sets(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    clock = FileClock(path, datetime(2026, 11, 30, 8, 12, tzinfo=UTC))
    other = FileClock(path)
    clock.advance(hours=1, seconds=0.5)
    assert other.now() == datetime(2026, 11, 30, 9, 12, 0, 500_000, tzinfo=UTC)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
