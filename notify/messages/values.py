"""
The values of an event: frozen with their types as JSON, and thawed before anything is rendered; pure.

Subject, bodies, digest, preview and a mail made anew render what ``thaw`` returns, so that all of them show the same.
JSON has no dates, decimals or UUIDs: those are stored as texts, and ``$types`` beside them says what they were. Rows
without ``$types`` (of an earlier version, or of plain SQL) are taken as they are.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from json.encoder import JSONEncoder
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.utils.dateparse import parse_duration
from django.utils.duration import duration_iso_string
from django.utils.functional import Promise

from ..text import clean

#: The names that every template may use, whatever the step's query gives.
ALWAYS = ("key", "key2", "kind", "site_url", "event_at")
#: The name under which a payload keeps the types of its other values.
TYPES = "$types"
#: The name under which it keeps the language that was asked for, when the site has only its parent.
LANGUAGE = "$language"
#: The name under which it keeps sender, copies, reply addresses, headers and the site's address (``options``).
MAIL = "$mail"
#: The name under which it keeps the version of the wording that a person wrote (``wordings``).
WORDING = "$wording"
#: What a payload says of the message itself, beside the values.
OWN = frozenset({TYPES, LANGUAGE, MAIL, WORDING})
#: Levels of lists and mappings in a value; more is no data of an event, and would end Python's stack.
DEPTH_MAX = 50
ENCODER = JSONEncoder(ensure_ascii=False, allow_nan=False)


class CannotFreeze(ValueError):
    """A value that cannot be stored with the message, by its name."""


def freeze(values: Mapping[str, Any]) -> str:
    """Return values as JSON text that every database can store. Raises: CannotFreeze, naming the value."""
    return ENCODER.encode(freeze_to_json(values))


def freeze_to_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as what JSON can hold, with their types. Raises: CannotFreeze, naming the value."""
    frozen: dict[str, Any] = {}
    types: dict[str, Any] = {}
    for name, value in values.items():
        if name in OWN:
            raise CannotFreeze(f"no value can be called {name}")
        frozen[clean(name)], found = freeze_value(value, name)
        if found is not None:
            types[clean(name)] = found
    return frozen | {TYPES: types} if types else frozen


def thaw(payload: Any) -> dict[str, Any]:
    """
    Return the values that were frozen, with their types; what somebody has changed by hand stays as it is.

    Raises: TypeError, for a payload that plain SQL has filled with something else than an object.
    """
    if not isinstance(payload, dict):
        raise TypeError(f"the payload is a {type(payload).__name__}, not an object")
    types = payload.get(TYPES)
    if not isinstance(types, dict):
        types = {}
    return {name: thaw_value(value, types.get(name)) for name, value in payload.items() if name not in OWN}


def add_own(text: str, own: Mapping[str, Any]) -> str:
    """Return a frozen payload with something that it says of the message itself."""
    return ENCODER.encode(json.loads(text) | own) if own else text


def template_values(
    values: Mapping[str, Any], *, kind: str, key: int | str, key2: int = 0, site_url: str = ""
) -> dict[str, Any]:
    """Return what a template gets: what every template may use, and the event's own values, which come first."""
    return {"kind": kind, "key": key, "key2": key2, "site_url": site_url, "event_at": None, **values}


def readable(payload: Any) -> Any:
    """Return the values of a payload as people read them."""
    if not isinstance(payload, dict):
        return payload
    return {name: value for name, value in payload.items() if name not in OWN}


def freeze_value(value: Any, path: str, depth: int = 0) -> tuple[Any, Any]:
    """
    Return one value as JSON can hold it, and its type: None where JSON has it, a name, or {place: type} inside.

    Raises: CannotFreeze.
    """
    if value is None or value is True or value is False:
        return value, None
    if isinstance(value, Enum):
        return freeze_value(value.value, path, depth)
    if isinstance(value, Promise):
        value = str(value)
    if isinstance(value, str):
        return clean(str.__str__(value)), None
    if isinstance(value, int):
        return int(value), None
    for kind, (name, write) in WRITERS.items():
        if isinstance(value, kind):
            return write(value, path), name
    if isinstance(value, Mapping | list | tuple):
        if depth >= DEPTH_MAX:
            raise CannotFreeze(f"the value {path} has more than {DEPTH_MAX} levels")
        return freeze_inner(value, path, depth + 1)
    raise CannotFreeze(f"the value {path} is of the type {type(value).__name__}, which cannot be stored")


