"""Forms of a node: what it is called."""

from __future__ import annotations

from wtforms import Form, StringField


def _trimmed(text: str | None) -> str | None:
    return text.strip() if text else text


class NodeForm(Form):
    """To register a node, or to rename one."""

    alias = StringField("Alias", filters=[_trimmed], render_kw={"maxlength": 60, "autocomplete": "off"})
