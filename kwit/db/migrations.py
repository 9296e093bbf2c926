"""What the engines' migrations share: going back would delete what the two promises rest on."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from django.core.management.base import CommandError

#: Set to 1 for the one command that is meant to delete everything.
MEANT = "KWIT_MIGRATE_BACK"


@contextlib.contextmanager
def meant() -> Iterator[None]:
    """Let the migrations inside go back although there are rows: somebody has confirmed it in another way."""
    before = os.environ.get(MEANT)
    os.environ[MEANT] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[MEANT]
        else:
            os.environ[MEANT] = before


def refuse_while_rows(app: str, lost: str) -> Callable[[Any, Any], None]:
    """
    Return the way back of a migration that is refused while a table of the app has rows.

    ``lost`` says what going back would do. Raises: CommandError, before anything is changed.
    """

    def refuse(apps: Any, schema_editor: Any) -> None:
        if os.environ.get(MEANT) == "1":
            return
        alias = schema_editor.connection.alias
        models = apps.get_app_config(app).get_models()
        if full := [m._meta.db_table for m in models if m._default_manager.using(alias).exists()]:
            raise CommandError(
                f"{', '.join(sorted(full))} have rows: going back would {lost}. Nothing was changed. "
                f"If that is meant: {MEANT}=1 manage.py migrate {app} …"
            )

    return refuse
