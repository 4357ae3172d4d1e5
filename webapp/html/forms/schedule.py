"""The form of a schedule: from what people type to the values of the JSON body, and back.

It converts and checks nothing else: a value that cannot be converted goes on as it was typed, and the strict
models beside the operations refuse it. Fields are named like the keys of the JSON body; what has no key of its
own (the number and unit of an interval, which of two equal local times) is folded into `schedule`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from wtforms import (
    HiddenField,
    RadioField,
    SelectField,
    SelectMultipleField,
    StringField,
    TextAreaField,
)
from wtforms.fields import SelectChoice  # type: ignore[attr-defined] # the stubs are older
from wtforms.widgets import DateTimeLocalInput

from webapp.errors import AppError
from webapp.html.forms.authority import ASK, AuthorityFields
from webapp.html.forms.options import ManyOptions
from webapp.html.forms.texts import plain_newlines, trimmed, whole_number
from webapp.scheduling.edit import PRIORITY_RANK
from webapp.scheduling.fields import (
    DEFAULT_CATCH_UP_LIMIT,
    DEFAULT_CHAT_THRESHOLD,
    DEFAULT_GRACE_SECONDS,
    DEFAULT_NODE_THRESHOLD,
    MAX_TEXT,
)
from webapp.scheduling.lifecycle import TargetKind
from webapp.scheduling.models import Schedule
from webapp.scheduling.queries import plan_for
from webapp.timetable import (
    Cron,
    Daily,
    Interval,
    Once,
    Timetable,
    TimetableError,
    Weekly,
    parse_timetable,
    utc_text,
)
from webapp.timetable import zone as zone_info

Values = dict[str, Any]

KINDS: Final = [
    SelectChoice("once", "Once"),
    SelectChoice("interval", "Interval"),
    SelectChoice("daily", "Daily"),
    SelectChoice("weekly", "Weekly"),
    SelectChoice("cron", "Cron"),
]
UNIT_SECONDS: Final = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}
# What each kind is made of, beside its zone.
PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "once": ("run_at", "run_at_turn"),
    "interval": ("every", "every_unit", "anchor_at"),
    "daily": ("time",),
    "weekly": ("time", "weekdays"),
    "cron": ("cron",),
}
_WHEN: Final = ("type", *dict.fromkeys(part for parts in PARTS.values() for part in parts))
_LOCAL: Final = ("starts_at", "ends_at")
_TEXTS: Final = (
    "name",
    "task",
    "target_node_id",
    "priority",
    "misfire_policy",
    "overlap_policy",
    "model",
)
_NUMBERS: Final = ("max_runs", "catch_up_limit", "failure_threshold")
_SPANS: Final = ("misfire_grace_seconds", "ttl_seconds", "max_run_seconds")
# The field beside which a refusal is shown, where it has another name than the key.
_SHOWN_AT: Final = {"every_seconds": "every"}
_SHOWN_AT_OF_CHAT: Final = _SHOWN_AT | {
    "prompt": "task",
    "chat_id": "target_chat_id",
    "policy": "authority",
    "expires_at": "mandate_expires_at",
}
# What only one kind of target knows.
_OF_NODES: Final = frozenset({"target_node_id", "priority", "ttl_seconds"})
_OF_CHATS: Final = frozenset({"model"})
# Asked once, when a schedule of a chat is created; afterwards they are its mandate's.
_BESIDE: Final = (
    "target_kind",
    "target_chat_id",
    "authority",
    "operations",
    "nodes",
    "limit_runs",
    "limit_tokens",
    "mandate_expires_at",
    "chat_failure_threshold",
)

_SPAN: Final = re.compile(
    r"([0-9]{1,9})\s*(?:(s|sec|seconds?)|(m|min|minutes?)|(h|hours?)|(d|days?))?", re.ASCII | re.IGNORECASE
)
_SPAN_UNITS: Final = (1, 60, 3600, 86_400)
_SHORT_TIME: Final = re.compile(r"[0-9]:[0-5][0-9]", re.ASCII)


def _padded_time(text: str | None) -> str:
    """ "9:05" is "09:05"."""
    typed = trimmed(text)
    return f"0{typed}" if _SHORT_TIME.fullmatch(typed) else typed


class LocalField(StringField):
    """A date and a time on the clock of the schedule's zone, as a browser's own control sends it."""

    widget = DateTimeLocalInput()


class ScheduleForm(AuthorityFields):
    """Everything that a person can say about a schedule, of a node or of a chat."""

    name = StringField("Name", filters=[trimmed], render_kw={"maxlength": 120, "autocomplete": "off"})
    target_kind = RadioField(
        "Aimed at", choices=[SelectChoice("node", "A node"), SelectChoice("chat", "A chat")]
    )
    target_node_id = SelectField("Who does it", choices=[], validate_choice=False, widget=ManyOptions())
    target_chat_id = SelectField("In which chat", choices=[], validate_choice=False, widget=ManyOptions())
    model = SelectField("Answered by", choices=[], validate_choice=False)
    mandate_expires_at = LocalField("The mandate ends at", filters=[trimmed])
    chat_failure_threshold = StringField(
        "Stop after failures in a row",
        filters=[trimmed],
        render_kw={"inputmode": "numeric", "autocomplete": "off"},
    )
    task = TextAreaField(
        "What to do", filters=[plain_newlines], render_kw={"rows": 5, "maxlength": MAX_TEXT * 2}
    )
    priority = RadioField(
        "Priority",
        choices=[SelectChoice("high", "High"), SelectChoice("normal", "Normal"), SelectChoice("low", "Low")],
    )

    type = RadioField("When", choices=KINDS)
    run_at = LocalField("Date and time", filters=[trimmed])
    run_at_turn = RadioField(
        "Which of the two",
        choices=[SelectChoice("first", "The first time"), SelectChoice("second", "The second time")],
    )
    every = StringField("Every", filters=[trimmed], render_kw={"inputmode": "numeric", "autocomplete": "off"})
    every_unit = SelectField(
        "Unit", choices=[SelectChoice(unit) for unit in UNIT_SECONDS], validate_choice=False
    )
    anchor_at = LocalField("Counted from", filters=[trimmed])
    time = StringField(
        "At",
        filters=[_padded_time],
        render_kw={"inputmode": "numeric", "autocomplete": "off", "maxlength": 20},
    )
    weekdays = SelectMultipleField(
        "On these days", choices=[SelectChoice(str(day)) for day in range(7)], validate_choice=False
    )
    cron = StringField(
        "Cron expression",
        filters=[trimmed],
        render_kw={"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"},
    )
    timezone = StringField("Time zone", filters=[trimmed])

    starts_at = LocalField("Not before", filters=[trimmed])
    ends_at = LocalField("Not after", filters=[trimmed])
    max_runs = StringField(
        "At most this many runs",
        filters=[trimmed],
        render_kw={"inputmode": "numeric", "autocomplete": "off"},
    )

    misfire_policy = RadioField(
        "If the worker was down",
        choices=[
            SelectChoice("catch_up_once", "Catch up once"),
            SelectChoice("skip", "Skip what was missed"),
            SelectChoice("catch_up_all", "Catch up on all"),
        ],
    )
    misfire_grace_seconds = StringField(
        "On time means at most this late", filters=[trimmed], render_kw={"autocomplete": "off"}
    )
    catch_up_limit = StringField(
        "Catch up on at most", filters=[trimmed], render_kw={"inputmode": "numeric", "autocomplete": "off"}
    )
    overlap_policy = RadioField(
        "If the run before is still at work",
        choices=[
            SelectChoice("skip", "Skip the new one"),
            SelectChoice("queue_one", "Let one wait"),
            SelectChoice("allow", "Run both"),
        ],
    )
    failure_threshold = StringField(
        "Stop after failures in a row",
        filters=[trimmed],
        render_kw={"inputmode": "numeric", "autocomplete": "off"},
    )
    ttl_seconds = StringField(
        "Withdraw work that nobody took up within", filters=[trimmed], render_kw={"autocomplete": "off"}
    )
    max_run_seconds = StringField(
        "Give up on a run that takes longer than", filters=[trimmed], render_kw={"autocomplete": "off"}
    )

    # Not part of the schedule: what makes saving safe.
    idempotency_key = HiddenField()
    revision = HiddenField()
    seen = HiddenField()

    def values(self) -> Values:
        """What stands in the fields, as text; the weekdays as a sorted list of text."""
        found = {name: _text(self[name].data) for name in VALUE_FIELDS if name != "weekdays"}
        return found | {"weekdays": sorted(set(self.weekdays.data or []))}

    @property
    def is_chat(self) -> bool:
        """Whether it speaks into a chat."""
        return bool(self.target_kind.data == TargetKind.CHAT.value)

    def chat_body(self) -> Values:
        """The same keys and types as the JSON body of a new schedule of a chat."""
        body = self.body()
        name, prompt = body.pop("name"), body.pop("task")
        more = {"name": name} if name else {}
        threshold = self.chat_failure_threshold.data if self.is_new else self.failure_threshold.data
        return (
            body
            | more
            | {
                "chat_id": self.target_chat_id.data or "",
                "prompt": prompt,
                "policy": self.policy(),
                "expires_at": instant_of_local(self.mandate_expires_at.data or "", self.timezone.data or ""),
                "failure_threshold": whole_number(threshold or ""),
            }
        )

    @property
    def is_new(self) -> bool:
        """Whether it writes a schedule that does not exist yet."""
        return not self.revision.data

    def body(self) -> Values:
        """The same keys and types as the JSON body of a new schedule; of a chat's, what it shares with it."""
        typed = self.values()
        left_out = _OF_NODES if self.is_chat else _OF_CHATS
        body = {
            **{name: typed[name] for name in _TEXTS},
            "model": typed["model"] or None,
            **{name: whole_number(typed[name]) for name in _NUMBERS},
            **{name: seconds_of_span(typed[name]) for name in _SPANS},
            **{name: instant_of_local(typed[name], typed["timezone"]) for name in _LOCAL},
            "timezone": typed["timezone"],
            "schedule": timetable_of(typed),
        }
        return {name: value for name, value in body.items() if name not in left_out}

    def changes(self, stored: Values) -> Values:
        """The part of the body in which the form differs from `stored`, the values it was filled with.

        A local time means another instant when the zone changes, so it goes along with it. An interval stays
        on its grid unless something of it is changed.
        """
        typed, body = self.values(), self.body()
        changed = {name for name in (*_TEXTS, *_NUMBERS, *_SPANS, *_LOCAL) if typed[name] != stored[name]}
        if typed["timezone"] != stored["timezone"]:
            changed |= {"timezone"} | {name for name in _LOCAL if typed[name]}
            changed |= {"schedule"} - ({"schedule"} if typed["type"] == "interval" else set())
        if when_of(typed) != when_of(stored):
            changed.add("schedule")
        return {name: body[name] for name in body if name in changed}

    def blame(self, refusals: Iterable[AppError]) -> list[str]:
        """Write each refusal beside its field; returns the sentences of those that belong to none."""
        loose: list[str] = []
        for refusal in refusals:
            name = self._shown_at(refusal)
            if name is None:
                loose.append(refusal.message)
            elif not self[name].errors:
                self[name].errors = [refusal.message]
        return loose

    def _shown_at(self, refusal: AppError) -> str | None:
        named = refusal.field or ""
        field = (_SHOWN_AT_OF_CHAT if self.is_chat and self.is_new else _SHOWN_AT).get(named, named)
        if field == "failure_threshold" and self.is_chat and self.is_new:
            field = "chat_failure_threshold"
        if field == "schedule":
            # No slot is left: for a once its moment is to blame, else the end if there is one.
            field = "run_at" if self.type.data == "once" else "ends_at" if self.ends_at.data else "type"
        return field if field in VALUE_FIELDS or field in _BESIDE else None


