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
    "next_change_exists": "Undo the skip or the move, then change the slot again.",
    "slot_not_next": "See which slot comes next, then skip or move that one.",
    "skipped_by_person": "Run it now, if it is wanted after all.",
    "unreadable_timetable": "Save a new timetable.",
    "mandate_missing": "Resume the schedule: that issues a mandate, on the authority of its sponsor.",
    "mandate_unconfirmed": "Its sponsor confirms the mandate, or rejects what was proposed.",
    "mandate_paused": "Its subject resumes the mandate; the schedule is resumed by itself.",
    "mandate_exhausted": "Raise its limits in the mandate, or let the schedule rest.",
    "mandate_expired": "Renew the mandate, or resume the schedule, which issues a new one.",
    "mandate_revoked": "Its sponsor resumes the schedule, which issues a new mandate.",
    "mandate_changed": "Look at the mandate, then resume the schedule, which adopts it as it stands.",
    "mandate_denies": "Widen what the mandate permits, or change what the schedule does.",
    "mandate_is_revoked": "Resume the schedule: that issues a new mandate.",
    "mandate_revision_conflict": "Look at it as it stands now, then change it again.",
    "chat_archived": "Take the chat up again, then resume the schedule.",
    "chat_not_owned": "Make a schedule of your own, in a chat of your own.",
    "chat_not_found": "Choose a chat of your own that is not archived.",
    "model_unavailable": "Choose a model that is set up here, or have the operator set up its key.",
    "model_failed": "Wait until the model answers again, then run it again.",
    "turn_failed": "See in the chat what the turn said, mend the cause, then run it again.",
    "turn_aborted": "Run it now, if it is wanted after all.",
    "turn_timed_out": "Ask for less at a time, or give the run more time.",
    "turn_limit_reached": "Ask for less at a time, or have the operator raise the limits of the model.",
    "worker_lost": "See in the chat how far it came, then run it again if it is wanted.",
    "approval_expired": "Answer in time, or allow in the mandate exactly what it asks for.",
    "approval_already_decided": "Nothing is left to answer.",
    "turn_already_final": "Nothing is left to abort.",
    "not_proposed": "Somebody answered before you: see how it stands now.",
    "proposal_rejected": "Duplicate it, if it is wanted after all.",
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
    "run_cancelled": "Run the schedule now, if it is wanted after all.",
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
