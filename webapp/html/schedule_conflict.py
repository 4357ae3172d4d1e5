"""Somebody else saved first: what they changed, what was typed, what clashes, and how it is settled.

Fields are compared in parts that make sense alone: everything that says when, with its zone, is one part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from typing import Final, Literal

from webapp.errors import AppError
from webapp.html.forms.schedule import (
    PARTS,
    VALUE_FIELDS,
    ScheduleForm,
    Values,
    instant_of_local,
    seconds_of_span,
    timetable_of,
    when_of,
)
from webapp.html.forms.texts import whole_number
from webapp.scheduling.edit import read_timetable
from webapp.timetable import sentence

Side = Literal["saved", "yours"]
Parts = list[tuple[str, str]]

_WHEN: Final = ("type", "timezone", *dict.fromkeys(name for parts in PARTS.values() for name in parts))
_FORM: Final = ScheduleForm()
_ALONE: Final = tuple(name for name in VALUE_FIELDS if name not in _WHEN)
# Part -> (how it is called, the fields it is made of).
PARTS_OF_FORM: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "when": ("When", _WHEN),
    **{name: (str(_FORM[name].label.text), (name,)) for name in _ALONE},
}
_SPANS: Final = ("misfire_grace_seconds", "ttl_seconds", "max_run_seconds")
_NUMBERS: Final = ("max_runs", "catch_up_limit", "failure_threshold")
_WORDS_AROUND: Final = 6


@dataclass(frozen=True)
class Clash:
    """A part that both changed, with both texts cut into (same, del or ins; text)."""

    part: str
    label: str
    saved: Parts
    yours: Parts


@dataclass(frozen=True)
class Merge:
    """A part that one side alone changed."""

    label: str
    was: str
    will_be: str
    by: str


@dataclass(frozen=True)
class Conflict:
    """What the conflict page shows; `values` are the typed ones, `who` saved last at `saved_at`."""

    clashes: list[Clash]
    merges: list[Merge]
    values: Values
    who: str
    saved_at: datetime
    revision: int
    opened_revision: str


class Differences:
    """Three versions of the form's values: as it was opened, as it is saved now, as it was typed."""

    def __init__(self, opened: Values | None, saved: Values, yours: Values) -> None:
        # Without the version that was opened, whatever differs may be anybody's: everything is asked.
        self.opened = opened
        self.saved = saved
        self.yours = yours

    def clashing(self) -> list[str]:
        """The parts that both sides changed, differently."""
        return [part for part in PARTS_OF_FORM if self._differs(part) and not self._by_one(part)]

    def merging(self) -> dict[str, Side]:
        """The parts that one side alone changed, and which."""
        return {
            part: "yours" if self._changed(part, self.yours) else "saved"
            for part in PARTS_OF_FORM
            if self._differs(part) and self._by_one(part)
        }

    def settled(self, picks: Mapping[str, Side]) -> Values:
        """One version: what only one side changed from that side, of what clashes the picked side."""
        sides = {**dict.fromkeys(self.clashing(), "yours"), **picks, **self.merging()}
        values = dict(self.saved)
        for part, side in sides.items():
            if side == "yours":
                values |= {name: self.yours[name] for name in PARTS_OF_FORM[part][1]}
        return values

    def _differs(self, part: str) -> bool:
        return _of(part, self.saved) != _of(part, self.yours)

    def _changed(self, part: str, side: Values) -> bool:
        return self.opened is None or _of(part, side) != _of(part, self.opened)

    def _by_one(self, part: str) -> bool:
        return not (self._changed(part, self.saved) and self._changed(part, self.yours))


def _of(part: str, values: Values) -> object:
    """The value of a part in a form in which equal wishes are equal."""
    if part == "when":
        return when_of(values), values["timezone"]
    text = values[part]
    if part in _SPANS:
        return seconds_of_span(text)
    return whole_number(text) if part in _NUMBERS else text


def find_conflict(
    differences: Differences,
    *,
    who: str,
    saved_at: datetime,
    revision: int,
    opened_revision: str,
    names: Mapping[str, str],
    now: datetime,
) -> Conflict:
    """The conflict in words. `names` maps the ids of targets to their aliases."""

    def words(part: str, values: Values) -> str:
        return describe(part, values, names=names, now=now)

    opened = differences.opened or differences.saved
    return Conflict(
        clashes=[
            Clash(
                part,
                PARTS_OF_FORM[part][0],
                word_diff(words(part, opened), words(part, differences.saved)),
                word_diff(words(part, opened), words(part, differences.yours)),
            )
            for part in differences.clashing()
        ],
        merges=[
            Merge(
                PARTS_OF_FORM[part][0],
                words(part, opened),
                words(part, differences.yours if side == "yours" else differences.saved),
                "you" if side == "yours" else who,
            )
            for part, side in differences.merging().items()
        ],
        values=differences.yours,
        who=who,
        saved_at=saved_at,
        revision=revision,
        opened_revision=opened_revision,
    )


def describe(part: str, values: Values, *, names: Mapping[str, str], now: datetime) -> str:
    """A part in words: the sentence of a timetable, the name of a node, the label of a choice."""
    if part == "when":
        return _when_words(values, now)
    text = str(values[part])
    if part == "target_node_id":
        return names.get(text, text) or "–"
    choices = getattr(_FORM[part], "choices", None) or ()
    labels = {str(choice.value): str(choice.label) for choice in choices}
    return labels.get(text, text.replace("T", " ") if part in ("starts_at", "ends_at") else text) or "–"


def _when_words(values: Values, now: datetime) -> str:
    try:
        timetable, zone = read_timetable(timetable_of(values), values["timezone"], previous=None, now=now)
    except AppError as error:
        return f"{values['type']}: {error.message}"
    if values["type"] != "interval":
        return sentence(timetable, zone)
    # The anchor of an interval is kept where none is typed, so nothing is said of it then.
    counted = instant_of_local(values["anchor_at"], zone)
    start = f" from {values['anchor_at'].replace('T', ' ')}" if counted else ""
    return f"Every {values['every']} {values['every_unit']}{start}, {zone}"


def word_diff(before: str, after: str) -> Parts:
    """`after` beside `before`, word by word: (same, text), (del, text), (ins, text); long sameness is cut."""
    old, new = re.split(r"(?<=\s)", before), re.split(r"(?<=\s)", after)
    parts: Parts = []
    for how, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if how == "equal":
            parts.append(("same", _cut(old[start:end])))
            continue
        if end > start:
            parts.append(("del", "".join(old[start:end]).strip()))
        if new_end > new_start:
            parts.append(("ins", "".join(new[new_start:new_end]).strip()))
    return [(how, text) for how, text in parts if text]


def _cut(words: list[str]) -> str:
    if len(words) <= 2 * _WORDS_AROUND + 1:
        return "".join(words).strip()
    head, tail = "".join(words[:_WORDS_AROUND]).strip(), "".join(words[-_WORDS_AROUND:]).strip()
    return f"{head} … {tail}"


# --- The version that was opened, carried by the form itself ------------------------------------------------


def pack(values: Values) -> str:
    """The values of a form as one hidden field of it."""
    return json.dumps(values, separators=(",", ":"), sort_keys=True)


def unpack(text: str | None) -> Values | None:
    """What `pack` wrote; None for anything else, which a browser may send."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() != set(VALUE_FIELDS):
        return None
    days = found["weekdays"]
    texts = all(isinstance(value, str) for name, value in found.items() if name != "weekdays")
    if not texts or not isinstance(days, list) or not all(isinstance(day, str) for day in days):
        return None
    return found
