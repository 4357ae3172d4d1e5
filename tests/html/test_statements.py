"""A page asks the database as often in a large house as in a small one."""

from __future__ import annotations

from flask import Flask

from tests.factories import signed_in
from tests.support.databases import START, DatabaseSource, config_for, dispose_engines
from tests.support.large_house import LargeHouse, Size, build, pages_of
from tests.support.statements import statements_of
from webapp import create_app
from webapp.clock import FrozenClock
from webapp.store import engine

# In ten there is one of every kind and state.
FEW, MANY = 10, 40


def _asked(app: Flask, house: LargeHouse) -> dict[str, list[str]]:
    """The statements of each page of the house."""
    with app.app_context():
        pages, pool = pages_of(house), engine()
    client = signed_in(app, house.viewer)
    found = {}
    for name, path in pages.items():
        with statements_of(pool) as sent:
            answer = client.get(path)
        assert answer.status_code == 200, f"{name}: {answer.text}"
        found[name] = list(sent)
    return found


def _house(url: str, count: int) -> dict[str, list[str]]:
    clock = FrozenClock(START)
    app = create_app(config_for(url), clock)
    try:
        return _asked(app, build(app, clock, Size.of_all(count)))
    finally:
        dispose_engines(app)


def test_no_page_asks_more_often_where_there_is_more(databases: DatabaseSource) -> None:
    with databases.lend("sqlite") as few, databases.lend("sqlite") as many:
        small, large = _house(few, FEW), _house(many, MANY)
    grown = {
        name: f"{len(small[name])} -> {len(asked)}"
        for name, asked in large.items()
        if len(asked) > len(small[name])
    }
    assert grown == {}
