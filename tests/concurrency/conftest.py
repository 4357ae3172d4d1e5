"""One herd for all tests of a session: importing the product costs more than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.processes import Herd
from tests.support.processes import herd as new_herd


@pytest.fixture(scope="session")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Herd]:
    """A process that forks workers; which database each of them opens is said when it is started."""
    with new_herd("sqlite:///never-opened", tmp_path_factory.mktemp("herd")) as running:
        yield running
