"""`kill -9` at every point of a claim, a delivery, an answer, upkeep and pruning: nothing is lost or doubled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.proof.conftest import LONG
from tests.proof.failpoints import POINTS, STEPPED
from tests.proof.hurt import resolve
from tests.support.databases import START
from tests.support.file_clock import FileClock
from tests.support.processes import Herd

pytestmark = pytest.mark.processes

# A machine that does much else at a time.
_PATIENCE_SECONDS = 900.0 if LONG else 400.0


def _run(herd: Herd, entry: str, database_url: str, folder: Path, **more: int) -> dict[str, object]:
    clock, report = FileClock(folder / "clock", START), folder / "report.json"
    pid = herd.start(
        f"tests.proof.failpoints:{entry}",
        None,
        database_url=database_url,
        clock_file=str(clock.path),
        report=str(report),
        **more,
    )
    status = herd.wait(pid, _PATIENCE_SECONDS)
    assert status == 0, herd.words(pid)[-6000:]
    outcome: dict[str, object] = json.loads(report.read_text())
    print(entry, outcome)
    return outcome


def test_every_point_has_a_function() -> None:
    for points in POINTS.values():
        for place, _ in points:
            assert callable(resolve(place)[2]), place


def test_a_death_at_each_named_point_loses_and_doubles_nothing(
    database_url: str, tmp_path: Path, herd: Herd
) -> None:
    outcome = _run(herd, "every_point", database_url, tmp_path)
    assert outcome["missed"] == [], "each point is come to, and died at"


def test_a_death_at_each_step_of_a_transaction_loses_and_doubles_nothing(
    database_url: str, tmp_path: Path, herd: Herd
) -> None:
    steps = _run(herd, "every_step", database_url, tmp_path)["steps"]
    assert isinstance(steps, dict)
    assert set(steps) == set(STEPPED)
    # BEGIN, something read, something written, before and after COMMIT: fewer would be no transaction of ours.
    assert min(steps.values()) >= 8


def test_a_death_in_a_migration_leaves_nothing_half_done(
    database_url: str, tmp_path: Path, herd: Herd, seed: int
) -> None:
    most = 1_000 if LONG else 5
    outcome = _run(herd, "every_migration_step", database_url, tmp_path, most=most, seed=seed)
    assert outcome["died"] == outcome["tried"]
