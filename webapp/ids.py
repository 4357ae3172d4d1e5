"""Public ids: random where a thing is new, derived where the same thing must get the same id again."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import UTC, datetime

# No look-alikes: 0/o, 1/i/l, u/v are told apart badly over the phone.
_ALPHABET = "23456789abcdefghjkmnpqrstwxyz"
_ID_LENGTH = 20
SHORT_ID_LENGTH = 6

_ID_PATTERN = re.compile(r"[a-z]{2,8}_[0-9a-z]{6,40}")


# A herd derives two ids a slot, so four letters are looked up at once.
_FOUR = len(_ALPHABET) ** 4
_PAIRS = [first + second for second in _ALPHABET for first in _ALPHABET]


def _encode(number: int, length: int) -> str:
    """The last `length` letters of a number, the lowest first."""
    letters = []
    for _ in range(0, length, 4):
        number, rest = divmod(number, _FOUR)
        high, low = divmod(rest, len(_PAIRS))
        letters.append(_PAIRS[low])
        letters.append(_PAIRS[high])
    return "".join(letters)[:length]


def new_id(prefix: str) -> str:
    """A fresh id such as `sched_k8w2vt…`; about 97 bits of chance."""
    return f"{prefix}_{_encode(secrets.randbits(104), _ID_LENGTH)}"


def new_short_id() -> str:
    """Six characters to read aloud; unique only together with the database's unique key."""
    return _encode(secrets.randbits(40), SHORT_ID_LENGTH)


def derived_id(prefix: str, *parts: str) -> str:
    """The id that follows from `parts`: the same parts give the same id, after a restore too."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    return f"{prefix}_{_encode(int.from_bytes(digest[:16]), _ID_LENGTH)}"


def is_public_id(text: object) -> bool:
    """Whether `text` has the shape of an id of ours (cheap check before a query)."""
    return isinstance(text, str) and _ID_PATTERN.fullmatch(text) is not None


def slot_key(slot: datetime) -> str:
    """A slot as text for deriving ids: UTC milliseconds since 1970."""
    return str(round(slot.astimezone(UTC).timestamp() * 1000))


def scheduled_run_id(schedule_id: str, slot: datetime) -> str:
    """The id of the run of one schedule and slot."""
    return run_id_at(schedule_id, slot_key(slot))


def run_id_at(schedule_id: str, key: str) -> str:
    """The same where the slot is known by its key."""
    return derived_id("srun", schedule_id, "slot", key)


def manual_run_id(schedule_id: str, request_key: str) -> str:
    """The id of a run that a person started; `request_key` names the request, so a repeat finds it."""
    return derived_id("srun", schedule_id, "manual", request_key)


def task_id_of_run(run_id: str) -> str:
    """The id of the task that carries a run."""
    return derived_id("task", run_id)


def turn_id_of_run(run_id: str) -> str:
    """The id of the turn that carries a run."""
    return derived_id("turn", run_id)


def task_id_of_call(turn_id: str, call_id: str) -> str:
    """The id of the task that one tool call of a turn sends: the same call sends the same task."""
    return derived_id("task", turn_id, "call", call_id)


def delivery_id(task_id: str, attempt: int) -> str:
    """The id under which one attempt of a task is delivered."""
    return derived_id("dlv", task_id, str(attempt))
