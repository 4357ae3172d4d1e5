"""What every test may ask for: a clock that stands still, a fresh database on each engine, an app, a client.

A test that is about one engine alone says so:
`@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

pytest.register_assert_rewrite("tests.support")

from tests.support import doctor  # noqa: E402
from tests.support.browser import launch_arguments  # noqa: E402
from tests.support.databases import (  # noqa: E402
    START,
    DatabaseSource,
    PostgresqlDatabases,
    SqliteDatabases,
    config_for,
    dispose_engines,
    let_go,
)
from tests.support.postgres import throwaway_cluster  # noqa: E402
from tests.support.processes import Herd  # noqa: E402
from tests.support.processes import herd as new_herd  # noqa: E402
from tests.support.scratch import scratch_folder  # noqa: E402

if TYPE_CHECKING:
    from flask import Flask
    from flask.testing import FlaskClient

    from webapp.clock import FrozenClock
    from webapp.config import Config


# Pages, the door and the calls of the API reach the database through operations and queries, which their own
# tests run on both engines. So every test of theirs runs on SQLite, and each fourth on PostgreSQL too; all of them
# with CARILLON_EVERY_ENGINE=1.
_EDGE_TESTS = ("tests/html/", "tests/web/", "tests/api/")
_ONE_IN = 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out most of the second runs of tests at the edges."""
    if os.environ.get("CARILLON_EVERY_ENGINE") == "1":
        return
    spare = [item for item in items if _is_spare(item.nodeid)]
    if spare:
        config.hook.pytest_deselected(items=spare)
        items[:] = [item for item in items if not _is_spare(item.nodeid)]


def _is_spare(node_id: str) -> bool:
    second_run = node_id.startswith(_EDGE_TESTS) and "[postgresql" in node_id
    return second_run and "[sqlite" not in node_id and zlib.crc32(node_id.encode()) % _ONE_IN != 0


@pytest.fixture(scope="session")
def databases() -> Iterator[DatabaseSource]:
    """Fresh databases by engine; the cluster starts when first wanted and stops with the session."""
    with ExitStack() as running, TemporaryDirectory(prefix="carillon-files-", dir=scratch_folder()) as files:
        yield DatabaseSource(
            {
                "sqlite": lambda: SqliteDatabases(Path(files)),
                "postgresql": lambda: running.enter_context(
                    closing(PostgresqlDatabases(running.enter_context(throwaway_cluster())))
                ),
            }
        )


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, databases: DatabaseSource) -> Iterator[str]:
    """The address of a migrated, empty database that this test alone uses; once per engine."""
    with databases.lend(request.param) as url:
        yield url


@pytest.fixture(scope="session")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Herd]:
    """A process that has the whole product imported, to fork its programs from: importing it costs seconds.

    Which database each of them opens is said when it is started. Only what is about the start itself starts
    `python app.py` anew.
    """
    with new_herd("sqlite:///never-opened", tmp_path_factory.mktemp("herd")) as running:
        yield running


@pytest.fixture
def fresh_database(databases: DatabaseSource) -> Iterator[Callable[[str], str]]:
    """More databases within one test: call it with `sqlite` or `postgresql`."""
    with ExitStack() as lent:
        yield lambda engine: lent.enter_context(databases.lend(engine))


@pytest.fixture
def clock() -> FrozenClock:
    """Monday 30 November 2026, 08:12 UTC, until the test moves it."""
    from webapp.clock import FrozenClock

    return FrozenClock(START)


@pytest.fixture
def config(database_url: str) -> Config:
    """The settings of the app under test."""
    return config_for(database_url)


@pytest.fixture(scope="session")
def built_apps() -> Iterator[dict[tuple[Config, bool], Flask]]:
    """Apps that were built for the same settings: building one takes longer than most tests."""
    apps: dict[tuple[Config, bool], Flask] = {}
    yield apps
    for app in apps.values():
        dispose_engines(app)


@pytest.fixture
def app(config: Config, clock: FrozenClock, built_apps: dict[tuple[Config, bool], Flask]) -> Iterator[Flask]:
    """The product on its own database. No context is pushed: say `with app.app_context():` where needed.

    The same app serves many tests, each with a new database and its own clock; a test that adds routes asks
    for `own_app`.
    """
    yield from _built(config, clock, built_apps, serves_web=True)


@pytest.fixture
def engine_app(
    config: Config, clock: FrozenClock, built_apps: dict[tuple[Config, bool], Flask]
) -> Iterator[Flask]:
    """The product without pages and calls, as a worker has it."""
    yield from _built(config, clock, built_apps, serves_web=False)


def _built(
    config: Config, clock: FrozenClock, apps: dict[tuple[Config, bool], Flask], *, serves_web: bool
) -> Iterator[Flask]:
    from webapp import create_app
    from webapp.web.live import init_live

    key = (config, serves_web)
    if key not in apps:
        apps[key] = create_app(config, clock, serves_web=serves_web)
    app = apps[key]
    app.extensions["carillon_clock"] = clock
    init_live(app)
    yield app
    let_go(app)


@pytest.fixture
def own_app(config: Config, clock: FrozenClock) -> Iterator[Flask]:
    """An app that this test alone uses, and may add routes to."""
    from webapp import create_app

    app = create_app(config, clock)
    yield app
    dispose_engines(app)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """Chromium as this machine has it."""
    return launch_arguments()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    """Speaks HTTP to the app without a network; keeps cookies."""
    return app.test_client()


@pytest.fixture
def doctor_clean(app: Flask) -> Iterator[None]:
    """Ends the test with the doctor's examination: `pytestmark = pytest.mark.usefixtures("doctor_clean")`."""
    yield
    doctor.assert_doctor_clean(app)
