"""The WSGI entry (`app:app`), and `python app.py`: web and worker together; with `--demo`, a node too."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from flask import Flask

from webapp import create_app, demo
from webapp.config import DEMO_DATABASE_URL, Config, ConfigError
from webapp.identity.operations import issue_set_up_link
from webapp.store import engine, schema
from webapp.web.companions import Companion, run_together
from webapp.web.server import serve

_HERE = Path(__file__).resolve()
_COUNT_WORDS = "import sys; print(len(sys.stdin.read().split()), 'words')"
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - what to show for them


class StartError(Exception):
    """Why the program cannot start, in one sentence."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the pages and the API, with a worker beside them; returns the exit status."""
    asked = _parse(arguments)
    if asked.demo and not os.environ.get("CARILLON_DATABASE_URL"):
        # Said here, so that the programs which are started from here open the same one.
        os.environ["CARILLON_DATABASE_URL"] = DEMO_DATABASE_URL
    companions: list[Companion] = []
    try:
        app = create_app()
        config: Config = app.extensions["carillon_config"]
        if not asked.prepared:
            _demand_free_port(asked.host, asked.port)
            companions = _prepare(app, config, asked)
    except (ConfigError, StartError, demo.NotADemo) as error:
        click.echo(str(error), err=True)
        return 2
    if asked.no_worker:
        serve(create_app, asked.host, asked.port, processes=config.web_processes)
        return 0
    here = [sys.executable, str(_HERE)]
    web = [*here, "--no-worker", "--prepared", "--host", asked.host, "--port", str(asked.port)]
    worker = [sys.executable, str(_HERE.with_name("scheduler_worker.py"))]
    return run_together(web, [Companion("worker", worker), *companions], app.extensions["carillon_clock"])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.demo and asked.no_worker:
        parser.error("--demo starts everything: it goes without --no-worker")
    return asked


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=8000, help="the port (default: %(default)s)")
    parser.add_argument(
        "--no-worker", action="store_true", help="serve only; run scheduler_worker.py yourself"
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="with a sample network and a sample node, in a database of its own",
    )
    # Said by the first process to the one that it starts for serving.
    parser.add_argument("--prepared", action="store_true", help=argparse.SUPPRESS)
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"a port is a number from 1 to 65535, not {text!r}")
    return int(text)


def _demand_free_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise StartError(
                f"Cannot listen on {host} port {port} ({error.strerror}): choose another with --host or --port."
            ) from error


def _prepare(app: Flask, config: Config, asked: argparse.Namespace) -> list[Companion]:
    """Bring the database up to date and say how to get in; returns what runs beside web and worker."""
    address = _address(config, asked.host, asked.port)
    with app.app_context():
        with engine().connect() as connection:
            state = schema.schema_state(connection)
        if state is schema.SchemaState.AHEAD:
            raise StartError("The database belongs to a newer version of Carillon than this one.")
        if state is not schema.SchemaState.CURRENT:
            schema.upgrade()
        now = app.extensions["carillon_clock"].now()
        sample = demo.furnish(now=now) if asked.demo else None
        link = issue_set_up_link(now=now)
        # No connection may cross into the processes that follow.
        engine().dispose()
    click.echo(f"Carillon at {address}")
    if link is not None:
        click.echo(f"Nobody is here yet. Create the owner, once, at:\n  {address}/setup?token={link}")
    if sample is None:
        return []
    click.echo(f"Sign in as {sample.owner} with the password of this start:\n  {sample.password}")
    return [_sample_node(config, sample.node_token, asked.host, asked.port)]


def _sample_node(config: Config, token: str, host: str, port: int) -> Companion:
    """The example node, which counts the words of each task that it pulls."""
    command = [
        sys.executable,
        str(_HERE.parent / "examples" / "node.py"),
        *("--url", _local(host, port), "--name", demo.WORKING_NODE),
        *("--state", str(config.folder / "demo-node.json")),
        *("--", sys.executable, "-c", _COUNT_WORDS),
    ]
    reached = (_ANY_ADDRESS.get(host, host), port)
    return Companion("sample node", command, {"CARILLON_NODE_TOKEN": token}, lambda: _listens(reached))


def _listens(address: tuple[str, int]) -> bool:
    """Whether the web server takes calls by now: a node that comes before it would only complain."""
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


def _address(config: Config, host: str, port: int) -> str:
    return config.public_url or _local(host, port)


def _local(host: str, port: int) -> str:
    """The address at which this machine reaches itself, whatever others call it."""
    shown = _ANY_ADDRESS.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"


def _create_or_leave() -> Flask:
    try:
        return create_app()
    except ConfigError as error:
        click.echo(str(error), err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    sys.exit(main())
else:
    app = _create_or_leave()
