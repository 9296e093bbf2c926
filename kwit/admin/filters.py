"""Filters of a list: parsed from the query string, applied to the queryset."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _

from .components import Text

Rows = QuerySet[Any]
INT64_MAX = 2**63 - 1
INTEGER_TEXT = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True)
class Filter:
    """One filter; ``parse`` reads its value from the query string, ``apply`` filters the rows by it."""

    name: str
    label: Text
    apply: Callable[[Rows, Any], Rows]
    #: The form control: text, number, date, select, checkbox, hidden.
    control = "text"

    def parse(self, text: str) -> Any:
        """Return the value of a text. Raises: ValueError with a sentence for people."""
        return text

    def options(self) -> Sequence[tuple[str, Text]]:
        """Return the choices."""
        return ()


@dataclass(frozen=True)
class ChoiceFilter(Filter):
    """One of several values."""

    choices: Callable[[], Iterable[tuple[str, Text]]] = tuple
    control = "select"

    def parse(self, text: str) -> str:
        """Return one of the choices."""
        if text not in dict(self.options()):
            raise ValueError(_("“%s” is not one of the choices.") % text[:40])
        return text

    def options(self) -> Sequence[tuple[str, Text]]:
        """Return the current choices."""
        return list(self.choices())


@dataclass(frozen=True)
class NumberFilter(Filter):
    """A whole number."""

    control = "number"

    def parse(self, text: str) -> int:
        """Return the number; what no 64-bit column can hold is refused."""
        return parse_integer(text)


def parse_integer(text: str) -> int:
    """Return a whole number that a 64-bit column can hold. Raises: ValueError with a sentence for people."""
    if not INTEGER_TEXT.fullmatch(text) or abs(int(text)) > INT64_MAX:
        raise ValueError(_("“%s” is not a whole number.") % text[:40])
    return int(text)


@dataclass(frozen=True)
class DateTimeFilter(Filter):
    """A date or a date and time; ``is_end`` takes a date as its last moment."""

    is_end: bool = False
    control = "date"

    def parse(self, text: str) -> datetime:
        """Return an aware datetime."""
        try:
            found = parse_datetime(text) if len(text) > len("2026-01-31") else parse_date(text)
        except ValueError:
            found = None
        if found is None:
            raise ValueError(_("“%s” is not a date.") % text[:40])
        if not isinstance(found, datetime):
            at = day_edge(found, is_end=self.is_end)
        else:
            at = found if timezone.is_aware(found) else timezone.make_aware(found)
        return check_in_range(at)


def check_in_range(at: datetime) -> datetime:
    """Return a moment that can be said in UTC. Raises: ValueError for one before the year 1 or after 9999 there."""
    try:
        at.astimezone(UTC)
    except OverflowError:
        raise ValueError(_("“%s” is not a date.") % at.isoformat()) from None
    return at


def day_edge(day: date, *, is_end: bool) -> datetime:
    """Return a day's first or last moment in the current time zone."""
    return timezone.make_aware(datetime.combine(day, time.max if is_end else time.min))


@dataclass(frozen=True)
class FlagFilter(Filter):
    """A checkbox: on, or not filtered."""

    control = "checkbox"

    def parse(self, text: str) -> bool:
        """Return True for ``1``."""
        if text != "1":
            raise ValueError(_("“%s” is not one of the choices.") % text[:40])
        return True


@dataclass(frozen=True)
class UuidFilter(Filter):
    """A UUID."""

    def parse(self, text: str) -> UUID:
        """Return the UUID."""
        try:
            return UUID(text)
        except ValueError:
            raise ValueError(_("“%s” is not an identifier.") % text[:40]) from None


@dataclass(frozen=True)
class FilterValues:
    """The filter values of a query string."""

    values: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    def apply(self, filters: Sequence[Filter], rows: Rows) -> Rows:
        """Return the rows that match; none when a value is invalid."""
        if self.errors:
            return rows.none()
        for one in filters:
            if one.name in self.values:
                rows = one.apply(rows, self.values[one.name])
        return rows


def parse_filters(filters: Sequence[Filter], given: Mapping[str, str]) -> FilterValues:
    """Read the values of these filters from a query string."""
    values, texts, errors = {}, {}, {}
    for one in filters:
        text = given.get(one.name, "").strip()
        if not text:
            continue
        texts[one.name] = text
        if "\x00" in text:
            # PostgreSQL takes it in no text, and no other kind of value has it.
            errors[one.name] = _("“%s” contains an invalid character.") % text.replace("\x00", "␀")[:40]
            continue
        try:
            values[one.name] = one.parse(text)
        except ValueError as error:
            errors[one.name] = str(error)
    return FilterValues(values, texts, errors)


def filter_controls(filters: Sequence[Filter], asked: FilterValues) -> list[dict[str, Any]]:
    """Return the form controls for the template."""
    return [
        {
            "name": one.name,
            "label": one.label,
            "control": control_for(one, asked),
            "text": asked.texts.get(one.name, ""),
            "error": asked.errors.get(one.name, ""),
            "options": [(value, word, value == asked.texts.get(one.name)) for value, word in one.options()],
        }
        for one in filters
    ]


def control_for(one: Filter, asked: FilterValues) -> str:
    """Return the control that can show the value: a date field would drop a time of day that a link has given."""
    is_shown_as_given = one.name in asked.errors or len(asked.texts.get(one.name, "")) > len("2026-01-31")
    return "text" if is_shown_as_given and one.control in ("date", "number") else one.control


def equals(column: str) -> Callable[[Rows, Any], Rows]:
    """Return the filter of a column's value."""
    return lambda rows, value: rows.filter(**{column: value})
