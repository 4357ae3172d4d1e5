"""Clocks that jump, stand still and differ, machines that sleep, and zone data that changes: each slot still once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import pytest
import tzdata
from flask import Flask
from sqlalchemy import select

from tests.concurrency.planting import plant, prepare_ground
from tests.concurrency.scene import app_beside_processes, count
from tests.proof import ledger, wall_oracle
from tests.proof.conftest import LONG
from tests.proof.ground import plant_variety, start_calm
from tests.support.databases import ROOT, START
from tests.support.doctor import assert_doctor_clean
from tests.support.file_clock import FileClock
from tests.support.processes import Herd
from tests.support.servers import product_environment
from webapp.audit import AuditEntry
from webapp.clock import FrozenClock
from webapp.nodes.lifecycle import TaskStatus
from webapp.scheduling.models import Run, ScheduleDue, ZoneData
from webapp.scheduling.tick import tick
from webapp.store import reading
from webapp.targets import node as bridge
from webapp.timetable import Plan, parse_timetable, to_stored
from webapp.worker import new_worker

_JUMPS_SECONDS = (1, 59, 60, 61, 3_600, 86_400, 30 * 86_400)
_JUMPS = 60 if LONG else 14
_MINUTE = timedelta(minutes=1)


def test_a_clock_that_jumps_forth_and_back_fires_each_slot_once(
    app: Flask, clock: FrozenClock, seed: int
) -> None:
    chance = random.Random(seed)
    with app.app_context():
        ground = prepare_ground(START)
        plant_variety(ground, 10, now=START)
        worker, latest = new_worker(app), START
        # Each size once in both directions, then whatever chance says.
        jumps = [sign * seconds for seconds in _JUMPS_SECONDS for sign in (1, -1)]
        jumps += [
            chance.choice((1, -1)) * chance.choice(_JUMPS_SECONDS[:-1]) for _ in range(_JUMPS - len(jumps))
        ]
        chance.shuffle(jumps)
        for jump in jumps:
            clock.set(max(START, clock.now() + timedelta(seconds=jump)))
            latest = max(latest, clock.now())
            while tick(worker, clock)["more"]:
                pass
            for task in bridge.fetch(ground.node_pk, 5, now=clock.now()):
                bridge.reply(task.node_pk, task.task_id, TaskStatus.REPLIED, "done", None, now=clock.now())
        clock.set(latest + _MINUTE)
        while tick(worker, clock)["more"]:
            pass
        audited = ledger.assert_clean(app)
        print(audited)
        assert audited.slots > 1_000


@pytest.mark.processes
def test_machines_that_differ_by_ninety_seconds_and_sleep_fire_each_slot_once(
    database_url: str, tmp_path: Path, herd: Herd, seed: int
) -> None:
    chance = random.Random(seed)
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        ahead = FileClock(tmp_path / "ahead", START + timedelta(seconds=90))
        plant_variety(prepare_ground(START), 20, now=START)
        pids = [start_calm(herd, database_url, each) for each in (clock, clock, ahead)]
        for _ in range(120 if LONG else 12):
            asleep = chance.choice(pids)
            os.kill(asleep, signal.SIGSTOP)
            passes = timedelta(seconds=chance.choice((30, 60, 600)))
            clock.set(clock.now() + passes)
            ahead.set(ahead.now() + passes)
            time.sleep(0.2)
            os.kill(asleep, signal.SIGCONT)
        # The slow clocks come to where the quick one has been.
        clock.set(ahead.now())
        deadline = time.monotonic() + 120
        while count(ScheduleDue, ScheduleDue.due_at <= clock.now()):
            assert time.monotonic() < deadline, "not everything that was due was worked off"
            time.sleep(0.1)
        herd.end(*pids)
        print(ledger.assert_clean(app))


def _other_zone_data(folder: Path) -> Path:
    """A newer edition of the zone data, in which Berlin keeps the clock of Lisbon; returns where to import it from."""
    there = folder / "tzdata"
    shutil.copytree(Path(tzdata.__file__).parent, there)
    zones = there / "zoneinfo"
    shutil.copyfile(zones / "Europe" / "Lisbon", zones / "Europe" / "Berlin")
    code = there / "__init__.py"
    newer = code.read_text().replace(f'"{tzdata.IANA_VERSION}"', '"2999z"')
    assert "2999z" in newer
    code.write_text(newer)
    return folder


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.processes
def test_zone_data_that_changes_before_a_slot_moves_it_and_fires_it_once(
    database_url: str, tmp_path: Path
) -> None:
    editions = tmp_path / "editions"
    editions.mkdir()
    _other_zone_data(editions)
    with app_beside_processes(database_url, tmp_path) as (app, clock):
        spec = {"type": "daily", "time": "09:00"}
        plan = Plan(parse_timetable(spec, timezone="Europe/Berlin", now=START))
        ground = prepare_ground(START)
        plant(ground, 1, {"type": "daily", "time": "08:00"}, now=START)
        berlin = {"timetable": to_stored(plan.timetable), "timezone": "Europe/Berlin"}
        (key,) = plant(ground, 1, {"type": "daily", "time": "08:00"}, now=START, **berlin)
        tomorrow = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)
        assert plan.next_after(START) == tomorrow
        tick(new_worker(app), clock)

        def newer_worker(at: datetime) -> None:
            clock.set(at)
            _one_pass(database_url, clock, editions)

        newer_worker(tomorrow - _MINUTE)
        with reading() as session:
            moved = session.scalars(
                select(ScheduleDue.next_run_at).where(ScheduleDue.schedule_pk == key)
            ).one()
            assert session.scalars(select(ZoneData.version)).one() == "2999z"
        assert moved == tomorrow + timedelta(hours=1), "nine on the new clock"
        assert count(AuditEntry, AuditEntry.verb == "schedule.zone_data") == 1
        # A worker that still has the old data keeps its hands off.
        clock.set(tomorrow + timedelta(hours=1))
        tick(new_worker(app), clock)
        assert count(Run) == 0
        newer_worker(tomorrow + timedelta(hours=1))
        newer_worker(tomorrow + timedelta(hours=1, minutes=1))
        with reading() as session:
            slots = session.scalars(select(Run.scheduled_for).where(Run.schedule_pk == key)).all()
        assert slots == [tomorrow + timedelta(hours=1)]
        assert count(Run) == 2
        assert_doctor_clean(app)


def _one_pass(database_url: str, clock: FileClock, editions: Path) -> None:
    call = f"from tests.support.run_program import run; run('scheduler_worker.py', ['--once'], {str(clock.path)!r})"
    environment = product_environment(database_url, {"PYTHONPATH": f"{editions}{os.pathsep}{ROOT}"})
    done = subprocess.run(
        [sys.executable, "-c", call],
        cwd=editions,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# --- Every change of a clock, against the oracle ---

_FIRST, _LAST = datetime(2024, 1, 1, tzinfo=UTC), datetime(2033, 1, 1, tzinfo=UTC)
_ALWAYS = (
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Havana",
    "America/Nuuk",
    "America/Santiago",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Chatham",
)
_ZONES_OF_EACH_CHANGE = 20


def _changes(zone: str) -> Iterator[datetime]:
    """The minutes at which the clock of a zone jumps."""
    info = ZoneInfo(zone)
    at = _FIRST
    while at < _LAST:
        following = at + timedelta(days=1)
        if at.astimezone(info).utcoffset() != following.astimezone(info).utcoffset():
            low, high = at, following
            while high - low > _MINUTE:
                middle = low + timedelta(minutes=(high - low) // _MINUTE // 2)
                same = middle.astimezone(info).utcoffset() == low.astimezone(info).utcoffset()
                low, high = (middle, high) if same else (low, middle)
            yield high
        at = following


def test_every_change_of_a_clock_until_2032_agrees_with_the_oracle(seed: int) -> None:
    chance = random.Random(seed)
    names = sorted(available_timezones() - {"Factory", "localtime", "posixrules"})
    if LONG:
        zones = names
    else:
        zones = [*_ALWAYS, *chance.sample(names, _ZONES_OF_EACH_CHANGE - len(_ALWAYS))]
    changes = compared = 0
    for zone in zones:
        for at in _changes(zone):
            changes += 1
            compared += _compare(zone, at, chance)
    print(f"{len(zones)} zones, {changes} changes, {compared} slots compared")
    assert changes >= 13 * 9
    assert compared > 10 * changes


def _compare(zone: str, at: datetime, chance: random.Random) -> int:
    begin, end = at - timedelta(hours=5), at + timedelta(hours=5)
    near = (at + timedelta(minutes=chance.randint(-90, 90))).astimezone(ZoneInfo(zone))
    hours = f"{near.hour},{(near.hour + 1) % 24}"
    compared = 0
    for spec in (
        {"type": "daily", "time": f"{near:%H:%M}"},
        {"type": "cron", "cron": f"{near.minute} {hours} * * *"},
        {"type": "cron", "cron": f"*/20 {hours} * * *"},
        {"type": "cron", "cron": f"{near.minute} * * * *"},
        {"type": "cron", "cron": f"{near.minute} */2 * * *"},
    ):
        timetable = parse_timetable(spec, timezone=zone, now=_FIRST)
        plan, found = Plan(timetable), []
        slot = plan.next_after(begin - timedelta(milliseconds=1))
        while slot is not None and slot <= end:
            found.append(slot)
            slot = plan.next_after(slot)
        expected = wall_oracle.slots(to_stored(timetable), zone, begin, end)
        assert found == expected, f"{spec} in {zone} about {at}"
        compared += len(found)
    return compared
