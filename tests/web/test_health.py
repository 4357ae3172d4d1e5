"""What a load balancer and Prometheus are told."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from flask import Flask
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import create_engine, text

from tests.factories import Cast, actor_of, bearer, make_node_token, make_token
from webapp.api import health
from webapp.clock import FrozenClock
from webapp.nodes import operations as nodes
from webapp.scheduling.models import WorkerSeen
from webapp.store.transaction import Tx, operation


@operation
def worker_seen(tx: Tx, at: datetime, *, lag_ms: int = 3, stopped: bool = False) -> None:
    tx.session.add(
        WorkerSeen(
            worker_id=f"wrk_{at.timestamp()}",
            started_at=at - timedelta(hours=1),
            last_tick_at=at,
            zone_version="2026b",
            lag_ms=lag_ms,
            stopped_at=at if stopped else None,
        )
    )


def gauges(app: Flask, headers: dict[str, str] | None = None) -> dict[str, float]:
    answer = app.test_client().get("/metrics", headers=headers or {})
    assert answer.status_code == 200
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    return {
        sample.name + "".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_a_process_that_answers_is_alive(app: Flask) -> None:
    assert app.test_client().get("/healthz").json == {"ok": True}


def test_without_a_worker_nothing_is_ready(app: Flask) -> None:
    answer = app.test_client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json["error"] == "not_ready"
    assert answer.json["checks"]["database"]["ok"]
    assert answer.json["checks"]["migrations"] == {"ok": True, "detail": "current"}
    assert answer.json["checks"]["worker"] == {"ok": False, "detail": "no worker has been here yet"}


def test_a_worker_counts_until_three_ticks_have_passed(app: Flask, clock: FrozenClock) -> None:
    with app.app_context():
        worker_seen(clock.now())
    client = app.test_client()
    clock.advance(seconds=30)
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json["ok"]) == (200, True)
    clock.advance(milliseconds=1)
    assert client.get("/readyz").status_code == 503


def test_a_worker_that_said_good_bye_does_not_count(app: Flask, clock: FrozenClock) -> None:
    with app.app_context():
        worker_seen(clock.now(), stopped=True)
    assert app.test_client().get("/readyz").status_code == 503


@pytest.mark.parametrize("revision", ["'0000_of_the_future'", None])
def test_a_database_of_another_version_is_not_ready(
    app: Flask, clock: FrozenClock, revision: str | None
) -> None:
    @operation
    def move(tx: Tx) -> None:
        statement = (
            "DELETE FROM alembic_version"
            if revision is None
            else f"UPDATE alembic_version SET version_num = {revision}"
        )
        tx.session.execute(text(statement))

    with app.app_context():
        worker_seen(clock.now())
        move()
    answer = app.test_client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json["checks"]["migrations"] == {"ok": False, "detail": "ahead" if revision else "new"}


def test_a_database_that_is_gone_is_said_so_and_the_process_lives(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none", connect_args={"connect_timeout": 1})
    monkeypatch.setattr(health, "engine", lambda: gone)
    client = app.test_client()
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json["checks"]["database"] == {"ok": False, "detail": "the database does not answer"}
    assert client.get("/healthz").status_code == 200


def test_the_storage_is_named(app: Flask, database_url: str) -> None:
    detail = app.test_client().get("/readyz").json["checks"]["database"]["detail"]
    assert detail.startswith("SQLite " if database_url.startswith("sqlite") else "PostgreSQL ")


def test_metrics_count_what_the_database_holds(app: Flask, cast: Cast, clock: FrozenClock) -> None:
    with app.app_context():
        worker_seen(clock.now(), lag_ms=250)
        worker_seen(clock.now() - timedelta(minutes=5), lag_ms=9000)
        node, _ = nodes.create_node(None, cast.network.id, "atlas", now=clock.now())
        nodes.create_task(
            actor_of(cast.alice),
            nodes.NewTaskBody(node_id=node.node_id, task="Ring the bell."),
            now=clock.now(),
        )
    found = gauges(app)
    assert found["carillon_workers"] == 1
    assert found["carillon_worker_lag_seconds"] == 0.25
    assert found["carillon_last_pass_age_seconds"] == 0
    assert found["carillon_open_taskscreated"] == 1
    assert found["carillon_open_tasksrunning"] == 0
    assert found["carillon_due_slots"] == 0
    assert found["carillon_schedulesactive"] == 0


def test_metrics_take_a_persons_token_from_anywhere_and_no_nodes(
    app: Flask, cast: Cast, clock: FrozenClock
) -> None:
    with app.app_context():
        person = make_token(cast.vera)
        node, _ = nodes.create_node(None, cast.network.id, "atlas", now=clock.now())
        machine = make_node_token(node.id, cast.network.id)
    elsewhere = {"REMOTE_ADDR": "192.0.2.1"}
    client = app.test_client()
    assert client.get("/metrics", headers=bearer(person), environ_base=elsewhere).status_code == 200
    refused = client.get("/metrics", headers=bearer(machine), environ_base=elsewhere)
    assert (refused.status_code, refused.json["error"]) == (403, "user_token_required")
