"""The one refusal this package knows."""

from __future__ import annotations


class TimetableError(Exception):
    """A timetable or a zone that cannot be accepted.

    `code` is one of the codes of the public contract (`invalid_time`, `weekdays_required`, …), `field` names the
    input it is about ("time", "weekdays", "cron", "run_at", "every_seconds", "anchor_at", "timezone", "type",
    "schedule", or the unknown key itself), `message` is one plain sentence for a person.
    """

    def __init__(self, code: str, field: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.field = field
        self.message = message
