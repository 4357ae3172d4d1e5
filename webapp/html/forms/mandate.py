"""The forms of a mandate: why it is stopped, until when it stands, and what it permits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from wtforms import Form, HiddenField, StringField

from webapp.html.forms.authority import OTHER, SUGGESTED_DAYS, AuthorityFields, choice_of_policy, with_limits
from webapp.html.forms.schedule import LocalField, instant_of_local, local_of_instant
from webapp.html.forms.texts import trimmed
from webapp.mandates.models import Mandate


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


def suggested_end(now: datetime, timezone: str) -> str:
    """What the pages propose: in 90 days, as the text of a date and time control."""
    return local_of_instant((now + timedelta(days=SUGGESTED_DAYS)).replace(second=0, microsecond=0), timezone)
