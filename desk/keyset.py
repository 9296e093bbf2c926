"""
Pages by key, not by number: the next page begins after the last row of this one.

No page counts, and none skips or repeats a row when rows come and go or have equal times. The order must end in a
unique column, and all its columns go the same way, so that one index serves it in both directions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.core.exceptions import BadRequest, ValidationError
from django.db.models import Model, Q, QuerySet

AFTER, BEFORE = "after", "before"
SEPARATOR = "~"


@dataclass(frozen=True)
class Page:
    """The rows of one page, and the cursors of its neighbours; an empty cursor means that there is none."""

    rows: list[Any]
    next: str = ""
    previous: str = ""


def page_of(
    rows: QuerySet[Any] | Sequence[QuerySet[Any]], *, order: Sequence[str], size: int, after: str = "", before: str = ""
) -> Page:
    """
    Return the page after or before a cursor, the first one without; one query, two when ``before`` meets the start.

    Several querysets are parts of one list that no single index serves, such as the rows of several tenants: each
    part is one range of the index, and one more query puts them in order.

    Raises: BadRequest when the cursor is none of ours.
    """
    parts = [rows] if isinstance(rows, QuerySet) else rows
    if before:
        found = first_of([beyond(part, order, before, backwards=True) for part in parts], order, size, backwards=True)
        if len(found) > size:
            shown = found[:size][::-1]
            return Page(shown, next=cursor(shown[-1], order), previous=cursor(shown[0], order))
        after = ""  # Fewer than a page before it: the first page, whole.
    found = first_of([beyond(part, order, after) if after else part for part in parts], order, size)
    shown = found[:size]
    return Page(
        shown,
        next=cursor(shown[-1], order) if len(found) > size else "",
        previous=cursor(shown[0], order) if after and shown else "",
    )


def first_of(parts: Sequence[QuerySet[Any]], order: Sequence[str], size: int, *, backwards: bool = False) -> list[Any]:
    """Return the first rows of these parts together, one more than ``size`` if there are; the database compares."""
    if len(parts) == 1:
        return list(ordered(parts[0], order, backwards=backwards)[: size + 1])
    keys = [
        key
        for part in parts
        for key in ordered(part, order, backwards=backwards).values_list("pk", flat=True)[: size + 1]
    ]
    whole = reduce(or_, parts).filter(pk__in=keys)
    return list(ordered(whole, order, backwards=backwards)[: size + 1])


def ordered(rows: QuerySet[Any], order: Sequence[str], *, backwards: bool = False) -> QuerySet[Any]:
    """Return the rows in this order or in its reverse."""
    return rows.order_by(*(flipped(name) if backwards else name for name in order))


def flipped(name: str) -> str:
    """Return the opposite of ``-name`` or ``name``."""
    return name[1:] if name.startswith("-") else f"-{name}"


def beyond(rows: QuerySet[Any], order: Sequence[str], text: str, *, backwards: bool = False) -> QuerySet[Any]:
    """Return the rows that stand after (before) the cursor."""
    names = [name.lstrip("-") for name in order]
    values = parsed(rows.model, names, text)
    ways = {name.startswith("-") for name in order}
    if len(ways) != 1:
        raise ValueError(f"the columns of {order} do not all go the same way")
    relation = "lt" if ways.pop() != backwards else "gt"
    condition = Q(**{f"{names[-1]}__{relation}": values[-1]})
    for name, value in list(zip(names, values, strict=True))[-2::-1]:
        # (a, b) > (x, y), written so that a plain index on (a, b) is entered at x.
        condition = Q(**{f"{name}__{relation}e": value}) & (Q(**{f"{name}__{relation}": value}) | condition)
    return rows.filter(condition)


def cursor(row: Model, order: Sequence[str]) -> str:
    """Return what identifies a row's place in the order."""
    fields = [row._meta.get_field(name.lstrip("-")) for name in order]
    return SEPARATOR.join(field.value_to_string(row) for field in fields)  # type: ignore[union-attr]


def parsed(model: type[Model], names: Sequence[str], text: str) -> list[Any]:
    """Return the values of a cursor. Raises: BadRequest."""
    # The last value may be a text with a separator in it.
    parts = text.split(SEPARATOR, len(names) - 1)
    try:
        if len(parts) != len(names) or "\x00" in text:
            raise ValueError(f"{len(names)} values are needed, without NUL")
        values = [model._meta.get_field(name).to_python(part) for name, part in zip(names, parts, strict=True)]  # type: ignore[union-attr]
    except (ValueError, OverflowError, ValidationError) as error:
        raise BadRequest(f"{text[:80]!r} is no place in this list") from error
    if None in values:
        raise BadRequest(f"{text[:80]!r} is no place in this list")
    return values
