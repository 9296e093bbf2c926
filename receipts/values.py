"""
Values of model fields as they stand in plans and receipts: text, integers, booleans and None.

Each value has one form, whatever the database and however it was written: decimals with all their places, dates and
times in ISO 8601, moments in UTC. So they can be compared and hashed as they are.
"""

import re
import uuid
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.dateparse import parse_date, parse_datetime, parse_time
from django.utils.timezone import is_aware

from .errors import Words
from .plans.canonical import canonical_time
from .plans.limits import shortened
from .plans.model import checked_integer, checked_note
from .plans.sheets import Number

#: Fields that a plan can carry. Others (JSON, files, binary data, arrays) have no form that is one on every database.
SUPPORTED = (
    *(models.IntegerField, models.DecimalField, models.BooleanField, models.CharField, models.TextField),
    *(models.DateField, models.TimeField, models.UUIDField, models.ForeignKey),
)
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
PLAIN_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?", re.ASCII)


def is_supported(field: Any) -> bool:
    """Whether a plan can carry this field."""
    return isinstance(field, SUPPORTED) and (
        not isinstance(field, models.ForeignKey) or is_supported(value_field(field))
    )


def value_field(field: Any) -> Any:
    """Return the field that holds the value: of a foreign key, the key of the row that it names."""
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    return field


def parse_value(field: Any, value: Any, *, is_text: bool, is_checked: bool = False) -> Any:
    """
    Return a field's value as it is kept; ``is_text``: from a table, where an empty cell is NULL where that may be.

    ``is_checked``: it is to be set, and the field's validators and choices look at it.

    Raises: ValueError with words.
    """
    target = value_field(field)
    is_textual = isinstance(target, models.CharField | models.TextField)
    if value is None or (is_text and value == "" and not is_textual):
        if not field.null:
            raise ValueError(Words("is empty"))
        return None
    if isinstance(target, models.BooleanField):
        found: Any = parsed_boolean(value, is_text=is_text)
    elif isinstance(target, models.IntegerField):
        found = parsed_integer(target, value, is_text=is_text)
    else:
        found = parsed(target, value)
    # Before the validators: more places than the field has are said in plainer words.
    kept = canonical_value(field, found)
    if is_checked:
        validate(field, found)
    return kept


def parsed_boolean(value: Any, *, is_text: bool) -> bool:
    """Return a boolean; in a table, also as the word."""
    word = value.lower() if is_text and type(value) is str else value
    if word in ("true", "false"):
        return bool(word == "true")
    if not isinstance(value, bool):
        raise ValueError(Words("must be true or false, not %(given)s", given=shortened(value)))
    return value


def parsed_integer(field: Any, value: Any, *, is_text: bool) -> int:
    """Return an integer; in a table, also its plainest spelling, with a minus sign where the field takes one."""
    if is_text and type(value) is str and value.startswith("-") and value[1:].isascii() and value[1:].isdigit():
        number = -checked_integer(value[1:], low=1, high=-INT64_MIN, is_text=True)
        return checked_integer(number, low=INT64_MIN, high=INT64_MAX, is_text=False)
    return checked_integer(value, low=INT64_MIN, high=INT64_MAX, is_text=is_text)


def parsed(field: Any, value: Any) -> Any:
    """Return a field's value from its text, as Python has it. Raises: ValueError."""
    if isinstance(field, models.DecimalField):
        return parsed_decimal(value)
    if isinstance(field, models.UUIDField):
        return parsed_by(uuid.UUID, value, Words("must be a UUID, not %(given)s", given=shortened(value)))
    if isinstance(field, models.DateTimeField):
        words = Words(
            "must be a moment with its offset, like 2026-01-31T08:00:00Z, not %(given)s", given=shortened(value)
        )
        moment = value if isinstance(value, datetime) else parsed_by(parse_datetime, value, words)
        if moment is None or not is_aware(moment):
            raise ValueError(words)
        return moment
    if isinstance(field, models.DateField):
        if isinstance(value, datetime) and value.time() == time() and not is_aware(value):
            return value.date()
        words = Words("must be a date like 2026-01-31, not %(given)s", given=shortened(value))
        return value if type(value) is date else parsed_by(parse_date, value, words)
    if isinstance(field, models.TimeField):
        words = Words("must be a time like 08:00:00, not %(given)s", given=shortened(value))
        return value if type(value) is time else parsed_by(parse_time, value, words)
    if type(value) is not str and not isinstance(value, models.Choices):
        raise ValueError(Words("must be text, not %(given)s", given=shortened(value)))
    return checked_note(str(value))


