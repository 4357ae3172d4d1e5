"""Creating once although the request came twice."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Table, select

from webapp.errors import AppError
from webapp.identity.models import RequestKey
from webapp.store import dialect
from webapp.store.transaction import Tx

MAX_KEY_LENGTH = 200


@dataclass(frozen=True)
class Request:
    """A keyed request: who asks, for which operation, under which key, with which canonical input."""

    user_pk: int
    operation: str
    key: str
    canonical_input: Any

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the canonical input, as hexadecimal text."""
        text = json.dumps(self.canonical_input, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def check_key(key: str | None) -> str | None:
    """The key if it is usable. Raises AppError `invalid_idempotency_key` for another shape."""
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY_LENGTH or not all("!" <= letter <= "~" for letter in key):
        raise AppError("invalid_idempotency_key", field="idempotency_key")
    return key


def claim(tx: Tx, request: Request | None, subject_id: str, *, now: datetime) -> str | None:
    """Reserve the key for `subject_id`, the id of what is about to be made.

    Returns None when it is ours, or the id that an earlier request with the same key and input made. The
    row goes with the transaction: a refusal leaves no key behind. Two requests at once: the second waits
    for the first one's commit and then finds its id. Raises AppError `idempotency_conflict`.
    """
    if request is None:
        return None
    row = {
        "user_pk": request.user_pk,
        "operation": request.operation,
        "key": request.key,
        "fingerprint": request.fingerprint,
        "subject_id": subject_id,
        "created_at": now,
    }
    table = cast(Table, RequestKey.__table__)
    if dialect.insert_new(tx.session, table, [row], returning=[table.c.id]):
        return None
    return find(tx, request)


def find(tx: Tx, request: Request | None) -> str | None:
    """The id that an earlier request with this key made, or None when the key is new.

    Raises AppError `idempotency_conflict` when the earlier request had another input.
    """
    if request is None:
        return None
    earlier = tx.session.scalars(
        select(RequestKey).where(
            RequestKey.user_pk == request.user_pk,
            RequestKey.operation == request.operation,
            RequestKey.key == request.key,
        )
    ).one_or_none()
    if earlier is None:
        return None
    if earlier.fingerprint != request.fingerprint:
        raise AppError("idempotency_conflict", field="idempotency_key")
    return earlier.subject_id
