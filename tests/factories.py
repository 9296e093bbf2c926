"""The smallest lawful rows of the sample business; what a test cares about is passed in."""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar

from django.db import models

from portal.models import Advice, Comment, Contact, Order, OrderLine

#: The moment at which tests take place.
NOW = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
_numbers = count(1)
Row = TypeVar("Row", bound=models.Model)


def make_contact(*, name: str | None = None, using: str | None = None, **fields: Any) -> Contact:
    """Make a person with a name and an address of their own."""
    name = name or f"person{next(_numbers)}"
    return Contact.objects.using(using).create(**{"name": name, "email": f"{name}@example.org"} | fields)


def make_order(*, tenant: str = "acme", using: str | None = None, **fields: Any) -> Order:
    """Make an order; unregistered unless ``registered_at`` is given."""
    return Order.objects.using(using).create(**{"number": f"PO-{next(_numbers)}", "tenant": tenant} | fields)


def make_line(
    *, order: Order | None = None, tenant: str = "acme", using: str | None = None, **fields: Any
) -> OrderLine:
    """Make a pending line of 10 pieces in revision 4, with an order of its own unless one is given."""
    order = order or make_order(tenant=tenant, using=using)
    values = {"order": order, "tenant": tenant, "qty": 10, "revision": 4, "state": "pending", "handled": False}
    return OrderLine.objects.using(using).create(**values | fields)


def make_advice(*, order: Order | None = None, using: str | None = None, **fields: Any) -> Advice:
    """Make a delivery advice that waits for acceptance."""
    order = order or make_order(using=using)
    return Advice.objects.using(using).create(**{"order": order, "number": f"ASN-{next(_numbers)}"} | fields)


def make_comment(*, line: OrderLine | None = None, using: str | None = None, **fields: Any) -> Comment:
    """Make a comment on a line; addressed to nobody unless ``recipient`` is given."""
    line = line or make_line(using=using)
    values = {"line": line, "author": "author", "body": "When does it come?", "created_at": NOW}
    return Comment.objects.using(using).create(**values | fields)


def make_many(rows: Iterable[Row]) -> list[Row]:
    """Insert rows of one model at once; return them with their ids, which bulk_create does not tell on SQL Server."""
    given = list(rows)
    model = type(given[0])
    made = model._default_manager.bulk_create(given)
    return made if made[0].pk else sorted(model._default_manager.order_by("-pk")[: len(given)], key=lambda row: row.pk)
