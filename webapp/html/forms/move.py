"""The form that moves the next slot of a schedule."""

from __future__ import annotations

from typing import Any

from wtforms import Form, HiddenField

from webapp.html.forms.schedule import LocalField, instant_of_local
from webapp.html.forms.texts import trimmed


class MoveForm(Form):
    """When the slot is to fall due, on the clock of the schedule's zone; `slot` names the slot that is meant."""

    to = LocalField("New time", filters=[trimmed])
    slot = HiddenField()

    def body(self, timezone: str) -> dict[str, Any]:
        """The same keys and types as the JSON body of a move."""
        return {
            "to": instant_of_local(self.to.data or "", timezone) or "",
            "slot": self.slot.data or None,
        }
