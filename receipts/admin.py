"""Registers the pages; they need the app ``desk``, without which the engine runs as before."""

from django.apps import apps

if apps.is_installed("desk"):
    from .pages import api, measures, panels, plans, receipts, reconciling, runs  # noqa: F401
