"""Untrusted values: nothing is coerced, every refusal has its code and its field, nothing else ever comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.timetable.strategies import NOW, SPECS, parsed
from webapp.timetable import (
    ABSENT,
    Cron,
    Daily,
    Interval,
    Once,
    TimetableError,
    Weekly,
    canonical_form,
    from_stored,
    parse_timetable,
    rezone,
    same_timetable,
    to_public,
    to_stored,
)

CODES = {
    "schedule_required",
    "invalid_schedule_type",
    "unknown_field",
    "invalid_timezone",
    "run_at_required",
    "invalid_run_at",
    "nonexistent_local_time",
    "ambiguous_local_time",
    "invalid_interval",
    "invalid_anchor",
    "invalid_time",
    "weekdays_required",
    "invalid_weekdays",
    "cron_required",
    "invalid_cron",
}


def _deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(50_000):
        nested = [nested]
    return nested


NASTY: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "a negative number": -1,
    "a fraction": 1.5,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "a number of 6000 digits": 10**6000,
    "an empty text": "",
    "blanks": "   ",
    "a text": "soon",
    "a digit as text": "60",
    "a lone surrogate": "\ud800",
    "a NUL": "\x00",
    "other digits": "\u0661\u0662:\u0663\u0664",
    "ten megabytes": "9" * 10_000_000,
    "ten megabytes of blanks": " " * 10_000_000,
    "bytes": b"09:00",
    "an empty list": [],
    "a deep list": _deep(),
    "a list of lists": [[1]],
    "an empty object": {},
    "an object": {"a": 1},
    "a datetime": NOW,
    "an object of the language": object(),
}

VALID: dict[str, dict[str, Any]] = {
    "once": {"type": "once", "run_at": "2026-12-04T11:00"},
    "interval": {"type": "interval", "every_seconds": 900, "anchor_at": "2026-05-01T00:00:17.5Z"},
    "daily": {"type": "daily", "time": "09:00"},
    "weekly": {"type": "weekly", "time": "09:00", "weekdays": [1, 3]},
    "cron": {"type": "cron", "cron": "0 9 * * 1-5"},
}
FIELDS = [(kind, field) for kind, spec in VALID.items() for field in spec]

REQUIRED_CODES = {
    "run_at": ("run_at_required", "invalid_run_at"),
    "every_seconds": ("invalid_interval", "invalid_interval"),
    "anchor_at": ("invalid_anchor", "invalid_anchor"),
    "time": ("invalid_time", "invalid_time"),
    "weekdays": ("weekdays_required", "invalid_weekdays"),
    "cron": ("cron_required", "invalid_cron"),
    "type": ("invalid_schedule_type", "invalid_schedule_type"),
}


def refusal(spec: object, zone: object = "Europe/Berlin", **options: Any) -> TimetableError:
    with pytest.raises(TimetableError) as refused:
        parse_timetable(spec, zone, now=NOW, **options)
    assert refused.value.code in CODES
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 200
    return refused.value


def code_of(call: Callable[[], object]) -> str | None:
    """The code of the refusal, or None if there is none."""
    try:
        call()
    except TimetableError as refused:
        return refused.code
    return None


@pytest.mark.parametrize(("kind", "field"), FIELDS)
@pytest.mark.parametrize("name", NASTY)
def test_a_wrong_value_in_a_field_has_the_code_of_that_field(kind: str, field: str, name: str) -> None:
    value = NASTY[name]
    error = refusal({**VALID[kind], field: value})
    absent, invalid = REQUIRED_CODES[field]
    blank = value is None or (isinstance(value, str) and not value.strip())
    empty = blank or (field == "weekdays" and value == [])
    assert (error.code, error.field) == (absent if empty else invalid, field)


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_missing_field_has_its_code(kind: str, field: str) -> None:
    spec = {key: value for key, value in VALID[kind].items() if key != field}
    if field == "anchor_at":
        assert parse_timetable(spec, now=NOW) == Interval(900, NOW)
        return
    assert refusal(spec).code == REQUIRED_CODES[field][0]


@pytest.mark.parametrize("name", [name for name in NASTY if not isinstance(NASTY[name], dict)])
def test_a_timetable_that_is_not_an_object_is_required(name: str) -> None:
    error = refusal(NASTY[name])
    assert (error.code, error.field) == ("schedule_required", "schedule")


@pytest.mark.parametrize("name", NASTY)
def test_a_zone_of_another_kind_is_invalid(name: str) -> None:
    error = refusal(VALID["daily"], NASTY[name])
    assert (error.code, error.field) == ("invalid_timezone", "timezone")


@pytest.mark.parametrize("kind", VALID)
@pytest.mark.parametrize(
    "key", ["seconds", "Time", "", "\ud800", "x" * 1_000_000, 5, None, (1, 2), "v", "fields"]
)
def test_an_unknown_key_is_refused_by_name(kind: str, key: Any) -> None:
    error = refusal({**VALID[kind], key: 1})
    assert error.code == "unknown_field"
    assert error.field.isascii()
    assert len(error.field) <= 400
    if key == "seconds":
        assert error.field == "seconds"


def test_a_key_of_another_kind_is_unknown() -> None:
    assert refusal({"type": "daily", "time": "09:00", "weekdays": [1]}).field == "weekdays"


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    spec=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "time", "cron", "run_at", "weekdays", "x"]), inner, max_size=4
            )
        ),
        max_leaves=8,
    ),
    kind=st.sampled_from([*VALID, None]),
    zone=st.sampled_from(["UTC", "europe/berlin", ABSENT, None, 3]),
)
def test_only_our_own_refusal_ever_comes_out(spec: object, kind: str | None, zone: object) -> None:
    if isinstance(spec, dict) and kind:
        spec = {**spec, "type": kind}
    assert code_of(lambda: parse_timetable(spec, zone, now=NOW)) in {*CODES, None}
    assert code_of(lambda: from_stored(spec, "UTC")) == "unreadable_timetable"


@settings(max_examples=200, derandomize=True, deadline=None)
@given(text=st.text(alphabet="0123456789*/,-?LW# \tSUNMONJAN@", max_size=30))
def test_any_cron_text_is_read_or_refused(text: str) -> None:
    code = code_of(lambda: parse_timetable({"type": "cron", "cron": text}, "UTC", now=NOW))
    assert code in ("invalid_cron", "cron_required", None)
    if code is None:
        assert Cron(text, "UTC").next_after(NOW) is not None


# --- Each kind ---------------------------------------------------------------------------------------------------


def test_an_absent_zone_is_utc() -> None:
    assert parse_timetable(VALID["daily"], now=NOW) == Daily("09:00", "UTC")


def test_weekdays_are_unique_and_sorted() -> None:
    spec = {"type": "weekly", "time": "09:00", "weekdays": [5, 0, 5, 1]}
    assert parse_timetable(spec, "UTC", now=NOW) == Weekly("09:00", (0, 1, 5), "UTC")


@pytest.mark.parametrize("time", ["24:00", "9:00", "09:60", "09:00 ", "T09:00", "09.00"])
def test_a_time_is_two_digits_colon_two_digits(time: str) -> None:
    assert refusal({"type": "daily", "time": time}).code == "invalid_time"


@pytest.mark.parametrize(
    ("seconds", "fine"), [(59, False), (60, True), (31_536_000, True), (31_536_001, False)]
)
def test_an_interval_is_from_a_minute_to_a_year(seconds: int, fine: bool) -> None:
    spec = {"type": "interval", "every_seconds": seconds}
    if fine:
        assert parse_timetable(spec, now=NOW) == Interval(seconds, NOW)
    else:
        assert refusal(spec).code == "invalid_interval"


def test_the_anchor_defaults_to_creation_to_the_second_and_is_kept_by_an_edit() -> None:
    spec = {"type": "interval", "every_seconds": 900}
    created = parse_timetable(spec, now=NOW + timedelta(seconds=7, microseconds=250_000))
    assert created == Interval(900, NOW + timedelta(seconds=7))
    edited = parse_timetable({**spec, "every_seconds": 600}, now=NOW + timedelta(days=3), previous=created)
    assert edited == Interval(600, NOW + timedelta(seconds=7))
    named = {**spec, "anchor_at": "2026-05-01T02:00:00+02:00"}
    assert parse_timetable(named, now=NOW, previous=created) == Interval(
        900, datetime(2026, 5, 1, tzinfo=UTC)
    )
    from_daily = parse_timetable(spec, now=NOW, previous=Daily("09:00", "UTC"))
    assert from_daily == Interval(900, NOW)


def test_an_anchor_without_an_offset_is_refused() -> None:
    spec = {"type": "interval", "every_seconds": 900, "anchor_at": "2026-05-01T00:00:00"}
    assert refusal(spec).code == "invalid_anchor"


def test_a_once_with_an_offset_is_an_instant_and_ignores_the_zone() -> None:
    spec = {"type": "once", "run_at": "2026-05-04T09:00:37.123456+02:00"}
    once = parse_timetable(spec, "America/New_York", now=NOW)
    assert once == Once(datetime(2026, 5, 4, 7, 0, 37, 123_000, tzinfo=UTC))
    assert to_public(once) == {"type": "once", "run_at": "2026-05-04T07:00:37.123Z"}


def test_a_once_without_an_offset_is_a_wall_time_kept_with_its_zone_and_instant() -> None:
    once = parse_timetable({"type": "once", "run_at": "2026-12-04T11:00"}, "europe/berlin", now=NOW)
    assert once == Once(
        datetime(2026, 12, 4, 10, 0, tzinfo=UTC), datetime.fromisoformat("2026-12-04T11:00"), "Europe/Berlin"
    )
    assert to_public(once) == {"type": "once", "run_at": "2026-12-04T11:00:00"}
    assert to_stored(once)["at"] == "2026-12-04T10:00:00.000Z"


def test_a_stored_local_once_that_falls_into_a_gap_runs_at_the_jump() -> None:
    stored = {"v": 1, "type": "once", "run_at": "2026-03-29T02:30:00.250", "at": "2026-03-29T01:30:00.250Z"}
    once = from_stored(stored, "Europe/Berlin")
    assert once.next_after(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "run_at",
    [
        "2026-05-04",
        "2026-05-04T9:00",
        "2026-05-04T24:00",
        "2026-05-04T09:00:60",
        "2026-05-04T09:00+24:00",
        "2026-05-04T09:00 +02:00",
        " 2026-05-04T09:00",
        "2026-05-04T09:00\n",
        "0000-05-04T09:00",
        "0001-01-01T00:00:00+12:00",
        "9999-12-31T23:59:59",
        "20260504T090000Z",
    ],
)
def test_a_run_at_that_is_not_a_moment_is_refused(run_at: str) -> None:
    assert refusal({"type": "once", "run_at": run_at}, "America/New_York").code == "invalid_run_at"


def test_every_valid_body_is_accepted() -> None:
    for spec in VALID.values():
        public = to_public(parse_timetable(spec, "Europe/Berlin", now=NOW))
        assert public["type"] == spec["type"]
        assert set(public) == set(spec)


# --- Cron texts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "part_of_message"),
    [
        ("*/90 * * * *", "use an interval of 5400 s"),
        ("0 */36 * * *", "use an interval of 129600 s"),
        ("@every 5m", "use an interval"),
        ("@reboot", "names no time"),
        ("TZ=UTC 0 9 * * *", "its own time zone"),
        ("0 0 30 2 *", "never fires"),
        ("0 22-2 * * *", "backwards"),
        ("0 9 * * FRI-MON", "backwards"),
        ("* * * * * *", "five fields"),
        ("0 9 * * 1\n", "one line"),
        ("0 9 * * 1#6", "five times"),
        ("0 9 * * 1" + " " * 120, "at most 120"),
        ("0 9 L-3 * *", "day-of-month"),
        ("0 9 L/2 * *", "day-of-month"),
        ("0 9 * * L", "weekday"),
        ("0 9 15W-20 * *", "day-of-month"),
        ("? * * * *", "minute"),
    ],
)
def test_a_refused_cron_says_why(text: str, part_of_message: str) -> None:
    error = refusal({"type": "cron", "cron": text})
    assert (error.code, error.field) == ("invalid_cron", "cron")
    assert part_of_message in error.message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0 9 * * 1-5", "00 09 * * mon,TUE,3,4-5"),
        ("@daily", "0 0 * * *"),
        ("*/15 * * * *", " */15  *\t* * ? "),
        ("0 9 * * 7", "0 9 * * SUN"),
        ("0 9 * * */7", "0 9 * * */100"),
        ("0 9 1,15W,L * *", "0 9 L,1,15W * *"),
        ("* * * * *", "*/1 */1 */1 */1 */1"),
        ("0 9 * 1-12 *", "0 9 * * *"),
    ],
)
def test_two_spellings_are_the_same_timetable(one: str, other: str) -> None:
    a, b = Cron(one, "UTC"), Cron(other, "UTC")
    assert same_timetable(a, b)
    assert canonical_form(a) == canonical_form(b)
    assert to_public(b)["cron"] == other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("*/5 * * * *", "0-59/5 * * * *"),  # the star decides about clock changes
        ("0 9 */2 * 1", "0 9 1-31/2 * 1"),  # and about AND and OR
        ("0 9 * * 5", "0 9 * * 5L"),
        ("0 9 * * 5#1", "0 9 * * 5#2"),
        ("0 9 L * *", "0 9 LW * *"),
        ("0 9 15 * *", "0 9 15W * *"),
    ],
)
def test_two_meanings_are_not_the_same_timetable(one: str, other: str) -> None:
    assert not same_timetable(Cron(one, "UTC"), Cron(other, "UTC"))


def test_the_zone_counts_where_it_matters() -> None:
    assert not same_timetable(Daily("09:00", "UTC"), Daily("09:00", "Europe/Berlin"))
    instant = {"type": "once", "run_at": "2026-05-05T09:00:00Z"}
    assert same_timetable(parsed(instant, "UTC"), parsed(instant, "Europe/Berlin"))
    local = {"type": "once", "run_at": "2026-05-05T09:00:00"}
    assert not same_timetable(parsed(local, "UTC"), parsed(local, "Europe/Berlin"))
    assert not same_timetable(parsed(local, "UTC"), parsed(instant, "UTC"))
    assert not same_timetable(Daily("09:00", "UTC"), Weekly("09:00", tuple(range(7)), "UTC"))


# --- Stored -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        "{}",
        [],
        {},
        {"v": 2, "type": "daily", "time": "09:00"},
        {"v": True, "type": "daily", "time": "09:00"},
        {"type": "daily", "time": "09:00"},
        {"v": 1, "type": "daily", "time": "9"},
        {"v": 1, "type": "daily", "time": "09:00", "extra": 1},
        {"v": 1, "type": "interval", "every_seconds": 900},
        {"v": 1, "type": "cron", "cron": "0 9 * * *"},
        {"v": 1, "type": "cron", "cron": "0 9 * * *", "fields": "0 10 * * *"},
        {"v": 1, "type": "once", "run_at": "2026-05-04T09:00:00"},
        {"v": 1, "type": ["daily"]},
    ],
)
def test_what_cannot_be_read_back_says_so(value: object) -> None:
    with pytest.raises(TimetableError) as refused:
        from_stored(value, "UTC")
    assert refused.value.code == "unreadable_timetable"


def test_a_stored_zone_that_is_gone_is_unreadable() -> None:
    with pytest.raises(TimetableError) as refused:
        from_stored({"v": 1, "type": "daily", "time": "09:00"}, "Mars/Olympus")
    assert (refused.value.code, refused.value.field) == ("unreadable_timetable", "timezone")


@settings(max_examples=100, derandomize=True, deadline=None)
@given(spec=SPECS)
def test_stored_json_is_plain_and_carries_its_version(spec: dict[str, Any]) -> None:
    assume(code_of(lambda: parsed(spec, "Europe/Berlin")) != "invalid_cron")
    stored = to_stored(parsed(spec, "Europe/Berlin"))
    assert stored["v"] == 1
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored


# --- Another zone -------------------------------------------------------------------------------------------------


def test_a_zone_alone_moves_wall_times_and_leaves_instants() -> None:
    for kind in ("daily", "weekly", "cron", "once"):
        there = rezone(parsed(VALID[kind], "Europe/Berlin"), "asia/tokyo")
        assert there == parsed(VALID[kind], "Asia/Tokyo")
    instant = parsed({"type": "once", "run_at": "2026-05-05T09:00:00Z"}, "UTC")
    assert rezone(instant, "Asia/Tokyo") == instant
    interval = parsed(VALID["interval"], "UTC")
    assert rezone(interval, "Asia/Tokyo") == interval


def test_a_zone_in_which_the_local_time_does_not_exist_is_refused() -> None:
    once = parsed({"type": "once", "run_at": "2026-03-29T02:30"}, "UTC")
    with pytest.raises(TimetableError) as refused:
        rezone(once, "Europe/Berlin")
    assert refused.value.code == "nonexistent_local_time"
    with pytest.raises(TimetableError) as unknown:
        rezone(once, "Nowhere")
    assert unknown.value.code == "invalid_timezone"
