"""What to ask of each database differently; the only place that knows which one it is."""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

#: How each driver calls the seconds after which it gives up connecting, and asking where it can say so.
TIMEOUTS = {
    "sqlite": ("timeout",),
    "postgresql": ("connect_timeout",),
    "microsoft": ("connection_timeout", "query_timeout"),
}


def impatient(connection: BaseDatabaseWrapper, seconds: int) -> BaseDatabaseWrapper:
    """Return a connection of its own to the same database that gives up after some seconds; unopened."""
    copied = connection.copy()
    options: dict[str, Any] = {**copied.settings_dict.get("OPTIONS", {})}
    # A pool's connections have been opened by other rules, and it may have none left: a probe asks for its own.
    options.pop("pool", None)
    options |= dict.fromkeys(TIMEOUTS.get(connection.vendor, ()), seconds)
    copied.settings_dict = {**copied.settings_dict, "OPTIONS": options, "CONN_MAX_AGE": 0}
    return copied
