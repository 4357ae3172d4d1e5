"""The forms of the settings page. Each id is its own: they stand on one page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wtforms import BooleanField, Form, HiddenField, PasswordField, SelectField, StringField
from wtforms.fields import SelectChoice  # type: ignore[attr-defined] # the stubs are older

from webapp.identity.models import Role

ROLE_CHOICES: Final = [
    SelectChoice(Role.VIEWER.value, "Viewer: reads"),
    SelectChoice(Role.MEMBER.value, "Member: creates schedules and nodes"),
    SelectChoice(Role.ADMIN.value, "Admin: manages people and everybody's schedules"),
    SelectChoice(Role.OWNER.value, "Owner: manages owners too"),
]
# Days, in words; nothing means never.
EXPIRY_CHOICES: Final = [
    SelectChoice("30", "30 days"),
    SelectChoice("90", "90 days"),
    SelectChoice("365", "a year"),
    SelectChoice("", "never"),
]
ALL_NETWORKS: Final = ""


class ZoneForm(Form):
    """In which zone one's pages show times."""

    timezone = SelectField("Your time zone", id="own-zone", choices=[], validate_choice=False)


class PasswordForm(Form):
    """A new password for oneself."""

    current_password = PasswordField(
        "Present password", id="current-password", render_kw={"autocomplete": "current-password"}
    )
    password = PasswordField(
        "New password", id="new-password", render_kw={"autocomplete": "new-password", "maxlength": 200}
    )


class TokenForm(Form):
    """A token for oneself."""

    label = StringField(
        "What it is for", id="token-label", render_kw={"maxlength": 120, "autocomplete": "off"}
    )
    network_id = SelectField(
        "Reaches", id="token-network", choices=[], validate_choice=False, default=ALL_NETWORKS
    )
    expires_days = SelectField("Expires after", id="token-expires", choices=EXPIRY_CHOICES, default="90")
    idempotency_key = HiddenField(id="token-key")

    def offer_networks(self, networks: Iterable[tuple[str, str]]) -> None:
        """Offer these (id, name) beside "all my networks"."""
        own = [SelectChoice(network_id, name) for network_id, name in networks]
        self.network_id.choices = [SelectChoice(ALL_NETWORKS, "all my networks"), *own]

    def days(self) -> int | None:
        """Days until it expires, None for never; 0, which is refused, for what no choice offers."""
        text = str(self.expires_days.data or "")
        if not text:
            return None
        return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


class MemberForm(Form):
    """An existing person's place in the network."""

    name = StringField("Name", id="member-name", render_kw={"maxlength": 80, "autocomplete": "off"})
    role = SelectField("Role", id="member-role", choices=ROLE_CHOICES, default=Role.MEMBER.value)


class UserForm(Form):
    """A new person, with a place in the network that is looked at."""

    name = StringField("Name", id="user-name", render_kw={"maxlength": 80, "autocomplete": "off"})
    password = PasswordField(
        "First password", id="user-password", render_kw={"autocomplete": "new-password", "maxlength": 200}
    )
    role = SelectField("Role here", id="user-role", choices=ROLE_CHOICES, default=Role.MEMBER.value)
    admin = BooleanField("System administrator: manages people and networks", id="user-admin")
    idempotency_key = HiddenField(id="user-key")


class NetworkForm(Form):
    """A new network."""

    name = StringField("Name", id="network-name", render_kw={"maxlength": 120, "autocomplete": "off"})
    slug = StringField(
        "Short name",
        id="network-slug",
        render_kw={"maxlength": 40, "autocapitalize": "none", "spellcheck": "false", "autocomplete": "off"},
    )
    idempotency_key = HiddenField(id="network-key")
