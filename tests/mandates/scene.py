"""Short words for what people do to mandates, and for what is then written down."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, update

from tests.scheduling.stage import Stage
from webapp.audit import AuditEntry
from webapp.identity.access import Actor
from webapp.mandates import operations
from webapp.mandates.bodies import MandateChanges, PauseMandate, RevokeMandate
from webapp.mandates.models import Mandate
from webapp.scheduling import steps
from webapp.scheduling.lifecycle import TargetKind
from webapp.scheduling.making import propose
from webapp.scheduling.models import Schedule
from webapp.store import reading
from webapp.store.transaction import Tx, operation


@dataclass
class MandateScene:
    """The stage, and the mandates on it."""

    stage: Stage

    @property
    def now(self) -> datetime:
        return self.stage.clock.now()

    def mandate(self, schedule: Schedule) -> Mandate:
        """The mandate under which a schedule acts now."""
        pk = self.stage.schedule(schedule).mandate_pk
        assert pk is not None
        with reading() as session:
            return session.get_one(Mandate, pk)

    def mandates(self, schedule: Schedule) -> list[tuple[str, int, int]]:
        """All that the schedule ever had: state, revision, uses; oldest first."""
        with reading() as session:
            rows = session.scalars(
                select(Mandate)
                .where(Mandate.workload == f"schedule:{schedule.schedule_id}")
                .order_by(Mandate.id)
            )
            return [(row.state.value, row.revision, row.used_runs) for row in rows]

    def trail(self, mandate: Mandate) -> list[tuple[str, str]]:
        """What the audit says about a mandate: verb and actor, oldest first."""
        with reading() as session:
            rows = session.scalars(
                select(AuditEntry).where(AuditEntry.subject_id == mandate.mandate_id).order_by(AuditEntry.seq)
            )
            return [(row.verb, row.actor) for row in rows]

    def details(self, mandate: Mandate, verb: str) -> list[dict[str, Any]]:
        """What the audit kept of each entry with this verb, oldest first."""
        with reading() as session:
            rows = session.scalars(
                select(AuditEntry)
                .where(AuditEntry.subject_id == mandate.mandate_id, AuditEntry.verb == verb)
                .order_by(AuditEntry.seq)
            )
            return [row.detail for row in rows]

    # --- A person's words ---

    def change(
        self, mandate: Mandate, actor: Actor | None = None, *, revision: int | None = -1, **fields: Any
    ) -> Mandate:
        seen = mandate.revision if revision == -1 else revision
        return operations.change(
            actor or self.stage.alice,
            mandate.mandate_id,
            lambda: MandateChanges(**fields),
            revision=lambda: seen,
            now=self.now,
        )

    def confirm(self, mandate: Mandate, actor: Actor | None = None, revision: int | None = None) -> Mandate:
        who = actor or self.stage.alice
        return operations.confirm(who, mandate.mandate_id, revision=lambda: revision, now=self.now)

    def pause(self, mandate: Mandate, actor: Actor | None = None, revision: int | None = None) -> Mandate:
        return operations.pause(
            actor or self.stage.alice,
            mandate.mandate_id,
            lambda: PauseMandate(reason="A moment."),
            revision=lambda: revision,
            now=self.now,
        )

    def resume(self, mandate: Mandate, actor: Actor | None = None, revision: int | None = None) -> Mandate:
        who = actor or self.stage.alice
        return operations.resume(who, mandate.mandate_id, revision=lambda: revision, now=self.now)

    def revoke(
        self,
        mandate: Mandate,
        actor: Actor | None = None,
        revision: int | None = None,
        reason: str = "Enough.",
    ) -> Mandate:
        return operations.revoke(
            actor or self.stage.alice,
            mandate.mandate_id,
            lambda: RevokeMandate(reason=reason),
            revision=lambda: revision,
            now=self.now,
        )

    def propose(self, **fields: Any) -> Schedule:
        """What an agent asks for in Alice's name: a task for atlas every hour."""
        return _propose(self.stage, now=self.now, **fields)

    def expire(self, mandate: Mandate) -> Mandate:
        """Give the mandate an end a minute from now, and let that minute pass."""
        changed = self.change(mandate, expires_at=self.now + timedelta(minutes=1))
        self.stage.clock.advance(minutes=1)
        return changed


@operation
def _propose(tx: Tx, stage: Stage, *, now: datetime, **fields: Any) -> Schedule:
    values: dict[str, Any] = {
        "network_pk": stage.cast.network.id,
        "sponsor_pk": stage.cast.alice.id,
        "target_kind": TargetKind.NODE,
        "target_id": stage.node.node_id,
        "name": "What the agent wants",
        "text": "Sweep the harbour.",
        "schedule": {"type": "cron", "cron": "0 * * * *"},
        "actor": "the agent",
    } | fields
    return steps.load_locked(tx, propose(tx, now=now, **values).id)


@operation
def tamper(tx: Tx, schedule: Schedule, **columns: Any) -> None:
    """Write into the row of a schedule what no operation would."""
    tx.session.execute(update(Schedule).where(Schedule.id == schedule.id).values(**columns))


@operation
def tamper_mandate(tx: Tx, mandate: Mandate, **columns: Any) -> None:
    """The same for a mandate."""
    tx.session.execute(update(Mandate).where(Mandate.id == mandate.id).values(**columns))
