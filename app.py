"""The WSGI entry, and `python app.py`."""

from __future__ import annotations

from webapp import create_app

app = create_app()
