"""What the commands of notify share: how they name a database, read numbers, and say what went wrong."""

import contextlib
import json
import math
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Collection, Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections, router
from django.db.models import QuerySet

from ..models import Control, MailQueue

#: The greatest key of a row.
BIGGEST = 2**63 - 1


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
    """
    Has ``--database``; says so on stderr when that is not where the site keeps notifications.

    With ``--json`` an error is one JSON object on stdout, too, unless the command has told its own by then.
    """

    is_told = False

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Warn, then run the command. Raises: CommandError, also for what the database refuses."""
        if text := elsewhere(options.get("database")):
            (options.get("stderr") or self.stderr).write(text + "\n")
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            self.tell_error(error, options)
            raise
        except DatabaseError as error:
            alias = options.get("database") or router.db_for_write(Control)
            refused = CommandError(f"database {alias!r}: {str(error).strip()}")
            self.tell_error(refused, options)
            raise refused from error

    def tell_error(self, error: CommandError, options: dict[str, Any]) -> None:
        """Print an error for a program."""
        if options.get("is_json") and not self.is_told:
            self.stdout.write(json.dumps({"error": str(error)}))

    def add_database(self, parser: ArgumentParser, text: str) -> None:
        """Declare ``--database``."""
        parser.add_argument("--database", choices=tuple(connections), metavar="ALIAS", help=text)


def mails_of(ids: Collection[int], using: str | None) -> QuerySet[MailQueue, MailQueue]:
    """Return the mails of these ids. Raises: CommandError, when one is not there."""
    mails = MailQueue.objects.filter(pk__in=ids)
    if missing := sorted(set(ids) - set(mails.using(using).values_list("pk", flat=True))):
        raise CommandError(f"there is no mail {', '.join(map(str, missing))}; nothing was changed")
    return mails


@contextlib.contextmanager
def own_stdout(is_json: bool) -> Iterator[None]:
    """Keep stdout for the one JSON object: what a mail backend prints goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr) if is_json else contextlib.nullcontext():
        yield


def number_from(least: int) -> Callable[[str], int]:
    """Return a reader of whole numbers from ``least`` up that a database can keep."""

    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= BIGGEST:
            raise ArgumentTypeError(f"{text} is not from {least} to {BIGGEST}")
        return value

    read.__name__ = "whole number"
    return read


def seconds(text: str) -> float:
    """Read a number of seconds from 0 up."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value
