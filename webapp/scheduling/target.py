"""What the engine asks of whoever does the work; the kinds register themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from webapp.scheduling.lifecycle import TargetKind
from webapp.scheduling.models import Run
from webapp.store.given import GivenRows
from webapp.store.transaction import Tx


@dataclass(frozen=True)
class Dispatch:
    """A run that is to become work now. Instants UTC, durations seconds."""

    run_pk: int
    run_id: str
    network_pk: int
    target_pk: int
    text_pk: int
    priority_rank: int
    ttl_seconds: int | None
    max_run_seconds: int | None
    sponsor_pk: int


@dataclass(frozen=True)
class TargetFacts:
    """A target as the engine sees it: where it is, what it is called, and why it would refuse work.

    `owner_pk` is the person whose it alone is; None where it belongs to its network.
    """

    network_pk: int
    public_id: str
    alias: str
    refusal: str | None
    owner_pk: int | None = None


@dataclass(frozen=True)
class WorkFacts:
    """How far the work of a run has come, and when whoever does it was last heard.

    `limited`: it ends within a limit of its own, so it is never cut off because it holds up others.
    """

    received: bool
    acknowledged: bool
    heard_at: datetime | None
    limited: bool = False


class Target(Protocol):
    """One kind of target. Everything takes many at once; nothing here decides a policy.

    `one_at_a_time`: a target of this kind does one piece of work after the other, whoever it comes from. Its runs
    then wait (`chat_busy`) until it is idle, and nothing of them is dispatched before. `in_bulk`: how the usual runs
    of a herd become work, for a kind that can.
    """

    missing_code: str
    one_at_a_time: bool

    @property
    def in_bulk(self) -> InBulk | None: ...

    def find(self, session: Session, network_pk: int, public_id: str) -> int | None:
        """The key of the target with this public id in this network, or None."""

    def load(self, session: Session, target_pks: Collection[int]) -> Mapping[int, TargetFacts]:
        """The facts of these targets; one that is gone is missing from the answer."""

    def refuses(self, facts: TargetFacts, definition: Any) -> str | None:
        """Why this target would refuse the work of this schedule (a `Schedule` or a row with its columns)."""

    def check_model(self, model: str | None) -> None:
        """Raise AppError `invalid_model` for a model (None: the default one) that these targets cannot use."""

    def reserve(self, tx: Tx, target_pks: Collection[int]) -> set[int]:
        """Lock these targets, in the order of their keys; returns those that have no open work.

        Asked only where there is one piece of work at a time; the schedules and mandates are locked already.
        """

    def dispatched(self, run_id: str, *, now: datetime) -> dict[str, Any]:
        """The columns that a run carries from the moment its work is written, the derived id of it first."""

    def write(self, tx: Tx, dispatches: Sequence[Dispatch], *, now: datetime) -> None:
        """Write the work of these runs and have the bell rung after the commit."""

    def progress(self, session: Session, run_pks: Collection[int]) -> Mapping[int, WorkFacts]:
        """How far the work of these runs has come."""

    def withdraw(self, tx: Tx, runs: Sequence[Run], *, code: str, actor: str, now: datetime) -> None:
        """Take the unacknowledged work of these runs back."""

    def expire(self, tx: Tx, runs: Sequence[Run], *, code: str, now: datetime) -> None:
        """End the work of these runs, acknowledged or not, because it held up others for too long."""

    def ask_to_stop(self, tx: Tx, runs: Sequence[Run], *, code: str, now: datetime) -> None:
        """Tell whoever works on these runs that nobody needs the result any more; `code` says why."""

    def reopen(self, tx: Tx, run: Run, *, actor: str, now: datetime) -> None:
        """Have the ended work of this run done once more, as its next attempt."""

    def expire_overdue(self, *, now: datetime) -> int:
        """End work whose time has run out, a bounded number in transactions of its own; returns how many."""


class InBulk(Protocol):
    """What a kind of target may offer besides: the work of many usual runs, written by a few statements.

    `work_column` is the column of runs that names their work; `run_columns` are the others that a run carries from the
    moment its work is written.
    """

    @property
    def work_column(self) -> str: ...
    @property
    def run_columns(self) -> Mapping[str, Any]: ...

    def takes(self) -> ColumnElement[bool]:
        """Of a `Schedule` in a statement: its target is there, takes work, and is still called what it says."""

    def work_id(self, run_id: str) -> str:
        """The derived id of the work of a run."""

    def take_keys(self, tx: Tx, count: int) -> Sequence[int]:
        """The keys that the work of this many runs will have."""

    def write(self, tx: Tx, work: GivenRows, *, now: datetime) -> None:
        """Write the work of these runs and have the bell rung after the commit.

        The rows have `schedule_pk`, `run_pk`, and `work_pk` and `work_id` as they were taken here.
        """


_targets: dict[TargetKind, Target] = {}


def register_target(kind: TargetKind, target: Target) -> None:
    """Make `target` the one that serves schedules of this kind."""
    _targets[kind] = target


def all_targets() -> Sequence[Target]:
    """Every kind that has registered."""
    return list(_targets.values())


def bulk_targets() -> Sequence[tuple[TargetKind, InBulk]]:
    """The kinds that write the work of many runs at once."""
    return [(kind, target.in_bulk) for kind, target in _targets.items() if target.in_bulk is not None]


def target_for(kind: TargetKind) -> Target:
    """The target that serves this kind."""
    return _targets[kind]
