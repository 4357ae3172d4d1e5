"""The form of a task that a person sends to a node."""

from __future__ import annotations

from typing import Any, Final

from wtforms import Form, RadioField, SelectField, TextAreaField

from webapp.nodes.lifecycle import DEFAULT_TTL_SECONDS

# How long it may wait in the inbox: seconds, in words.
TTL_CHOICES: Final = [
    ("600", "10 minutes"),
    (str(DEFAULT_TTL_SECONDS), "1 hour"),
    ("21600", "6 hours"),
    ("86400", "24 hours"),
    ("604800", "7 days"),
]


class TaskForm(Form):
    """What to do, how urgent it is, and how long it may wait to be taken up."""

    task = TextAreaField("What to do", render_kw={"rows": 4})
    priority = RadioField(
        "Priority", choices=[("high", "High"), ("normal", "Normal"), ("low", "Low")], default="normal"
    )
    ttl_seconds = SelectField("Withdraw it if nobody took it up within", choices=TTL_CHOICES, default="3600")

    def body(self, node_id: str) -> dict[str, Any]:
        """The same keys and types as the JSON body of `POST /api/tasks`."""
        ttl = str(self.ttl_seconds.data)
        return {
            "node_id": node_id,
            "task": self.task.data or "",
            "priority": str(self.priority.data),
            "ttl_seconds": int(ttl) if ttl.isascii() and ttl.isdigit() and len(ttl) < 10 else 0,
        }
