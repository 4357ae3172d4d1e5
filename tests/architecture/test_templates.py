"""Three kinds of template, no fourth; nothing inline that the content security policy would refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

from tests.architecture.tree import ROOT

MACROS = "_ui.html"
BASE = "base.html"
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# Stands for what Jinja will print, so that a written value can be told from a computed one.
PRINTED = "\ue000"
JINJA = Environment(autoescape=True, extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])
COLOUR = re.compile(r"#[0-9a-f]{3,8}\b|\b(rgb|hsl|oklch)a?\(", re.IGNORECASE)


class Outline(HTMLParser):
    """The elements of a template as they are written, with what is wrong about their nesting."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[int, str, dict[str, str]]] = []
        self.wrong: list[str] = []
        self.script_texts: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((len(self._open), tag, {name: value or "" for name, value in attributes}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((len(self._open), tag, {name: value or "" for name, value in attributes}))

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.wrong.append(f"</{tag}> on line {self.getpos()[0]} closes nothing")

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"] and data.strip():
            self.script_texts.append(data.strip())
        elif not self._open and data.replace(PRINTED, "").strip():
            self.wrong.append(f"text outside of any element on line {self.getpos()[0]}: {data.strip()[:40]}")

    def finish(self) -> Outline:
        self.close()
        self.wrong += [f"<{tag}> is never closed" for tag in self._open]
        return self


def outline(source: str) -> Outline:
    """Read a template's HTML with its statements and comments gone and its expressions replaced."""
    written = []
    for _, kind, text in JINJA.lex(source):
        if kind == "variable_begin":
            written.append(PRINTED)
        elif kind == "data":
            written.append(text)
    parser = Outline()
    parser.feed("".join(written))
    return parser.finish()


def region_violations(templates: Path) -> list[str]:
    """`_name.html` has exactly one root element, and that element's id is `name`."""
    wrong = []
    for file in _files(templates):
        if not file.name.startswith("_") or file.name == MACROS:
            continue
        name = file.stem.removeprefix("_")
        found = outline(file.read_text(encoding="utf-8"))
        roots = [(tag, attributes) for depth, tag, attributes in found.elements if depth == 0]
        where = file.relative_to(templates)
        wrong += [f"{where}: {line}" for line in found.wrong]
        if len(roots) != 1:
            wrong.append(f"{where}: one root element, not {len(roots)}: {[tag for tag, _ in roots]}")
        elif roots[0][1].get("id") not in {name, name.replace("_", "-")}:
            wrong.append(f"{where}: its root's id is {roots[0][1].get('id')!r} and not {name!r}")
    return wrong


def page_violations(templates: Path) -> list[str]:
    """Everything that is neither region nor macros extends base.html, directly or over another page."""
    return [
        f"{file.relative_to(templates)} does not extend {BASE}"
        for file in _files(templates)
        if not file.name.startswith("_") and file.name != BASE and not _reaches_base(file, templates)
    ]


def macro_violations(templates: Path) -> list[str]:
    """A macro is used many times on a page: it takes its ids as arguments and reads nothing else."""
    file = templates / MACROS
    found = outline(file.read_text(encoding="utf-8")) if file.exists() else outline("")
    return [
        f"{MACROS}: <{tag} id={attributes['id']}> is the same for every use"
        for _, tag, attributes in found.elements
        if "id" in attributes and PRINTED not in attributes["id"]
    ]


def inline_violations(templates: Path) -> list[str]:
    """No script, style or handler in the page itself, and no colour outside of the tokens."""
    wrong = []
    for file in _files(templates):
        found = outline(file.read_text(encoding="utf-8"))
        where = file.relative_to(templates)
        for _, tag, attributes in found.elements:
            if tag == "style" or "style" in attributes:
                wrong.append(f"{where}: <{tag}> carries a style")
            if tag == "script" and "src" not in attributes and attributes.get("type") != "application/json":
                wrong.append(f"{where}: a script without src")
            for name, value in attributes.items():
                if re.match(r"on[a-z]+$|hx-on", name):
                    wrong.append(f"{where}: <{tag} {name}> is script in the page")
                if value.strip().lower().startswith(("javascript:", "js:")):
                    wrong.append(f"{where}: <{tag} {name}> is script in the page")
                if name in {"fill", "stroke", "color", "stop-color", "bgcolor"} and COLOUR.search(value):
                    wrong.append(f"{where}: <{tag} {name}> names a colour")
    return wrong


def escape_violations(templates: Path) -> list[str]:
    """What people and agents wrote is escaped, always."""
    wrong = []
    for file in _files(templates):
        tree = JINJA.parse(file.read_text(encoding="utf-8"))
        where = file.relative_to(templates)
        wrong += [
            f"{where}:{node.lineno}: |{node.name} prints unescaped"
            for node in tree.find_all(nodes.Filter)
            if node.name in {"safe", "forceescape"}
        ]
        wrong += [
            f"{where}:{node.lineno}: autoescape is not switched"
            for node in tree.find_all((nodes.EvalContextModifier, nodes.ScopedEvalContextModifier))
        ]
        wrong += [
            f"{where}:{node.lineno}: Markup() prints unescaped"
            for node in tree.find_all(nodes.Name)
            if node.name == "Markup"
        ]
    return wrong


def _reaches_base(file: Path, templates: Path) -> bool:
    seen = set()
    while file.exists() and file not in seen:
        seen.add(file)
        parent = next(JINJA.parse(file.read_text(encoding="utf-8")).find_all(nodes.Extends), None)
        if parent is None or not isinstance(parent.template, nodes.Const):
            return False
        if parent.template.value == BASE:
            return True
        file = templates / parent.template.value
    return False


def _files(templates: Path) -> list[Path]:
    return sorted(templates.rglob("*.html"))


CHECKS: list[Callable[[Path], list[str]]] = [
    region_violations,
    page_violations,
    macro_violations,
    inline_violations,
    escape_violations,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_templates_keep_their_rules(check: Callable[[Path], list[str]]) -> None:
    templates = ROOT / "templates"
    names = {file.relative_to(templates).as_posix() for file in _files(templates)}
    assert {BASE, MACROS} <= names, "the templates were not found"
    assert any(name.count("/") and not name.split("/")[1].startswith("_") for name in names), "no pages found"
    assert check(templates) == []


@pytest.mark.parametrize(
    ("check", "name", "source", "words"),
    [
        (region_violations, "runs/_list.html", "<div id=list></div><p>two</p>", "one root element, not 2"),
        (region_violations, "runs/_list.html", "<div id=other></div>", "id is 'other' and not 'list'"),
        (region_violations, "runs/_list.html", "<div id=list-{{ id }}></div>", "and not 'list'"),
        (region_violations, "runs/_list.html", "<div id=list><p></div>", "closes nothing"),
        (region_violations, "runs/_list.html", "loose <div id=list></div>", "text outside of any element"),
        (region_violations, "runs/_list.html", "{% if a %}<div id=list>{% endif %}", "never closed"),
        (region_violations, "runs/_list.html", "{{ ui.card() }}", "one root element, not 0"),
        (page_violations, "runs/list.html", "<p>alone</p>", "does not extend"),
        (page_violations, "runs/list.html", "{% extends 'runs/list.html' %}", "does not extend"),
        (macro_violations, "_ui.html", "{% macro m() %}<b id=fixed></b>{% endmacro %}", "same for every use"),
        (inline_violations, "a.html", "<p style='margin:0'>", "carries a style"),
        (inline_violations, "a.html", "<style>p{}</style>", "carries a style"),
        (inline_violations, "a.html", "<script>go()</script>", "without src"),
        (inline_violations, "a.html", "<a {% if x %}onclick='go()'{% endif %}>", "onclick"),
        (inline_violations, "a.html", "<a hx-on:click='go()'>", "hx-on"),
        (inline_violations, "a.html", "<a href='javascript:go()'>", "script in the page"),
        (inline_violations, "a.html", "<path fill='#fff'/>", "names a colour"),
        (escape_violations, "a.html", "{{ x | trim | safe }}", "prints unescaped"),
        (escape_violations, "a.html", "{% autoescape false %}{{ x }}{% endautoescape %}", "not switched"),
        (escape_violations, "a.html", "{{ Markup(x) }}", "Markup()"),
    ],
)
def test_each_rule_catches_who_breaks_it(
    tmp_path: Path, check: Callable[[Path], list[str]], name: str, source: str, words: str
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(source)
    assert any(words in line for line in check(tmp_path)), check(tmp_path)


def test_ordinary_templates_break_no_rule(tmp_path: Path) -> None:
    (tmp_path / "base.html").write_text(
        "<!doctype html><html><body>{% block content %}{% endblock %}</body></html>"
    )
    (tmp_path / "session.html").write_text("{% extends 'base.html' %}")
    (tmp_path / "page.html").write_text(
        "{% extends 'session.html' %}{% block content %}{% include '_run_list.html' %}{% endblock %}"
    )
    (tmp_path / "_ui.html").write_text('{% macro m(id) %}<b id="{{ id }}">{{ caller() }}</b>{% endmacro %}')
    (tmp_path / "_run_list.html").write_text(
        "{# a comment with <b> #}{% import '_ui.html' as ui %}\n"
        '<ul id="run-list" {% if x %}class="{{ \'a\' if y else "b" }}"{% endif %}>'
        '{% for r in runs %}<li><input value="{{ r[\'id\'] }}"><svg><path d="M0"/></svg></li>{% endfor %}</ul>\n'
    )
    assert [line for check in CHECKS for line in check(tmp_path)] == []
