"""Histories, the bound of what a request can read, the built-in model, and the operator's profiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.databases import ROOT, SECRET_KEY
from tests.support.model_server import Answer, Calls, ModelServer
from tests.support.servers import product_environment
from tests.turns.conftest import SECRET
from tests.turns.stage import KEY_VARIABLE
from webapp.chat import echo, model, profiles
from webapp.config import ECHO_PROFILE, Config, ConfigError, ModelProfile

OFFER = model.Offer("send_task", "Send it.", {"type": "object", "properties": {"node": {"type": "string"}}})


def ask(server: ModelServer, history: str, **more: str) -> model.Answer:
    profile = ModelProfile("talker", server.base_url, "gpt-test", api_key_env=KEY_VARIABLE, **more)
    return model.ask(
        profile, history, [OFFER], max_output_tokens=100, timeout_seconds=10, should_stop=lambda: False
    )


def test_a_history_goes_to_another_process_as_text_and_comes_back_whole(server: ModelServer) -> None:
    server.will(
        Calls([("send_task", {"node": "a"}), ("send_task", "{oops")], text="Two.", ids=["x", "x"]),
        Answer("Done."),
    )
    first = ask(server, model.begin("Be brief.", [("user", "Hello"), ("assistant", "Hi")], "Send two."))
    assert (first.text, first.tokens) == ("Two.", (20, 5))
    assert [(call.key, call.arguments) for call in first.calls] == [("2.1", {"node": "a"}), ("2.2", None)]
    half = model.add_result(first.history, "2.2", "Not JSON.")
    assert [call.key for call in model.open_calls(half)] == ["2.1"], "in any order"
    whole = model.add_result(half, "2.1", "Sent.")
    assert model.open_calls(whole) == ()
    with pytest.raises(ValueError, match="not open"):
        model.add_result(whole, "2.1", "Again.")
    ask(server, whole)
    roles = [message["role"] for message in server.requests[-1].body["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "tool"]
    assert server.requests[-1].texts[0] == "Be brief."


def test_the_bound_of_a_request_is_never_too_low_and_believes_what_was_counted(server: ModelServer) -> None:
    history = model.begin("Be brief.", [("user", "ä" * 500)], "Grüße, 你好 " * 50)
    most = model.most_input_tokens(history, [OFFER])
    assert most >= len(("ä" * 500 + "Grüße, 你好 " * 50).encode())
    server.will(Calls([("send_task", {"node": "a"})], input_tokens=700, output_tokens=30))
    answer = ask(server, history)
    after = model.add_result(answer.history, answer.calls[0].key, "x" * 100)
    assert 830 <= model.most_input_tokens(after, [OFFER]) < 900


def test_letters_that_do_not_exist_end_the_request_and_nothing_else(server: ModelServer) -> None:
    server.will(Answer("half \ud800 a pair", pieces=1))
    with pytest.raises(model.ModelTrouble) as trouble:
        ask(server, model.begin("", (), "Hello"))
    assert not trouble.value.transient


def test_an_endpoint_without_a_key_is_sent_nobody_elses(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    profile = ModelProfile("local", server.base_url, "gpt-test")
    history = model.begin("", (), "Hello")
    model.ask(profile, history, [], max_output_tokens=9, timeout_seconds=10, should_stop=lambda: False)
    assert server.requests[-1].headers["authorization"] == "Bearer none"
    assert "tools" not in server.requests[-1].body


def test_a_key_comes_from_a_file_and_is_read_anew(server: ModelServer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    profile = ModelProfile("filed", server.base_url, "gpt-test", api_key_file=key)
    with pytest.raises(profiles.NoKey):
        profiles.read_key(profile)
    key.write_text("first\n")
    assert profiles.read_key(profile) == "first"
    key.write_text("second\n")
    assert profiles.read_key(profile) == "second"


# The built-in model


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("/list-nodes", ("list_nodes", {})),
        ("  /list-schedules ", ("list_schedules", {})),
        (
            "/send-task atlas: Sweep: all of it.",
            ("send_task", {"node": "atlas", "task": "Sweep: all of it."}),
        ),
        (
            "/propose-schedule atlas at 07:00: Wake up.",
            (
                "propose_schedule",
                {"node": "atlas", "task": "Wake up.", "schedule": {"type": "daily", "time": "07:00"}},
            ),
        ),
    ],
)
def test_a_line_makes_echo_ask_for_a_tool(line: str, call: tuple[str, dict[str, object]]) -> None:
    offered = {"list_nodes", "list_schedules", "send_task", "propose_schedule"}
    assert echo.answer(f"Good morning.\n{line}", [], offered).calls == [call]
    assert echo.answer(line, [], set()).calls == ()


@pytest.mark.parametrize(
    "line", ["send-task atlas: x", "/send-task atlas", "/send-task : x", "/unknown", "x /list-nodes"]
)
def test_other_lines_are_only_repeated(line: str) -> None:
    said = echo.answer(line, [], {"list_nodes", "send_task"})
    assert said == echo.Said(f"{echo.LABEL} {line}")


def test_nobody_but_who_runs_a_turn_loads_the_models_library(tmp_path: Path) -> None:
    program = (
        "import sys; from webapp import create_app; from webapp.config import Config; import webapp.worker; "
        "create_app(Config.from_environment()); sys.exit('pydantic_ai' in sys.modules)"
    )
    environment = product_environment(f"sqlite:///{tmp_path}/x.db")
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, cwd=ROOT)


# The operator's file


def read(tmp_path: Path, text: str | None) -> Config:
    file = tmp_path / "models.toml"
    if text is not None:
        file.write_text(text)
    return Config.from_environment(
        {
            "CARILLON_DATABASE_URL": f"sqlite:///{tmp_path}/x.db",
            "CARILLON_SECRET_KEY": SECRET_KEY,
            "CARILLON_MODELS_FILE": str(file),
        }
    )


def test_a_fresh_install_has_echo_and_nothing_else(tmp_path: Path) -> None:
    config = Config.from_environment(
        {"CARILLON_DATABASE_URL": f"sqlite:///{tmp_path}/x.db", "CARILLON_SECRET_KEY": SECRET_KEY}
    )
    assert (config.models, config.default_model, config.approval_seconds) == ((ECHO_PROFILE,), "echo", None)


def test_profiles_come_from_the_file_the_first_is_the_default(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        [profiles.small]
        base_url = "https://models.example/v1/"
        model = "small-1"
        api_key_file = "keys/small"
        timeout_seconds = 90
        [profiles.large]
        base_url = "http://localhost:8080/v1"
        model = "large-1"
        api_key_env = "LARGE_KEY"
        max_tokens = 5000
        max_requests = 3
        """,
    )
    small, large, last = config.models
    assert (config.default_model, last) == ("small", ECHO_PROFILE)
    assert small.base_url == "https://models.example/v1"
    assert small.api_key_file == tmp_path / "keys/small"
    assert (small.timeout_seconds, small.request_timeout_seconds) == (90, 30)
    assert (large.api_key_env, large.max_tokens, large.max_requests) == ("LARGE_KEY", 5000, 3)
    assert (
        read(tmp_path, 'default = "echo"\n[profiles.a]\nbase_url="http://h"\nmodel="m"').default_model
        == "echo"
    )


