"""A select of many options, written quickly."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup, escape
from wtforms.widgets import Select


class ManyOptions(Select):
    """The select of the library, which spends more on each option than on the rest of a form."""

    @classmethod
    def render_option(cls, choice: Any, **_kwargs: object) -> Markup:  # type: ignore[override] # older stubs
        """One option; nothing but its value, its label and whether it is chosen."""
        chosen = " selected" if choice.selected else ""
        value, label = escape(choice.value), escape(choice.label or choice.value)
        return Markup(f'<option{chosen} value="{value}">{label}</option>')  # noqa: S704 - each part was escaped above
