"""Sends each engine to its own database when one is set for it."""

from typing import Any

from django.conf import settings
from django.db.models import Model

ENGINES = ("notify", "receipts")
#: Business tables stand beside each engine, because an engine's statements join them.
EVERYWHERE = ("portal",)


class EngineRouter:
    """Route ``notify`` and ``receipts`` to the alias of their name; all else stays in ``default``."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return the engine's own alias, or None for "no opinion"."""
        label = model._meta.app_label
        return label if label in ENGINES and label in settings.DATABASES else None

    db_for_write = db_for_read

    def allow_relation(self, first: Model, second: Model, **hints: Any) -> bool | None:
        """Let rows that sit in the same database be related."""
        return True if first._state.db == second._state.db else None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Create an engine's tables in its own database only, the business tables in each."""
        if app_label in EVERYWHERE:
            return True
        home = app_label if app_label in ENGINES and app_label in settings.DATABASES else "default"
        return db == home
