"""What a form of a schedule says about a timetable that may not mean what it looks like, and offers instead. Pure.

A cron step that does not divide starts again; six fields hold seconds; another kind can say the same. Each offer
names the fields that it would fill, so that pressing its button is a plain form post.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from webapp.html.forms.schedule import (
    PARTS,
    UNIT_SECONDS,
    Values,
    blank_values,
    local_of_instant,
    values_of_timetable,
)
from webapp.html.forms.texts import whole_number
from webapp.timetable import Cron, Daily, Interval, Timetable, TimetableError, Weekly, canonical_zone

_STEP: Final = re.compile(r"(?:\*|0|0-59|0-23|1-31|1)/([0-9]{1,4})", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,2}", re.ASCII)
_ZONE_PREFIX: Final = re.compile(r"(?:CRON_TZ|TZ)=(\S+)\s+(\S.*)", re.ASCII)
_EVERY: Final = re.compile(r"@every\s+((?:[0-9]{1,6}[hms])+)", re.ASCII | re.IGNORECASE)
_SPAN: Final = re.compile(r"([0-9]+)([hms])", re.ASCII)
_STAR: Final = ("*", "?")
_MOST_TIMES: Final = 6
_DAY_NAMES: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_MONTH_NAMES: Final = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip
_KIND_NAMES: Final = {
    "once": "a single run",
    "interval": "an interval",
    "daily": "a daily timetable",
    "weekly": "a weekly timetable",
    "cron": "a cron expression",
}


class Offer(NamedTuple):
    """A remark, and where there is a `label` a button that fills `values` into the form and goes to `focus`."""

    key: str
    says: str
    label: str | None = None
    values: Mapping[str, Any] = {}
    focus: str = ""


def offers(values: Values, *, saved_kind: str | None = None, now: datetime) -> tuple[Offer, ...]:
    """What there is to say about the values of a form; `saved_kind`: that of the schedule which is edited."""
    zone = _zone(values["timezone"])
    found = [*_of_cron(values["cron"], zone, now)] if values["type"] == "cron" else []
    return (*found, *_carried_over(values, zone, now), *_left_behind(values, saved_kind))


def _zone(name: str) -> str:
    try:
        return canonical_zone(name)
    except TimetableError:
        return "UTC"


# --- Cron that means something else ---


def _of_cron(text: str, zone: str, now: datetime) -> Iterator[Offer]:
    prefix, every = _ZONE_PREFIX.fullmatch(text), _EVERY.fullmatch(text)
    if prefix is not None:
        yield from _zone_in_front(prefix[1], prefix[2])
        return
    if every is not None:
        yield from _at_every(every[1], zone, now)
        return
    fields = text.split()
    if len(fields) in (6, 7):
        yield from _with_seconds(fields)
    elif len(fields) == 5:
        yield from _uneven_step(fields, zone, now)
        yield from _each_minute(fields)
        yield from _two_days(text, zone)


def _zone_in_front(name: str, rest: str) -> Iterator[Offer]:
    try:
        zone = canonical_zone(name)
    except TimetableError:
        return
    says = "A zone in front of the expression is not read here: the schedule has a time zone of its own."
    yield Offer("zone", says, f"Take {rest} in {zone}", {"cron": rest, "timezone": zone}, "cron")


def _at_every(span: str, zone: str, now: datetime) -> Iterator[Offer]:
    sizes = {"h": 3600, "m": 60, "s": 1}
    seconds = sum(int(number) * sizes[unit.lower()] for number, unit in _SPAN.findall(span.lower()))
    if seconds >= 60:
        yield _interval(
            "every", "@every is an interval, and has a kind of its own.", seconds, "0 * * * *", zone, now
        )


def _with_seconds(fields: list[str]) -> Iterator[Offer]:
    rest = " ".join(fields[1:6])
    if _parsed(rest, "UTC") is None:
        return
    more = " and a year" if len(fields) == 7 else ""
    says = f"{len(fields)} fields: some programs begin with seconds{more}. Here are five, and it runs at second 0."
    yield Offer("seconds", says, f"Take {rest}", {"cron": rest}, "cron")


def _uneven_step(fields: list[str], zone: str, now: datetime) -> Iterator[Offer]:
    minute, hour, day, month, weekday = fields
    alone = all(part in _STAR for part in (day, month, weekday))
    if (step := _step(minute)) and step != 60 and 60 % step:
        says = f"{minute} in the minute field is not every {step} minutes: it starts again at each full hour"
        says += f", so it runs at {_times(range(0, 60, step), ':{:02}')}." if step < 60 else "."
        if hour in _STAR and alone:
            yield _interval("minutes", says, step * 60, "0 * * * *", zone, now)
        else:
            yield Offer("minutes", f"{says} Within chosen hours or days no interval can say it.")
    if (step := _step(hour)) and step != 24 and 24 % step:
        says = f"{hour} in the hour field is not every {step} hours: it starts again at midnight"
        says += f", so it runs at {_times(range(0, 24, step), '{:02} h')}." if step < 24 else "."
        if _NUMBER.fullmatch(minute) and alone:
            yield _interval("hours", says, step * 3600, f"{minute} * * * *", zone, now)
        else:
            yield Offer("hours", says)
    if (step := _step(day)) and step > 1:
        says = f"{day} in the day field is not every {step} days: it starts again on the 1st of each month."
        if month in _STAR and weekday in _STAR and _NUMBER.fullmatch(minute) and _NUMBER.fullmatch(hour):
            says += " An interval counts 24 hours a day: when the clock changes, it runs an hour off."
            yield _interval("days", says, step * 86_400, f"{minute} {hour} * * *", zone, now)
        else:
            yield Offer("days", says)
    if (step := _step(month)) and step > 1 and 12 % step:
        months = _listed([_MONTH_NAMES[number] for number in range(0, 12, step)])
        yield Offer("months", f"{month} in the month field starts again in January: it means {months}.")
    if (step := _step(weekday)) and step > 1:
        days = _listed([_DAY_NAMES[number] for number in range(0, 7, step)])
        yield Offer("weekdays", f"{weekday} in the weekday field starts again on Sunday: it means {days}.")


def _step(field: str) -> int:
    """The number behind the slash of a field that is nothing but a step; 0 for another."""
    found = _STEP.fullmatch(field)
    return int(found[1]) if found else 0


def _times(numbers: range, form: str) -> str:
    words = [form.format(number) for number in numbers]
    return _listed(words) if len(words) <= _MOST_TIMES else f"{words[0]}, {words[1]}, … and {words[-1]}"


def _listed(words: list[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), *words[-1:]])


def _each_minute(fields: list[str]) -> Iterator[Offer]:
    minute, hour = fields[:2]
    if minute != "*" or hour in _STAR:
        return
    rest = " ".join(["0", *fields[1:]])
    if _parsed(rest, "UTC") is not None:
        says = "* in the minute field means each minute: 60 runs in every hour that is named."
        yield Offer("minute", says, f"Once an hour: {rest}", {"cron": rest}, "cron")


def _two_days(text: str, zone: str) -> Iterator[Offer]:
    cron = _parsed(text, zone)
    if cron is None or cron.fields.any_month_day or cron.fields.any_weekday:
        return
    if cron.fields.both_day_fields_must_match:
        says = "A day of the month and a weekday are given, and one begins with *: then both must match."
    else:
        says = (
            "A day of the month and a weekday are given: either one counts. It runs on the one, and also on the other,"
            " not only where both meet."
        )
    yield Offer("both", says)


def _parsed(text: str, zone: str) -> Cron | None:
    try:
        return Cron(text, zone)
    except TimetableError:
        return None


def _interval(key: str, says: str, seconds: int, begins: str, zone: str, now: datetime) -> Offer:
    """An interval that begins at the next slot of the expression `begins`."""
    first = Cron(begins, zone).next_after(now) or now
    typed = values_of_timetable(Interval(seconds, first), zone)
    number, unit = typed["every"], typed["every_unit"]
    label = f"Every {unit.removesuffix('s')}" if number == "1" else f"Every {number} {unit}"
    return Offer(
        key,
        says,
        f"{label}, as an interval",
        {**typed, "anchor_at": local_of_instant(first, zone)},
        "every",
    )


# --- Another kind was chosen ---


def _carried_over(values: Values, zone: str, now: datetime) -> Iterator[Offer]:
    """What another kind already says, for a kind that says nothing yet."""
    kind = values["type"]
    clock = _on_the_clock(values, zone)
    if kind == "cron" and not values["cron"] and clock is not None:
        text = _as_cron(clock)
        yield Offer(
            "as-cron", "The time and the weekdays can be had as cron.", f"Take {text}", {"cron": text}, "cron"
        )
    elif kind == "once" and not values["run_at"] and clock is not None:
        first = clock.next_after(now)
        if first is not None:
            at = local_of_instant(first, zone)
            yield Offer(
                "as-once",
                "The next such time is at hand.",
                f"Take {at.replace('T', ' ')}",
                {"run_at": at},
                "run_at",
            )
    elif kind in ("daily", "weekly") and values["cron"]:
        found = _as_clock(values["cron"], zone)
        if isinstance(found, Weekly if kind == "weekly" else Daily):
            typed = values_of_timetable(found, zone)
            if any(values[name] != value for name, value in typed.items()):
                says = "The cron expression says the same in this kind."
                yield Offer("as-clock", says, f"Take it from {values['cron']}", typed, "time")
    elif kind == "interval" and values["cron"]:
        yield from _as_interval(values, zone, now)


def _on_the_clock(values: Values, zone: str) -> Daily | Weekly | None:
    """The time and the weekdays that stand in the form, as a timetable."""
    hours, colon, minutes = values["time"].partition(":")
    if not colon or not (_NUMBER.fullmatch(hours) and _NUMBER.fullmatch(minutes)):
        return None
    if int(hours) > 23 or int(minutes) > 59:
        return None
    days = [whole_number(day) for day in values["weekdays"]]
    time = f"{int(hours):02}:{int(minutes):02}"
    known = tuple(sorted(day for day in days if isinstance(day, int) and 0 <= day <= 6))
    return Weekly(time, known, zone) if known else Daily(time, zone)


def _as_cron(clock: Daily | Weekly) -> str:
    hours, _, minutes = clock.time.partition(":")
    days = ",".join(str(day) for day in clock.weekdays) if isinstance(clock, Weekly) else "*"
    return f"{int(minutes)} {int(hours)} * * {days}"


def _as_clock(text: str, zone: str) -> Timetable | None:
    """The same as a daily or a weekly timetable; None where neither can say it."""
    cron = _parsed(text, zone)
    if cron is None:
        return None
    fields = cron.fields
    one_time = len(fields.minutes) == len(fields.hours) == 1 and not (fields.minute_star or fields.hour_star)
    if not one_time or not fields.any_month or not fields.any_month_day:
        return None
    time = f"{fields.hours[0]:02}:{fields.minutes[0]:02}"
    if fields.any_weekday or not fields.both_day_fields_must_match:
        return Daily(time, zone)
    if fields.weekdays.last or fields.weekdays.nth:
        return None
    return Weekly(time, tuple(sorted(fields.weekdays.weekdays)), zone)


def _as_interval(values: Values, zone: str, now: datetime) -> Iterator[Offer]:
    fields = values["cron"].split()
    if len(fields) != 5 or any(part not in _STAR for part in fields[2:]):
        return
    minute, hour = fields[:2]
    seconds = 0
    if _step(minute) and hour in _STAR:
        seconds, begins = _step(minute) * 60, "0 * * * *"
    elif _step(hour) and _NUMBER.fullmatch(minute) and int(minute) < 60:
        seconds, begins = _step(hour) * 3600, f"{minute} * * * *"
    if seconds and seconds != _every_seconds(values):
        yield _interval(
            "as-interval",
            "The step of the cron expression can be had as an interval.",
            seconds,
            begins,
            zone,
            now,
        )


def _every_seconds(values: Values) -> int | None:
    number, unit = whole_number(values["every"]), UNIT_SECONDS.get(values["every_unit"])
    return number * unit if isinstance(number, int) and unit is not None else None


def _left_behind(values: Values, saved_kind: str | None) -> Iterator[Offer]:
    """What was typed, or saved, of other kinds and is no part of the chosen one."""
    kind = values["type"]
    if kind not in PARTS:
        return
    blank = blank_values(values["timezone"])
    saved = PARTS.get(saved_kind or "", ())
    words = {
        "run_at": f"the moment {values['run_at'].replace('T', ' ')}",
        "every": f"every {values['every']} {values['every_unit']}",
        "time": f"the time {values['time']}",
        "weekdays": f"the weekdays {_listed(_named_days(values))}",
        "cron": f"the expression {values['cron']}",
    }
    left = [
        said
        for name, said in words.items()
        if name not in PARTS[kind] and values[name] and (values[name] != blank[name] or name in saved)
    ]
    if left:
        yield Offer("left", f"Not part of {_KIND_NAMES[kind]}: {_listed(left)}. Kept here until you save.")


def _named_days(values: Values) -> list[str]:
    days = [whole_number(day) for day in values["weekdays"]]
    # A week begins on Monday.
    known = sorted(
        (day for day in days if isinstance(day, int) and 0 <= day <= 6), key=lambda day: (day - 1) % 7
    )
    return [_DAY_NAMES[day] for day in known]
