"""What the commands of kwit share: how they name a database and say what went wrong."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections


class KwitCommand(BaseCommand):
    """Ends with one line for what the database refuses; with ``--json`` an error is one JSON object on stdout, too."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command. Raises: CommandError."""
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            self.tell_error(error, options)
            raise
        except DatabaseError as error:
            refused = CommandError(f"database {options.get('database') or 'of the site'}: {str(error).strip()}")
            self.tell_error(refused, options)
            raise refused from error

    def tell_error(self, error: CommandError, options: dict[str, Any]) -> None:
        """Print an error for a program."""
        if options.get("is_json"):
            self.stdout.write(json.dumps({"error": str(error)}))

    def add_database(self, parser: ArgumentParser, text: str) -> None:
        """Declare ``--database``."""
        parser.add_argument("--database", choices=tuple(connections), metavar="ALIAS", help=text)
