"""The one door to the database: sessions, transactions, and every engine difference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from flask import Flask, current_app
from flask_migrate import Migrate
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from webapp.clock import Clock
from webapp.config import Config
from webapp.store import dialect
from webapp.store.base import Base

db = SQLAlchemy(metadata=Base.metadata, session_options={"autoflush": False, "expire_on_commit": False})
migrate = Migrate(render_as_batch=True, compare_type=True)


def init_store(app: Flask, database_url: str) -> None:
    """Bind the app to its database."""
    app.config["SQLALCHEMY_DATABASE_URI"] = database_url
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = dialect.engine_options(database_url)
    db.init_app(app)
    migrate.init_app(app, db)
    with app.app_context():
        dialect.prepare(db.engine)


def engine() -> Engine:
    """The engine of the current app."""
    return db.engine


@contextmanager
def reading() -> Iterator[Session]:
    """A short session for reading, outside a web request (which has `db.session`)."""
    with Session(db.engine, autoflush=False, expire_on_commit=False) as session:
        yield session


def app_config() -> Config:
    """The settings of the current app, for those below the web that must not know the web's framework."""
    return cast(Config, current_app.extensions["carillon_config"])


def app_clock() -> Clock:
    """The clock of the current app."""
    return cast(Clock, current_app.extensions["carillon_clock"])