def freeze_inner(value: Mapping[Any, Any] | Sequence[Any], path: str, depth: int) -> tuple[Any, Any]:
    """Return a list, or a mapping in the order of its names, with the types of what is in it."""
    types: dict[str, Any] = {}
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for name, inner in value.items():
            if not isinstance(name, str | int) or isinstance(name, bool):
                raise CannotFreeze(f"the value {path} has a name of the type {type(name).__name__}")
            key = clean(str(name))
            found[key], kind = freeze_value(inner, f"{path}.{key}", depth)
            if kind is not None:
                types[key] = kind
        # PostgreSQL stores names in this order, whatever order they were given in.
        ordered = sorted(found, key=lambda name: (len(name.encode()), name.encode()))
        return {name: found[name] for name in ordered}, types or None
    items = []
    for place, inner in enumerate(value):
        item, kind = freeze_value(inner, f"{path}[{place}]", depth)
        items.append(item)
        if kind is not None:
            types[str(place)] = kind
    return items, types or None


def thaw_value(value: Any, kind: Any) -> Any:
    """Return one value as it was before it was frozen."""
    if kind is None or value is None:
        return value
    if isinstance(kind, dict):
        if isinstance(value, dict):
            return {name: thaw_value(inner, kind.get(name)) for name, inner in value.items()}
        if isinstance(value, list):
            return [thaw_value(inner, kind.get(str(place))) for place, inner in enumerate(value)]
        return value
    read = READERS.get(kind) if isinstance(kind, str) else None
    try:
        return value if read is None else read(value)
    except (ValueError, TypeError, ArithmeticError, KeyError):
        return value


def write_float(value: float, path: str) -> float:
    """Return a number; neither NaN, which no database takes as JSON, nor a negative zero, which PostgreSQL forgets."""
    if not math.isfinite(value):
        raise CannotFreeze(f"the value {path} is {value}, which cannot be stored")
    return float(value) + 0.0


def write_datetime(value: datetime, path: str = "") -> str:
    """Return a moment to the microsecond, with its offset and, where it has one, the name of its time zone."""
    if value.tzinfo is UTC:
        return value.isoformat()[:-6] + "Z"
    zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    return value.isoformat() + (f"[{zone}]" if zone else "")


def read_datetime(text: str) -> datetime:
    """Return the moment that ``write_datetime`` has written."""
    moment, bracket, zone = text.partition("[")
    found = datetime.fromisoformat(moment)
    if bracket:
        return found.astimezone(ZoneInfo(zone.rstrip("]")))
    # A moment at UTC compares alike in whatever class of zone, but is only then written alike.
    return found.replace(tzinfo=UTC) if moment.endswith("Z") else found


def read_duration(text: str) -> timedelta:
    """Return the length of time of an ISO 8601 text. Raises: ValueError."""
    if (found := parse_duration(text)) is None:
        raise ValueError(text)
    return found


def write_text(value: Any, path: str) -> str:
    """Return what Python writes for a value."""
    return str(value)


#: By type, in the order to ask in (a datetime is a date, too): its name in ``$types`` and how it is written.
WRITERS: dict[type, tuple[str, Callable[[Any, str], Any]]] = {
    float: ("float", write_float),
    Decimal: ("decimal", write_text),
    datetime: ("datetime", write_datetime),
    date: ("date", lambda value, path: value.isoformat()),
    time: ("time", lambda value, path: value.isoformat()),
    timedelta: ("duration", lambda value, path: duration_iso_string(value)),
    UUID: ("uuid", write_text),
}
READERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "decimal": Decimal,
    "datetime": read_datetime,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "duration": read_duration,
    "uuid": UUID,
}


def roundtrip(values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return values as they are stored and as they are rendered. Raises: CannotFreeze, naming the value."""
    text = freeze(values)
    return text, thaw(json.loads(text))
