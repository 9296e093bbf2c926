"""What is kept for how long: finished mails go after a time, an address is erased when somebody asks for it."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.db import models, router, transaction
from django.db.models import Exists, OuterRef, Q, TextField
from django.db.models.functions import Cast, Lower

from .addresses import mailbox_key, parse_recipients, spellings
from .errors import WrongAddress
from .messages.values import MAIL
from .models import Attempt, MailQueue, MailState, Suppression

#: Rows per statement: below the 2,100 parameters of SQL Server, and below its 5,000 for lock escalation.
BATCH_ROWS = 1000
#: What has come to its end. All other mails wait, for their time or for a person.
FINISHED = (MailState.SENT, MailState.PARTIAL, MailState.FAILED, MailState.WITHDRAWN)
#: The apps whose tables are looked through for an address; receipts are kept as they were committed.
APPS = ("notify", "kwit")
ERASED = "[erased]"


@dataclass
class Pruned:
    """What one call has deleted; control rows stay, so that nothing is sent again."""

    bodies: int = 0
    mails: int = 0
    attempts: int = 0


def prune_mails(*, now: datetime, days: float, limit: int | None = None, using: str | None = None) -> Pruned:
    """
    Delete finished mails older than so many days: bodies first, then mails with their attempts; at most ``limit``.

    Transaction: its own, one per batch.
    """
    using, done = using or router.db_for_write(MailQueue), Pruned()
    mails = MailQueue.objects.using(using)
    old = mails.filter(created_at__lt=now - timedelta(days=days), state__in=FINISHED).order_by("created_at", "pk")
    full = old.exclude(message_text="", message_html="")
    for keys in batches(full, limit):
        with transaction.atomic(using=using):
            emptied = mails.filter(pk__in=keys).update(message_text="", message_html="", payload={})
        done.bodies += emptied
    rest = None if limit is None else max(0, limit - done.bodies)
    # Those that travelled in a digest go before the one that led it.
    alone = old.filter(~Exists(MailQueue.objects.filter(digest_of=OuterRef("pk"))))
    for keys in batches(alone, rest):
        done.attempts += delete_attempts(keys, using)
        with transaction.atomic(using=using):
            done.mails += mails.filter(pk__in=keys).delete()[0]
    return done


def batches(rows: "models.QuerySet[Any, Any]", limit: int | None) -> Iterator[list[int]]:
    """Yield the keys of rows, queried again each time, until there are none or the limit is reached."""
    left = limit
    while left is None or left > 0:
        keys = list(rows.values_list("pk", flat=True)[: BATCH_ROWS if left is None else min(left, BATCH_ROWS)])
        if not keys:
            return
        yield keys
        left = None if left is None else left - len(keys)


def delete_attempts(mails: Collection[int], using: str) -> int:
    """Delete the attempts of mails; return how many. Transaction: its own, one per batch."""
    count, attempts = 0, Attempt.objects.using(using)
    for keys in batches(attempts.filter(mail__in=mails).order_by("pk"), None):
        with transaction.atomic(using=using):
            count += attempts.filter(pk__in=keys).delete()[0]
    return count


@dataclass
class Forgotten:
    """Where an address was: rows by table and column."""

    places: dict[str, int] = field(default_factory=dict)

    def add(self, model: type[models.Model], column: str) -> None:
        """Count one row."""
        place = f"{model._meta.db_table}.{column}"
        self.places[place] = self.places.get(place, 0) + 1


def forget_address(address: str, *, using: str | None = None) -> Forgotten:
    """
    Erase an address from the tables of notify and kwit, in every spelling; return where it was.

    A mail that waits loses that recipient. An entry of the suppression list goes, too: should the address come back as
    a recipient, it gets mail again.

    Transaction: its own, many short ones.
    Raises: WrongAddress.
    """
    given = parse_recipients(address)
    if len(given.good) != 1 or given.bad:
        raise WrongAddress(f"{address!r} is not one mail address")
    eraser, found = Eraser(given.good[0]), Forgotten()
    for label in APPS:
        if apps.is_installed(label):
            for model in apps.get_app_config(label).get_models():
                forget_in(model, eraser, found, using or router.db_for_write(model))
    return found


class Eraser:
    """One mailbox, and how it is taken out of values."""

    def __init__(self, address: str) -> None:
        self.key = mailbox_key(address, fold_local_part=True)
        #: What every spelling contains.
        self.needle = self.key.partition("@")[0] + "@"
        ways = "|".join(re.escape(each) for each in sorted(spellings(address), key=len, reverse=True))
        self.pattern = re.compile(rf"(?<![\w.+-])(?:{ways})(?![\w-]|\.\w)", re.IGNORECASE)

    def clean(self, value: Any) -> Any:
        """Return a value without the address: a text, or what JSON holds."""
        if isinstance(value, str):
            return self.pattern.sub(ERASED, value)
        if isinstance(value, list):
            return [self.clean(each) for each in value]
        if isinstance(value, dict):
            return {self.clean(name): self.clean(each) for name, each in value.items()}
        return value

    def without(self, recipients: Any) -> Any:
        """Return recipients without this one, with his display name."""
        if isinstance(recipients, list):
            return [each for each in recipients if not self.is_this(each)]
        return self.clean(recipients)

    def clean_options(self, payload: Any) -> Any:
        """Return a payload whose mail has no copy, sender or reply address of this mailbox, so that it can be sent."""
        own = payload.get(MAIL) if isinstance(payload, dict) else None
        if not isinstance(own, dict):
            return payload
        kept = {name: self.without(value) if isinstance(value, list) else value for name, value in own.items()}
        # Without a sender of its own the mail comes from the site's.
        kept = {name: value for name, value in kept.items() if not self.is_this(value)}
        return payload | {MAIL: kept}

    def is_this(self, entry: Any) -> bool:
        """Whether an entry of a list is exactly this mailbox."""
        people = parse_recipients(entry) if isinstance(entry, str) else None
        return people is not None and {mailbox_key(each, fold_local_part=True) for each in people.good} == {self.key}


def forget_in(model: type[models.Model], eraser: Eraser, found: Forgotten, using: str) -> None:
    """Erase an address in one table. Transaction: its own, one per batch."""
    columns = [each for each in model._meta.concrete_fields if is_text(each)]
    if not columns:
        return
    rows = model._default_manager.using(using)
    lower = {f"text_{each.name}": Lower(Cast(each.name, TextField())) for each in columns}
    holds = Q()
    for name in lower:
        holds |= Q(**{f"{name}__contains": eraser.needle})
    keys = list(rows.alias(**lower).filter(holds).values_list("pk", flat=True))
    for start in range(0, len(keys), BATCH_ROWS):
        with transaction.atomic(using=using):
            for row in rows.filter(pk__in=keys[start : start + BATCH_ROWS]):
                forget_row(row, columns, eraser, found, using)


def forget_row(
    row: models.Model, columns: "Collection[models.Field[Any, Any]]", eraser: Eraser, found: Forgotten, using: str
) -> None:
    """Erase an address in one row; an entry of the suppression list goes as a whole. Transaction: the caller's."""
    model, changed = type(row), dict[str, Any]()
    for each in columns:
        value = getattr(row, each.name)
        if each.name == "recipients":
            cleaned = eraser.without(value)
        else:
            cleaned = eraser.clean(eraser.clean_options(value) if each.name == "payload" else value)
        if cleaned != value:
            changed[each.name] = cleaned
            found.add(model, each.name)
    if changed and model is Suppression and "address" in changed:
        row.delete(using=using)
    elif changed:
        model._default_manager.using(using).filter(pk=row.pk).update(**changed)


def is_text(column: "models.Field[Any, Any]") -> bool:
    """Whether a column may hold an address."""
    is_wide = isinstance(column, models.TextField | models.JSONField)
    is_short = isinstance(column, models.CharField) and not column.choices and (column.max_length or 0) >= len("a@b.cd")
    return (is_wide or is_short) and not column.primary_key
