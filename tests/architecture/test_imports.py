"""Packages import downwards, the web framework stays at the edges, pure modules stay pure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.tree import Module, modules

RANKS = {
    9: "html api worker cli",
    8: "web",
    7: "targets tools doctor retention demo",
    6: "scheduling nodes chat",
    5: "mandates",
    4: "identity",
    3: "events audit",
    2: "store",
    1: "timetable errors clock ids config logs",
}
RANK = {area: rank for rank, areas in RANKS.items() for area in areas.split()}
# With webapp/__init__ and store/__init__, which wire the application and its database.
FLASK_AREAS = {"web", "html", "api", "worker", "cli"}
FLASK_MODULES = {"webapp", "webapp.store", "app", "scheduler_worker"}
PURE_NAMES = {"lifecycle", "policy", "access"}
IMPURE = ("flask", "sqlalchemy", "alembic", "psycopg", "webapp.store", "webapp.clock")


def rank_violations(found: list[Module]) -> list[str]:
    wrong = []
    for module in found:
        if not module.area:
            continue
        if module.area not in RANK:
            wrong.append(f"{module.path}: {module.area} has no rank in tests/architecture/test_imports.py")
            continue
        for line, name in module.imports:
            other = [*name.split("."), ""][1] if name.split(".")[0] == "webapp" else module.area
            if other == module.area:
                continue
            if other not in RANK:
                wrong.append(
                    f"{module.path}:{line} imports {name}: only the two programs import webapp itself"
                )
            elif RANK[other] >= RANK[module.area] and not RANK[other] == RANK[module.area] == 1:
                wrong.append(
                    f"{module.path}:{line} imports {name}: rank {RANK[module.area]} may not reach rank {RANK[other]}"
                )
    return wrong


def ground_cycles(found: list[Module]) -> list[str]:
    """Cycles among the areas of rank 1, which may use each other."""
    uses: dict[str, set[str]] = {area: set() for area in RANKS[1].split()}
    for module in found:
        if module.area in uses:
            names = [name.split(".") for _, name in module.imports]
            uses[module.area] |= {n[1] for n in names if n[0] == "webapp" and len(n) > 1} & uses.keys()
            uses[module.area].discard(module.area)
    wrong = []
    for start in uses:
        reached, waiting = set[str](), [start]
        while waiting:
            for area in uses[waiting.pop()] - reached:
                reached.add(area)
                waiting.append(area)
        if start in reached:
            wrong.append(f"{start} reaches itself over {sorted(reached)}")
    return wrong


def flask_violations(found: list[Module]) -> list[str]:
    return [
        f"{module.path}:{line} imports {name}: Flask stays in {sorted(FLASK_AREAS)} and the two __init__"
        for module in found
        if module.area not in FLASK_AREAS and module.name not in FLASK_MODULES
        for line, name in module.imports
        if name.split(".")[0].split("_")[0] == "flask"
    ]


def purity_violations(found: list[Module]) -> list[str]:
    return [
        f"{module.path}:{line} imports {name}: this module is pure"
        for module in found
        if module.area == "timetable"
        or (module.name.rsplit(".", 1)[-1] in PURE_NAMES and module.area not in FLASK_AREAS)
        for line, name in module.imports
        if any(name == bad or name.startswith((f"{bad}.", f"{bad}_")) for bad in IMPURE)
    ]


def operation_violations(found: list[Module]) -> list[str]:
    """An operation owns one transaction; what may be called inside another's is a step."""
    return [
        f"{module.path}:{line} imports {name}: an operation never calls another operation"
        for module in found
        if module.name.rsplit(".", 1)[-1] in {"operations", "steps"}
        for line, name in module.imports
        if name.startswith("webapp.") and "operations" in name.split(".")
    ]


CHECKS = [rank_violations, ground_cycles, flask_violations, purity_violations, operation_violations]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_product_keeps_its_import_rules(check) -> None:
    found = modules()
    assert len(found) > 10
    assert {"store", "clock", "errors"} <= {module.area for module in found}
    assert check(found) == []


@pytest.mark.parametrize(
    ("check", "path", "source", "words"),
    [
        (rank_violations, "nodes/queries.py", "from webapp.api import body", "rank 6 may not reach rank 9"),
        (
            rank_violations,
            "nodes/queries.py",
            "import webapp.scheduling.claim",
            "rank 6 may not reach rank 6",
        ),
        (
            rank_violations,
            "events/feed.py",
            "def f():\n    from webapp import audit",
            "rank 3 may not reach rank 3",
        ),
        (rank_violations, "nodes/queries.py", "from ..web import auth", "rank 6 may not reach rank 8"),
        (rank_violations, "api/nodes.py", "from webapp import create_app", "only the two programs"),
        (rank_violations, "helpers.py", "", "helpers has no rank"),
        (ground_cycles, "errors.py", "import webapp.clock", "reaches itself"),
        (flask_violations, "nodes/queries.py", "def f():\n    from flask import g", "imports flask.g"),
        (flask_violations, "store/paging.py", "import flask_sqlalchemy", "imports flask_sqlalchemy"),
        (purity_violations, "scheduling/policy.py", "from sqlalchemy import select", "is pure"),
        (purity_violations, "timetable/kinds.py", "from webapp.clock import SystemClock", "is pure"),
        (purity_violations, "nodes/lifecycle.py", "from webapp import store", "is pure"),
        (
            operation_violations,
            "nodes/operations.py",
            "from webapp.identity import operations",
            "never calls",
        ),
        (operation_violations, "nodes/steps.py", "from webapp.identity.operations import add", "never calls"),
    ],
)
def test_each_rule_catches_who_breaks_it(tmp_path: Path, check, path: str, source: str, words: str) -> None:
    file = tmp_path / "webapp" / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    (tmp_path / "webapp" / "clock.py").write_text("import webapp.errors")
    assert any(words in line for line in check(modules(tmp_path)))
