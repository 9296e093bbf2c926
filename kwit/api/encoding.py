"""Values -> the JSON of the API: times as RFC 3339 in UTC, 64-bit keys as integers; pure."""

import json
import math
from datetime import UTC, datetime
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder


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
