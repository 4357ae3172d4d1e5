"""One code, one status, one sentence."""

from __future__ import annotations

from typing import Any

# code -> (HTTP status, the sentence a person reads)
ERRORS: dict[str, tuple[int, str]] = {
    # the door
    "unauthenticated": (401, "Sign in or send a valid token."),
    "permission_denied": (403, "You are not allowed to do this."),
    "user_token_required": (403, "This call needs a person's token; a node's token reaches only its own inbox."),
    "not_found": (404, "There is nothing at this address."),
    "method_not_allowed": (405, "This address does not answer to that method."),
    "payload_too_large": (413, "The request is larger than 256 KiB."),
    "unsupported_media_type": (415, "Send JSON with the content type application/json."),
    "rate_limited": (429, "Too many attempts. Wait a little and try again."),
    "internal_error": (500, "Something failed here. Nothing was changed; it is safe to try again."),
    "not_ready": (503, "The service is not ready yet."),
    "bad_request": (400, "The request could not be understood."),
    "csrf_failed": (400, "This form was open for too long or came from elsewhere. Open it again and resend."),
    # bodies and queries
    "invalid_json": (400, "The body is not a JSON object."),
    "unknown_field": (400, "This field is not known here."),
    "network_id_required": (400, "You belong to several networks: name one with network_id."),
    "invalid_network_id": (400, "network_id must be the id of one of your networks."),
    "invalid_limit": (400, "limit must be a whole number."),
    "invalid_cursor": (400, "This cursor does not belong to this list."),
    "invalid_q": (400, "The search text is too long or has characters that cannot be searched."),
    "invalid_from": (400, "from must be an instant with an offset."),
    "invalid_to": (400, "to must be an instant with an offset."),
    "invalid_actor": (400, "actor must be a name of at most 120 characters."),
    "invalid_subject": (400, "subject must be an id of at most 200 characters."),
    "invalid_node": (400, "node must be the id of a node."),
    "invalid_schedule_id": (400, "schedule_id must be the id of a schedule."),
    "invalid_idempotency_key": (400, "An idempotency key is 1 to 200 visible ASCII characters."),
    "idempotency_conflict": (409, "This idempotency key was used for a different request."),
    "invalid_revision": (400, "revision must be a whole number from 1."),
    # timetables
    "schedule_required": (400, "Say when: schedule must be an object."),
    "invalid_schedule_type": (400, "The type of a timetable is once, interval, daily, weekly or cron."),
    "run_at_required": (400, "Say when to run."),
    "invalid_run_at": (400, "run_at must be a date and time."),
    "nonexistent_local_time": (400, "That local time does not exist: the clock goes forward over it."),
    "ambiguous_local_time": (400, "That local time happens twice: the clock goes back. Give it with an offset."),
    "invalid_interval": (400, "every_seconds must be a whole number from 60 to 31 536 000."),
    "invalid_anchor": (400, "anchor_at must be an instant with an offset."),
    "invalid_time": (400, "time must be HH:MM, 24 hours."),
    "weekdays_required": (400, "Choose at least one weekday."),
    "invalid_weekdays": (400, "weekdays is a list of whole numbers from 0 (Sunday) to 6 (Saturday)."),
    "cron_required": (400, "Write a cron expression."),
    "invalid_cron": (400, "This cron expression cannot be read."),
    "invalid_timezone": (400, "timezone must be the name of a time zone, such as Europe/Berlin."),
    "schedule_has_no_future_occurrence": (409, "No slot is left in the future."),
    "unreadable_timetable": (409, "The stored timetable cannot be read. Save a new one."),
    "invalid_after": (400, "after must be an instant with an offset."),
    "invalid_count": (400, "count must be a whole number from 1 to 100."),
    # schedules
    "invalid_name": (400, "A name has 1 to 120 characters."),
    "invalid_task": (400, "The task has 1 to 10 000 characters."),
    "invalid_priority": (400, "The priority is high, normal or low."),
    "invalid_misfire_policy": (400, "What becomes of missed slots is catch_up_once, skip or catch_up_all."),
    "invalid_misfire_grace_seconds": (400, "On time means at most 0 to 86 400 seconds (24 h) late."),
    "invalid_catch_up_limit": (400, "From 1 to 100 missed slots can be caught up."),
    "invalid_overlap_policy": (400, "What becomes of a slot while a run is open is skip, queue_one or allow."),
    "invalid_failure_threshold": (400, "It stops after 1 to 100 failures in a row, or never."),
    "invalid_starts_at": (400, "The start is a date with a time; in JSON with its offset."),
    "invalid_ends_at": (400, "The end is a date with a time, not before the start; in JSON with its offset."),
    "invalid_max_runs": (400, "A limit of runs is a whole number from 1 to 1 000 000."),
    "invalid_ttl_seconds": (400, "Work waits from 60 to 604 800 seconds (7 days) to be taken up."),
    "invalid_max_run_seconds": (400, "A run may take from 60 to 2 592 000 seconds (30 days)."),
    "invalid_target_node_id": (400, "Choose the node that does the work; in JSON its id, 2 to 200 characters."),
    "invalid_status": (400, "This status cannot be asked for here."),
    "invalid_reason": (400, "A reason has at most 500 characters."),
    "invalid_resume_at": (400, "It resumes at a date with a time that lies ahead; in JSON with its offset."),
    "invalid_target_kind": (400, "target_kind is node or chat."),
    "schedule_not_found": (404, "There is no such schedule."),
    "run_not_found": (404, "There is no such run."),
    "node_not_found": (404, "There is no such node."),
    "task_not_found": (404, "There is no such task."),
    "user_not_found": (404, "There is no such person."),
    "token_not_found": (404, "There is no such token."),
    "network_not_found": (404, "There is no such network."),
    "revision_conflict": (409, "Somebody changed this in the meantime. Nothing you typed is lost."),
    "schedule_cancelled": (409, "This schedule is cancelled. Duplicate it to start again."),
    "schedule_completed": (409, "This schedule is completed. Duplicate it to run again."),
    "schedule_proposed": (409, "This schedule is only proposed: confirm or reject it first."),
    "previous_run_active": (409, "An earlier run is still open."),
    # admission
    "target_node_not_found": (409, "The node is gone or is not in this network."),
    "target_not_active": (409, "The node is stopped; the schedule heals itself when the node is active again."),
    "sponsor_inactive": (409, "The person on whose authority it acts is deactivated."),
    "sponsor_not_permitted": (409, "The person on whose authority it acts may no longer act in this network."),
    "resume_not_permitted": (409, "The person who asked for the resume may no longer resume it."),
    # reasons of runs and schedules (shown, not answered)
    "misfire_skipped": (409, "Missed while the worker was away, and skipped as the policy says."),
    "superseded": (409, "A newer run took its place in the queue."),
    "blocker_timed_out": (409, "It held up the next slot for too long and was never heard from."),
    "schedule_paused": (409, "The schedule was paused before the work was taken up."),
    "schedule_stopped": (409, "The schedule stopped and needs attention."),
    "schedule_changed": (409, "The schedule was changed before the work was taken up."),
    "task_failed": (409, "The node reported a failure."),
    "task_cancelled": (409, "The task was cancelled."),
    "task_expired": (409, "The node did not take the task up in time."),
    "task_timed_out": (409, "The task was started and did not end within its limit."),
    "ends_at_reached": (409, "The end of the schedule was reached."),
    "max_runs_reached": (409, "The schedule has run as often as it was allowed to."),
    "failure_threshold_reached": (409, "It failed too often in a row."),
    # nodes and tasks
    "invalid_alias": (400, "An alias has 2 to 60 characters: lower-case letters, digits, dot, dash, underscore."),
    "alias_taken": (409, "Another node of this network has this alias."),
    "invalid_lifecycle_state": (400, "lifecycle_state is active, stopping or stopped."),
    "node_not_active": (409, "The node is not active; nothing can be put into its inbox."),
    "invalid_node_id": (400, "node_id must be the id of a node."),
    "invalid_task_id": (400, "task_id must be the id of a task."),
    "invalid_wait": (400, "wait is a number of seconds from 0 to 60."),
    "invalid_attempt": (400, "attempt is a whole number from 1."),
    "invalid_result": (400, "result must be text."),
    "task_attempt_superseded": (409, "A newer attempt of this task exists; this report is not accepted."),
    "task_withdrawn": (409, "The task was cancelled; do not work on it."),
    "task_already_final": (409, "The task has ended already."),
    "task_not_delivered": (409, "This attempt was not handed out yet: fetch or acknowledge the task first."),
    "task_not_retryable": (409, "Only failed, expired or cancelled tasks can be retried."),
    "run_without_task": (409, "Nothing of this run was ever sent to a node: there is nothing to steer."),
    # mandates
    "mandate_not_found": (404, "There is no such mandate."),
    "mandate_missing": (409, "Nobody has given this schedule the authority to act."),
    "mandate_unconfirmed": (409, "The authority of this schedule was never confirmed by a person."),
    "mandate_paused": (409, "The mandate is paused."),
    "mandate_exhausted": (409, "The mandate's limit is used up."),
    "mandate_expired": (409, "The mandate has expired."),
    "mandate_revoked": (409, "The mandate was revoked."),
    "mandate_changed": (409, "The mandate was changed since the schedule last knew it."),
    "mandate_denies": (409, "The mandate does not permit this."),
    "mandate_is_revoked": (409, "A revoked mandate cannot be changed."),
    "mandate_revision_conflict": (409, "Somebody changed the mandate meanwhile."),
    "invalid_policy": (400, "This is not a policy that a mandate can have."),
    "invalid_expires_at": (400, "expires_at must be an instant in the future, with an offset, or null."),
    "reason_required": (400, "Say why: a reason of 1 to 500 characters."),
    # chats, turns, approvals
    "chat_not_found": (404, "There is no such chat."),
    "chat_archived": (409, "The chat is archived."),
    "chat_not_owned": (409, "The chat does not belong to the person on whose authority this acts."),
    "turn_not_found": (404, "There is no such turn."),
    "turn_already_final": (409, "The turn has ended already."),
    "turn_failed": (409, "The turn failed."),
    "turn_aborted": (409, "The turn was aborted."),
    "turn_timed_out": (409, "The turn did not end within its limit."),
    "worker_lost": (409, "The worker was lost while the model had not answered; whether it did is not known."),
    "turn_limit_reached": (409, "The turn used up what one turn may use."),
    "model_unavailable": (409, "The model cannot be used: its profile or its key is missing, or it was refused."),
    "model_failed": (409, "The model did not answer, also after several tries."),
    "approval_not_found": (404, "There is no such approval."),
    "approval_already_decided": (409, "Somebody has answered this already."),
    "approval_expired": (409, "The deadline for this answer has passed."),
    "invalid_title": (400, "A title has 1 to 120 characters."),
    "invalid_text": (400, "A message has 1 to 10 000 characters."),
    "invalid_prompt": (400, "The prompt has 1 to 10 000 characters."),
    "invalid_model": (400, "model must be the name of a configured profile."),
    "invalid_chat_id": (400, "chat_id must be the id of a chat."),
    "idempotency_key_required": (400, "Send an Idempotency-Key, so that a repeat makes nothing twice."),
    "not_proposed": (409, "Only a proposed schedule can be confirmed or rejected."),
    # live
    "events_expired": (410, "The events after that id are no longer kept. Load the page again."),
    "invalid_last_event_id": (400, "Last-Event-ID is the id of an event that this stream has sent."),
    # people
    "invalid_user_name": (400, "A user name has 1 to 80 characters."),
    "user_name_taken": (409, "Somebody has this name already."),
    "invalid_password": (400, "A password has 12 to 200 characters."),
    "wrong_credentials": (401, "Name or password is wrong."),
    "set_up_link_invalid": (403, "This set-up link is not valid any more."),
    "invalid_role": (400, "role is owner, admin, member or viewer."),
    "last_owner": (409, "A network needs at least one owner."),
    "last_admin": (409, "At least one active system administrator is needed."),
    "already_member": (409, "This person belongs to the network already."),
    "wrong_password": (400, "This is not your present password."),
    "invalid_network_name": (400, "A network's name has 1 to 120 characters."),
    "invalid_admin": (400, "admin is true or false."),
    "invalid_active": (400, "active is true or false."),
    "invalid_slug": (400, "A short name has 2 to 40 lower-case letters, digits or dashes."),
    "slug_taken": (409, "A network with this short name exists already."),
    "invalid_expires_days": (400, "expires_days is a whole number from 1 to 3650."),
    "invalid_label": (400, "A label has at most 120 characters."),
}  # fmt: skip


class AppError(Exception):
    """A refusal with its code: what every edge turns into its own form of answer.

    `field` names the input that was refused, `details` go into the JSON answer as they are,
    `message` replaces the table's sentence where more can be said, `status` its HTTP status.
    """

    def __init__(
        self,
        code: str,
        *,
        field: str | None = None,
        message: str | None = None,
        status: int | None = None,
        **details: Any,
    ) -> None:
        default_status, sentence = ERRORS[code]
        super().__init__(code)
        self.code = code
        self.field = field
        self.message = message or sentence
        self.status = status or default_status
        self.details = details


def sentence_of(code: str) -> str:
    """The sentence for a code that is shown as a reason; an unknown code is shown as itself."""
    return ERRORS[code][1] if code in ERRORS else code
