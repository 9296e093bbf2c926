"""What the engines' migrations share: going back would delete what the two promises rest on."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.core.management.base import CommandError

#: Set to 1 for the one command that is meant to delete everything.
MEANT = "KWIT_MIGRATE_BACK"
#: True while a program deletes everything after it has asked on its own.
_is_meant: ContextVar[bool] = ContextVar("is_meant", default=False)


@contextmanager
def allow_going_back() -> Iterator[None]:
    """Let migrations go back over rows: whoever calls this has asked before."""
    before = _is_meant.set(True)
    try:
        yield
    finally:
        _is_meant.reset(before)


def refuse_while_rows(app: str, lost: str) -> Callable[[Any, Any], None]:
    """
    Return the way back of a migration that is refused while a table of the app has rows.

    ``lost`` says what going back would do. Raises: CommandError, before anything is changed.
    """

    def refuse(apps: Any, schema_editor: Any) -> None:
        if _is_meant.get() or os.environ.get(MEANT) == "1":
            return
        alias = schema_editor.connection.alias
        models = apps.get_app_config(app).get_models()
        if full := [m._meta.db_table for m in models if m._default_manager.using(alias).exists()]:
            raise CommandError(
                f"{', '.join(sorted(full))} have rows: going back would {lost}. Nothing was changed. "
                f"If that is meant: {MEANT}=1 manage.py migrate {app} …"
            )

    return refuse
