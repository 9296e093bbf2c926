"""What the commands of notify share: a word of warning when another database is named than the site's."""

from typing import Any

from django.core.management.base import BaseCommand
from django.db import router

from ..models import Control


def elsewhere(alias: str | None) -> str:
    """Say that the site keeps notifications in another database than this one; an empty text when it does not."""
    home = router.db_for_write(Control)
    if alias in (None, home):
        return ""
    return (
        f"Warning: --database {alias}, but this site keeps notifications in {home!r} "
        f"(NOTIFY_DATABASE_URL or a router): its control table and its queues are not the ones worked on here."
    )


class NotifyCommand(BaseCommand):
    """Has ``--database``; says so on stderr when that is not where the site keeps notifications."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Warn, then run the command."""
        if text := elsewhere(options.get("database")):
            (options.get("stderr") or self.stderr).write(text + "\n")
        return super().execute(*args, **options)
