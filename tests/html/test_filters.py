"""How values read on a page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from webapp.html import filters

NOW = datetime(2026, 11, 30, 13, 12, tzinfo=UTC)
SLOT = datetime(2026, 12, 1, 1, 30, 11, 412_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("long", "Tue 1 Dec, 02:30 Berlin"),
        ("table", "Tue 1 Dec 02:30"),
        ("date", "Tue 1 Dec"),
        ("clock", "02:30"),
        ("seconds", "02:30:11"),
        ("stamp", "02:30:11.412"),
        ("day", "Tuesday 1 December 2026"),
        ("full", "Tuesday 1 December 2026, 02:30 Europe/Berlin"),
        ("exact", "Tue 1 Dec 2026, 02:30:11 UTC+1, Europe/Berlin"),
        ("field", "2026-12-01 02:30"),
    ],
)
def test_an_instant_reads_on_the_wall_of_its_zone(style: str, text: str) -> None:
    assert filters.wall(SLOT, "Europe/Berlin", style, NOW) == text


def test_the_year_is_named_only_when_it_is_another_one_in_that_zone() -> None:
    new_year_in_berlin = datetime(2026, 12, 31, 23, 30, tzinfo=UTC)
    assert filters.wall(new_year_in_berlin, "Europe/Berlin", "long", NOW) == "Fri 1 Jan 2027, 00:30 Berlin"
    assert filters.wall(new_year_in_berlin, "UTC", "long", NOW) == "Thu 31 Dec, 23:30 UTC"


def test_both_passes_of_a_repeated_hour_differ_by_their_offset() -> None:
    first = datetime(2027, 10, 31, 0, 30, tzinfo=UTC)
    texts = [filters.wall(at, "Europe/Berlin", "exact") for at in (first, first + timedelta(hours=1))]
    assert texts == [
        "Sun 31 Oct 2027, 02:30:00 UTC+2, Europe/Berlin",
        "Sun 31 Oct 2027, 02:30:00 UTC+1, Europe/Berlin",
    ]


@pytest.mark.parametrize(
    ("zone", "city", "shift"),
    [
        ("America/New_York", "New York", "UTC−5"),
        ("America/Argentina/Buenos_Aires", "Buenos Aires", "UTC−3"),
        ("America/St_Johns", "St Johns", "UTC−3:30"),
        ("Asia/Kathmandu", "Kathmandu", "UTC+5:45"),
        ("UTC", "UTC", "UTC"),
        ("Etc/GMT+5", "GMT+5", "UTC−5"),
    ],
)
def test_a_zone_is_named_by_city_and_offset(zone: str, city: str, shift: str) -> None:
    assert (filters.zone_city(zone), filters.offset(NOW, zone)) == (city, shift)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (0.9, "now"),
        (-0.9, "now"),
        (-2.4, "2 s ago"),
        (59, "in 59 s"),
        (180, "in 3 min"),
        (239.9, "in 3 min"),
        (12 * 3600 + 18 * 60, "in 12 h 18 min"),
        (7200, "in 2 h"),
        (-(86_400 + 3600), "1 day 1 h ago"),
        (3 * 86_400 + 21 * 3600, "in 3 days 21 h"),
        (31 * 86_400 + 3600, "in 31 days"),
    ],
)
def test_distance_from_now_reads_in_one_or_two_units(seconds: float, text: str) -> None:
    assert filters.relative(NOW + timedelta(seconds=seconds), NOW) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (0, "0 ms"),
        (0.006, "6 ms"),
        (0.412, "0.4 s"),
        (5.0, "5 s"),
        (31, "31 s"),
        (59.6, "1 min"),
        (362, "6 min 2 s"),
        (timedelta(hours=2, minutes=30), "2 h 30 min"),
        (timedelta(days=3, hours=2), "3 days 2 h"),
        (-90, "−1 min 30 s"),
        (None, "–"),
    ],
)
def test_a_span_reads_in_the_units_that_matter(span: timedelta | float | None, text: str) -> None:
    assert filters.duration(span) == text


def test_instants_are_written_for_machines_in_utc_with_milliseconds() -> None:
    assert filters.iso(SLOT) == "2026-12-01T01:30:11.412Z"
    assert filters.iso(None) == ""


def test_counts_are_grouped_and_agree_with_their_noun() -> None:
    assert filters.number(10_000) == "10\u202f000"
    assert [filters.plural(n, "run") for n in (0, 1, 1204)] == ["0 runs", "1 run", "1\u202f204 runs"]
    assert filters.plural(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("octets", "text"),
    [(1, "1 byte"), (312, "312 bytes"), (1843, "1.8 KiB"), (65_536, "64 KiB"), (None, "–")],
)
def test_sizes_read_in_binary_units(octets: int | None, text: str) -> None:
    assert filters.size(octets) == text


def test_a_strip_of_results_has_a_sentence() -> None:
    statuses = ["completed", "failed", "completed"]
    assert filters.tally(statuses) == "Last 3 runs, newest last: 2 completed, 1 failed"


def test_attributes_are_escaped_and_absent_ones_leave_no_trace() -> None:
    rendered = filters.attributes({"title": '"><script>', "hidden": True, "lang": None, "open": False})
    assert rendered == ' title="&#34;&gt;&lt;script&gt;" hidden'


def test_every_status_has_its_own_shape_or_word_within_its_kind() -> None:
    for kind in ("schedule", "run", "task", "node", "turn", "approval", "mandate"):
        looks = [filters.look(kind, status) for status in filters.known_statuses(kind)]
        assert len({look.word for look in looks}) == len(looks)


def test_a_status_without_a_drawing_still_shows_its_word() -> None:
    assert filters.look("run", "half_done") == ("rest", "queued", "half done")
