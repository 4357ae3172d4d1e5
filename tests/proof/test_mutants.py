"""The proof is proved: ten broken variants of our own code are caught, and the product is clean in their scenes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proof.conftest import LONG
from tests.proof.mutants import MUTANTS
from tests.support.databases import START
from tests.support.file_clock import FileClock
from tests.support.processes import Herd

pytestmark = pytest.mark.processes

# Five of them, of five scenes, in the time that each change has; all of them in the long form.
_OF_EACH_CHANGE = {
    ("advance_before_dispatch", "sqlite"),
    ("no_unique_key", "sqlite"),
    ("check_then_insert", "postgresql"),
    ("unguarded_advance", "postgresql"),
    ("no_attempt_fence", "sqlite"),
}
_CAUGHT_WITHIN_SECONDS = 20.0
# A machine that does much else at a time.
_PATIENCE_SECONDS = 120.0
_ALL = [(name, engine) for name, mutant in MUTANTS.items() for engine in mutant.engines]


@pytest.mark.parametrize(("name", "engine"), [pair for pair in _ALL if LONG or pair in _OF_EACH_CHANGE])
def test_a_broken_variant_is_caught_and_the_product_is_not(
    name: str, engine: str, fresh_database: Callable[[str], str], tmp_path: Path, herd: Herd
) -> None:
    clean, _ = _trial(name, False, fresh_database(engine), tmp_path, herd)
    assert clean == [], "the product as it is comes out clean"
    found, seconds = _trial(name, True, fresh_database(engine), tmp_path, herd)
    expected = MUTANTS[name].found_as
    told = [fault for fault in found if fault.startswith(expected)]
    assert told, f"{name} was not caught: {found}"
    print(f"{name:24} {engine:11} {MUTANTS[name].scenario.__name__:17} {seconds:5.1f} s  {told[0][:90]}")
    assert not LONG or seconds <= _CAUGHT_WITHIN_SECONDS


def _trial(name: str, broken: bool, url: str, folder: Path, herd: Herd) -> tuple[list[str], float]:
    clock, report = FileClock(folder / f"clock-{broken}", START), folder / f"report-{broken}.json"
    began = time.monotonic()
    pid = herd.start(
        "tests.proof.mutants:trial",
        None,
        name=name,
        broken=broken,
        database_url=url,
        clock_file=str(clock.path),
        report=str(report),
    )
    status = herd.wait(pid, _PATIENCE_SECONDS)
    assert status == 0, herd.words(pid)[-6000:]
    return json.loads(report.read_text())["found"], time.monotonic() - began
