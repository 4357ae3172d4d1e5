"""What a chat's schedule may do, as fields of a form: the three choices, and what stands behind them as a policy."""

from __future__ import annotations

from typing import Any, Final

from wtforms import Form, RadioField, SelectMultipleField, StringField
from wtforms.fields import SelectChoice  # type: ignore[attr-defined] # the stubs are older

from webapp.html.authority import OPERATIONS, targets_of
from webapp.html.forms.texts import trimmed, whole_number

# How long pages propose that an authority stands.
SUGGESTED_DAYS: Final = 90
ASK, TALK, EXACTLY, OTHER = "ask", "talk", "exactly", "other"


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


def with_limits(form: AuthorityFields, policy: dict[str, Any]) -> dict[str, Any]:
    """A policy with the limits of the form."""
    limits = {
        "max_runs": whole_number(form.limit_runs.data or ""),
        "max_tokens": whole_number(form.limit_tokens.data or ""),
    }
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    kept = {name: value for name, value in policy.items() if name != "limits"}
    return kept | ({"limits": limits} if limits else {})
