"""The words of a model as markup: the only place where text of others becomes HTML.

Two walls. markdown-it writes no raw HTML (`html=False`) and no images; what it writes, nh3 reduces to the list
below. Nothing on it loads anything, carries script, style, id or class, or speaks to htmx.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

TAGS: Final = frozenset(
    {"a", "blockquote", "br", "code", "del", "div", "em", "hr", "li", "ol", "p", "pre", "s", "strong"}
    | {"table", "tbody", "td", "th", "thead", "tr", "ul"}
)
ATTRIBUTES: Final[dict[str, frozenset[str]]] = {"a": frozenset({"href"}), "ol": frozenset({"start"})}
SCHEMES: Final = frozenset({"http", "https", "mailto"})
RELATION: Final = "noopener noreferrer nofollow"
# Constants that nh3 itself puts on: what may scroll can be reached by keyboard.
_OURS: Final = {"pre": {"tabindex": "0"}, "div": {"class": "table-box", "tabindex": "0"}}


# Longer ones are shown as they are: what reads markdown can be kept busy for seconds by text made for it.
MOST_LETTERS: Final = 20_000
# A message never changes, and its page draws itself again with every word that is said.
_KEPT: Final = 256


@lru_cache(maxsize=_KEPT)
def to_markup(text: str) -> Markup:
    """Markdown of a model as markup that is safe on our pages: no image, no style, links only to the web and mail.

    Text of more than MOST_LETTERS letters is not read as markdown, but kept as it is.
    """
    html: str = _parser().render(text) if len(text) <= MOST_LETTERS else f"<pre>{escape(text)}</pre>"
    # Not a wrapper around foreign text: nh3 has just rebuilt it from the list above.
    return Markup(  # noqa: S704
        nh3.clean(
            html,
            tags=set(TAGS),
            attributes={tag: set(names) for tag, names in ATTRIBUTES.items()},
            set_tag_attribute_values={tag: dict(values) for tag, values in _OURS.items()},
            url_schemes=set(SCHEMES),
            url_relative="deny",
            link_rel=RELATION,
        )
    )


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False})
    parser.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    # A message is no chapter of the page: its headings stand out, and stay out of the page's outline.
    for name, html in (
        ("heading_open", "<p><strong>"),
        ("heading_close", "</strong></p>\n"),
        ("table_open", "<div><table>\n"),
        ("table_close", "</table></div>\n"),
    ):
        parser.add_render_rule(name, _constant(html))
    return parser


def _constant(html: str) -> Any:
    def rule(_self: RendererHTML, _tokens: Sequence[Token], _index: int, _options: Any, _env: Any) -> str:
        return html

    return rule
