"""Starts a command in a process of its own: a web worker's transaction or time limit must not end it."""

import os
import subprocess
import sys
import threading

from django.conf import settings


def start_command(*arguments: str) -> None:
    """Start ``manage.py`` with these arguments and return at once. Raises: OSError when no process can be started."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.Popen(  # noqa: S603 - nothing of it comes from the request
        [sys.executable, "-m", "django", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    # Somebody has to take note of its end, or it stays in the process table until the web worker ends.
    threading.Thread(target=process.wait, name=f"{arguments[0]}-{process.pid}", daemon=True).start()
