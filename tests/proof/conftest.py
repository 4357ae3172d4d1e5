"""What the proof shares: one seed a run, printed; the seeds that once failed; and what only `make proof-long` runs."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

LONG = os.environ.get("CARILLON_PROOF_LONG") == "1"
# One seed a line, and why; each of them runs beside the seed of the day.
REGRESSIONS = Path(__file__).with_name("regressions.txt")


def kept_seeds() -> list[int]:
    """The seeds that once failed."""
    lines = REGRESSIONS.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, but in `make proof-long`."""
    if LONG:
        return
    spare = [item for item in items if item.get_closest_marker("long")]
    if spare:
        config.hook.pytest_deselected(items=spare)
        items[:] = [item for item in items if item not in spare]


@pytest.fixture
def seed() -> int:
    """The seed of this run: `CARILLON_PROOF_SEED`, which a failure prints, or one by chance."""
    number = int(os.environ.get("CARILLON_PROOF_SEED") or random.SystemRandom().randrange(2**31))
    print(f"CARILLON_PROOF_SEED={number} repeats this run")
    return number