def parsed_by(parse: Any, value: Any, words: Words) -> Any:
    """Return what a parser makes of a text. Raises: ValueError with these words."""
    if isinstance(value, uuid.UUID):
        return value
    try:
        found = parse(value) if type(value) is str else None
    except ValueError:
        found = None
    if found is None:
        raise ValueError(words)
    return found


def parsed_decimal(value: Any) -> Decimal:
    """Return a decimal; never from a floating point number, which is another one."""
    if isinstance(value, Decimal) and value.is_finite():
        return value
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    text = str(value) if is_integer or isinstance(value, str | Number) else ""
    if not PLAIN_DECIMAL.fullmatch(text):
        raise ValueError(Words("must be a number like 12.50, not %(given)s", given=shortened(value)))
    return Decimal(text)


def canonical_value(field: Any, value: Any) -> Any:
    """Return a field's value, as Python has it, in the form in which it is kept. Raises: ValueError."""
    target = value_field(field)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(target, models.BooleanField):
        return bool(value)
    if isinstance(target, models.IntegerField):
        return int(value)
    if isinstance(target, models.DecimalField):
        return canonical_decimal(target, Decimal(value))
    if isinstance(value, datetime):
        return canonical_time(value) if is_aware(value) else value.isoformat(timespec="microseconds")
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value)


def canonical_decimal(field: Any, value: Decimal) -> str:
    """Return a decimal with all of its places. Raises: ValueError when it has more than the field."""
    exact = round(value, field.decimal_places)
    if exact != value:
        raise ValueError(Words("has more than %(places)s decimal places", places=field.decimal_places))
    return format(exact if exact else abs(exact), "f")


def python_value(field: Any, kept: Any) -> Any:
    """Return a value that is kept, as Python has it."""
    target = value_field(field)
    if kept is None:
        return None
    if isinstance(target, models.DateTimeField):
        return datetime.fromisoformat(kept)
    return target.to_python(kept)


def validate(field: Any, value: Any) -> None:
    """Let a field's validators and choices look at a value, as Python has it, that is to be set. Raises: ValueError."""
    try:
        if not isinstance(field, models.ForeignKey):
            field.validate(value, None)
        value_field(field).run_validators(value)
    except ValidationError as error:
        raise ValueError(Words("%(said)s", said=" ".join(map(str, error.messages)))) from error


#: Fields whose kept values every database takes as they are.
TAKEN_AS_KEPT = (models.IntegerField, models.BooleanField, models.CharField, models.TextField, models.DecimalField)


def writer(field: Any, connection: BaseDatabaseWrapper) -> Callable[[Any], Any]:
    """Return what turns a value that is kept into what travels to a database in JSON."""
    target = value_field(field)
    if isinstance(target, TAKEN_AS_KEPT) or type(target) is models.DateField:
        return lambda kept: kept

    def write(kept: Any) -> Any:
        if kept is None:
            return None
        value = target.get_db_prep_save(python_value(field, kept), connection)
        return value if isinstance(value, bool | int | str) else str(value)

    return write


def reader(field: Any, connection: BaseDatabaseWrapper) -> Callable[[Any], Any]:
    """Return what turns a value of a column, as the driver gives it, into the form in which it is kept."""
    target = value_field(field)
    expression = target.get_col(target.model._meta.db_table)
    converters = [*connection.ops.get_db_converters(expression), *target.get_db_converters(connection)]
    is_plain = isinstance(target, models.IntegerField | models.CharField | models.TextField)
    if is_plain and not converters:
        return lambda raw: raw

    if isinstance(target, models.DecimalField) and not converters:
        point = -target.decimal_places - 1

        def read_decimal(raw: Any) -> Any:
            # Most drivers give all the places of the column.
            text = str(raw)
            return text if text[point : point + 1] == "." and "E" not in text else canonical_value(field, raw)

        return lambda raw: None if raw is None else read_decimal(raw)

    # Dates, moments and codes are the same in many rows: each is converted once.
    known: dict[Any, Any] = {}

    def read(raw: Any) -> Any:
        if raw in known:
            return known[raw]
        value = raw
        for convert in converters:
            value = convert(value, expression, connection)
        kept = known[raw] = canonical_value(target, value)
        return kept

    return read
