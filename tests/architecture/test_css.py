"""Colours in one file, every file one layer, one component a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

LONGEST_COMPONENT = 120
# They style elements or another component's parts, and so have no class of their own name.
WITHOUT_CLASS = {
    "foundation": "body, headings, links",
    "pico-map": "variables",
    "timeline-ink": "marks in .lane",
    "forced": "all, in a palette of the reader",
    "print": "all, on paper",
}
LAYERS_LINE = "@layer tokens, base, components, utilities;"
COLOUR_FUNCTION = re.compile(r"(?<![\w-])(rgba?|hsla?|hwb|lab|lch|oklab|oklch|color|light-dark)\(")
HEX = re.compile(r"#[0-9a-fA-F]{3,8}\b")
DECLARATION = re.compile(r"([\w-]+)\s*:\s*([^;{}]+)(?=[;}])")
NAMED = frozenset((Path(__file__).parent / "colour_names.txt").read_text().split())


def colour_violations(css: Path) -> list[str]:
    """A colour is named in tokens.css alone; everything else says var(--…)."""
    return [
        f"{file.relative_to(css)}: {name}: {value.strip()} names a colour"
        for file, text in _files(css)
        if file.name != "tokens.css"
        for name, value in DECLARATION.findall(text)
        if COLOUR_FUNCTION.search(value) or HEX.search(value) or _words(value) & NAMED
    ]


def height_violations(css: Path) -> list[str]:
    """What lies over what is decided in tokens.css alone."""
    return [
        f"{file.relative_to(css)}: z-index: {value.strip()} is not a token"
        for file, text in _files(css)
        if file.name != "tokens.css"
        for name, value in DECLARATION.findall(text)
        if name == "z-index" and not value.strip().startswith("var(--z-")
    ]


def layer_violations(css: Path) -> list[str]:
    """layers.css is the one line of order; every other file is one block of its own layer."""
    wrong = []
    for file, text in _files(css):
        where = file.relative_to(css)
        if file.name == "layers.css":
            if text.strip() != LAYERS_LINE:
                wrong.append(f"{where}: it says {LAYERS_LINE} and nothing else")
            continue
        layer = "components" if file.parent.name == "components" else file.stem
        if layer not in {"tokens", "utilities", "components"}:
            wrong.append(f"{where}: a style sheet is tokens, utilities or one of components/")
        elif not _is_one_block(text.strip(), layer):
            wrong.append(f"{where}: it is not one @layer {layer} block")
    return wrong


def component_violations(css: Path) -> list[str]:
    """One component a file, named like its class, short enough to read at once."""
    wrong = []
    for file, text in _files(css):
        if file.parent.name != "components":
            continue
        length = len(file.read_text(encoding="utf-8").splitlines())
        if length > LONGEST_COMPONENT:
            wrong.append(f"{file.name}: {length} lines, more than {LONGEST_COMPONENT}")
        parts = {part for name in re.findall(r"\.([a-z][\w-]*)", text) for part in re.split(r"[-_]+", name)}
        if file.stem not in WITHOUT_CLASS and not parts & set(file.stem.split("-")):
            wrong.append(f"{file.name}: no class is named like the file")
        if re.search(r"(?<![\w-])#[a-zA-Z][\w-]*\s*[{,:>.]", re.sub(r":[^;{}]+;", "", text)):
            wrong.append(f"{file.name}: a selector names an id")
    return wrong


def _files(css: Path) -> Iterator[tuple[Path, str]]:
    """Each style sheet with its text, comments and strings taken out."""
    for file in sorted(css.rglob("*.css")):
        text = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        yield file, re.sub(r'"[^"\n]*"|\'[^\'\n]*\'', '""', text)


def _words(value: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])[a-z]+(?![\w(-])", re.sub(r"var\([^()]*\)", "", value.lower())))


def _is_one_block(text: str, layer: str) -> bool:
    if not re.match(rf"@layer {layer} \{{", text):
        return False
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if character == "}" and depth == 0:
            return position == len(text) - 1
    return False


CHECKS: list[Callable[[Path], list[str]]] = [
    colour_violations,
    height_violations,
    layer_violations,
    component_violations,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_style_sheets_keep_their_rules(check: Callable[[Path], list[str]]) -> None:
    css = ROOT / "static" / "css"
    names = {file.relative_to(css).as_posix() for file, _ in _files(css)}
    assert {"layers.css", "tokens.css", "utilities.css"} <= names
    assert sum(name.startswith("components/") for name in names) > 10
    assert check(css) == []


@pytest.mark.parametrize(
    ("check", "name", "source", "words"),
    [
        (colour_violations, "components/bell.css", ".bell { color: #fff; }", "color: #fff names a colour"),
        (colour_violations, "components/bell.css", ".bell { background: rgb(1 2 3) }", "names a colour"),
        (colour_violations, "components/bell.css", ".bell { border: 1px solid red; }", "names a colour"),
        (
            colour_violations,
            "components/bell.css",
            "a { --x: light-dark(var(--a), var(--b)); }",
            "names a colour",
        ),
        (height_violations, "components/bell.css", ".bell { z-index: 3; }", "is not a token"),
        (layer_violations, "layers.css", "@layer base, tokens;", "nothing else"),
        (layer_violations, "components/bell.css", ".bell { margin: 0; }", "not one @layer components block"),
        (layer_violations, "components/bell.css", "@layer utilities { a { margin: 0 } }", "not one @layer"),
        (layer_violations, "components/bell.css", "@layer components { a {} } b {}", "not one @layer"),
        (layer_violations, "extra.css", "@layer components { a {} }", "one of components/"),
        (
            component_violations,
            "components/bell.css",
            "@layer components { .drum {} }",
            "named like the file",
        ),
        (component_violations, "components/bell.css", ".bell {}\n" * 121, "more than 120"),
        (component_violations, "components/bell.css", "@layer components { #bell { margin: 0; } }", "an id"),
    ],
)
def test_each_rule_catches_who_breaks_it(
    tmp_path: Path, check: Callable[[Path], list[str]], name: str, source: str, words: str
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(source)
    assert any(words in line for line in check(tmp_path)), check(tmp_path)


def test_ordinary_style_sheets_break_no_rule(tmp_path: Path) -> None:
    (tmp_path / "components").mkdir()
    (tmp_path / "layers.css").write_text(f"{LAYERS_LINE}\n")
    (tmp_path / "tokens.css").write_text(
        "@layer tokens { :root { --ink: light-dark(#000, white); --z-top: 3; } }"
    )
    (tmp_path / "components" / "bell-tower.css").write_text(
        "/* Red bells: a comment may say so. */\n@layer components {\n"
        '  .bell { color: var(--ink); z-index: var(--z-top); content: "red {";\n'
        "    & a:hover { background: color-mix(in srgb, var(--red) 45%, transparent); }\n  }\n}\n"
    )
    assert [line for check in CHECKS for line in check(tmp_path)] == []
