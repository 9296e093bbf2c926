"""The demo: a database of its own, the story on real rows, and a user for the admin."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.utils.crypto import get_random_string

from kwit.people import groups
from notify.models import RunLog
from receipts.models import Change

from .story_notify import play_notify
from .story_receipts import play_receipts

HOST = "127.0.0.1"
USER = "demo"
PASSWORD_CHARS = 16


def set_up(say: Callable[[str], None]) -> None:
    """Choose the demo's database and create its tables; a database that somebody has named is only added to."""
    if not settings.DEBUG:
        raise CommandError("the demo makes a superuser, so it runs with DEBUG=1 only (make demo sets it)")
    use_own_file()
    for alias in connections:
        call_command("migrate", database=alias, verbosity=0, interactive=False)
    for alias, name in names().items():
        say(f"Database {alias}: {name}")


def names() -> dict[str, str]:
    """Return each database's engine and name, by alias."""
    known = {alias: connections[alias].settings_dict for alias in connections}
    return {alias: f"{each['ENGINE'].rpartition('.')[2]}, {each['NAME']}" for alias, each in known.items()}


def use_own_file() -> None:
    """Start from an empty file of the demo's own when nobody has said which database to use."""
    database = connections[DEFAULT_DB_ALIAS].settings_dict
    own = Path(settings.VAR_DIR) / "demo.sqlite3"
    if database["NAME"] not in (str(Path(settings.VAR_DIR) / "kwit.sqlite3"), str(own)):
        return
    connections[DEFAULT_DB_ALIAS].close()
    for path in own.parent.glob(own.name + "*"):
        path.unlink()
    # Every connection of this process, also those of the server's threads, is made from this one dict.
    database["NAME"] = str(own)


def play(say: Callable[[str], None], *, using: str | None = None) -> None:
    """Play the whole story, each part where its engine lives unless one database is named."""
    play_notify(say, using=using or router.db_for_write(RunLog))
    play_receipts(say, using=using or router.db_for_write(Change))


def make_groups(say: Callable[[str], None]) -> None:
    """Make the ready-made groups, so that people can be put into them."""
    made = [one.group for one in groups.make_groups(all_tenants=True)]
    say(f"\nGroups for people, to be given under Users: {', '.join(made)}")


def make_user() -> str:
    """Make the demo's superuser, or keep it, with a new password that is stored nowhere in clear; return it."""
    password = get_random_string(PASSWORD_CHARS)
    user, _ = get_user_model().objects.get_or_create(username=USER)
    user.is_staff = user.is_superuser = user.is_active = True
    user.set_password(password)
    user.save()
    return password


def check_port(port: int) -> None:
    """Make sure that the admin can be served. Raises: CommandError when the port is taken."""
    with socket.socket() as probe:
        # As the server itself will do, so that a connection that has just ended does not count as somebody.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandError(
                f"port {port} on {HOST} cannot be used ({error.strerror}): stop the program that listens there, "
                f"choose another one (make demo PORT={port + 1}), or play the story only (make demo SERVE=0)"
            ) from error


def serve(*, port: int, stdout: Any) -> None:
    """Serve the admin until Ctrl-C; what the server says goes to ``stdout``."""
    call_command("runserver", f"{HOST}:{port}", use_reloader=False, stdout=stdout)
