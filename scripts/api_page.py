"""Keep `docs/api.md` true: write its table of codes, and run its examples.

    python -m scripts.api_page            write the table from webapp/errors.py
    python -m scripts.api_page --run      also run every example against a fresh Carillon, and write its answers

An example is a block of `sh` with `curl` commands; where a block of `json` or `text` follows, it is replaced by
the answer to the last command. Needs curl 7.82 or newer.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from webapp.errors import ERRORS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
PORT = 8765
_HEAD = "| code | status | sentence |\n|---|---|---|\n"
_EXAMPLE = re.compile(r"```sh\n(?P<commands>curl .*?)```\n(?:\n```(?P<kind>json|text)\n.*?```\n)?", re.DOTALL)
_COMMAND = re.compile(r"^curl .*?(?=^curl |\Z)", re.DOTALL | re.MULTILINE)
# Secrets are shown once, and not here.
_TOKEN = re.compile(r"\b([un]tok_)[A-Za-z0-9_-]{20,}")


def with_table(page: str) -> str:
    """The page with the table of all codes as its end."""
    before, head, _ = page.partition(_HEAD)
    if not head:
        raise ValueError("the page has no table of codes")
    rows = (f"| `{code}` | {status} | {sentence} |\n" for code, (status, sentence) in sorted(ERRORS.items()))
    return before + head + "".join(rows)


def commands(page: str) -> list[str]:
    """Every `curl` command of the examples, in order."""
    return [command for block in _EXAMPLE.finditer(page) for command in _COMMAND.findall(block["commands"])]


def with_answers(page: str, values: dict[str, str]) -> str:
    """The page with every example run; `values` are the shell variables that they begin with.

    Raises RuntimeError for a command that is refused although nothing says that it should be.
    """

    def run(block: re.Match[str]) -> str:
        answer = ""
        for command in _COMMAND.findall(block["commands"]):
            answer = _run(command, values)
        written = f"```sh\n{block['commands']}```\n"
        return f"{written}\n```{block['kind']}\n{answer}```\n" if block["kind"] else written

    return _EXAMPLE.sub(run, page)


def _run(command: str, values: dict[str, str]) -> str:
    done = subprocess.run(  # noqa: S603 - what stands in our own page
        ["bash", "-c", command],  # noqa: S607
        env={**os.environ, **values},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command}\n{done.stderr}")
    if not done.stdout.startswith("{"):
        return done.stdout
    answer = json.loads(_TOKEN.sub(r"\1…", done.stdout))
    # One example shows a conflict.
    if answer.get("ok") is False and answer["error"] != "revision_conflict":
        raise RuntimeError(f"{command}\n{done.stdout}")
    _remember(answer, values)
    return json.dumps(answer, indent=2, ensure_ascii=False) + "\n"


def _remember(answer: dict[str, Any], values: dict[str, str]) -> None:
    """Keep the ids of an answer for the examples that follow."""
    for name in ("schedule", "run", "node", "task", "user", "network", "chat", "turn"):
        part = answer.get(name)
        if isinstance(part, dict) and f"{name}_id" in part:
            values[name.upper()] = part[f"{name}_id"]
        elif isinstance(part, dict):
            # The task of a chat, which has a short id.
            values[f"CHAT_{name.upper()}"] = part["id"]
    token = answer.get("token")
    if isinstance(token, dict):
        values["TOKEN_ID"] = token["token_id"]
    if isinstance(answer.get("turn"), dict):
        _wait_for_turn(values, "queued", "running")
    if isinstance(answer.get("approval"), dict):
        values["TURN"] = answer["approval"]["turn_id"]
        _wait_for_turn(values, "queued", "running", "waiting_for_action")
    for part in (answer.get("schedule"), answer.get("mandate")):
        if isinstance(part, dict):
            values["MANDATE"] = part["mandate_id"]
    for schedule in answer.get("schedules", [])[:1]:
        values["PROPOSAL"] = schedule["schedule_id"]
    for approval in answer.get("approvals", [])[:1]:
        values["APPROVAL"] = approval["approval_id"]
    for item in answer.get("items", [])[:1]:
        values["TASK"] = item["task_id"]
    for network in answer.get("networks", [])[:1]:
        values["NETWORK"] = network["network_id"]


def _wait_for_turn(values: dict[str, str], *while_it_is: str) -> None:
    """The examples that follow speak of what the worker made of the turn."""
    name, _, token = values["AUTH"].partition(": ")
    call = urllib.request.Request(f"{values['CARILLON']}/api/turns/{values['TURN']}", headers={name: token})  # noqa: S310
    for _ in range(300):
        with urllib.request.urlopen(call) as response:  # noqa: S310 - our own server
            turn = json.load(response)["turn"]
        if turn["status"] not in while_it_is:
            return
        time.sleep(0.1)
    raise RuntimeError("the worker does not take up the turn")


@contextmanager
def _fresh_carillon() -> Iterator[dict[str, str]]:
    """A Carillon of its own with Alice and a node; gives the variables of the page's beginning."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "CARILLON_DATABASE_URL": f"sqlite:///{folder}/page.db",
            "CARILLON_SECRET_KEY": "only for the examples of one page, nothing else",
        }
        _flask(environment, "db", "upgrade")
        _flask(
            environment,
            "create-user",
            "Alice",
            "--admin",
            "--network",
            "harbour",
            "--password-stdin",
            words="correct horse battery\n",
        )
        token = _flask(environment, "create-token", "Alice").strip()
        node = json.loads(_flask(environment, "create-node", "atlas", "--network", "harbour"))
        command = [sys.executable, "app.py", "--port", str(PORT)]
        server = subprocess.Popen(command, cwd=ROOT, env=environment)  # noqa: S603 - our own program
        try:
            _wait_for_server()
            yield {
                "CARILLON": f"http://127.0.0.1:{PORT}",
                "AUTH": f"Authorization: Bearer {token}",
                "NODE_AUTH": f"Authorization: Bearer {node['token']}",
                "ATLAS": node["node_id"],
            }
        finally:
            server.terminate()
            server.wait(30)


def _flask(environment: dict[str, str], *arguments: str, words: str = "") -> str:
    done = subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, "-m", "flask", "--app", "app", *arguments],
        cwd=ROOT,
        env=environment,
        input=words,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _wait_for_server() -> None:
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz"):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the server does not answer")


def main() -> None:
    """Write the page again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run the examples too")
    page = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().run:
        with _fresh_carillon() as values:
            page = with_answers(page, values)
    PAGE.write_text(with_table(page), encoding="utf-8")


if __name__ == "__main__":
    main()