VALUE_FIELDS: Final = (*_TEXTS, *_WHEN, "timezone", *_LOCAL, *_NUMBERS, *_SPANS)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# --- From text to values -----------------------------------------------------------------------------------


def seconds_of_span(text: str) -> int | str | None:
    """ "90", "15 min", "24 h", "7 days" in seconds; nothing is None; anything else stays as it was typed."""
    if not text:
        return None
    found = _SPAN.fullmatch(text)
    if found is None:
        return text
    unit = next((size for size, word in zip(_SPAN_UNITS, found.groups()[1:], strict=True) if word), 1)
    return int(found[1]) * unit


def span_of_seconds(seconds: int | None) -> str:
    """The text that `seconds_of_span` reads back: "24 h", "15 min", "90 s"; None is nothing."""
    if seconds is None:
        return ""
    for size, word in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds and seconds % size == 0 and seconds != 86_400:
            return f"{seconds // size} {word}"
    return "24 h" if seconds == 86_400 else f"{seconds} s"


def instant_of_local(text: str, timezone: str) -> str | None:
    """A local time of a zone as a UTC instant in ISO 8601; the first of two, the jump where there is none.

    Nothing is None; what is no time, or in no zone, stays as it was typed.
    """
    if not text:
        return None
    try:
        once = _once_at(text, timezone, allow_unresolved_local=True)
    except TimetableError:
        return text
    return utc_text(once.at)


