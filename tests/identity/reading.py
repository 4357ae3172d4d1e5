"""What tests of people look up in the database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from webapp.audit import AuditEntry
from webapp.events.models import Event
from webapp.identity.models import Membership, Network, Role, User
from webapp.store import reading


def roles(network: Network) -> dict[str, str]:
    """Name -> role of a network's people."""
    with reading() as session:
        rows = session.execute(
            select(User.name, Membership.role)
            .join(Membership, Membership.user_pk == User.id)
            .where(Membership.network_pk == network.id)
        )
        return {name: role.value for name, role in rows}


def owners(network: Network) -> int:
    """How many owners a network has."""
    return sum(role == Role.OWNER for role in roles(network).values())


def audited(network: Network) -> list[tuple[str, str, dict[str, Any]]]:
    """(actor, verb, detail) of a network's audit, oldest first."""
    with reading() as session:
        statement = select(AuditEntry).where(AuditEntry.network_pk == network.id).order_by(AuditEntry.seq)
        return [(row.actor, row.verb, row.detail) for row in session.scalars(statement)]


def events(network: Network) -> list[str]:
    """The types of a network's events, oldest first."""
    with reading() as session:
        statement = select(Event.type).where(Event.network_pk == network.id).order_by(Event.seq)
        return list(session.scalars(statement))


def count(model: type[Any]) -> int:
    """How many rows a table has."""
    with reading() as session:
        return int(session.execute(select(func.count()).select_from(model)).scalar_one())
