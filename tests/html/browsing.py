"""What a browser without script does with our pages: reads them, and sends the forms that it finds in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.factories import signed_in
from tests.scheduling.stage import Stage, set_stage
from webapp.clock import FrozenClock
from webapp.identity.models import User

HTMX = {"HX-Request": "true"}


@dataclass
class FoundForm:
    """A form as it stands in a page, with the values that it would send untouched."""

    action: str
    method: str
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, value: str) -> None:
        """One more value; several of one name are a list."""
        if name in self.values:
            earlier = self.values[name]
            self.values[name] = [*(earlier if isinstance(earlier, list) else [earlier]), value]
        else:
            self.values[name] = value


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[FoundForm] = []
        self._open: FoundForm | None = None
        self._select: str | None = None
        self._text: str | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if tag == "form":
            self._open = FoundForm(values.get("action", ""), values.get("method", "get"))
            self.found.append(self._open)
        elif self._open is None:
            return
        elif tag == "input":
            pressed = values.get("type") not in ("radio", "checkbox") or "checked" in values
            if "name" in values and pressed:
                self._open.add(values["name"], values.get("value", ""))
        elif tag == "select":
            self._select = values.get("name")
        elif tag == "option" and self._select:
            if self._select not in self._open.values or "selected" in values:
                self._open.values[self._select] = values.get("value", "")
        elif tag == "textarea":
            self._text = values.get("name")
            self._open.values[self._text or ""] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None
        elif tag == "select":
            self._select = None
        elif tag == "textarea":
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._open is not None and self._text is not None:
            self._open.values[self._text] += data


def forms_of(html: str) -> list[FoundForm]:
    """Every form of a page."""
    parser = _Forms()
    parser.feed(html)
    return parser.found


class Browser:
    """A person's browser with script off: it has nothing to send but what stands in the page."""

    def __init__(self, client: FlaskClient) -> None:
        # The test client's header would hide a form without its token.
        client.environ_base.pop("HTTP_X_CSRF_TOKEN", None)
        self.client = client
        self.answer: TestResponse | None = None

    def get(self, address: str, status: int = 200) -> str:
        """Open a page that must answer with `status`; returns its HTML."""
        self.answer = self.client.get(address)
        assert self.answer.status_code == status, self.answer.text
        return self.answer.text

    def offers(self, html: str, action: str) -> bool:
        """Whether the page has a form that goes there."""
        return any(form.action == action for form in forms_of(html))

    def press(self, html: str, action: str, *, nth: int = 0, **typed: Any) -> str:
        """Send the form of the page that goes to `action`, follow the way it leads, return the page there."""
        form = [form for form in forms_of(html) if form.action == action][nth]
        assert form.method == "post"
        self.answer = self.client.post(action, data={**form.values, **typed}, follow_redirects=True)
        return self.answer.text

    @property
    def status(self) -> int:
        """The status of the last answer."""
        assert self.answer is not None
        return self.answer.status_code

    @property
    def path(self) -> str:
        """Where the browser is."""
        assert self.answer is not None
        return str(self.answer.request.path)


@dataclass
class House:
    """The product with its stage set, seen from the front by browsers and from behind by the engine's words."""

    app: Flask
    stage: Stage

    @contextmanager
    def backstage(self) -> Iterator[Stage]:
        """Where schedules are made and nodes answer. No page is opened inside: it would share one request's memory."""
        with self.app.app_context():
            yield self.stage

    def browser(self, user: User) -> Browser:
        return Browser(signed_in(self.app, user))

    @property
    def alice(self) -> Browser:
        """The owner."""
        return self.browser(self.stage.cast.alice)

    @property
    def bob(self) -> Browser:
        """A member."""
        return self.browser(self.stage.cast.bob)

    @property
    def vera(self) -> Browser:
        """A viewer."""
        return self.browser(self.stage.cast.vera)

    @property
    def charlie(self) -> Browser:
        """Somebody of another network."""
        return self.browser(self.stage.cast.charlie)


def open_house(app: Flask, clock: FrozenClock) -> House:
    """Set the stage and leave its context, so that every request has one of its own."""
    with contextmanager(set_stage)(app, clock) as stage:
        pass
    return House(app, stage)


def assert_fragments_occur(browser: Browser, address: str, regions: tuple[str, ...]) -> None:
    """Each region, asked for by htmx, is a part of the whole page, to the letter."""
    page = _without_keys(browser.get(address))
    for region in regions:
        answer = browser.client.get(address, headers=HTMX | {"HX-Target": f"div#{region}"})
        assert answer.status_code == 200
        fragment = _without_keys(re.sub(r"^\s*\n", "", answer.text).strip())
        assert f'id="{region}"' in fragment[:400]
        assert "<html" not in fragment
        assert fragment in page, f"{region} differs from its place in {address}"


def _without_keys(html: str) -> str:
    """Each drawing of a form has a key of its own against pressing twice."""
    return re.sub(r'(name="idempotency_key"[^>]* value=")[^"]*', r"\1", html)
