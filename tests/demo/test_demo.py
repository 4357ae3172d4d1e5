"""`python app.py --demo` as an operator starts it: web, worker and a node that really answers."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from flask import Flask
from sqlalchemy import func, select

from tests.factories import make_user
from tests.support.databases import ROOT, dispose_engines
from tests.support.doctor import assert_doctor_clean
from tests.support.processes import eventually
from tests.support.servers import HOST, STOP_SECONDS, answers, free_port, product_environment
from webapp import create_app, demo
from webapp.chat.lifecycle import ApprovalStatus
from webapp.chat.models import Approval
from webapp.clock import FrozenClock, SystemClock
from webapp.config import Config
from webapp.scheduling.lifecycle import RunStatus
from webapp.scheduling.models import Run, Schedule
from webapp.store import reading

# Three programs start one after the other, each of which imports the whole product.
START_SECONDS = 90.0
only_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.mark.processes
@only_sqlite
def test_the_demo_is_at_work_when_it_starts_and_starts_again_on_what_it_left(
    config: Config, tmp_path: Path
) -> None:
    app = create_app(config, SystemClock())
    with _demo(config, tmp_path / "first.log") as (port, log):
        password = _password(log)
        eventually(lambda: _completed(app) >= 1, START_SECONDS, f"a run is answered\n{log.read_text()}")
        assert _may_sign_in(port, password)
        eventually(lambda: _asked(app) == 1, START_SECONDS, f"a turn asks for leave\n{log.read_text()}")
        assert_doctor_clean(app)
    schedules = _count(app, Schedule)
    # All that another start does to what the first one left.
    with app.app_context():
        assert demo.furnish(now=SystemClock().now()).password != password
    assert _count(app, Schedule) == schedules
    assert_doctor_clean(app)
    dispose_engines(app)


def test_a_second_start_leaves_what_the_person_has_made_of_it(app: Flask, clock: FrozenClock) -> None:
    with app.app_context():
        first = demo.furnish(now=clock.now())
        count = _count(app, Schedule)
        second = demo.furnish(now=clock.advance(days=40))
        assert _count(app, Schedule) == count
    assert first.owner == second.owner
    assert (first.password, first.node_token) != (second.password, second.node_token)
    assert_doctor_clean(app)


def test_a_database_in_use_is_left_alone(app: Flask, clock: FrozenClock) -> None:
    with app.app_context():
        make_user(demo.OWNER)
        with pytest.raises(demo.NotADemo, match="CARILLON_DATABASE_URL"):
            demo.furnish(now=clock.now())
        assert _count(app, Schedule) == 0


@contextmanager
def _demo(config: Config, log: Path) -> Iterator[tuple[int, Path]]:
    """The demo on this database until the block ends; it must stop cleanly, with everything that it started."""
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "app.py"), "--demo", "--host", HOST, "--port", str(port)],
            env=product_environment(config.database_url),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        eventually(lambda: answers(port), START_SECONDS, "the demo answers")
        yield port, log
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(STOP_SECONDS + 5)
    assert status == 0, log.read_text()


def _password(log: Path) -> str:
    found = re.search(
        rf"Sign in as {demo.OWNER} with the password of this start:\n  (\S+)\n", log.read_text()
    )
    assert found is not None, log.read_text()
    return found.group(1)


def _may_sign_in(port: int, password: str) -> bool:
    with httpx.Client(base_url=f"http://{HOST}:{port}") as client:
        token = re.search(r'name="csrf_token" value="([^"]+)"', client.get("/sign-in").text)
        assert token is not None
        form = {"csrf_token": token.group(1), "name": demo.OWNER, "password": password}
        answer = client.post("/sign-in", data=form)
    return answer.status_code == 303 and answer.headers["Location"] == "/"


def _completed(app: Flask) -> int:
    with app.app_context(), reading() as session:
        return session.scalar(select(func.count()).where(Run.status == RunStatus.COMPLETED)) or 0


def _asked(app: Flask) -> int:
    waits = select(func.count()).select_from(Approval).where(Approval.status == ApprovalStatus.PENDING)
    with app.app_context(), reading() as session:
        return session.scalar(waits) or 0


def _count(app: Flask, model: type[Schedule]) -> int:
    with app.app_context(), reading() as session:
        return session.scalar(select(func.count()).select_from(model)) or 0
