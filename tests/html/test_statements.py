"""A page asks the database as often in a large house as in a small one."""

from __future__ import annotations

import re
from html import unescape

from flask import Flask
from flask.testing import FlaskClient

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


def _house(url: str, count: int, *, look: bool = False) -> dict[str, list[str]]:
    clock = FrozenClock(START)
    app = create_app(config_for(url), clock)
    try:
        house = build(app, clock, Size.of_all(count))
        if look:
            client = signed_in(app, house.viewer)
            _every_node_is_on_one_of_the_pages(client)
            _the_frame_counts_what_the_overview_shows(client)
            _the_schedules_of_one_node_are_listed_alone(client, house)
        return _asked(app, house)
    finally:
        dispose_engines(app)


def _every_node_is_on_one_of_the_pages(client: FlaskClient) -> None:
    path, seen = "/nodes", []
    while path:
        page = client.get(path).text
        seen += re.findall(r'class="table__name" href="/nodes/[^"]+">([^<]+)<', page)
        following = re.search(r'<a href="(/nodes\?cursor=[^"]+)" rel="next"', page)
        path = unescape(following[1]) if following else ""
    assert len(seen) > MANY
    assert seen == sorted(set(seen))
    assert client.get("/nodes?cursor=atlas").status_code == 400


def _the_frame_counts_what_the_overview_shows(client: FlaskClient) -> None:
    page = client.get("/").text
    counted = re.search(r'Overview\s*<span class="masthead__count">(\d+)<', page)
    assert counted is not None
    assert page.count('<article class="card') == int(counted[1])


def _the_schedules_of_one_node_are_listed_alone(client: FlaskClient, house: LargeHouse) -> None:
    page = client.get(f"/schedules?target={house.node}").text
    assert re.findall(r'<td [^>]*data-label="Target"><span class="cell">([^<]+)<', page) == ["node-1"]
    assert f"target={house.node}" in page
    assert client.get("/schedules?target=node_nobody_at_all").status_code == 404


def test_no_page_asks_more_often_where_there_is_more(databases: DatabaseSource) -> None:
    with databases.lend("sqlite") as few, databases.lend("sqlite") as many:
        small, large = _house(few, FEW), _house(many, MANY, look=True)
    grown = {
        name: f"{len(small[name])} -> {len(asked)}"
        for name, asked in large.items()
        if len(asked) > len(small[name])
    }
    assert grown == {}
