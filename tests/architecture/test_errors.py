"""One code, one sentence, one table: what is raised is in it, what is in it is described for API users."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, modules
from webapp.errors import ERRORS

# Whose first argument is a code, or may be one.
RAISED = {"AppError", "TimetableError"}


def raised_codes(root: Path) -> Iterator[tuple[str, str]]:
    """Each place of the product where a code is written into an error, with the code."""
    for module in modules(root):
        for node in module.nodes:
            if isinstance(node, ast.Call) and _name(node.func) in RAISED:
                code = node.args[0] if node.args else _keyword(node, "code")
                if isinstance(code, ast.Constant) and isinstance(code.value, str):
                    yield f"{module.path}:{node.lineno}", code.value


def described_codes(text: str) -> set[str]:
    """The codes that a page of the documentation names in code spans."""
    return set(re.findall(r"`([a-z][a-z0-9_]+)`", text))


def test_every_code_that_is_raised_is_in_the_table() -> None:
    places = list(raised_codes(ROOT))
    assert len(places) > 10, "no raised codes found"
    assert [f"{place}: {code}" for place, code in places if code not in ERRORS] == []


def test_every_code_in_the_table_is_described_in_the_api_page() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(set(ERRORS) - described_codes(text)) == []


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_a_code_is_a_word_with_a_status_and_a_sentence(code: str) -> None:
    status, sentence = ERRORS[code]
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", code)
    assert 400 <= status < 600
    # A sentence may begin with the name of the field that it is about.
    assert sentence.endswith(".")
    assert sentence[0].isupper() or re.match(r"[a-z_]+ ", sentence)


def test_a_code_that_is_not_in_the_table_is_found(tmp_path: Path) -> None:
    (tmp_path / "webapp").mkdir()
    source = (
        "def f(c):\n    raise AppError('no_such_bell', field='x')\n    raise errors.AppError(code='other')\n"
    )
    (tmp_path / "webapp" / "bells.py").write_text(source + "    raise AppError(c)\n")
    assert list(raised_codes(tmp_path)) == [
        ("webapp/bells.py:2", "no_such_bell"),
        ("webapp/bells.py:3", "other"),
    ]


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None)
