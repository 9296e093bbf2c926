"""
Keyset pagination and bounded counts: lists of big tables without OFFSET and without COUNT(*) over all rows.

The next page begins after the last row of this one, so that none skips or repeats a row when rows come and go or have
equal times. The order must end in a unique column, and all its columns have one direction, so that one index serves it
both ways.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import BadRequest, ValidationError
from django.db.models import Model, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

AFTER, BEFORE = "after", "before"
SEPARATOR = "~"


@dataclass(frozen=True)
class Page:
    """The rows of one page, and the cursors of its neighbours; an empty cursor means that there is none."""

    rows: list[Any]
    next: str = ""
    previous: str = ""


def page_of(rows: QuerySet[Any], *, order: Sequence[str], size: int, after: str = "", before: str = "") -> Page:
    """
    Return the page after or before a cursor, the first one without; one query, two when ``before`` meets the start.

    Raises: BadRequest when the cursor is none of ours.
    """
    return parted_page_of(rows, (), order=order, size=size, after=after, before=before)


def parted_page_of(
    rows: QuerySet[Any], arms: Sequence[Q], *, order: Sequence[str], size: int, after: str = "", before: str = ""
) -> Page:
    """
    Return the same page for rows of which each fulfils exactly one of these conditions.

    Each arm has an index with this order; all of them together need none.

    Raises: BadRequest when the cursor is none of ours.
    """
    if before:
        found = firsts(beyond(rows, order, before, backwards=True), order, size + 1, arms, backwards=True)
        if len(found) > size:
            shown = found[:size][::-1]
            return Page(shown, next=cursor(shown[-1], order), previous=cursor(shown[0], order))
        after = ""  # Fewer than a page before it: the first page, whole.
    found = firsts(beyond(rows, order, after) if after else rows, order, size + 1, arms)
    shown = found[:size]
    return Page(
        shown,
        next=cursor(shown[-1], order) if len(found) > size else "",
        previous=cursor(shown[0], order) if after and shown else "",
    )


def firsts(
    rows: QuerySet[Any], order: Sequence[str], number: int, arms: Sequence[Q], *, backwards: bool = False
) -> list[Any]:
    """Return the first rows: at once, or the first of each arm and of these the first; one query."""
    if len(arms) > 1:
        # No database walks along (tenant, id) in the order of the id for several tenants. Each sub-query stands in
        # another one, because SQLite takes no LIMIT in the members of a UNION.
        tops = [ordered(rows.filter(arm), order, backwards=backwards)[:number].values("pk") for arm in arms]
        parts = [rows.model._base_manager.filter(pk__in=top).values("pk") for top in tops]
        rows = rows.filter(pk__in=parts[0].union(*parts[1:], all=True))
    return list(ordered(rows, order, backwards=backwards)[:number])


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
        for value in values:
            if isinstance(value, datetime):
                value.astimezone(UTC)  # what cannot be said in UTC overflows here, not in the database's adapter
                if settings.USE_TZ and timezone.is_naive(value):
                    raise ValueError("a moment has a zone")
    except (ValueError, OverflowError, ValidationError) as error:
        raise BadRequest(f"{text[:80]!r} is no place in this list") from error
    if None in values:
        raise BadRequest(f"{text[:80]!r} is no place in this list")
    return values


def count_up_to(rows: QuerySet[Any], *, most: int) -> int:
    """Count rows, but at most one more than ``most``; one query, which reads no further."""
    return rows.order_by().values("pk")[: most + 1].count()


def count_text(number: int, *, most: int) -> str:
    """Return a count of ``count_up_to`` as text."""
    return str(number) if number <= most else _("more than %d") % most
