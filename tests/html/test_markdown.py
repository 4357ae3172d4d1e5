"""The words of a model as markup: what is shown, and what never gets through."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import hostile
from webapp.html import markdown

ALLOWED = {"href", "rel", "start", "tabindex", "class"}


class Seen(HTMLParser):
    """Every element and attribute of some markup, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_harmless(html: str) -> None:
    """Only elements and attributes of the list; links only to the web and mail, with nothing handed on."""
    for tag, attributes in Seen(html).elements:
        assert tag in markdown.TAGS
        assert set(attributes) <= ALLOWED
        assert tag == "a" or not {"href", "rel"} & set(attributes)
        assert attributes.get("class") in (None, "table-box")
        if tag == "a":
            assert attributes["rel"] == "noopener noreferrer nofollow"
            href = attributes.get("href")
            assert href is None or href.lower().startswith(("http://", "https://", "mailto:"))


@pytest.mark.parametrize("text", hostile.ALL)
def test_nothing_hostile_gets_through_and_its_words_are_shown(text: str) -> None:
    html = markdown.to_markup(text)
    assert_harmless(html)
    assert hostile.MARK in Seen(html).text


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([*hostile.ALL, "\n", "\n\n", " ", "`", "[", "](", ")", "<", "![", "|", "> "]))
)
def test_no_mixture_of_hostile_text_gets_through(parts: list[str]) -> None:
    assert_harmless(markdown.to_markup("".join(parts)))


def test_what_people_expect_of_markdown_is_there() -> None:
    html = markdown.to_markup(
        "# Sales\n\nUp **4 %**, see [the ledger](https://example.org/l).\n\n"
        "1. one\n2. two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\nx < y\n```\n"
    )
    assert "<p><strong>Sales</strong></p>" in html
    assert "<strong>4 %</strong>" in html
    assert '<a href="https://example.org/l" rel="noopener noreferrer nofollow">the ledger</a>' in html
    assert "<ol>\n<li>one</li>" in html
    # The sanitiser writes attributes in any order.
    assert re.search(r'<div (?:class="table-box" ?|tabindex="0" ?){2}><table>', html)
    assert '<pre tabindex="0"><code>x &lt; y' in html


@pytest.mark.parametrize("text", ["[" * 60_000, "*a " * 20_000, "|a" * 30_000, hostile.PLAIN[0] * 2_000])
def test_text_made_to_keep_the_reader_busy_is_shown_as_it_is(text: str) -> None:
    html = markdown.to_markup(text)
    assert_harmless(html)
    assert Seen(html).text == text
    assert html.startswith('<pre tabindex="0">')


def test_no_heading_of_a_model_is_a_heading_of_the_page() -> None:
    assert not {tag for tag, _ in Seen(markdown.to_markup("# a\n\nb\n===\n\n###### c")).elements} & {
        f"h{level}" for level in range(1, 7)
    }
