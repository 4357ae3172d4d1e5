"""Would a schedule fire that nobody has saved yet? The same facts and rules that dispatch uses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from webapp.scheduling import policy
from webapp.scheduling.admission import load_admission, load_targets
from webapp.scheduling.lifecycle import TargetKind
from webapp.scheduling.target import target_for

# No row has this key: a target that is not found is asked for like one that is gone.
_NOBODY = 0


@dataclass(frozen=True)
class Draft:
    """What admission looks at, of a schedule that is only typed."""

    network_pk: int
    target_kind: TargetKind
    target_pk: int
    sponsor_pk: int
    # The profile of the model, for a chat; None = the default one.
    model: str | None = None
    id: int = _NOBODY


def draft_checks(
    session: Session,
    network_pk: int,
    target_id: str,
    sponsor_pk: int,
    *,
    kind: TargetKind = TargetKind.NODE,
    model: str | None = None,
    now: datetime,
) -> list[policy.Check]:
    """Every question of admission for a schedule at this target (public id), acting for this sponsor.

    Its mandate is made when it is saved, so nothing is asked about one.
    """
    target_pk = target_for(kind).find(session, network_pk, target_id) if target_id else None
    draft = Draft(network_pk, kind, target_pk or _NOBODY, sponsor_pk, model)
    facts = load_admission(session, [draft], load_targets(session, [draft]), mandates=False, now=now)
    return policy.admission_checks(facts[draft.id])
