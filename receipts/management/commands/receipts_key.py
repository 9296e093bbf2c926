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
        actions = parser.add_subparsers(dest="action", required=True, metavar="new|show")
        new = actions.add_parser("new", help="make a signing key")
        new.add_argument("name", metavar="NAME", help="what names the log: a URL without scheme, example.com/receipts")
        new.add_argument("--file", help="add the private key to this file instead of printing it")
        actions.add_parser("show", help="print the verifier keys that this site knows")

    def handle(self, *args: Any, **options: Any) -> None:
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
            self.answer(options, {"private": key.export(), "public": public}, f"{key.export()}\n{public}")
            return
        try:
            # Appended: with the old and the new key in it, the next checkpoint is signed by both.
            handle = os.open(options["file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{key.export()}\n")
        except OSError as error:
            raise CommandError(f"{options['file']}: {error.strerror}") from error
        self.answer(options, {"public": public, "file": str(Path(options["file"]))}, public)

    def show(self, options: dict[str, Any]) -> None:
        """Print what others need to verify."""
        keys = load_keys()
        signing = {key.public.id for key in keys.signing}
        rows = [{"key": str(key), "signs": key.id in signing, "witness": key in keys.witnesses} for key in keys.known]
        self.answer(options, {"keys": rows}, "\n".join(str(key) for key in keys.known))
