"""The models that the operator has set up, by name, and the keys to them.

A key is read when it is needed, from the environment or from a file, and is kept nowhere: not in the database, not
in a log, not in a message.
"""

from __future__ import annotations

import os

from webapp.config import ECHO, ModelProfile
from webapp.errors import AppError
from webapp.store import app_config


class NoKey(Exception):
    """The profile names a key that is not there; the text says where it was looked for."""


def all_profiles() -> tuple[ModelProfile, ...]:
    """Every profile, in the order of the operator's file; the built-in `echo` comes last."""
    return app_config().models


def default_name() -> str:
    """The profile that is meant where nobody names one."""
    return app_config().default_model


def find(name: str | None) -> ModelProfile | None:
    """The profile of this name (None = the default one); None when it is not set up."""
    wanted = name or default_name()
    return next((profile for profile in all_profiles() if profile.name == wanted), None)


def demand(name: str | None) -> ModelProfile:
    """The profile of this name (None = the default one). Raises AppError `invalid_model`."""
    profile = find(name)
    if profile is None:
        raise AppError("invalid_model", field="model")
    return profile


def refusal(name: str | None) -> str | None:
    """`model_unavailable` when the profile is not set up or its key is missing here, else None."""
    profile = find(name)
    if profile is None:
        return "model_unavailable"
    try:
        read_key(profile)
    except NoKey:
        return "model_unavailable"
    return None


def time_limit_seconds(name: str | None) -> int:
    """How long one stretch of a turn with this profile may take; a profile that is gone has the usual limit."""
    profile = find(name)
    return ModelProfile.timeout_seconds if profile is None else profile.timeout_seconds


def read_key(profile: ModelProfile) -> str | None:
    """The key of a profile, or None where it needs none. Raises NoKey."""
    if profile.name == ECHO:
        return None
    if profile.api_key_env is not None:
        key = os.environ.get(profile.api_key_env, "").strip()
        if not key:
            raise NoKey(f"The variable {profile.api_key_env} is not set where the worker runs.")
        return key
    if profile.api_key_file is not None:
        try:
            key = profile.api_key_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            key = ""
        if not key or not key.isprintable():
            raise NoKey(f"The key file of the profile {profile.name} cannot be read or holds no key.")
        return key
    return None
