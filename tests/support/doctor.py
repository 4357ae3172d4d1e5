"""The last step of every scenario: the product's own check of its invariants finds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask


def assert_doctor_clean(app: Flask) -> None:
    """Fail with the list of violated invariants, if any."""
    from webapp.doctor import examine

    with app.app_context():
        violations = examine()
    assert not violations, f"the doctor found {violations}"
