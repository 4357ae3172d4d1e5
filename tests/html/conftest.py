"""The house of the pages' tests."""

from __future__ import annotations

import pytest
from flask import Flask

from tests.html.browsing import House, open_house
from webapp.clock import FrozenClock


@pytest.fixture
def house(app: Flask, clock: FrozenClock, doctor_clean: None) -> House:
    return open_house(app, clock)
