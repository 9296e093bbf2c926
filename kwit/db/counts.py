"""Counts that come to an end: a page or a metric says "more than" where a table has more than anybody asks."""

from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _


def bounded(rows: QuerySet[Any], *, most: int) -> int:
    """Return how many rows there are, at most one more than ``most``; one query, which reads no further."""
    return rows.order_by().values("pk")[: most + 1].count()


def many(number: int, *, most: int) -> str:
    """Return a bounded count in words."""
    return str(number) if number <= most else _("more than %d") % most
