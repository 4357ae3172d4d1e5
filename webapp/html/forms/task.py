"""The form of a task that a person sends to a node."""

from __future__ import annotations

from typing import Any, Final

from wtforms import Form, RadioField, SelectField, TextAreaField
from wtforms.fields import SelectChoice  # type: ignore[attr-defined] # the stubs are older

from webapp.nodes.lifecycle import DEFAULT_TTL_SECONDS, Priority

# How long it may wait in the inbox: seconds, in words.
TTL_CHOICES: Final = [
    SelectChoice("600", "10 minutes"),
    SelectChoice(str(DEFAULT_TTL_SECONDS), "1 hour"),
    SelectChoice("21600", "6 hours"),
    SelectChoice("86400", "24 hours"),
    SelectChoice("604800", "7 days"),
]


class TaskForm(Form):
    """What to do, how urgent it is, and how long it may wait to be taken up."""

    task = TextAreaField("What to do", render_kw={"rows": 4})
    priority = RadioField(
        "Priority",
        choices=[SelectChoice(value.value, value.value.capitalize()) for value in Priority],
        default=Priority.NORMAL.value,
    )
    ttl_seconds = SelectField(
        "Withdraw it if nobody took it up within", choices=TTL_CHOICES, default=str(DEFAULT_TTL_SECONDS)
    )

    def body(self, node_id: str) -> dict[str, Any]:
        """The same keys and types as the JSON body of `POST /api/tasks`."""
        ttl = str(self.ttl_seconds.data)
        return {
            "node_id": node_id,
            "task": self.task.data or "",
            "priority": str(self.priority.data),
            "ttl_seconds": int(ttl) if ttl.isascii() and ttl.isdigit() and len(ttl) < 10 else 0,
        }
