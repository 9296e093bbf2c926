"""Make any amount of sample business."""

import argparse
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from datetime import datetime, time
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from tqdm import tqdm

from kwit.commands import KwitCommand

from ...seeding import Plan, SeedRefused, seed


class Command(KwitCommand):
    """Make orders, lines, advices, comments and contacts, the same each time for the same seed and end."""

    help = "Add any amount of sample data, the same each time for one --seed and --until."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the amounts."""
        add = parser.add_argument
        add("--contacts", type=int, default=Plan.contacts, metavar="N", help="people (default: %(default)s)")
        add("--orders", type=int, default=100, metavar="N", help="registered orders (default: %(default)s)")
        add("--lines-per-order", type=int, default=Plan.lines_per_order, metavar="N", help="default: %(default)s")
        add("--rejected", type=int, default=0, metavar="N", help="of the new lines, how many are rejected")
        add("--advices", type=int, default=0, metavar="N", help="accepted delivery advices")
        add("--comments", type=int, default=0, metavar="N", help="comments")
        add("--handled", action="store_true", dest="is_handled", help="the new lines have been handled already")
        add("--tenants", nargs="+", default=Plan.tenants, metavar="NAME", help="default: %(default)s")
        add("--seed", type=int, default=Plan.seed, metavar="S", help="where chance begins (default: %(default)s)")
        add("--until", type=moment, metavar="ISO", help="the time of the newest events (default: now)")
        add("--days", type=int, default=Plan.days, metavar="D", help="how far back the oldest (default: %(default)s)")

    def handle(self, *, database: str | None, until: datetime | None, **options: Any) -> None:
        """Make the rows."""
        known = {name: options[name] for name in Plan.__dataclass_fields__ if name in options}
        try:
            plan = Plan(**known | {"tenants": tuple(options["tenants"]), "until": until or timezone.now()})
            # disable=None: only on a terminal.
            with tqdm(total=plan.rows, unit=" rows", file=sys.stderr, disable=None) as bar:
                made = asdict(seed(plan, using=database, progress=bar.update))
        except SeedRefused as error:
            raise CommandError(f"{error}. Nothing was written.") from error
        shown = ", ".join(f"{number} {name}" for name, number in made.items())
        self.print_result(made, f"Made {shown}.")


def moment(text: str) -> datetime:
    """Read an ISO date or date and time, in the site's time zone unless it names one."""
    try:
        value = parse_datetime(text) or datetime.combine(parse_date(text) or not_a_date(text), time.min)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a date; write 2026-01-31 or 2026-01-31T08:00+00:00"
        ) from error
    return timezone.make_aware(value) if timezone.is_naive(value) else value


def not_a_date(text: str) -> Any:
    """Raises: ValueError."""
    raise ValueError(text)
