"""Values -> the JSON of the API: times as RFC 3339 in UTC, 64-bit ids as integers and as text; pure."""

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

#: Names of 64-bit integers that identify something; JavaScript rounds those above 2^53 to another row's.
ID_NAME = re.compile(r"(?:.+_)?id|key2?")
ID_TEXT_SUFFIX = "_str"


class Encoder(DjangoJSONEncoder):
    """Keeps the microseconds, which Django's cuts off: a time that was read must find its row again."""

    def default(self, o: Any) -> Any:
        """Return a value that JSON has."""
        return utc_text(o) if isinstance(o, datetime) else super().default(o)


def utc_text(at: datetime) -> str:
    """Return a moment as RFC 3339 says it, in UTC."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def encoded(value: Any) -> str:
    """Return a value as JSON; what is no number in JSON (NaN, which plain SQL may have written) becomes null."""
    try:
        return json.dumps(value, cls=Encoder, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), cls=Encoder, allow_nan=False)


def with_id_texts(value: Any) -> Any:
    """Return a JSON value in which each integer id has the same as text beside it: ``id`` and ``id_str``."""
    if isinstance(value, list | tuple):
        return [with_id_texts(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: with_id_texts(one) for name, one in value.items()}
    texts = {
        f"{name}{ID_TEXT_SUFFIX}": str(one)
        for name, one in value.items()
        if type(one) is int and isinstance(name, str) and ID_NAME.fullmatch(name)
    }
    return found | texts


def finite(value: Any) -> Any:
    """Return a JSON value without NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value


def as_command(value: Any) -> Any:
    """Return a value as the commands print it with ``--json``, to the digit."""
    return json.loads(json.dumps(value, cls=DjangoJSONEncoder))
