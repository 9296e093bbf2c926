"""Erase an address from what Kwit keeps."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from ...errors import WrongAddress
from ...retention import forget_address
from ..command import NotifyCommand


class Command(NotifyCommand):
    """Erase an address."""

    help = "Erase an address from queues, attempts, log and suppression list, and print where it was."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("address", metavar="ADDRESS", help="the address, in any spelling")

    def handle(self, *, address: str, **options: Any) -> None:
        """Erase."""
        try:
            places = forget_address(address, using=options["database"]).places
        except WrongAddress as error:
            raise CommandError(str(error)) from error
        lines = [f"{count} rows: {place}" for place, count in sorted(places.items())]
        self.print_result({"places": places}, *(lines or ["It was nowhere."]))