GOOD = '[profiles.a]\nbase_url = "http://h"\nmodel = "m"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("not toml [", "is not TOML"),
        ("", "no [profiles.NAME] table"),
        ("profiles = 3", "no [profiles.NAME] table"),
        (GOOD + "[other]\nx = 1", "'other', which is not known"),
        ('default = "b"\n' + GOOD, "default 'b'"),
        ("[profiles]\na = 1", "a table [profiles.a]"),
        ('[profiles.echo]\nbase_url = "http://h"\nmodel = "m"', "profile 'echo'"),
        ('[profiles."a b"]\nbase_url = "http://h"\nmodel = "m"', "profile 'a b'"),
        ('[profiles.a]\nmodel = "m"', "a text as base_url"),
        ('[profiles.a]\nbase_url = "http://h"', "a text as model"),
        ('[profiles.a]\nbase_url = "ftp://h"\nmodel = "m"', "no http or https address"),
        ('[profiles.a]\nbase_url = "http://me:secret@h"\nmodel = "m"', "without a login"),
        (GOOD + 'api_key = "sk-1"', "'api_key', which is not known"),
        (GOOD + f'api_key_env = "{SECRET}"', "the name of one variable"),
        (GOOD + 'api_key_env = "A"\napi_key_file = "b"', "the name of one variable"),
        (GOOD + "timeout_seconds = 0", "a whole number from 1 to 86400 as timeout_seconds"),
        (GOOD + "timeout_seconds = true", "as timeout_seconds"),
        (GOOD + "max_requests = 1.5", "as max_requests"),
        (GOOD + "max_tokens = 5", "as max_tokens"),
    ],
)
def test_a_bad_file_stops_the_start_with_one_sentence(tmp_path: Path, text: str | None, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    sentence = str(error.value)
    assert sentence.startswith("CARILLON_MODELS_FILE ")
    assert words in sentence
    assert SECRET not in sentence


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon"])
def test_a_bad_deadline_stops_the_start(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="CARILLON_APPROVAL_SECONDS"):
        Config.from_environment(
            {"CARILLON_DATABASE_URL": f"sqlite:///{tmp_path}/x.db", "CARILLON_APPROVAL_SECONDS": value}
        )
