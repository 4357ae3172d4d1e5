"""Importing this imports every module of the product: what a herd does once, so that its children need not."""

from __future__ import annotations

import importlib
import pkgutil

import gunicorn.app.base
import gunicorn.workers.gthread  # noqa: F401

import webapp

for module in pkgutil.walk_packages(webapp.__path__, "webapp."):
    importlib.import_module(module.name)
