"""A person who has a keyboard alone."""

from __future__ import annotations

from playwright.sync_api import Locator, Page

_MOST_STEPS = 150
# Which of the page's focusable things has the focus, told to us; the person sees a frame around it.
_HAS_FOCUS = "element => element === document.activeElement"


class Keyboard:
    """Reaches everything by Tab and Shift+Tab; nothing is clicked, nothing is focused by script."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def to(self, target: Locator) -> Keyboard:
        """Press Tab until the focus is on the target; AssertionError where it is never reached."""
        target.wait_for(state="attached")
        for _ in range(_MOST_STEPS):
            if target.evaluate(_HAS_FOCUS):
                return self
            self.page.keyboard.press("Tab")
        raise AssertionError(f"not reached by Tab: {target}")

    def type(self, target: Locator, text: str) -> Keyboard:
        """Go to a field and write into it instead of what stands there."""
        self.to(target)
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.type(text)
        return self

    def press(self, target: Locator, key: str = "Enter") -> Keyboard:
        """Go to a link or a button and press a key on it."""
        self.to(target)
        self.page.keyboard.press(key)
        return self
