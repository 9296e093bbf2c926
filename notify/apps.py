from pathlib import Path

from django.apps import AppConfig, apps
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from kwit.commands import is_recurring_command


class NotifyConfig(AppConfig):
    """One message for each business event."""

    name = "notify"
    verbose_name = _("Notifications")

    def leftover_files(self, alias: str) -> list[Path]:
        """Return the files that this app makes beside a database: the lock file on SQLite."""
        from django.db import connections

        from .dialects import dialect_of
        from .dialects.sqlite import NotifySqlite

        dialect = dialect_of(connections[alias])
        path = dialect.lock_path(connections[alias]) if isinstance(dialect, NotifySqlite) else None
        return [path] if path is not None else []

    def ready(self) -> None:
        """Register the checks and find the steps in every app's ``notifications.py``."""
        from . import checks  # noqa: F401

        if not is_recurring_command():
            from . import mail_checks  # noqa: F401

            if apps.is_installed("anymail"):
                from .delivery import anymail

                anymail.connect()

        autodiscover_modules("notifications")
