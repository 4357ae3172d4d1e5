"""The forms of a mandate: why it is stopped, until when it stands, and what it permits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from wtforms import Form, HiddenField, RadioField, SelectMultipleField, StringField
from wtforms.fields import SelectChoice  # type: ignore[attr-defined] # the stubs are older

from webapp.html.authority import OPERATIONS, targets_of
from webapp.html.forms.schedule import LocalField, instant_of_local, local_of_instant, trimmed, whole_number
from webapp.mandates.models import Mandate

# How long pages propose that an authority stands.
SUGGESTED_DAYS: Final = 90
ASK, TALK, EXACTLY, OTHER = "ask", "talk", "exactly", "other"


class ReasonForm(Form):
    """Why a mandate is paused or revoked."""

    reason = StringField(
        "Reason, shown to everyone", filters=[trimmed], render_kw={"maxlength": 500, "autocomplete": "off"}
    )

    def body(self) -> dict[str, Any]:
        """The same keys and types as the JSON body of a pause or a revocation."""
        return {"reason": self.reason.data or ""}


class RenewForm(Form):
    """Until when a mandate stands, on the clock of a zone."""

    expires_at = LocalField("It ends at", filters=[trimmed])
    revision = HiddenField()

    def body(self, timezone: str) -> dict[str, Any]:
        """The same keys and types as the JSON body of a change."""
        return {"expires_at": instant_of_local(self.expires_at.data or "", timezone)}


class AuthorityFields(Form):
    """What a chat's schedule may do: talk, ask each time, or exactly what is listed."""

    authority = RadioField(
        "What it may do by itself",
        choices=[
            SelectChoice(TALK, "Only talk"),
            SelectChoice(ASK, "Ask me each time"),
            SelectChoice(EXACTLY, "Exactly these"),
        ],
    )
    operations = SelectMultipleField(
        "It may",
        choices=[SelectChoice(name, words[:1].upper() + words[1:]) for name, words in OPERATIONS.items()],
        validate_choice=False,
    )
    nodes = SelectMultipleField("Only to these nodes", choices=[], validate_choice=False)
    limit_runs = StringField(
        "At most this many runs in all",
        filters=[trimmed],
        render_kw={"inputmode": "numeric", "autocomplete": "off"},
    )
    limit_tokens = StringField(
        "At most this many tokens in all",
        filters=[trimmed],
        render_kw={"inputmode": "numeric", "autocomplete": "off"},
    )

    def policy(self) -> dict[str, Any]:
        """The policy that the fields describe, as the API takes it."""
        operations = sorted(set(self.operations.data or []))
        return policy_of_choice(
            self.authority.data or "",
            operations,
            sorted(set(self.nodes.data or [])),
            whole_number(self.limit_runs.data or ""),
            whole_number(self.limit_tokens.data or ""),
        )


def policy_of_choice(
    choice: str,
    operations: list[str],
    nodes: list[str],
    max_runs: int | str | None,
    max_tokens: int | str | None,
) -> dict[str, Any]:
    """A policy from what was chosen: `talk`, `ask` or `exactly` these operations at these nodes (their public ids)."""
    limits = {
        name: limit
        for name, limit in (("max_runs", max_runs), ("max_tokens", max_tokens))
        if limit is not None
    }
    more: dict[str, Any] = {"limits": limits} if limits else {}
    if choice == TALK:
        return {"version": 1, "apps": [], "operations": [], "actions": "deny", **more}
    if choice == EXACTLY:
        if nodes and "nodes.send_task" in operations:
            more["targets"] = [f"node:{node_id}" for node_id in nodes]
        apps = sorted({name.partition(".")[0] for name in operations})
        return {"version": 1, "apps": apps, "operations": operations, "actions": "preapproved", **more}
    return {"version": 1, "apps": "*", "operations": "*", "actions": "require_approval", **more}


def choice_of_policy(policy: dict[str, Any]) -> dict[str, Any]:
    """The fields that describe a policy; `authority` is `other` where none of the three choices does."""
    limits = policy.get("limits") or {}
    found: dict[str, Any] = {
        "operations": [],
        "nodes": list(targets_of(policy)),
        "limit_runs": _text(limits.get("max_runs")),
        "limit_tokens": _text(limits.get("max_tokens")),
    }
    if policy.get("actions") == "deny":
        return found | {"authority": TALK}
    if policy.get("actions") == "preapproved":
        return found | {"authority": EXACTLY, "operations": list(policy.get("operations") or [])}
    return found | {"authority": ASK if policy.get("operations") == "*" else OTHER}


def _text(limit: object) -> str:
    return "" if limit is None else str(limit)


class ChangeForm(AuthorityFields):
    """What a mandate permits, and until when."""

    expires_at = LocalField("It ends at", filters=[trimmed])
    revision = HiddenField()

    @classmethod
    def of(cls, mandate: Mandate, timezone: str) -> ChangeForm:
        """As the mandate stands."""
        return cls(
            data={
                **choice_of_policy(mandate.policy),
                "expires_at": local_of_instant(mandate.expires_at, timezone),
                "revision": str(mandate.revision),
            }
        )

    def body(self, mandate: Mandate, timezone: str) -> dict[str, Any]:
        """What the form changes of a mandate; a policy that it cannot draw keeps all but its limits."""
        policy = (
            self.policy() if (self.authority.data or OTHER) != OTHER else with_limits(self, mandate.policy)
        )
        body: dict[str, Any] = {"policy": policy}
        if (self.expires_at.data or "") != local_of_instant(mandate.expires_at, timezone):
            body["expires_at"] = instant_of_local(self.expires_at.data or "", timezone)
        return body


def with_limits(form: AuthorityFields, policy: dict[str, Any]) -> dict[str, Any]:
    """A policy with the limits of the form."""
    limits = {
        "max_runs": whole_number(form.limit_runs.data or ""),
        "max_tokens": whole_number(form.limit_tokens.data or ""),
    }
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    kept = {name: value for name, value in policy.items() if name != "limits"}
    return kept | ({"limits": limits} if limits else {})


def suggested_end(now: datetime, timezone: str) -> str:
    """What the pages propose: in 90 days, as the text of a date and time control."""
    return local_of_instant((now + timedelta(days=SUGGESTED_DAYS)).replace(second=0, microsecond=0), timezone)
