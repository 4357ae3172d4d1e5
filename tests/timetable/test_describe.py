"""Timetables in words: never more, never less than they do."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings

from tests.timetable.strategies import NOW, Clockwork, clockworks, parsed
from webapp.timetable import (
    Cron,
    Daily,
    Interval,
    Once,
    Plan,
    TimetableError,
    clock_changes,
    sentence,
    upcoming,
)
from webapp.timetable.describe import interval_words

BERLIN = "Europe/Berlin"
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def cron(text: str) -> dict[str, Any]:
    return {"type": "cron", "cron": text}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"type": "daily", "time": "09:00"}, "Daily at 09:00"),
        ({"type": "weekly", "time": "09:00", "weekdays": [1, 2, 3, 4, 5]}, "Weekdays at 09:00"),
        ({"type": "weekly", "time": "09:00", "weekdays": [0, 6]}, "Weekends at 09:00"),
        ({"type": "weekly", "time": "09:00", "weekdays": list(range(7))}, "Every day at 09:00"),
        ({"type": "weekly", "time": "16:30", "weekdays": [1]}, "Mondays at 16:30"),
        (
            {"type": "weekly", "time": "02:30", "weekdays": [0, 2, 4]},
            "Tuesdays, Thursdays and Sundays at 02:30",
        ),
        (
            {"type": "interval", "every_seconds": 900, "anchor_at": "2026-11-30T13:12:00Z"},
            "Every 15 minutes, from Mon 30 Nov 2026 at 14:12",
        ),
        (
            {"type": "interval", "every_seconds": 86_400, "anchor_at": "2026-11-30T13:12:07Z"},
            "Every 24 hours, from Mon 30 Nov 2026 at 14:12:07",
        ),
        ({"type": "once", "run_at": "2026-12-04T11:00"}, "Once, Fri 4 Dec 2026 at 11:00"),
        ({"type": "once", "run_at": "2026-12-04T11:00:00Z"}, "Once, Fri 4 Dec 2026 at 12:00"),
        (cron("0 9 * * *"), "Daily at 09:00"),
        (cron("0 9 * * 1-5"), "Weekdays at 09:00"),
        (cron("5 4 * * sun"), "Sundays at 04:05"),
        (cron("* * * * *"), "Every minute"),
        (cron("*/15 * * * *"), "Every 15 minutes"),
        (cron("@hourly"), "Every hour"),
        (cron("30 * * * *"), "Every hour at 30 min past"),
        (cron("*/40 * * * *"), "Every hour at 0 and 40 min past"),
        (cron("0 */3 * * *"), "Every 3 hours"),
        (cron("30 */2 * * *"), "Every 2 hours at 30 min past"),
        (cron("0 2,4,6,8,10 * * *"), "At 02:00, 04:00, 06:00, 08:00 and 10:00"),
        (cron("0 9-17 * * *"), "Every hour from 09:00 to 17:00"),
        (cron("*/15 9-17 * * 1-5"), "Every 15 minutes from 09:00 to 17:45, on weekdays"),
        (cron("*/30 * * * 3"), "Every 30 minutes, on Wednesdays"),
        (cron("0 6 1 * 1"), "On the 1st or on Mondays at 06:00"),
        (cron("0 9 13 * 5#2"), "On the 13th or on the second Friday at 09:00"),
        (cron("0 0 30 2 1"), "On the 30th or on Mondays in February at 00:00"),
        (cron("0 9 1,15 * *"), "On the 1st and the 15th at 09:00"),
        (cron("0 9 1-7 * *"), "On the 1st to the 7th at 09:00"),
        (cron("0 9 29 2 *"), "On 29 February at 09:00"),
        (cron("@yearly"), "On 1 January at 00:00"),
        (cron("0 0 L * *"), "On the last day of the month at 00:00"),
        (
            cron("0 18 LW 3,6,9,12 *"),
            "On the last weekday of March, June, September and December at 18:00",
        ),
        (cron("0 9 15W * *"), "On the weekday nearest the 15th of the month at 09:00"),
        (cron("0 15 * * 5#3"), "On the third Friday of the month at 15:00"),
        (cron("1 1 * * 5L"), "On the last Friday of the month at 01:01"),
        (cron("0 9 * 3 *"), "Every day in March at 09:00"),
        (cron("0 9 * 3,4 1"), "Mondays in March and April at 09:00"),
        (cron("0 0 1/1 * 1"), "Daily at 00:00"),
        (cron("0 9 */2 * 1"), "Cron `0 9 */2 * 1`"),
        (cron(" */7 * * * * "), "Cron `*/7 * * * *`"),
    ],
)
def test_sentence(spec: dict[str, Any], words: str) -> None:
    assert sentence(parsed(spec, BERLIN), BERLIN) == f"{words}, {BERLIN}"


@settings(max_examples=50, derandomize=True, deadline=None)
@given(known=clockworks())
def test_every_accepted_cron_has_a_sentence(known: Clockwork) -> None:
    try:
        timetable = parsed(cron(known.text), BERLIN)
    except TimetableError:
        return
    words = sentence(timetable, BERLIN)
    assert words.endswith(f", {BERLIN}")
    assert words.isprintable()


def test_crons_that_mean_different_slots_are_not_said_alike() -> None:
    """Stars aside: they decide about clock changes, which `clock_changes` tells. UTC has none."""
    fields = (
        ["0", "*", "*/15", "30", "0,30", "5/15", "*/40", "0-59", "*/7"],
        ["*", "*/3", "9", "9-17", "9,12", "0-23", "*/7", "0-5"],
        ["*", "1", "1-7", "L", "LW", "15W", "1,15", "*/2", "1-31", "?", "31,L", "1,15W"],
        ["*", "2", "3,6", "*/2", "1-12"],
        ["*", "1", "1-5", "0,6", "5L", "5#3", "*/7", "0-7", "1#1,5L", "5,5L", "*/2"],
    )
    said: dict[str, tuple[str, list[datetime]]] = {}
    alike = 0
    for text in random.Random(3).sample([" ".join(parts) for parts in product(*fields)], 1500):
        try:
            timetable = Cron(text, "UTC")
        except TimetableError:  # no date matches
            continue
        slots = [row.at for row in upcoming(timetable, "UTC", NEW_YEAR, 12)]
        slots += timetable.newest(NEW_YEAR, NEW_YEAR + timedelta(days=400), 12)
        words = sentence(timetable, "UTC")
        first_text, first_slots = said.setdefault(words, (text, slots))
        assert slots == first_slots, (words, first_text, text)
        alike += first_text != text
    assert alike > 50


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(60, "minute"), (90, "90 seconds"), (3600, "hour"), (5400, "90 minutes"), (172_800, "2 days")],
)
def test_interval_words(seconds: int, words: str) -> None:
    assert interval_words(seconds) == words


@pytest.mark.parametrize(
    ("spec", "zone", "messages"),
    [
        (
            {"type": "daily", "time": "02:30"},
            BERLIN,
            [
                "29 Mar: 02:30 does not exist, runs at 03:00",
                "25 Oct: 02:30 happens twice, runs once, at the first",
            ],
        ),
        ({"type": "daily", "time": "09:00"}, BERLIN, []),
        ({"type": "daily", "time": "03:00"}, BERLIN, []),
        ({"type": "weekly", "time": "02:30", "weekdays": [1]}, BERLIN, []),
        ({"type": "daily", "time": "02:30"}, "Asia/Tokyo", []),
        ({"type": "interval", "every_seconds": 3600}, BERLIN, []),
        (
            cron("0,30 2 * * *"),
            BERLIN,
            [
                "29 Mar: 02:00 and 02:30 do not exist, run once, at 03:00",
                "25 Oct: 02:00 and 02:30 happen twice, run once each, at the first",
            ],
        ),
        (
            cron("*/15 2 * * *"),
            BERLIN,
            [
                "29 Mar: 02:00 to 02:45 do not exist, run once, at 03:00",
                "25 Oct: 02:00 to 02:45 happen twice, run both times",
            ],
        ),
        (
            cron("0 */2 * * *"),
            BERLIN,
            [
                "29 Mar: 02:00 does not exist, is left out",
                "25 Oct: 02:00 happens twice, runs both times",
            ],
        ),
        (
            {"type": "daily", "time": "00:15"},
            "Asia/Beirut",
            ["29 Mar: 00:15 does not exist, runs at 01:00"],
        ),
        (
            {"type": "daily", "time": "23:30"},
            "Asia/Beirut",
            ["24 Oct: 23:30 happens twice, runs once, at the first"],
        ),
    ],
)
def test_the_clock_changes_of_a_year_in_words(spec: dict[str, Any], zone: str, messages: list[str]) -> None:
    found = clock_changes(parsed(spec, zone), zone, NEW_YEAR)
    assert [change.message for change in found] == messages
    for change in found:
        assert change.message.endswith(change.what)


def test_a_skipped_day_names_the_day_it_runs_on() -> None:
    (change,) = clock_changes(
        Daily("09:00", "Pacific/Apia"), "Pacific/Apia", datetime(2011, 12, 1, tzinfo=UTC), 31
    )
    assert change.on == date(2011, 12, 30)
    assert change.message == "30 Dec: 09:00 does not exist, runs at 00:00 on 31 Dec"


def test_clock_changes_outside_the_bounds_are_not_told() -> None:
    daily = Daily("02:30", BERLIN)
    summer = Plan(daily, datetime(2026, 4, 1, tzinfo=UTC), None)
    assert [change.on for change in clock_changes(summer, BERLIN, NEW_YEAR)] == [date(2026, 10, 25)]
    spring = Plan(daily, None, datetime(2026, 4, 1, tzinfo=UTC))
    assert [change.on for change in clock_changes(spring, BERLIN, NEW_YEAR)] == [date(2026, 3, 29)]
    # The first 02:30 of 25 October has gone by: that change touches no slot any more.
    assert clock_changes(daily, BERLIN, datetime(2026, 10, 25, 0, 45, tzinfo=UTC), 30) == []


def test_the_next_slots_carry_a_note_where_the_clock_changes() -> None:
    rows = upcoming(Daily("02:30", BERLIN), BERLIN, datetime(2026, 3, 28, 12, tzinfo=UTC), 3)
    assert [(f"{row.local:%d %H:%M %z}", row.note) for row in rows] == [
        ("29 03:00 +0200", "02:30 does not exist, runs at 03:00"),
        ("30 02:30 +0200", None),
        ("31 02:30 +0200", None),
    ]
    assert [row.at for row in rows] == [row.local.astimezone(UTC) for row in rows]
    assert all(row.at.tzinfo is UTC for row in rows)


def test_a_repeated_rhythm_says_which_of_the_two_it_is() -> None:
    rows = upcoming(Cron("30 * * * *", BERLIN), BERLIN, datetime(2026, 10, 25, 0, 0, tzinfo=UTC), 3)
    assert [row.note for row in rows] == [
        "02:30 happens twice, this is the first",
        "02:30 happens twice, this is the second",
        None,
    ]


def test_the_local_time_is_shown_on_the_clock_asked_for() -> None:
    (row,) = upcoming(Daily("09:00", BERLIN), "America/New_York", NEW_YEAR, 1)
    assert row.local.isoformat() == "2026-01-01T03:00:00-05:00"


def test_fewer_slots_come_when_the_timetable_ends() -> None:
    plan = Plan(Daily("09:00", BERLIN), None, NEW_YEAR + timedelta(days=2))
    assert len(upcoming(plan, BERLIN, NEW_YEAR, 10)) == 2
    assert upcoming(plan, BERLIN, NEW_YEAR, 0) == []
    gone = parsed({"type": "once", "run_at": "2020-01-01T00:00Z"}, "UTC")
    assert upcoming(gone, "UTC", NOW, 5) == []


def test_a_stored_local_once_in_a_gap_says_what_becomes_of_it() -> None:
    once = parsed({"type": "once", "run_at": "2026-03-29T02:30"}, BERLIN)
    (row,) = upcoming(once, BERLIN, NEW_YEAR, 1)
    assert row.note == "02:30 does not exist, runs at 03:00"
    assert [change.message for change in clock_changes(once, BERLIN, NEW_YEAR)] == [
        "29 Mar: 02:30 does not exist, runs at 03:00"
    ]


def test_the_end_of_the_calendar_is_shown_in_utc_where_a_clock_has_left_it() -> None:
    last = datetime(9999, 12, 31, 23, 30, tzinfo=UTC)
    once = Once(last)
    assert sentence(once, "Europe/Berlin") == "Once, Fri 31 Dec 9999 at 23:30, Europe/Berlin"
    (slot,) = upcoming(once, "Europe/Berlin", datetime(9999, 1, 1, tzinfo=UTC), 5)
    assert (slot.at, slot.local) == (last, last)
    daily = Daily("09:00", "Europe/Berlin")
    assert upcoming(daily, "Europe/Berlin", last, 5) == []
    assert clock_changes(Daily("02:30", "Europe/Berlin"), "Europe/Berlin", last) == []
    first = datetime(1, 1, 1, tzinfo=UTC)
    assert upcoming(Interval(3600, first), "America/New_York", first, 1)[0].at.hour == 1
