"""Mandates as the public sees them. No internal key leaves here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webapp.mandates.models import Mandate
from webapp.targets.blast_radius import BlastRadius
from webapp.web import shapes
from webapp.web.present import required_instant
from webapp.web.present_people import instant


def mandate_json(mandate: Mandate, networks: Mapping[int, str]) -> shapes.Mandate:
    """A mandate (with its subject loaded); `networks` gives the public ids of networks by their keys."""
    kind, _, workload_id = mandate.workload.partition(":")
    return {
        "mandate_id": mandate.mandate_id,
        "network_id": networks[mandate.network_pk],
        "subject": mandate.subject.name,
        "workload": mandate.workload,
        "schedule_id": workload_id if kind == "schedule" else None,
        "policy": _policy(mandate.policy),
        "state": mandate.state.value,
        "state_reason": mandate.state_reason,
        "revision": mandate.revision,
        "expires_at": instant(mandate.expires_at),
        "confirmed_at": instant(mandate.confirmed_at),
        "uses": {
            "runs": mandate.used_runs,
            "max_runs": mandate.max_runs,
            "tokens": mandate.used_tokens,
            "reserved_tokens": mandate.reserved_tokens,
            "max_tokens": mandate.max_tokens,
        },
        "created_at": required_instant(mandate.created_at),
        "updated_at": required_instant(mandate.updated_at),
        "ended_at": instant(mandate.ended_at),
    }


def _policy(stored: Mapping[str, Any]) -> dict[str, Any]:
    return dict(stored)


def blast_radius_json(radius: BlastRadius | None) -> shapes.BlastRadius | None:
    """What would stop with a mandate."""
    if radius is None:
        return None
    return {
        "schedule_id": radius.schedule_id,
        "schedule_status": radius.status.value,
        "next_slots": [required_instant(slot) for slot in radius.next_slots],
        "runs_withdrawn": radius.withdrawn,
        "runs_at_work": radius.at_work,
        "turns_at_work": radius.turns,
    }