def local_of_instant(instant: datetime | None, timezone: str) -> str:
    """The text of a browser's date and time control for an instant; None is nothing."""
    if instant is None:
        return ""
    return _local_text(instant.astimezone(zone_info(timezone)).replace(tzinfo=None))


def _local_text(wall: datetime) -> str:
    precision = "milliseconds" if wall.microsecond else "seconds" if wall.second else "minutes"
    return wall.isoformat(timespec=precision)


# `now` matters to an interval without an anchor and to a cron expression alone.
_NEVER_READ: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _once_at(text: str, timezone: str, *, allow_unresolved_local: bool) -> Once:
    found = parse_timetable(
        {"type": "once", "run_at": text},
        timezone,
        now=_NEVER_READ,
        allow_unresolved_local=allow_unresolved_local,
    )
    assert isinstance(found, Once)
    return found


def timetable_of(typed: Values) -> Values:
    """The timetable that the fields describe, in the shape of the API."""
    kind = typed["type"]
    spec: Values = {"type": kind}
    if kind == "once":
        spec["run_at"] = _run_at(typed)
    elif kind == "interval":
        spec["every_seconds"] = _every_seconds(typed)
        if typed["anchor_at"]:
            spec["anchor_at"] = instant_of_local(typed["anchor_at"], typed["timezone"])
    elif kind == "cron":
        spec["cron"] = typed["cron"]
    else:
        spec["time"] = typed["time"]
    if kind == "weekly":
        spec["weekdays"] = [whole_number(day) for day in typed["weekdays"]]
    return spec


