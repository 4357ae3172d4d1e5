"""The forms of the door: to sign in, and to create the first owner."""

from __future__ import annotations

import re
import unicodedata

from wtforms import Form, HiddenField, PasswordField, StringField

_NO_WORDS = re.compile(r"[^a-z0-9]+")
_ZONE = {"data-browser-zone": True}


class SignInForm(Form):
    """A name and a password; where to go afterwards, a form that came too late, the zone that the browser reports."""

    name = StringField(
        "Name", render_kw={"autocomplete": "username", "autocapitalize": "none", "autofocus": True}
    )
    password = PasswordField("Password", render_kw={"autocomplete": "current-password"})
    next = HiddenField()
    kept = HiddenField()
    timezone = HiddenField(id="browser-zone", render_kw=_ZONE)


class SetUpForm(Form):
    """The first owner and their network."""

    name = StringField(
        "Your name", render_kw={"autocomplete": "username", "maxlength": 80, "autofocus": True}
    )
    password = PasswordField("Password", render_kw={"autocomplete": "new-password", "maxlength": 200})
    network_name = StringField("Network", render_kw={"autocomplete": "organization", "maxlength": 120})
    network_slug = StringField(
        "Short name of the network",
        render_kw={"maxlength": 40, "autocapitalize": "none", "spellcheck": "false", "autocomplete": "off"},
    )
    timezone = HiddenField(id="browser-zone", render_kw=_ZONE)
    token = HiddenField()

    def slug(self) -> str:
        """The short name that was typed, else one made from the network's name."""
        return (self.network_slug.data or "").strip() or slug_from(self.network_name.data or "")


def slug_from(name: str) -> str:
    """A short name for a network's name: "Harbour Master" is `harbour-master`; `main` where nothing is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = _NO_WORDS.sub("-", plain).strip("-")[:40].strip("-")
    return slug if len(slug) >= 2 else "main"
