"""Zone names, zone data, and the clock read from it."""

from __future__ import annotations

import random
import zoneinfo
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import tzdata

from tests.timetable.strategies import NOW
from webapp.timetable import (
    ZONE_DATA_VERSION,
    TimetableError,
    canonical_zone,
    search_zones,
    suggest_zone,
    zone,
    zone_choices,
)
from webapp.timetable.walltime import (
    EPOCH,
    Reading,
    instant_of,
    seconds_of,
    wall_datetime,
    wall_seconds,
    zone_clock,
)
from webapp.timetable.zone_words import CITIES_PEOPLE_TYPE
from webapp.timetable.zones import _allowed


def test_zone_data_is_the_packages_own() -> None:
    assert zoneinfo.TZPATH == ()
    assert ZONE_DATA_VERSION == tzdata.IANA_VERSION
    compact = Path(tzdata.__file__).parent / "zoneinfo" / "tzdata.zi"
    assert compact.read_text(encoding="utf-8").startswith(f"# version {ZONE_DATA_VERSION}\n")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("europe/berlin", "Europe/Berlin"),
        ("  UTC\t", "UTC"),
        ("EUROPE/AMSTERDAM", "Europe/Amsterdam"),
        ("asia/calcutta", "Asia/Calcutta"),
        ("america/port-au-prince", "America/Port-au-Prince"),
        ("hst", "HST"),
        ("gmt", "GMT"),
        ("etc/gmt+5", "Etc/GMT+5"),
    ],
)
def test_letter_case_and_blanks_are_corrected_and_links_stay(typed: str, name: str) -> None:
    assert canonical_zone(typed) == name
    assert zone(typed).key == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "PST",
        "CEST",
        "Factory",
        "localtime",
        "right/UTC",
        "posix/UTC",
        "posixrules",
        "Europe/Berlin\x00",
        "Europe",
        "America/",
        "../UTC",
        "/UTC",
        "zone.tab",
        "zones",
        "Etc/GMT+15",
        "Berlin",
        "Asia/\u212aolkata",
    ],
)
def test_names_outside_the_list_are_refused(name: str) -> None:
    with pytest.raises(TimetableError) as refused:
        canonical_zone(name)
    assert refused.value.code == "invalid_timezone"


def test_our_clock_shows_what_the_standard_library_shows() -> None:
    chance = random.Random(7)
    for name in sorted(_allowed().values()):
        clock, info = zone_clock(name), zoneinfo.ZoneInfo(name)
        changes = clock.through(seconds_of(datetime(2150, 1, 1, tzinfo=UTC))).starts[1:-1]
        near = [at + off for at in chance.sample(changes, min(12, len(changes))) for off in (-1, 0)]
        anywhere = [chance.randrange(-2_000_000_000, 9_000_000_000) for _ in range(12)]
        for seconds in near + anywhere:
            instant = EPOCH + timedelta(seconds=seconds)
            if instant.year < 1901:
                continue  # before its first entry the library guesses in its own way
            shown = instant.astimezone(info).replace(tzinfo=None)
            assert wall_datetime(clock.wall(seconds)) == shown, (name, instant)


@pytest.mark.parametrize(
    "name", ["Europe/Lisbon", "Europe/Riga", "Pacific/Norfolk", "America/Resolute", "America/Grand_Turk"]
)
def test_the_yearly_rule_of_a_zone_is_not_applied_before_its_time(name: str) -> None:
    instant = datetime(1970, 1, 1, tzinfo=UTC)
    while instant.year < 2050:
        shown = instant.astimezone(zoneinfo.ZoneInfo(name)).replace(tzinfo=None)
        assert wall_datetime(zone_clock(name).wall(seconds_of(instant))) == shown, instant
        instant += timedelta(days=9)


def test_the_clock_is_right_in_the_last_century_of_the_calendar() -> None:
    for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo"):
        for month in range(1, 13):
            instant = datetime(9950, month, 15, 12, tzinfo=UTC)
            shown = instant.astimezone(zoneinfo.ZoneInfo(name)).replace(tzinfo=None)
            assert wall_datetime(zone_clock(name).wall(seconds_of(instant))) == shown


