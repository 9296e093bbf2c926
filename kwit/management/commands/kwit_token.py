"""Make, list and revoke the tokens by which programs read the API."""

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from ...api.encoding import encoded
from ...commands import KwitCommand
from ...conf import TOKEN_DAYS_MAX, kwit_settings
from ...models import TOKEN_NAME_CHARS_MAX, Token
from ...people.tokens import NameTaken, make_token, revoke_tokens


class Command(KwitCommand):
    """Make, list and revoke the tokens by which programs read the API."""

    help = "Create, list and revoke the tokens with which programs read the API."
    database_help = "the database that has the users"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("verb", choices=["create", "list", "revoke"])
        parser.add_argument("user", nargs="?", metavar="USER", help="whose token it is, by the name used to sign in")
        parser.add_argument("--name", metavar="TEXT", help="which program uses the token")
        days = "create: days until it ends; default and maximum: KWIT_TOKEN_DAYS"
        parser.add_argument("--days", type=int, metavar="N", help=days)

    def handle(self, *, verb: str, **options: Any) -> None:
        """Create, list or revoke tokens."""
        if verb != "list" and not (options["user"] and options["name"]):
            raise CommandError(f"{verb} needs USER and --name")
        self.using: str | None = options["database"]
        user = self.user_of(options["user"]) if options["user"] else None
        shown = getattr(self, verb)(user, **{name: options[name] for name in ("name", "days")})
        content = json.loads(encoded(shown))
        self.print_result(content, *self.as_lines(content))

    def user_of(self, name: str) -> Any:
        """Return the user of a name. Raises: CommandError."""
        model = get_user_model()
        try:
            return model._default_manager.db_manager(self.using).get_by_natural_key(name)
        except model.DoesNotExist as error:
            raise CommandError(f"there is no user {name!r}") from error

    @sensitive_variables()
    def create(self, user: Any, *, name: str, days: int | None) -> dict[str, Any]:
        """Create a token; the secret is shown here and never again."""
        if not 0 < len(name.strip()) <= TOKEN_NAME_CHARS_MAX:
            raise CommandError(f"a name has 1 to {TOKEN_NAME_CHARS_MAX} characters")
        most = kwit_settings().TOKEN_DAYS or TOKEN_DAYS_MAX
        if days is not None and not 0 < days <= most:
            raise CommandError(f"--days must be from 1 to {most}")
        ends = timezone.now() + timedelta(days=days or most) if days or kwit_settings().TOKEN_DAYS else None
        try:
            token, secret = make_token(user, name=name.strip(), expires_at=ends, using=self.using)
        except NameTaken as error:
            raise CommandError(f"{user.get_username()} has a token {name!r}; revoke it first") from error
        return {"token": secret, "prefix": token.prefix, "expires_at": ends}

    def list(self, user: Any, *, name: str | None, days: int | None) -> dict[str, Any]:
        """List tokens, the newest first."""
        rows = Token.objects.using(self.using).select_related("user").order_by("-pk")
        rows = rows.filter(user=user) if user is not None else rows
        rows = rows.filter(name=name) if name else rows
        names = ("name", "prefix", "created_at", "last_used_at", "expires_at", "revoked_at")
        return {"tokens": [{"user": row.user.get_username(), **{n: getattr(row, n) for n in names}} for row in rows]}

    def revoke(self, user: Any, *, name: str, days: int | None) -> dict[str, Any]:
        """Revoke the live token of a name."""
        pks = Token.objects.using(self.using).filter(user=user, name=name).values_list("pk", flat=True)
        done = revoke_tokens(list(pks), now=timezone.now(), using=self.using)
        if not done:
            raise CommandError(f"{user.get_username()} has no live token {name!r}")
        return {"revoked": done}

    def as_lines(self, shown: dict[str, Any]) -> Sequence[str]:
        """Return an answer for a person."""
        if "tokens" in shown:
            lines = ["  ".join(f"{n}={v}" for n, v in row.items() if v is not None) for row in shown["tokens"]]
            return lines or ["none"]
        return [str(shown["token"]) if "token" in shown else f"{shown['revoked']} revoked"]
