"""Settings from the environment, checked once at the start."""

from __future__ import annotations

import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_ROOT = Path(__file__).resolve().parent.parent
_DATABASE_PREFIXES = ("sqlite:///", "postgresql+psycopg://")
# The demo never touches the schedules of `make run`.
DEMO_DATABASE_URL = "sqlite:///instance/demo.db"
# The model that needs no key and reaches no network.
ECHO = "echo"
_PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", re.ASCII)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MAX_MODEL_NAME = 200


class ConfigError(Exception):
    """A setting that cannot be used; its text is one sentence naming the variable."""


@dataclass(frozen=True)
class ModelProfile:
    """A model as the operator named it, and what one turn with it may use.

    `timeout_seconds` bounds each stretch of a turn's work, `request_timeout_seconds` one request to the model;
    `max_requests` and `max_tokens` (read and written) bound a whole turn, `max_output_tokens` what one answer may
    write. The key itself is nowhere in here: only where it is found when it is needed.
    """

    name: str
    base_url: str
    model: str
    api_key_env: str | None = None
    api_key_file: Path | None = None
    timeout_seconds: int = 600
    request_timeout_seconds: int = 200
    max_tokens: int = 100_000
    max_output_tokens: int = 4096
    max_requests: int = 20


ECHO_PROFILE = ModelProfile(ECHO, base_url="", model=ECHO)


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
    # How long a turn waits for an answer of a person; None: the rule of the schedule.
    approval_seconds: int | None = None
    models: tuple[ModelProfile, ...] = (ECHO_PROFILE,)
    default_model: str = ECHO
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
        models, default_model = _models(env.get("CARILLON_MODELS_FILE"))
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
            approval_seconds=_approval_seconds(env),
            models=models,
            default_model=default_model,
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


def _approval_seconds(env: Mapping[str, str]) -> int | None:
    seconds = int(_number(env, "CARILLON_APPROVAL_SECONDS", 0, 1, 31_536_000, whole=True))
    return seconds or None


def _models(path: str | None) -> tuple[tuple[ModelProfile, ...], str]:
    """The profiles of the file, then the built-in one; and which of them is meant where none is named."""
    if not path:
        return (ECHO_PROFILE,), ECHO
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _bad_models(f"names {path}, which cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _bad_models(f"names {path}, which is not TOML: {error}") from error
    tables = content.pop("profiles", None)
    default = content.pop("default", None)
    if content:
        raise _bad_models(
            f"holds {min(content)!r}, which is not known; it takes 'default' and [profiles.NAME]"
        )
    if not isinstance(tables, dict) or not tables:
        raise _bad_models(f"names {path}, which has no [profiles.NAME] table")
    profiles = tuple(_model_profile(name, table, file.parent) for name, table in tables.items())
    names = [*tables, ECHO]
    if default is None:
        default = names[0]
    if default not in names:
        raise _bad_models(f"has the default {default!r}, which is none of its profiles")
    return (*profiles, ECHO_PROFILE), default


def _model_profile(name: str, table: object, folder: Path) -> ModelProfile:
    if not isinstance(table, dict):
        raise _bad_models(f"needs a table [profiles.{name}]")
    if _PROFILE_NAME.fullmatch(name) is None or name == ECHO:
        raise _bad_models(
            f"has a profile {name!r}; a name is letters, digits, '.', '_' and '-', and not 'echo'"
        )
    fields = dict(table)
    base_url = _profile_text(name, fields, "base_url", 500)
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise _bad_models(
            f"has in profile {name!r} a base_url that is no http or https address without a login"
        )
    model = _profile_text(name, fields, "model", _MAX_MODEL_NAME)
    variable = _profile_text(name, fields, "api_key_env", 200) if "api_key_env" in fields else None
    key_file = _profile_text(name, fields, "api_key_file", 1000) if "api_key_file" in fields else None
    if variable is not None and (key_file is not None or _VARIABLE_NAME.fullmatch(variable) is None):
        # The words are not shown: somebody may have put the key itself here.
        raise _bad_models(
            f"needs in profile {name!r} the name of one variable in api_key_env, or api_key_file"
        )
    timeout = _profile_number(name, fields, "timeout_seconds", 600, 1, 86_400)
    profile = ModelProfile(
        name=name,
        base_url=base_url.rstrip("/"),
        model=model,
        api_key_env=variable,
        api_key_file=None if key_file is None else folder / key_file,
        timeout_seconds=timeout,
        # So that three tries fit into one stretch.
        request_timeout_seconds=_profile_number(
            name, fields, "request_timeout_seconds", max(1, timeout // 3), 1, timeout
        ),
        max_tokens=_profile_number(name, fields, "max_tokens", 100_000, 100, 1_000_000_000),
        max_output_tokens=_profile_number(name, fields, "max_output_tokens", 4096, 16, 1_000_000_000),
        max_requests=_profile_number(name, fields, "max_requests", 20, 1, 1000),
    )
    if fields:
        raise _bad_models(f"has in profile {name!r} the field {min(fields)!r}, which is not known")
    return profile


def _profile_text(name: str, fields: dict[str, Any], field: str, most: int) -> str:
    value = fields.pop(field, None)
    if not isinstance(value, str) or not 1 <= len(value.strip()) <= most:
        raise _bad_models(f"needs in profile {name!r} a text as {field}")
    return value.strip()


def _profile_number(
    name: str, fields: dict[str, Any], field: str, default: int, least: int, most: int
) -> int:
    value = fields.pop(field, default)
    if type(value) is not int or not least <= value <= most:
        raise _bad_models(f"needs in profile {name!r} a whole number from {least} to {most} as {field}")
    return value


def _bad_models(fault: str) -> ConfigError:
    return ConfigError(f"CARILLON_MODELS_FILE {fault}.")


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
