"""Whose words a page may show: those of a chat, and of the schedules that speak in it, are their owner's alone."""

from __future__ import annotations

from webapp.identity.access import Facts
from webapp.scheduling.lifecycle import TargetKind
from webapp.scheduling.models import Run, Schedule
from webapp.web.auth import current_actor


def is_secret(thing: Schedule | Run) -> bool:
    """Whether the words of a schedule, or of a run (its schedule loaded), are not for whoever looks at the page."""
    return schedule_of(thing).is_private_to(current_actor().user_pk)


def is_chat(thing: Schedule | Run) -> bool:
    """Whether it speaks into a chat."""
    return schedule_of(thing).target_kind is TargetKind.CHAT


def schedule_of(thing: Schedule | Run) -> Schedule:
    """The schedule itself, or that of a run."""
    return thing.schedule if isinstance(thing, Run) else thing


def aim(thing: Schedule | Run) -> str:
    """What it is aimed at, by name: a node's alias, a chat's title; somebody else's chat has none."""
    return "a chat" if is_secret(thing) else thing.target_alias


def called(thing: Schedule | Run) -> str:
    """What a schedule, or that of a run, is called before whoever looks at the page."""
    return schedule_of(thing).name_for(current_actor().user_pk)


def facts_of(schedule: Schedule) -> Facts:
    """What decides who may do what to a schedule."""
    return Facts(schedule.network_pk, schedule.sponsor_pk, schedule.paused_by_pk, private=is_chat(schedule))
