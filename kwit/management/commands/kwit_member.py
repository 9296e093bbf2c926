"""Say to which tenants a user belongs, or change it."""

import getpass
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from ...commands import KwitCommand
from ...models import Membership
from ...people.members import join, leave


class Command(KwitCommand):
    """Say to which tenants a user belongs, or change it."""

    help = "Show or change the tenants that a user belongs to."
    database_help = "the database that has the users"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("user", metavar="USER", help="the user's name")
        parser.add_argument("--add", nargs="+", default=[], metavar="TENANT", help="tenants to join")
        parser.add_argument("--remove", nargs="+", default=[], metavar="TENANT", help="tenants to leave")
        parser.add_argument("--actor", default="", metavar="NAME", help="who does it; default: the user who runs this")

    def handle(self, *, user: str, database: str | None, **options: Any) -> None:
        """Add and remove memberships, then print the user's tenants."""
        model = get_user_model()
        found = model._default_manager.using(database).filter(**{model.USERNAME_FIELD: user}).first()
        if found is None:
            raise CommandError(f"there is no user {user!r}")
        given: dict[str, Any] = {"actor": options["actor"] or getpass.getuser(), "using": database}
        try:
            joined = join(found, options["add"], **given)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        left = leave(found, options["remove"], **given)
        rows = Membership.objects.using(database).filter(user_id=found.pk).order_by("tenant")
        said = {"user": user, "tenants": list(rows.values_list("tenant", flat=True)), "joined": joined, "left": left}
        text = f"{user} belongs to {', '.join(said['tenants']) or 'no tenant'}"
        self.print_result(said, text)
