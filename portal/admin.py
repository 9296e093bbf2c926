"""Registers the pages; they need the app ``desk``."""

from django.apps import apps

if apps.is_installed("desk"):
    from . import pages  # noqa: F401
