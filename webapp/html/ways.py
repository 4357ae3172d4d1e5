"""What a person can do about a refusal or a reason: one sentence a code. The codes' own sentences say why."""

from __future__ import annotations

from typing import Final

_WAYS: Final = {
    "permission_denied": "Ask its owner, or an admin of the network.",
    "previous_run_active": "Wait for the earlier run to end, or cancel it.",
    "blocker_timed_out": "See whether its node still runs.",
    "schedule_cancelled": "Duplicate the schedule to start again.",
    "schedule_completed": "Duplicate the schedule to run again.",
    "schedule_proposed": "Confirm or reject the schedule first.",
    "schedule_has_no_future_occurrence": "Give the schedule a timetable with a slot ahead.",
    "unreadable_timetable": "Save a new timetable.",
    "idempotency_conflict": "This form was sent before with other words: see what came of it, then send it again.",
    "target_node_not_found": "Aim the schedule at a node that exists.",
    "target_not_active": "Activate the node, or aim the schedule at another one.",
    "node_not_active": "Activate the node, or send it to another one.",
    "sponsor_inactive": "An admin who saves its task or node takes it over.",
    "sponsor_not_permitted": "Give that person their role back, or have an admin take the schedule over.",
    "resume_not_permitted": "Its sponsor or an admin can resume it.",
    "failure_threshold_reached": "Look at the last failed run, mend the cause, then resume.",
    "task_failed": "See what the node answered, mend the cause, then retry.",
    "task_expired": "See whether the node runs, then retry.",
    "task_timed_out": "See what the node does, then retry or raise the limit.",
    "task_cancelled": "Retry it if it is wanted after all.",
    "task_already_final": "Nothing is left to cancel; retry it if it should be done once more.",
    "task_not_retryable": "Only what failed, expired or was cancelled can be done once more.",
    "run_without_task": "Run the schedule now, if it should be done after all.",
    "schedule_changed": "See what was changed, then save or resume it.",
    "internal_error": "Save its timetable once more, then resume; the server's log says what broke.",
}


def way_out(code: str | None) -> str | None:
    """What to do about a code; None where there is nothing to do, or only what the page shows anyway."""
    return None if code is None else _WAYS.get(code)


def known_ways() -> frozenset[str]:
    """The codes that have a way out, so that a test can compare them with the table of errors."""
    return frozenset(_WAYS)
