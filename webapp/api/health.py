"""Whether the product lives (`/healthz`), can work (`/readyz`), and how much it does (`/metrics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from flask import Blueprint, Response, current_app, g, jsonify, request
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from webapp.errors import AppError
from webapp.logs import get_logger
from webapp.nodes.lifecycle import OPEN as OPEN_TASK
from webapp.nodes.models import Task
from webapp.scheduling.lifecycle import OPEN as OPEN_RUN
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Alert, Run, Schedule, ScheduleDue, WorkerSeen
from webapp.store import dialect, engine, reading, schema
from webapp.web.auth import bearer_caller
from webapp.web.origin import caller_is_this_machine
from webapp.web.policy import Public, access

blueprint = Blueprint("health", __name__)

TICKS_UNTIL_GONE: Final = 3
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_log = get_logger(__name__)


@blueprint.get("/healthz")
@access(Public)
def healthz() -> Response:
    """This process answers. Asks nothing else, so that a slow database restarts no healthy process."""
    return jsonify(ok=True)


@blueprint.get("/readyz")
@access(Public)
def readyz() -> Response:
    """Whether work gets done: the database, its migrations, a worker seen within three ticks. 200 or 503."""
    checks: dict[str, dict[str, Any]] = {}
    try:
        with engine().connect() as connection:
            checks["database"] = {"ok": True, "detail": dialect.storage_summary(connection)}
            checks["migrations"] = _migrations(connection)
        if checks["migrations"]["ok"]:
            with reading() as session:
                checks["worker"] = _worker(session, g.now)
    except SQLAlchemyError:
        _log.exception("the database does not answer")
        checks["database"] = {"ok": False, "detail": "the database does not answer"}
    ready = len(checks) == 3 and all(check["ok"] for check in checks.values())
    response = (
        jsonify(ok=ready, checks=checks)
        if ready
        else jsonify(ok=False, error="not_ready", message=AppError("not_ready").message, checks=checks)
    )
    response.status_code = 200 if ready else 503
    response.headers["Cache-Control"] = "no-store"
    return response


@blueprint.get("/metrics")
@access(Public)
def metrics() -> Response:
    """Gauges for Prometheus, counted when asked. For a user's token, or from this machine itself."""
    header = request.headers.get("Authorization")
    if header is not None:
        if bearer_caller(header).person is None:
            raise AppError("user_token_required")
    elif not caller_is_this_machine():
        raise AppError("unauthenticated")
    registry = CollectorRegistry()
    with reading() as session:
        registry.register(_Gauges(session, g.now))
        body = generate_latest(registry)
    return Response(body, content_type=_METRICS_TYPE, headers={"Cache-Control": "no-store"})


def _migrations(connection: Connection) -> dict[str, Any]:
    state = schema.schema_state(connection)
    return {"ok": state is schema.SchemaState.CURRENT, "detail": state.value}


def _worker(session: Session, now: datetime) -> dict[str, Any]:
    age = last_pass_age_seconds(session, now)
    limit = TICKS_UNTIL_GONE * current_app.extensions["carillon_config"].tick_seconds
    if age is None:
        return {"ok": False, "detail": "no worker has been here yet"}
    return {"ok": age <= limit, "detail": f"last pass {age:.1f} s ago", "age_seconds": round(age, 3)}


def last_pass_age_seconds(session: Session, now: datetime) -> float | None:
    """Seconds since the last pass of any worker that has not said good-bye; None where there is none."""
    newest = session.scalar(select(func.max(WorkerSeen.last_tick_at)).where(WorkerSeen.stopped_at.is_(None)))
    return None if newest is None else max(0.0, (now - newest).total_seconds())


class _Gauges(Collector):
    """What the database says at this moment; the same from every process, whichever is asked."""

    def __init__(self, session: Session, now: datetime) -> None:
        self._session = session
        self._now = now

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._workers()
        yield self._by_status("carillon_schedules", "Schedules by status", Schedule, ScheduleStatus)
        yield self._by_status("carillon_open_runs", "Runs not ended yet, by status", Run, OPEN_RUN)
        yield self._by_status("carillon_open_tasks", "Tasks not ended yet, by status", Task, OPEN_TASK)
        yield self._single(
            "carillon_due_slots", "Schedules whose next slot is due and unclaimed", self._due_count
        )
        yield self._single("carillon_due_age_seconds", "Age of the oldest unclaimed due slot", self._due_age)
        yield self._single("carillon_open_alerts", "Cards that need a person", self._alert_count)

    def _workers(self) -> Iterator[GaugeMetricFamily]:
        statement = select(WorkerSeen.last_tick_at, WorkerSeen.lag_ms).where(WorkerSeen.stopped_at.is_(None))
        limit = TICKS_UNTIL_GONE * current_app.extensions["carillon_config"].tick_seconds
        rows = [((self._now - at).total_seconds(), lag_ms) for at, lag_ms in self._session.execute(statement)]
        living = [(age, lag_ms) for age, lag_ms in rows if age <= limit]
        yield GaugeMetricFamily("carillon_workers", "Workers seen within three ticks", value=len(living))
        if rows:
            youngest = min(age for age, _ in rows)
            yield GaugeMetricFamily(
                "carillon_last_pass_age_seconds",
                "Seconds since a worker's last pass",
                value=max(0.0, youngest),
            )
        if living:
            lag = max(lag_ms for _, lag_ms in living) / 1000
            yield GaugeMetricFamily(
                "carillon_worker_lag_seconds", "How late the last claimed slot was", value=lag
            )

    def _by_status(self, name: str, text: str, model: Any, statuses: Any) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=["status"])
        wanted = sorted(statuses)
        statement = select(model.status, func.count()).where(model.status.in_(wanted)).group_by(model.status)
        counts: dict[Any, int] = dict(self._session.execute(statement).all())
        for status in wanted:
            family.add_metric([status.value], counts.get(status, 0))
        return family

    def _single(self, name: str, text: str, count: Callable[[], float]) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, text, value=count())

    def _due_count(self) -> float:
        statement = select(func.count()).select_from(ScheduleDue).where(ScheduleDue.due_at <= self._now)
        return float(self._session.execute(statement).scalar_one())

    def _due_age(self) -> float:
        oldest = self._session.scalar(
            select(func.min(ScheduleDue.due_at)).where(ScheduleDue.due_at.is_not(None))
        )
        return 0.0 if oldest is None else max(0.0, (self._now - oldest).total_seconds())

    def _alert_count(self) -> float:
        statement = select(func.count()).select_from(Alert).where(Alert.resolved_at.is_(None))
        return float(self._session.execute(statement).scalar_one())
