"""What people, networks and tokens may be called. Pure."""

from __future__ import annotations

import re
import unicodedata

from webapp.errors import AppError

MAX_USER_NAME, MAX_NETWORK_NAME, MAX_LABEL = 80, 120, 120
# Control characters, halves of surrogate pairs and characters that turn the writing around: none of them is
# seen, so two names that look the same would be different people.
_UNSEEN = frozenset({"Cc", "Cs", "Cf", "Co", "Cn", "Zl", "Zp"})
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])")


def _clean(value: object, longest: int, code: str, field: str, *, may_be_empty: bool = False) -> str:
    if not isinstance(value, str):
        raise AppError(code, field=field)
    text = unicodedata.normalize("NFC", value).strip()
    if len(text) > longest or not (text or may_be_empty):
        raise AppError(code, field=field)
    if any(unicodedata.category(letter) in _UNSEEN for letter in text):
        raise AppError(code, field=field)
    return text


def user_name(value: object, *, field: str = "name") -> str:
    """A person's name, trimmed, 1 to 80 visible characters. Raises AppError `invalid_user_name`."""
    name = _clean(value, MAX_USER_NAME, "invalid_user_name", field)
    if len(name_key(name)) > 2 * MAX_USER_NAME:
        raise AppError("invalid_user_name", field=field)
    return name


def name_key(name: str) -> str:
    """What two spellings of one name share: NFKC, case folded, blanks run together."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(folded.split())


def network_name(value: object, *, field: str = "name") -> str:
    """A network's name, trimmed, 1 to 120 visible characters. Raises AppError `invalid_network_name`."""
    return _clean(value, MAX_NETWORK_NAME, "invalid_network_name", field)


def slug(value: object, *, field: str = "slug") -> str:
    """A network's short name: 2 to 40 of a-z, 0-9 and dashes inside. Raises AppError `invalid_slug`."""
    if not isinstance(value, str) or _SLUG.fullmatch(value) is None:
        raise AppError("invalid_slug", field=field)
    return value


def label(value: object, *, field: str = "label") -> str:
    """What a token is for, at most 120 visible characters, may be empty. Raises AppError `invalid_label`."""
    return _clean(value, MAX_LABEL, "invalid_label", field, may_be_empty=True)
