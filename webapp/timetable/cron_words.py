"""A cron expression in words, for the shapes people write; None for the others.

A sentence must never say more or less than the expression does: where a part has no plain words, there is no
sentence, and the expression itself is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from webapp.timetable.cron import CronFields
from webapp.timetable.words import MONTHS, ORDINALS, WEEKDAYS, from_monday, listed, ordinal, weekdays_plural

_MOST_LISTED: Final = 6


def cron_sentence(fields: CronFields) -> str | None:
    """ "Weekdays at 09:00", "Every 15 minutes", "On the 1st or on Mondays at 06:00"; no zone, no full stop."""
    clock = _clock(fields)
    days = _days(fields)
    if clock is None or days is None:
        return None
    if days.every:
        return clock.alone
    if clock.rhythm:
        return f"{clock.alone}, {days.inside}"
    return f"{days.first} {clock.after_days}"


# --- The clock fields ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Clock:
    """How minute and hour read alone, and after the days. A rhythm ("Every 15 minutes") comes before its days."""

    alone: str
    after_days: str
    rhythm: bool


def _clock(fields: CronFields) -> _Clock | None:
    minutes, hours = fields.minutes, fields.hours
    times = [f"{hour:02}:{minute:02}" for hour in hours for minute in minutes]
    step = _even_step(minutes, 60)
    if len(hours) == 24:
        return _every_hour(minutes, step)
    if len(minutes) == 1 and len(hours) > 2 and fields.hour_star:
        hour_step = _even_step(hours, 24)
        if hour_step is not None:
            past = "" if minutes == (0,) else f" at {minutes[0]} min past"
            return _rhythm(f"Every {hour_step} hours{past}")
    if len(times) <= _MOST_LISTED:
        at = f"at {listed(times)}"
        return _Clock(f"Daily {at}" if len(times) == 1 else f"At {listed(times)}", at, rhythm=False)
    if not _is_run(hours):
        return None
    if len(minutes) == 1:
        return _rhythm(f"Every hour from {times[0]} to {times[-1]}")
    if step is not None:
        every = "Every minute" if step == 1 else f"Every {step} minutes"
        return _rhythm(f"{every} from {times[0]} to {times[-1]}")
    return None


def _rhythm(text: str) -> _Clock:
    return _Clock(text, "", rhythm=True)


def _every_hour(minutes: tuple[int, ...], step: int | None) -> _Clock | None:
    if minutes == (0,):
        return _rhythm("Every hour")
    if step is not None:
        return _rhythm("Every minute" if step == 1 else f"Every {step} minutes")
    if len(minutes) <= _MOST_LISTED:
        return _rhythm(f"Every hour at {listed([str(minute) for minute in minutes])} min past")
    return None


def _even_step(values: tuple[int, ...], whole: int) -> int | None:
    """n if the values are 0, n, 2n … and n divides the whole: then the rhythm is the same all round the clock."""
    if len(values) < 2 or whole % len(values):
        return None
    step = whole // len(values)
    return step if values == tuple(range(0, whole, step)) else None


def _is_run(values: tuple[int, ...]) -> bool:
    return values == tuple(range(values[0], values[-1] + 1))


# --- The day fields -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Days:
    """How the days read at the head of a sentence ("Mondays"), and after a rhythm ("on Mondays")."""

    every: bool
    first: str
    inside: str


def _days(fields: CronFields) -> _Days | None:
    by_date, by_weekday = not fields.any_month_day, not fields.any_weekday
    if not fields.both_day_fields_must_match and not (by_date and by_weekday):
        # OR with a field that names every day: the other one says nothing.
        by_date = by_weekday = False
    months = None if fields.any_month else _months(fields)
    if by_date and by_weekday:
        if fields.both_day_fields_must_match:
            return None
        dates, weekdays = _dates(fields, of_months=False), _on_weekdays(fields)
        if dates is None or weekdays is None:
            return None
        both = f"{dates} or {weekdays}"
        return _headed(both if months is None else f"{both} in {months}")
    if by_date:
        dates = _dates(fields, of_months=True)
        return None if dates is None else _headed(dates)
    if by_weekday:
        return _weekdays_alone(fields, months)
    if months is None:
        return _Days(every=True, first="", inside="")
    return _Days(every=False, first=f"Every day in {months}", inside=f"in {months}")


def _headed(text: str) -> _Days:
    return _Days(every=False, first=text[0].upper() + text[1:], inside=text)


def _weekdays_alone(fields: CronFields, months: str | None) -> _Days | None:
    suffix = "" if months is None else f" in {months}"
    plain = fields.weekdays.weekdays
    if plain and not fields.weekdays.last and not fields.weekdays.nth:
        words = weekdays_plural(tuple(plain))
        return _Days(every=False, first=f"{words}{suffix}", inside=f"{_on_weekdays(fields)}{suffix}")
    text = _on_weekdays(fields)
    if text is None:
        return None
    return _headed(f"{text} of {months or 'the month'}")


def _on_weekdays(fields: CronFields) -> str | None:
    """ "on Mondays and Fridays" or "on the last Friday and the third Monday"; None for a mixture."""
    field = fields.weekdays
    special = [f"the {ORDINALS[number - 1]} {WEEKDAYS[day]}" for day, number in sorted(field.nth)]
    special += [f"the last {WEEKDAYS[day]}" for day in from_monday(tuple(field.last))]
    if special:
        return None if field.weekdays or len(special) > _MOST_LISTED else f"on {listed(special)}"
    words = weekdays_plural(tuple(field.weekdays))
    return f"on {words.lower() if words in ('Weekdays', 'Weekends') else words}"


def _dates(fields: CronFields, *, of_months: bool) -> str | None:
    """ "on the 1st and 15th", "on the last day of the month", "on 29 February"."""
    field = fields.month_days
    plain = sorted(field.days)
    one_month = len(fields.months) == 1
    special = field.last or field.last_workday or field.nearest
    if of_months and one_month and not special and len(plain) <= _MOST_LISTED:
        (month,) = fields.months
        return f"on {listed([str(day) for day in plain])} {MONTHS[month - 1]}"
    if len(plain) > 2 and _is_run(tuple(plain)):
        parts = [f"the {ordinal(plain[0])} to the {ordinal(plain[-1])}"]
    else:
        parts = [f"the {ordinal(day)}" for day in plain]
    parts += [f"the weekday nearest the {ordinal(day)}" for day in sorted(field.nearest)]
    parts += ["the last weekday"] * field.last_workday + ["the last day"] * field.last
    if len(parts) > _MOST_LISTED:
        return None
    text = f"on {listed(parts)}"
    if not of_months:
        return f"{text} of the month" if special else text
    if not fields.any_month:
        return f"{text} of {_months(fields)}"
    return f"{text} of the month" if special else text


def _months(fields: CronFields) -> str:
    return listed([MONTHS[month - 1] for month in sorted(fields.months)])
