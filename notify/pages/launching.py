"""Starts a pass in a process of its own: a web worker's transaction or time limit must not end it."""

import os
import subprocess
import sys
import threading
from uuid import UUID

from django.conf import settings


def start_pass(pass_id: UUID, *, using: str) -> None:
    """Start ``notify_pass`` with this id and return at once. Raises: OSError when no process can be started."""
    command = [sys.executable, "-m", "django", "notify_pass", "--json", "--pass-id", str(pass_id), "--database", using]
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.Popen(  # noqa: S603 - nothing of it comes from the request
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    # Somebody has to take note of its end, or it stays in the process table until the web worker ends.
    threading.Thread(target=process.wait, name=f"pass-{pass_id}", daemon=True).start()
