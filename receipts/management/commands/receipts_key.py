"""``manage.py receipts_key``."""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from ...errors import ReceiptsError
from ...sealing.keys import load_keys
from ...sealing.notes import SigningKey
from ..command import ReceiptsCommand


class Command(ReceiptsCommand):
    """Make a signing key, or show the verifier keys."""

    help = (
        "new: make a signing key and print its verifier key. show: print the verifier keys that this site knows. "
        "Exit: 0, or 1 when that cannot be done."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", choices=("new", "show"))
        parser.add_argument("name", nargs="?", metavar="NAME", help="with new: names the log: example.com/receipts")
        parser.add_argument("--file", metavar="FILE", help="with new: add the private key to it instead of printing it")

    def handle(self, *args: Any, **options: Any) -> None:
        if (options["action"] == "new") != bool(options["name"]):
            raise CommandError("new needs a NAME, and show takes none: receipts_key new example.com/receipts")
        try:
            return self.make(options) if options["action"] == "new" else self.show(options)
        except ReceiptsError as error:
            raise CommandError(str(error)) from error
        except ImportError as error:
            raise CommandError(f"the package 'cryptography' is missing: {error}") from error

    def make(self, options: dict[str, Any]) -> None:
        """Make a key; the private half goes into the file, readable for its owner only."""
        key = SigningKey.generate(options["name"])
        public = str(key.public)
        if options["file"] is None:
            self.print_result({"private": key.export(), "public": public}, key.export(), public)
            return
        try:
            # Appended: with the old and the new key in it, the next checkpoint is signed by both.
            handle = os.open(options["file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{key.export()}\n")
        except OSError as error:
            raise CommandError(f"{options['file']}: {error.strerror}") from error
        self.print_result({"public": public, "file": str(Path(options["file"]))}, public)

    def show(self, options: dict[str, Any]) -> None:
        """Print what others need to verify."""
        keys = load_keys()
        signing = {key.public.id for key in keys.signing}
        rows = [{"key": str(key), "signs": key.id in signing, "witness": key in keys.witnesses} for key in keys.known]
        self.print_result({"keys": rows}, *(str(key) for key in keys.known))
