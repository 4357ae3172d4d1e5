"""The tables of right answers: every occurrence, and every timetable that must be refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from webapp.timetable import TimetableError, parse_timetable
from webapp.timetable.parsing import ABSENT

DATA = Path(__file__).resolve().parent.parent / "data"
NOW = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))["vectors"]
    return rows


OCCURRENCES = _rows("occurrences.json")
INVALID = _rows("invalid.json")

REFUSED_AT_CREATION = {"cron-impossible-2", "cron-impossible-3", "cron-impossible-4", "cron-step90"}
"""Rows where refusing is right too, and where we refuse."""

CODES = {
    "cron-00": "cron_required",
    "interval": "invalid_interval",
    "cron": "invalid_cron",
    "once": "invalid_run_at",
    "time": "invalid_time",
    "tz": "invalid_timezone",
    "weekdays": "invalid_weekdays",
}


def test_the_tables_are_complete() -> None:
    assert (len(OCCURRENCES), len(INVALID)) == (649, 80)


@pytest.mark.parametrize("row", OCCURRENCES, ids=lambda row: row["id"])
def test_occurrence(row: dict[str, Any]) -> None:
    after = datetime.fromisoformat(row["after"])
    zone = row.get("timezone", ABSENT)
    if row["id"] in REFUSED_AT_CREATION:
        assert row["may_reject"]
        with pytest.raises(TimetableError) as refused:
            parse_timetable(row["schedule"], zone, now=after)
        assert refused.value.code == "invalid_cron"
        return
    timetable = parse_timetable(row["schedule"], zone, now=after, allow_unresolved_local=True)
    slot: datetime | None = after
    found = []
    for _ in range(len(row["expect"]) + bool(row.get("exhausted"))):
        slot = timetable.next_after(slot)
        if slot is None:
            break
        found.append(slot)
    expected = [datetime.fromisoformat(text) for text in row["expect"]]
    assert found == expected
    assert all(slot.tzinfo is UTC for slot in found)
    if expected:
        # The same ones are found backwards, and counted at once.
        assert timetable.newest(after, expected[-1], 100) == expected
        span = timetable.span(after, expected[-1])
        assert (span.count, span.oldest, span.newest) == (len(expected), expected[0], expected[-1])


@pytest.mark.parametrize("row", INVALID, ids=lambda row: row["id"])
def test_refused_with_its_code(row: dict[str, Any]) -> None:
    with pytest.raises(TimetableError) as refused:
        parse_timetable(row["schedule"], row["timezone"], now=NOW)
    assert refused.value.code == CODES.get(row["id"], CODES[row["id"].split("-")[0]])
    assert refused.value.message.endswith(".")


@pytest.mark.parametrize(
    ("row_id", "code"),
    [
        ("once-naive-apia", "nonexistent_local_time"),
        ("once-naive-gap", "nonexistent_local_time"),
        ("once-naive-fold", "ambiguous_local_time"),
    ],
)
def test_a_local_once_in_a_gap_or_fold_is_refused_from_a_person(row_id: str, code: str) -> None:
    row = next(row for row in OCCURRENCES if row["id"] == row_id)
    with pytest.raises(TimetableError) as refused:
        parse_timetable(row["schedule"], row["timezone"], now=NOW)
    assert (refused.value.code, refused.value.field) == (code, "run_at")
