"""`docs/api.md` is true: its table is the table of codes, every call has an example, every answer is whole."""

from __future__ import annotations

import json
import re

import pytest
from flask import Flask
from werkzeug.exceptions import HTTPException

from scripts.api_page import PAGE, commands, with_table
from tests.support.databases import START, config_for
from webapp import create_app
from webapp.clock import FrozenClock
from webapp.web.policy import routes

# An id of any kind, in place of a variable of the shell.
SOMETHING = "x_abcdefgh"


@pytest.fixture(scope="module")
def bare_app(tmp_path_factory: pytest.TempPathFactory) -> Flask:
    """The product without a database: only its addresses are asked for."""
    return create_app(config_for(f"sqlite:///{tmp_path_factory.mktemp('bare')}/none.db"), FrozenClock(START))


def test_the_table_of_codes_is_the_one_of_the_product() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "run: python -m scripts.api_page"


def test_every_call_has_an_example_and_every_example_is_a_call(bare_app: Flask) -> None:
    shown = {_endpoint(bare_app, command) for command in commands(PAGE.read_text(encoding="utf-8"))}
    served = {route.endpoint for route in routes(bare_app) if route.rule.startswith("/api")}
    assert served - shown == set()
    assert shown - served == {"health.healthz", "health.readyz"}


def test_every_answer_on_the_page_is_whole() -> None:
    page = PAGE.read_text(encoding="utf-8")
    answers = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    assert len(answers) > 10
    assert all(answer.get("ok") in (True, False) for answer in answers), (
        "run: python -m scripts.api_page --run"
    )
    assert re.search(r"[un]tok_[A-Za-z0-9]{8}", page) is None


def test_a_page_without_a_table_and_an_address_that_is_none_are_noticed(bare_app: Flask) -> None:
    with pytest.raises(ValueError, match="no table"):
        with_table("# The API\n")
    with pytest.raises(HTTPException):
        _endpoint(bare_app, "curl -sS $CARILLON/api/moon\n")


def _endpoint(app: Flask, command: str) -> str:
    """The endpoint that a `curl` command calls."""
    found = re.search(r"\$CARILLON(/[^\s\"?]*)", command)
    assert found is not None, command
    path = re.sub(r"\$[A-Z_]+", SOMETHING, found[1])
    method = re.search(r"-X ([A-Z]+)", command)
    default = "POST" if "--json" in command else "GET"
    endpoint, _ = app.url_map.bind("localhost").match(path, method[1] if method else default)
    return str(endpoint)
