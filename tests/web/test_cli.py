"""The operator's commands, in the same process; what they print is what scripts read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskCliRunner

from tests.factories import PASSWORD, Cast, bearer
from tests.identity.reading import audited, roles
from tests.support.databases import config_for, dispose_engines
from webapp import create_app
from webapp.identity.sign_in import sign_in

pytestmark = pytest.mark.usefixtures("quick_hashes")


@pytest.fixture
def run(app: Flask) -> FlaskCliRunner:
    """Runs `flask --app app …`."""
    return app.test_cli_runner()


def create_user(run: FlaskCliRunner, *arguments: str, password: str | bytes = f"{PASSWORD}\n"):
    return run.invoke(args=["create-user", *arguments, "--password-stdin"], input=password)


def test_a_fresh_install_is_peopled_from_the_command_line(app: Flask, run: FlaskCliRunner) -> None:
    alice = create_user(run, "Alice", "--admin", "--network", "harbour")
    assert alice.exit_code == 0, alice.stderr
    told = json.loads(alice.stdout)
    assert (told["name"], told["admin"], told["network"], told["role"]) == ("Alice", True, "harbour", "owner")
    bob = create_user(run, "Bob", "--network", "harbour")
    assert json.loads(bob.stdout)["role"] == "member"
    vera = create_user(run, "Vera", "--network", "harbour", "--role", "viewer")
    assert json.loads(vera.stdout)["role"] == "viewer"
    assert "network" not in json.loads(create_user(run, "Nora").stdout)
    token = run.invoke(args=["create-token", "bob", "--network", "harbour", "--expires-days", "7"])
    text = token.stdout.strip()
    assert token.stdout == f"{text}\n", "the token alone"
    assert app.test_client().get("/api/me", headers=bearer(text)).json["user"]["name"] == "Bob"
    node = json.loads(run.invoke(args=["create-node", "atlas", "--network", "harbour"]).stdout)
    assert sorted(node) == ["node_id", "token"]
    beat = app.test_client().post(
        "/api/node/heartbeat", json={"status": "idle"}, headers=bearer(node["token"])
    )
    assert beat.status_code == 200


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_the_line_end_is_no_part_of_the_password(app: Flask, run: FlaskCliRunner, ending: str, clock) -> None:
    assert create_user(run, "Alice", password=PASSWORD + ending).exit_code == 0
    with app.app_context():
        sign_in("Alice", PASSWORD, None, now=clock.now())


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["create-user", "Dora"], 2, "--password-stdin"),
        (["create-user", "Dora", "--role", "viewer", "--password-stdin"], 2, "--network"),
        (["create-user", "Dora", "--network", "harbour", "--role", "king", "--password-stdin"], 2, "king"),
        (
            ["create-user", "alice", "--password-stdin"],
            1,
            "Somebody has this name already. (user_name_taken)",
        ),
        (["create-user", "Dora", "--network", "Har bour", "--password-stdin"], 1, "(invalid_slug)"),
        (["create-user", " ", "--password-stdin"], 1, "(invalid_user_name)"),
        (["create-token", "Nobody"], 1, "There is nobody called Nobody. (user_not_found)"),
        (["create-token", "Alice", "--network", "nowhere"], 1, "(network_not_found)"),
        (["create-token", "Alice", "--network", "elsewhere"], 1, "(network_not_found)"),
        (["create-token", "Alice", "--expires-days", "0"], 1, "(invalid_expires_days)"),
        (["create-token", "Alice", "--expires-days", "soon"], 2, "soon"),
        (["create-node", "atlas"], 2, "--network"),
        (["create-node", "atlas", "--network", "nowhere"], 1, "(network_not_found)"),
        (["create-node", "A T", "--network", "harbour"], 1, "(invalid_alias)"),
    ],
)
def test_a_refusal_is_one_sentence_and_a_status(
    cast: Cast, run: FlaskCliRunner, arguments: list[str], status: int, words: str
) -> None:
    result = run.invoke(args=arguments, input=f"{PASSWORD}\n")
    assert result.exit_code == status
    assert result.stdout == ""
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("password", ["short\n", "", b"\xff" * 20, "x" * 10_000])
def test_a_bad_password_makes_nobody(cast: Cast, run: FlaskCliRunner, password: str | bytes) -> None:
    result = create_user(run, "Dora", "--network", "fresh", password=password)
    assert result.exit_code == 1
    assert "password" in result.stderr
    assert run.invoke(args=["create-token", "Dora"]).exit_code == 1
    assert run.invoke(args=["create-node", "atlas", "--network", "fresh"]).exit_code == 1, "no network either"


def test_the_operator_is_named_in_the_audit(app: Flask, cast: Cast, run: FlaskCliRunner) -> None:
    create_user(run, "Dora", "--network", "harbour")
    with app.app_context():
        assert audited(cast.network) == [("command line", "member.add", {"name": "Dora", "role": "member"})]
        assert roles(cast.network)["Dora"] == "member"


def test_a_pass_is_told_as_json(cast: Cast, run: FlaskCliRunner) -> None:
    result = run.invoke(args=["tick"])
    assert result.exit_code == 0, result.stderr
    assert all(isinstance(count, int) for count in json.loads(result.stdout).values())


def test_the_doctor_finds_a_fresh_install_well(cast: Cast, run: FlaskCliRunner) -> None:
    result = run.invoke(args=["doctor"])
    assert result.exit_code == 0, result.stdout
    assert json.loads(result.stdout) == {"ok": True, "violations": []}


def test_pruning_is_told_as_json(cast: Cast, run: FlaskCliRunner) -> None:
    result = run.invoke(args=["prune"])
    assert result.exit_code == 0, result.stderr
    assert isinstance(json.loads(result.stdout), dict)


@pytest.mark.parametrize("command", ["doctor", "tick", "prune"])
def test_a_database_without_tables_is_said_in_a_sentence(tmp_path: Path, command: str) -> None:
    app = create_app(config_for(f"sqlite:///{tmp_path / 'empty.db'}"))
    answer = app.test_cli_runner().invoke(args=[command])
    assert (answer.exit_code, answer.stderr.count("\n")) == (1, 1)
    assert "flask --app app db upgrade" in answer.stderr
    dispose_engines(app)
