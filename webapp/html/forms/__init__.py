"""The forms of pages: they convert and check shape; what is allowed, the operations decide."""

from __future__ import annotations

from wtforms import Form

from webapp.errors import AppError


def blame(form: Form, refusal: AppError) -> None:
    """Write a refusal beside the field that it names. Raises it again where the form has no such field."""
    if refusal.field is None or refusal.field not in form:
        raise refusal
    field = form[refusal.field]
    field.errors = [*field.errors, refusal.message]