def _every_seconds(typed: Values) -> int | str | None:
    number, unit = whole_number(typed["every"]), UNIT_SECONDS.get(typed["every_unit"])
    return number * unit if isinstance(number, int) and unit is not None else typed["every"]


def _run_at(typed: Values) -> str:
    """The wall time as typed; with an offset where it happens twice and somebody said which is meant."""
    text: str = typed["run_at"]
    if typed["run_at_turn"] not in SelectChoice("first", "second") or not happens_twice(
        text, typed["timezone"]
    ):
        return text
    fold = 1 if typed["run_at_turn"] == "second" else 0
    return datetime.fromisoformat(text).replace(tzinfo=zone_info(typed["timezone"]), fold=fold).isoformat()


def happens_twice(text: str, timezone: str) -> bool:
    """Whether the clock of a zone shows this local time twice."""
    try:
        _once_at(text, timezone, allow_unresolved_local=False)
    except TimetableError as error:
        return error.code == "ambiguous_local_time"
    return False


def when_of(typed: Values) -> Values:
    """What decides when it runs, of everything that stands in the fields; the zone is not part of it."""
    when = {name: typed[name] for name in ("type", *PARTS.get(typed["type"], ()))}
    if when["type"] == "interval":
        when["every"], when["every_unit"] = _every_seconds(typed), None
    return when


