"""The forms of a chat: to begin one, and to write into it."""

from __future__ import annotations

from typing import Any

from wtforms import Form, HiddenField, SelectField, StringField, TextAreaField
from wtforms.fields import SelectChoice  # type: ignore[attr-defined] # the stubs are older

from webapp.chat.bodies import MAX_TEXT, MAX_TITLE
from webapp.chat.rules import DEFAULT_TITLE
from webapp.config import ECHO, ModelProfile
from webapp.html.forms.texts import plain_newlines, trimmed

_FIRST_WORDS = 60


def model_words(name: str) -> str:
    """A model as people read it; the built-in one says plainly that it is none."""
    return f"{name} (built in, no model: it only repeats)" if name == ECHO else name


def model_choices(profiles: tuple[ModelProfile, ...], chosen: str | None = None) -> list[SelectChoice]:
    """The profiles to choose from; a chosen one that is gone stays, and says so."""
    choices = [SelectChoice(profile.name, model_words(profile.name)) for profile in profiles]
    if chosen and chosen not in {profile.name for profile in profiles}:
        choices.insert(0, SelectChoice(chosen, f"{chosen} (not set up here)"))
    return choices


class MessageForm(Form):
    """What a person writes into a chat."""

    text = TextAreaField(
        "Your message", filters=[plain_newlines], render_kw={"rows": 4, "maxlength": MAX_TEXT * 2}
    )
    model = SelectField("Answered by", choices=[], validate_choice=False)
    idempotency_key = HiddenField()

    def body(self, *, deny_waiting: bool = False) -> dict[str, Any]:
        """The same keys and types as the JSON body of a message."""
        body: dict[str, Any] = {"text": self.text.data or ""}
        if self.model.data:
            body["model"] = self.model.data
        return body | ({"deny_waiting": True} if deny_waiting else {})


class NewChatForm(MessageForm):
    """To begin a chat: its title, and if one likes the first words in it."""

    title = StringField("Title", filters=[trimmed], render_kw={"maxlength": MAX_TITLE, "autocomplete": "off"})

    def title_body(self) -> dict[str, Any]:
        """The same keys and types as the JSON body of a new chat; untitled, it is called by its first words."""
        words = " ".join((self.text.data or "").split())[:_FIRST_WORDS].strip()
        return {"title": self.title.data or words or DEFAULT_TITLE}


class TitleForm(Form):
    """To call a chat something else."""

    title = StringField("Title", filters=[trimmed], render_kw={"maxlength": MAX_TITLE, "autocomplete": "off"})
