"""Finds variables of the environment that look like settings but that the site's settings do not read."""

import os
from collections.abc import Mapping

from django.conf import settings
from django.core.checks import CheckMessage, Warning


def check_environment(setting: str, variables: Mapping[str, str], *, id: str) -> list[CheckMessage]:
    """
    Warn of each variable that is set while the key it stands for is not in ``settings.<setting>``.

    ``variables`` are names of variables with their keys: only the reference project reads them, and in a host project
    ``NOTIFY_NOT_BEFORE=2026-01-31 manage.py notify_pass`` would notify everything that is older.
    """
    given = getattr(settings, setting, {})
    unread = [name for name, key in variables.items() if os.environ.get(name) and key not in given]
    return [
        Warning(
            f"{name} is set in the environment, but the settings do not read it into {setting}",
            hint=f'Set {setting} = {{"{variables[name]}": …}} in the settings, or remove the variable.',
            id=id,
        )
        for name in sorted(unread)
    ]
