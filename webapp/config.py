"""Settings from the environment, checked once at the start."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_ROOT = Path(__file__).resolve().parent.parent
_DATABASE_PREFIXES = ("sqlite:///", "postgresql+psycopg://")
# The demo never touches the schedules of `make run`.
DEMO_DATABASE_URL = "sqlite:///instance/demo.db"


class ConfigError(Exception):
    """A setting that cannot be used; its text is one sentence naming the variable."""


@dataclass(frozen=True)
class Config:
    """Everything that an operator can set. Units stand in the names."""

    database_url: str
    secret_key: str
    public_url: str | None = None
    tick_seconds: float = 10.0
    batch_size: int = 500
    batch_fixed: bool = False
    run_retention_days: int = 90
    trusted_proxies: int = 0
    log_format: str = "text"
    testing: bool = False

    @property
    def https(self) -> bool:
        """Whether people reach us by https, so that cookies may demand it."""
        return self.public_url is not None and self.public_url.startswith("https://")

    @property
    def web_processes(self) -> int:
        """How many web processes serve well: a file has one writer at a time, a server many."""
        return 1 if self.database_url.startswith(_DATABASE_PREFIXES[0]) else 2

    @property
    def folder(self) -> Path:
        """Where a program may keep a small file of its own: beside a database that is a file, else `instance/`."""
        prefix = _DATABASE_PREFIXES[0]
        if self.database_url.startswith(prefix):
            return Path(self.database_url.removeprefix(prefix)).parent
        return _ROOT / "instance"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Config:
        """Read the `CARILLON_*` variables.

        Raises ConfigError with one sentence that names the variable with the bad value.
        """
        env = os.environ if environment is None else environment
        instance = _ROOT / "instance"
        database_url = env.get("CARILLON_DATABASE_URL") or "sqlite:///instance/carillon.db"
        return cls(
            database_url=_database_url(database_url),
            secret_key=env.get("CARILLON_SECRET_KEY") or _kept_secret(instance),
            public_url=_public_url(env.get("CARILLON_PUBLIC_URL")),
            tick_seconds=_number(env, "CARILLON_TICK_SECONDS", 10.0, 0.05, 3600),
            batch_size=int(_number(env, "CARILLON_BATCH_SIZE", 500, 1, 5000, whole=True)),
            batch_fixed=_flag(env, "CARILLON_BATCH_FIXED"),
            run_retention_days=int(_number(env, "CARILLON_RUN_RETENTION_DAYS", 90, 1, 36500, whole=True)),
            trusted_proxies=int(_number(env, "CARILLON_TRUSTED_PROXIES", 0, 0, 10, whole=True)),
            log_format=_choice(env, "CARILLON_LOG_FORMAT", "text", ("text", "json")),
        )


def _database_url(url: str) -> str:
    if not url.startswith(_DATABASE_PREFIXES):
        raise ConfigError(
            "CARILLON_DATABASE_URL must start with sqlite:/// or postgresql+psycopg:// "
            f"and does not: {urlsplit(url).scheme or 'no scheme'}."
        )
    prefix = _DATABASE_PREFIXES[0]
    if not url.startswith(prefix):
        return url
    # A relative path would be taken from another folder by the extension: make it absolute here.
    path = Path(url.removeprefix(prefix))
    if not path.is_absolute():
        path = _ROOT / path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return prefix + str(path)


def _public_url(url: str | None) -> str | None:
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            "CARILLON_PUBLIC_URL must be an http or https address such as https://carillon.example."
        )
    return url.rstrip("/")


def _number(
    env: Mapping[str, str], name: str, default: float, least: float, most: float, *, whole: bool = False
) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(int(text)) if whole else float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        kind = "whole number" if whole else "number"
        raise ConfigError(f"{name} must be a {kind} from {least:g} to {most:g}, not {text!r}.")
    return value


def _flag(env: Mapping[str, str], name: str) -> bool:
    return _choice(env, name, "0", ("0", "1")) == "1"


def _choice(env: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = env.get(name) or default
    if value not in allowed:
        raise ConfigError(f"{name} must be {' or '.join(allowed)}, not {value!r}.")
    return value


def _kept_secret(instance: Path) -> str:
    """The secret made at the first start; the file is for its owner's eyes only."""
    path = instance / "secret_key"
    instance.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_secret(path)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(48))
    return _read_secret(path)


def _read_secret(path: Path) -> str:
    try:
        secret = path.read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"CARILLON_SECRET_KEY is not set and {path} cannot be read: {error.strerror}."
        ) from error
    if len(secret) < 32:
        raise ConfigError(
            f"CARILLON_SECRET_KEY is not set and {path} holds no usable key: delete it and start again."
        )
    return secret
