"""Reading bodies is the same for forms; it lives with what both edges share."""

from __future__ import annotations

from webapp.web.body import Model, parse

__all__ = ["Model", "parse"]
