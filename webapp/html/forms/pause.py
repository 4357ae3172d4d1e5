"""The form of a pause: why, and when to go on by itself."""

from __future__ import annotations

from typing import Any

from wtforms import Form, StringField

from webapp.html.forms.schedule import LocalField, instant_of_local, local_of_instant
from webapp.html.forms.texts import trimmed
from webapp.scheduling.fields import MAX_REASON
from webapp.scheduling.lifecycle import ScheduleStatus
from webapp.scheduling.models import Schedule


class PauseForm(Form):
    """Reason and end of a pause; the end on the clock of the schedule's zone."""

    reason = StringField(
        "Reason, shown to everyone",
        filters=[trimmed],
        render_kw={"maxlength": MAX_REASON, "autocomplete": "off"},
    )
    resume_at = LocalField("Resume by itself at", filters=[trimmed])

    @classmethod
    def of(cls, schedule: Schedule) -> PauseForm:
        """Empty, or what an earlier pause says."""
        if schedule.status is not ScheduleStatus.PAUSED:
            return cls()
        resume_at = local_of_instant(schedule.resume_at, schedule.timezone)
        return cls(data={"reason": schedule.status_reason or "", "resume_at": resume_at})

    def body(self, timezone: str) -> dict[str, Any]:
        """The same keys and types as the JSON body of a pause."""
        return {
            "reason": self.reason.data or None,
            "resume_at": instant_of_local(self.resume_at.data or "", timezone),
        }
