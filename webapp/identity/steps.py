"""What others may have done to tokens inside their own transaction."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, update

from webapp.identity.models import EndedSession, SignInThrottle, Token, TokenKind
from webapp.identity.tokens import new_token_text, token_hash, token_hint
from webapp.ids import new_id
from webapp.store.transaction import Tx

_THROTTLE_KEPT = timedelta(days=1)


def issue_node_token(tx: Tx, node_pk: int, network_pk: int, now: datetime) -> str:
    """Give a node one more token; returns its text, which is stored nowhere. It never expires by itself."""
    text = new_token_text(TokenKind.NODE)
    tx.session.add(
        Token(
            token_id=new_id("tok"),
            kind=TokenKind.NODE,
            token_hash=token_hash(text),
            hint=token_hint(text),
            label="",
            node_pk=node_pk,
            network_pk=network_pk,
            created_at=now,
        )
    )
    tx.session.flush()
    return text


def revoke_node_tokens(tx: Tx, node_pk: int, now: datetime) -> int:
    """End every token of a node that is not revoked yet, from now on; returns how many there were."""
    result = tx.session.execute(
        update(Token).where(Token.node_pk == node_pk, Token.revoked_at.is_(None)).values(revoked_at=now)
    )
    return int(result.rowcount)  # type: ignore[attr-defined]


def forget_old_door_rows(tx: Tx, now: datetime) -> int:
    """Delete sign-in counters that no longer matter and ended sessions whose cookie is dead by age.

    Returns the number of rows deleted.
    """
    counters = delete(SignInThrottle).where(
        SignInThrottle.first_failure_at < now - _THROTTLE_KEPT,
        SignInThrottle.blocked_until.is_(None) | (SignInThrottle.blocked_until < now - _THROTTLE_KEPT),
    )
    sessions = delete(EndedSession).where(EndedSession.dead_after < now)
    deleted = 0
    for statement in (counters, sessions):
        deleted += int(tx.session.execute(statement).rowcount)  # type: ignore[attr-defined]
    return deleted
