"""Counts that come to an end: a page or a metric says "more than" where a table has more than anybody asks."""

from typing import Any

from django.db.models import QuerySet


def bounded(rows: QuerySet[Any], *, most: int) -> int:
    """Return how many rows there are, at most one more than ``most``; one query, which reads no further."""
    return rows.order_by().values("pk")[: most + 1].count()
