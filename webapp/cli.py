"""What an operator does at the command line: `flask --app app …`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn, ParamSpec, cast

import click
from flask import Flask, current_app
from flask.cli import with_appcontext

from webapp.clock import Clock
from webapp.config import Config
from webapp.doctor import examine
from webapp.errors import AppError
from webapp.identity import operations, queries
from webapp.identity.access import Actor
from webapp.identity.models import Network, Role
from webapp.nodes import operations as nodes
from webapp.retention import prune as prune_history
from webapp.scheduling.tick import BatchSize, Worker, single_pass
from webapp.store import engine, reading
from webapp.store.schema import SchemaState, schema_state

P = ParamSpec("P")
# Whoever pipes a whole file into us by mistake is told so, not waited for.
_MOST_PASSWORD_OCTETS = 4096


def init_cli(app: Flask) -> None:
    """Add the commands to `flask --app app`."""
    for command in (create_user, create_token, create_node, tick, doctor, prune):
        app.cli.add_command(command)


def _speaks_plainly(work: Callable[P, None]) -> Callable[P, None]:
    """Turn a refusal into one sentence on standard error and exit status 1."""

    @wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        with engine().connect() as connection:
            state = schema_state(connection)
        if state is not SchemaState.CURRENT:
            _refuse("The database does not have this version's tables: run flask --app app db upgrade.")
        try:
            work(*args, **kwargs)
        except AppError as error:
            _refuse(f"{error.message} ({error.code})")

    return call


def _refuse(sentence: str) -> NoReturn:
    click.echo(sentence, err=True)
    raise SystemExit(1)


def _now() -> datetime:
    now: datetime = current_app.extensions["carillon_clock"].now()
    return now


def _say(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, default=str))


@click.command("create-user")
@click.argument("name")
@click.option("--admin", is_flag=True, help="A system administrator, who may manage people and networks.")
@click.option("--network", "slug", metavar="SLUG", help="Their network; created if it is new.")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    help="Default: owner of a new network, member of an existing one.",
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input (needed).")
@with_appcontext
@_speaks_plainly
def create_user(name: str, admin: bool, slug: str | None, role: str | None, password_stdin: bool) -> None:
    """Create a person, and their network if it is new. Prints their ids as JSON."""
    if not password_stdin:
        raise click.UsageError("Give the password on standard input, with --password-stdin.")
    if role is not None and slug is None:
        raise click.UsageError("--role says what they are in a network: name it with --network.")
    new = operations.NewUser(name, _password_from_stdin(), admin)
    user, network, given = operations.create_user_at_command_line(
        new, network_slug=slug, role=None if role is None else Role(role), now=_now()
    )
    answer: dict[str, Any] = {"user_id": user.user_id, "name": user.name, "admin": user.is_admin}
    if network is not None and given is not None:
        answer |= {"network_id": network.network_id, "network": network.slug, "role": given.value}
    _say(answer)


def _password_from_stdin() -> str:
    octets = sys.stdin.buffer.read(_MOST_PASSWORD_OCTETS)
    try:
        # The newline that `echo` adds is no part of it.
        return octets.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        _refuse("The password must be UTF-8 text.")


@click.command("create-token")
@click.argument("name")
@click.option("--network", "slug", metavar="SLUG", help="Bind the token to this network of theirs.")
@click.option("--expires-days", type=int, metavar="N", help="Days until it expires; without it, never.")
@with_appcontext
@_speaks_plainly
def create_token(name: str, slug: str | None, expires_days: int | None) -> None:
    """Make a token for a person. Prints the token alone; it is shown this once."""
    actor = _actor_named(name)
    network = None if slug is None else _network(slug)
    issued = operations.create_user_token(
        actor,
        "command line",
        network_id=None if network is None else network.network_id,
        expires_days=expires_days,
        now=_now(),
    )
    click.echo(issued.text)


@click.command("create-node")
@click.argument("alias")
@click.option("--network", "slug", metavar="SLUG", required=True, help="The network it works in.")
@with_appcontext
@_speaks_plainly
def create_node(alias: str, slug: str) -> None:
    """Make a node. Prints its id and its token, which is shown this once, as JSON."""
    node, token = nodes.create_node(None, _network(slug).id, alias, now=_now())
    _say({"node_id": node.node_id, "token": token})


@click.command("tick")
@with_appcontext
@_speaks_plainly
def tick() -> None:
    """Do one pass of the worker. Prints counts as JSON."""
    config = cast(Config, current_app.extensions["carillon_config"])
    clock = cast(Clock, current_app.extensions["carillon_clock"])
    worker = Worker(BatchSize(config.batch_size, config.batch_fixed), started_at=clock.now())
    _say(single_pass(worker, clock))


@click.command("doctor")
@with_appcontext
@_speaks_plainly
def doctor() -> None:
    """Check what must always hold. Prints JSON; exit status 1 on a violation."""
    violations = examine()
    _say({"ok": not violations, "violations": violations})
    if violations:
        raise SystemExit(1)


@click.command("prune")
@with_appcontext
@_speaks_plainly
def prune() -> None:
    """Delete history older than its retention. Prints counts as JSON."""
    _say(prune_history(now=_now()))


def _actor_named(name: str) -> Actor:
    with reading() as session:
        user = queries.user_by_name(session, name)
        person = None if user is None else queries.person_of(session, user_pk=user.id)
    if user is None:
        raise AppError("user_not_found", message=f"There is nobody called {name}.")
    if person is None:
        raise AppError("user_not_found", message=f"{user.name} is deactivated.")
    return person.actor


def _network(slug: str) -> Network:
    with reading() as session:
        network = queries.network_by_slug(session, slug)
    if network is None:
        raise AppError("network_not_found", message=f"There is no network with the short name {slug}.")
    return network
