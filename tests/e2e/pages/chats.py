"""Chats, and what agents ask in them."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.e2e.pages.common import go_to, seen


class ChatPage:
    """One chat. `script`: whether the browser runs script."""

    def __init__(self, page: Page, *, script: bool) -> None:
        self.page = page
        self.script = script
        self.talk = page.get_by_role("region", name="What was said")

    def begin(self, title: str) -> ChatPage:
        """Begin a chat of one's own, empty."""
        go_to(self.page, "Chats")
        self.page.get_by_label("Title").fill(title)
        self.page.get_by_role("button", name="Begin", exact=True).click()
        expect(self.page.get_by_role("heading", name=title, level=1)).to_be_visible()
        return self

    def write(self, text: str) -> None:
        """Send a message."""
        self.page.get_by_label("Your message").fill(text)
        self.page.get_by_role("button", name="Send", exact=True).click()

    def expect_said(self, words: str) -> None:
        """Wait until something was said."""
        seen(self.page, self.talk.get_by_text(words), live=self.script)


class Approvals:
    """What waits for an answer."""

    def __init__(self, page: Page, *, script: bool) -> None:
        self.page = page
        self.script = script

    def open(self) -> Approvals:
        go_to(self.page, "Approvals")
        return self

    def ask(self, words: str) -> Locator:
        """The one that says these words."""
        return self.page.get_by_role("article").filter(has_text=words)
