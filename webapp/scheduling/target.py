"""What the engine asks of whoever does the work; the kinds register themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy.orm import Session

from webapp.scheduling.lifecycle import TargetKind
from webapp.scheduling.models import Run
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
    """A target as the engine sees it: where it is, what it is called, and why it would refuse work."""

    network_pk: int
    public_id: str
    alias: str
    refusal: str | None


@dataclass(frozen=True)
class WorkFacts:
    """How far the work of a run has come, and when whoever does it was last heard."""

    received: bool
    acknowledged: bool
    heard_at: datetime | None


class Target(Protocol):
    """One kind of target. Everything takes many at once; nothing here decides a policy."""

    missing_code: str

    def find(self, session: Session, network_pk: int, public_id: str) -> int | None:
        """The key of the target with this public id in this network, or None."""

    def load(self, session: Session, target_pks: Collection[int]) -> Mapping[int, TargetFacts]:
        """The facts of these targets; one that is gone is missing from the answer."""

    def write(self, tx: Tx, dispatches: Sequence[Dispatch], *, now: datetime) -> None:
        """Write the work of these runs and have the bell rung after the commit."""

    def progress(self, session: Session, run_pks: Collection[int]) -> Mapping[int, WorkFacts]:
        """How far the work of these runs has come."""

    def withdraw(self, tx: Tx, runs: Sequence[Run], *, code: str, actor: str, now: datetime) -> None:
        """Take the unacknowledged work of these runs back."""

    def expire(self, tx: Tx, runs: Sequence[Run], *, code: str, now: datetime) -> None:
        """End the work of these runs, acknowledged or not, because it held up others for too long."""

    def ask_to_stop(self, tx: Tx, runs: Sequence[Run], *, now: datetime) -> None:
        """Tell whoever works on these runs that nobody needs the result any more."""

    def reopen(self, tx: Tx, run: Run, *, actor: str, now: datetime) -> None:
        """Have the ended work of this run done once more, as its next attempt."""

    def expire_overdue(self, *, now: datetime) -> int:
        """End work whose time has run out, a bounded number in transactions of its own; returns how many."""


_targets: dict[TargetKind, Target] = {}


def register_target(kind: TargetKind, target: Target) -> None:
    """Make `target` the one that serves schedules of this kind."""
    _targets[kind] = target


def all_targets() -> Sequence[Target]:
    """Every kind that has registered."""
    return list(_targets.values())


def target_for(kind: TargetKind) -> Target:
    """The target that serves this kind."""
    return _targets[kind]