# --- From a schedule to text -------------------------------------------------------------------------------


def blank_values(timezone: str) -> Values:
    """What a new form shows: a daily schedule in the zone of whoever writes it."""
    return {
        **dict.fromkeys(VALUE_FIELDS, ""),
        "priority": "normal",
        "type": "daily",
        "every": "1",
        "every_unit": "hours",
        "time": "09:00",
        "weekdays": [],
        "timezone": timezone,
        "misfire_policy": "catch_up_once",
        "misfire_grace_seconds": span_of_seconds(DEFAULT_GRACE_SECONDS),
        "catch_up_limit": str(DEFAULT_CATCH_UP_LIMIT),
        "overlap_policy": "skip",
        "failure_threshold": str(DEFAULT_NODE_THRESHOLD),
    }


def blank_beside(kind: TargetKind, mandate_expires_at: str) -> Values:
    """The same for what is asked only once: what it is aimed at, and on what authority."""
    return {
        "target_kind": kind.value,
        "authority": ASK,
        "mandate_expires_at": mandate_expires_at,
        "chat_failure_threshold": str(DEFAULT_CHAT_THRESHOLD),
    }


def values_of(schedule: Schedule) -> Values:
    """What the form shows of a schedule that exists; a timetable that cannot be read is left at the usual."""
    plan = plan_for(schedule)
    priority = next(word for word, rank in PRIORITY_RANK.items() if rank == schedule.priority_rank)
    return {
        **blank_values(schedule.timezone),
        **(values_of_timetable(plan.timetable, schedule.timezone) if plan is not None else {}),
        "name": schedule.name,
        "task": schedule.text.body,
        "target_node_id": schedule.target_id if schedule.target_kind is TargetKind.NODE else "",
        "model": schedule.model or "",
        "priority": priority,
        "misfire_policy": schedule.misfire_policy.value,
        "overlap_policy": schedule.overlap_policy.value,
        **{name: local_of_instant(getattr(schedule, name), schedule.timezone) for name in _LOCAL},
        **{name: _number_text(getattr(schedule, name)) for name in _NUMBERS},
        **{name: span_of_seconds(getattr(schedule, name)) for name in _SPANS},
    }


def _number_text(number: int | None) -> str:
    return "" if number is None else str(number)


def values_of_timetable(timetable: Timetable, timezone: str) -> Values:
    """What the form shows of a timetable. The anchor of an interval is left out: an empty one is kept."""
    if isinstance(timetable, Once):
        return {"type": "once"} | _once_values(timetable, timezone)
    if isinstance(timetable, Interval):
        seconds = timetable.every_seconds
        unit = next(name for name, size in reversed(UNIT_SECONDS.items()) if seconds % size == 0)
        return {"type": "interval", "every": str(seconds // UNIT_SECONDS[unit]), "every_unit": unit}
    if isinstance(timetable, Daily):
        return {"type": "daily", "time": timetable.time}
    if isinstance(timetable, Weekly):
        days = [str(day) for day in timetable.weekdays]
        return {"type": "weekly", "time": timetable.time, "weekdays": days}
    assert isinstance(timetable, Cron)
    return {"type": "cron", "cron": timetable.text}


def _once_values(once: Once, timezone: str) -> Values:
    if once.wall is not None:
        return {"run_at": _local_text(once.wall)}
    local = once.at.astimezone(zone_info(timezone))
    text = _local_text(local.replace(tzinfo=None))
    turn = "" if not happens_twice(text, timezone) else "second" if local.fold else "first"
    return {"run_at": text, "run_at_turn": turn}
