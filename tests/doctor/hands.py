"""What a test does to the database that the product never would."""

from __future__ import annotations

from sqlalchemy import Executable

from webapp.store.transaction import Tx, operation


@operation
def do(tx: Tx, *statements: Executable) -> None:
    """Change the database behind the product's back."""
    for statement in statements:
        tx.session.execute(statement)
