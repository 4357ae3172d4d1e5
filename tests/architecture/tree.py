"""The files of the project as the house rules see them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Module:
    """One Python file of the product: its path from the root, its dotted name, its syntax tree."""

    path: str
    name: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree: the rules walk it again and again."""
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[tuple[int, str]]:
        """Each import with its line, also inside functions, as a dotted name from the top.

        `from a import b` counts as `a.b`, so that importing a module by its package is seen.
        """
        return list(_imports(self))

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def area(self) -> str:
        """The package (or single file) right under webapp: what has a rank. Empty for webapp/__init__."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""


def modules(root: Path = ROOT) -> list[Module]:
    """Every module of webapp, with the two programs beside it."""
    files = [
        *sorted((root / "webapp").rglob("*.py")),
        *(root / name for name in ("app.py", "scheduler_worker.py") if (root / name).exists()),
    ]
    found = []
    for file in files:
        path = file.relative_to(root)
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        found.append(_module(path.as_posix(), name, file.read_text(encoding="utf-8")))
    return found


@cache
def _module(path: str, name: str, text: str) -> Module:
    return Module(path, name, ast.parse(text, path))


def committed_files(root: Path = ROOT) -> list[Path]:
    """What git tracks or would track, without what .gitignore names."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    return [root / name for name in listing.stdout.split("\0") if name and (root / name).is_file()]


def _imports(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(module, node)
            for alias in node.names:
                yield node.lineno, f"{source}.{alias.name}"


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of names, with `()` where a call stands between; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{dotted(node.func)}()"
    return ""


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])
