"""Words that stand in one place alone: engines, commits, the time of day; and queries that never write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, Module, dotted, modules

ENGINE_WORDS = re.compile(r"sqlite|postgres", re.IGNORECASE)
CLOCK_READS = re.compile(
    r"(^|\.)(datetime|date)\.(now|utcnow|today)$|(^|\.)time\.(time|time_ns|localtime|gmtime)$"
)
CLOCK_IMPORTS = {"time.time", "time.time_ns", "time.localtime", "time.gmtime"}
DATABASE_CLOCK = re.compile(
    r"(^|\.)func\.(now|current_timestamp|current_date|localtimestamp|clock_timestamp|unixepoch|julianday)$"
)
DATABASE_CLOCK_TEXT = re.compile(
    r"\b(current_timestamp|now\(\)|clock_timestamp\(\)|unixepoch\()", re.IGNORECASE
)
WRITES = {"add", "add_all", "delete", "insert", "update", "merge", "flush"}


def engine_word_violations(root: Path) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in _texts(root)
        if not path.startswith("webapp/store/") and path != "webapp/config.py"
        for number, line in enumerate(text.splitlines(), 1)
        if ENGINE_WORDS.search(line)
    ]


def commit_violations(root: Path) -> list[str]:
    return [
        f"{module.path}:{node.lineno}: commit() stands in store/transaction.py alone"
        for module in modules(root)
        if module.path != "webapp/store/transaction.py"
        for node in module.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit"
    ]


def clock_violations(root: Path) -> list[str]:
    found = [module for module in modules(root) if module.path != "webapp/clock.py"]
    return [
        *(
            f"{module.path}:{node.lineno}: {dotted(node)} reads the clock; the instant comes in from outside"
            for module in found
            for node in module.nodes
            if isinstance(node, ast.Attribute) and CLOCK_READS.search(dotted(node))
        ),
        *(
            f"{module.path}:{line}: imports {name}; the instant comes in from outside"
            for module in found
            for line, name in module.imports
            if name in CLOCK_IMPORTS
        ),
    ]


def database_clock_violations(root: Path) -> list[str]:
    """Leases inside the store compare with the database's clock; nothing else reads it."""
    return [
        f"{module.path}:{node.lineno}: the database's clock is for leases inside store/ alone"
        for module in modules(root)
        if module.area != "store"
        for node in module.nodes
        if DATABASE_CLOCK.search(dotted(node) if isinstance(node, ast.Attribute) else "")
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_sql_clock(node.value))
    ]


def query_violations(root: Path) -> list[str]:
    return [
        f"{module.path}:{node.lineno}: queries never write"
        for module in modules(root)
        if module.name.endswith(".queries")
        for node in module.nodes
        if isinstance(node, ast.Call) and _writes(module, node)
    ]


def _writes(module: Module, node: ast.Call) -> bool:
    name = dotted(node.func)
    owner, _, verb = name.rpartition(".")
    # A set or dict has add and update too: what matters is the session, or SQLAlchemy's own function.
    return (
        verb in WRITES and re.search(r"(^|[._])(session|tx|connection|conn)(\(\))?$", owner) is not None
    ) or (
        name in {"insert", "update", "delete"} and any(n == f"sqlalchemy.{name}" for _, n in module.imports)
    )


def _is_sql_clock(text: str) -> bool:
    return DATABASE_CLOCK_TEXT.search(text) is not None


def _texts(root: Path) -> Iterator[tuple[str, str]]:
    files = [*sorted((root / "webapp").rglob("*.py")), root / "app.py", root / "scheduler_worker.py"]
    for file in files:
        if file.exists():
            yield file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")


CHECKS = [
    engine_word_violations,
    commit_violations,
    clock_violations,
    database_clock_violations,
    query_violations,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_product_keeps_its_words_in_their_places(check) -> None:
    assert len(modules()) > 10
    assert check(ROOT) == []


@pytest.mark.parametrize(
    ("check", "path", "source"),
    [
        (engine_word_violations, "nodes/models.py", "index = Index('x', sqlite_where=True)"),
        (engine_word_violations, "nodes/models.py", "# PostgreSQL differs here"),
        (commit_violations, "nodes/operations.py", "def f(s):\n    s.commit()"),
        (commit_violations, "store/dialect.py", "def f(engine):\n    engine.connect().commit()"),
        (clock_violations, "nodes/queries.py", "import datetime\nx = datetime.datetime.now(datetime.UTC)"),
        (clock_violations, "nodes/queries.py", "from datetime import datetime\nx = datetime.utcnow()"),
        (
            clock_violations,
            "nodes/models.py",
            "from datetime import datetime\nx = Column(default=datetime.utcnow)",
        ),
        (clock_violations, "nodes/queries.py", "import time\nx = time.time()"),
        (clock_violations, "nodes/queries.py", "from time import time"),
        (database_clock_violations, "nodes/models.py", "x = Column(server_default=func.now())"),
        (database_clock_violations, "nodes/models.py", "x = text('CURRENT_TIMESTAMP')"),
        (query_violations, "nodes/queries.py", "def f(session, node):\n    session.add(node)"),
        (query_violations, "nodes/queries.py", "from sqlalchemy import update\nx = update(Node)"),
    ],
)
def test_each_rule_catches_who_breaks_it(tmp_path: Path, check, path: str, source: str) -> None:
    file = tmp_path / "webapp" / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    assert check(tmp_path) != []


def test_sets_and_durations_are_no_writes_and_no_clocks(tmp_path: Path) -> None:
    file = tmp_path / "webapp" / "nodes" / "queries.py"
    file.parent.mkdir(parents=True)
    file.write_text("import time\nseen = set()\nseen.add(1)\nstarted = time.monotonic()\nwait = time.sleep\n")
    assert [line for check in CHECKS for line in check(tmp_path)] == []
