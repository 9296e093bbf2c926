"""Registers the pages; they need the app ``kwit``."""

from django.apps import apps

from kwit.commands import is_recurring_command

if apps.is_installed("kwit") and not is_recurring_command():
    from . import pages  # noqa: F401
