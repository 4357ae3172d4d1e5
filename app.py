"""The WSGI entry (`app:app`), and `python app.py`: web and worker together."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from flask import Flask

from webapp import create_app
from webapp.config import Config, ConfigError
from webapp.identity.operations import issue_set_up_link
from webapp.store import engine, schema
from webapp.web.companions import Companion, run_together
from webapp.web.server import serve

_HERE = Path(__file__).resolve()
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - what to show for them


class StartError(Exception):
    """Why the program cannot start, in one sentence."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the pages and the API, with a worker beside them; returns the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        app = create_app()
        config: Config = app.extensions["carillon_config"]
        if not asked.prepared:
            _demand_free_port(asked.host, asked.port)
            _prepare(app, _address(config, asked.host, asked.port))
    except (ConfigError, StartError) as error:
        click.echo(str(error), err=True)
        return 2
    if asked.no_worker:
        serve(create_app, asked.host, asked.port, processes=config.web_processes)
        return 0
    here = [sys.executable, str(_HERE)]
    web = [*here, "--no-worker", "--prepared", "--host", asked.host, "--port", str(asked.port)]
    worker = [sys.executable, str(_HERE.with_name("scheduler_worker.py"))]
    return run_together(web, [Companion("worker", worker)], app.extensions["carillon_clock"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=8000, help="the port (default: %(default)s)")
    parser.add_argument(
        "--no-worker", action="store_true", help="serve only; run scheduler_worker.py yourself"
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


def _prepare(app: Flask, address: str) -> None:
    """Bring the database up to date and, while nobody exists, print the link that lets the first one in."""
    with app.app_context():
        with engine().connect() as connection:
            state = schema.schema_state(connection)
        if state is schema.SchemaState.AHEAD:
            raise StartError("The database belongs to a newer version of Carillon than this one.")
        if state is not schema.SchemaState.CURRENT:
            schema.upgrade()
        link = issue_set_up_link(now=app.extensions["carillon_clock"].now())
        # No connection may cross into the processes that follow.
        engine().dispose()
    click.echo(f"Carillon at {address}")
    if link is not None:
        click.echo(f"Nobody is here yet. Create the owner, once, at:\n  {address}/setup?token={link}")


def _address(config: Config, host: str, port: int) -> str:
    shown = _ANY_ADDRESS.get(host, host)
    return config.public_url or f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"


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