@pytest.mark.parametrize(
    ("name", "wall", "reading", "first"),
    [
        ("Europe/Berlin", "2026-03-29T02:30", Reading.NEVER, "2026-03-29T01:00"),
        ("Europe/Berlin", "2026-03-29T03:00", Reading.ONCE, "2026-03-29T01:00"),
        ("Europe/Berlin", "2026-03-29T01:59", Reading.ONCE, "2026-03-29T00:59"),
        ("Europe/Berlin", "2026-10-25T02:00", Reading.TWICE, "2026-10-25T00:00"),
        ("Europe/Berlin", "2026-10-25T02:59", Reading.TWICE, "2026-10-25T00:59"),
        ("Europe/Berlin", "2026-10-25T03:00", Reading.ONCE, "2026-10-25T02:00"),
        ("Australia/Lord_Howe", "2026-04-05T01:45", Reading.TWICE, "2026-04-04T14:45"),
        ("Pacific/Apia", "2011-12-30T12:00", Reading.NEVER, "2011-12-30T10:00"),
        ("UTC", "2026-03-29T02:30", Reading.ONCE, "2026-03-29T02:30"),
    ],
)
def test_how_often_a_wall_time_is_read(name: str, wall: str, reading: Reading, first: str) -> None:
    clock, seconds = zone_clock(name), wall_seconds(datetime.fromisoformat(wall))
    assert clock.reading(seconds) is reading
    assert instant_of(clock.first(seconds)) == datetime.fromisoformat(first).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("reported", "current"),
    [
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("Europe/Kiev", "Europe/Kyiv"),
        ("US/Pacific", "America/Los_Angeles"),
        ("America/Buenos_Aires", "America/Argentina/Buenos_Aires"),
        ("Europe/Amsterdam", "Europe/Amsterdam"),
        ("Iceland", "Atlantic/Reykjavik"),
        ("Pacific/Truk", "Pacific/Chuuk"),
        ("Etc/UTC", "UTC"),
        ("GMT", "UTC"),
        ("EST", "EST"),
        ("Etc/GMT+5", "Etc/GMT+5"),
        ("europe/berlin", "Europe/Berlin"),
        ("Mars/Olympus", None),
        ("", None),
        (None, None),
    ],
)
def test_an_old_name_is_answered_with_the_current_one(reported: object, current: str | None) -> None:
    assert suggest_zone(reported) == current


def test_a_suggestion_keeps_the_clock() -> None:
    instants = [datetime(year, month, 15, tzinfo=UTC) for year in (2020, 2026) for month in (1, 7)]
    for name in _allowed().values():
        suggested = suggest_zone(name)
        assert suggested is not None
        for instant in instants:
            assert (
                instant.astimezone(zone(name)).utcoffset() == instant.astimezone(zone(suggested)).utcoffset()
            )


def test_the_choices_name_a_city_a_country_and_the_offset_now() -> None:
    choices = {choice.name: choice for choice in zone_choices(NOW)}
    assert next(iter(choices)) == "UTC"
    assert len(choices) > 400
    berlin = choices["Europe/Berlin"]
    assert (berlin.city, berlin.country, berlin.offset_minutes) == ("Berlin", "Germany", 120)
    assert "Munich" in berlin.aliases
    assert choices["America/Indiana/Knox"].city == "Knox, Indiana"
    assert choices["America/Argentina/Buenos_Aires"].city == "Buenos Aires"
    assert choices["Asia/Kolkata"].offset_minutes == 330
    assert "Asia/Calcutta" in choices["Asia/Kolkata"].aliases
    assert set(CITIES_PEOPLE_TYPE.values()) <= set(choices)
    winter = {choice.name: choice for choice in zone_choices(datetime(2026, 12, 1, tzinfo=UTC))}
    assert winter["Europe/Berlin"].offset_minutes == 60
    assert zone_choices(NOW) is zone_choices(NOW + timedelta(minutes=59))


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("munich", "Europe/Berlin"),
        ("MUNI", "Europe/Berlin"),
        ("Sao Paulo", "America/Sao_Paulo"),
        ("s\u00e3o paulo", "America/Sao_Paulo"),
        ("new_york", "America/New_York"),
        ("Calcutta", "Asia/Kolkata"),
        ("germany", "Europe/Berlin"),
        ("Vietnam", "Asia/Ho_Chi_Minh"),
        ("utc", "UTC"),
        ("san francisco", "America/Los_Angeles"),
        ("Europe/London", "Europe/London"),
        ("+5:45", "Asia/Kathmandu"),
        ("UTC-3:30", None),
        ("GMT+0545", "Asia/Kathmandu"),
        ("zzzz", None),
        ("...", None),
    ],
)
def test_a_zone_is_found_by_what_people_type(typed: str, first: str | None) -> None:
    found = search_zones(typed, NOW, 5)
    assert (found[0].name if found else None) == first


def test_a_search_is_limited_and_takes_anything() -> None:
    assert len(search_zones("", NOW, 7)) == 7
    assert len(search_zones("america", NOW, 3)) == 3
    assert search_zones("\ud800" * 100_000, NOW) == ()
