"""Registers the pages; they need the app ``kwit``."""

from django.apps import apps

if apps.is_installed("kwit"):
    from . import pages  # noqa: F401
