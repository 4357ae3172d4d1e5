"""What is committed: locks without addresses, no path of anybody's machine, vendored files as published."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, committed_files

LOCKS = ["requirements.lock", "requirements-dev.lock"]
MACHINE_PATH = re.compile(r"(?<![\w.<])/(work|root|home|Users)/[\w.-]+")
BINARY = {".png", ".jpg", ".ico", ".woff2", ".gz"}


def lock_violations(text: str) -> list[str]:
    """An address in a lock names whoever's mirror it was made with; a pin without a hash is no pin."""
    option = re.compile(r"\s*(-[a-z]\b|--(?!hash=))")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    pins = re.split(r"\n(?=[a-z0-9])", "\n".join(line for line in lines if not option.match(line)).strip())
    return [
        *(line for line in text.splitlines() if "://" in line or option.match(line)),
        *(f"not pinned by a hash: {pin.splitlines()[0]}" for pin in pins if not _is_pinned(pin)),
    ]


def machine_path_violations(files: list[Path], root: Path) -> list[str]:
    return [
        f"{file.relative_to(root)}:{number}: {found.group()}"
        for file in files
        if file.suffix not in BINARY and "vendor" not in file.parts
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (found := MACHINE_PATH.search(line))
    ]


def vendor_violations(vendor: Path) -> list[str]:
    """Each vendored file is listed once, with the sum of what lies here; licences need no line."""
    rows = [line.split() for line in (vendor / "VENDOR").read_text(encoding="utf-8").splitlines()]
    listed = {row[0]: row[-1] for row in rows if row and row[0] != "#"}
    present = {file.name for file in vendor.iterdir() if not file.name.startswith(("LICENSE", "VENDOR"))}
    wrong = [f"{name} is not on both sides" for name in sorted(listed.keys() ^ present)]
    for name in sorted(listed.keys() & present):
        found = hashlib.sha256((vendor / name).read_bytes()).hexdigest()
        if found != listed[name]:
            wrong.append(f"{name}: SHA-256 is {found} and not {listed[name]}")
    return wrong


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_hashes_and_no_addresses(name: str) -> None:
    assert lock_violations((ROOT / name).read_text(encoding="utf-8")) == []


def test_the_running_lock_is_part_of_the_development_lock() -> None:
    running, development = (_pins(ROOT / name) for name in LOCKS)
    assert running
    assert running - development == set()


def test_the_running_lock_has_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[\[><=~! ]", name)[0] for name in project["dependencies"]}
    assert wanted - {pin.split("==")[0] for pin in _pins(ROOT / LOCKS[0])} == set()


def test_no_lock_of_another_tool_is_committed() -> None:
    names = {file.relative_to(ROOT).as_posix() for file in committed_files()}
    assert set(LOCKS) <= names
    assert {name for name in names if Path(name).name in {"uv.lock", "poetry.lock", "Pipfile.lock"}} == set()


def test_nothing_generated_or_secret_is_committed() -> None:
    names = [file.relative_to(ROOT).as_posix() for file in committed_files()]
    secret_or_made = re.compile(r"(^|/)(\.venv|instance|__pycache__|node_modules)/|\.(db|pyc|pem|key|env)$")
    assert [name for name in names if secret_or_made.search(name)] == []


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert machine_path_violations(committed_files(), ROOT) == []


def test_vendored_files_are_what_was_published() -> None:
    assert vendor_violations(ROOT / "static" / "vendor") == []


def test_each_rule_catches_who_breaks_it(tmp_path: Path) -> None:
    good = "flask==3.1.3 \\\n    --hash=sha256:00\n    # via carillon\nidna==3 \\\n    --hash=sha256:11\n"
    somewhere = "/" + "work/main"
    assert lock_violations(good) == []
    assert lock_violations("--index-url https://mirror.example/simple\n" + good)
    assert lock_violations(good + "click==8.1\n") == ["not pinned by a hash: click==8.1"]
    note = tmp_path / "note.md"
    note.write_text(f"See {somewhere}\n")
    assert machine_path_violations([note], tmp_path) == [f"note.md:1: {somewhere}"]
    (tmp_path / "a.js").write_text("1")
    (tmp_path / "VENDOR").write_text("# sums\na.js 1.0 MIT 00\nb.js 1.0 MIT 00\n")
    note.unlink()
    assert [line.split(":")[0] for line in vendor_violations(tmp_path)] == [
        "b.js is not on both sides",
        "a.js",
    ]


def _is_pinned(pin: str) -> bool:
    return "==" in pin and "--hash=sha256:" in pin


def _pins(lock: Path) -> set[str]:
    return set(re.findall(r"(?m)^([a-z0-9][\w.-]*==[^\s;]+)", lock.read_text(encoding="utf-8")))
