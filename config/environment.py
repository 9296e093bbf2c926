"""The environment, read so that a value that cannot be understood is an error that names its variable."""

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import environ
from django.core.exceptions import ImproperlyConfigured
from django.utils.dateparse import parse_date, parse_datetime, parse_duration

Value = TypeVar("Value")
YES = ("true", "on", "ok", "y", "yes", "1")
ENCODE = "with special characters %-encoded"
NO = ("false", "off", "n", "no", "0", "")


def duration_of(text: str) -> timedelta:
    """
    Read ``1 day``, ``2 days``, ``36:00:00`` or ``P1DT12H``. Raises: ValueError.

    Two parts are refused: ``24:00`` would be 24 minutes to Django and a day to whoever wrote it.
    """
    if text.count(":") == 1:
        raise ValueError(f"{text!r} may be minutes or hours; write '24:00:00' or '00:24:00'")
    value = parse_duration(text.replace("days", "").replace("day", "").strip() + " 00:00:00" if "day" in text else text)
    if value is None:
        raise ValueError(f"{text!r} is not a duration; write '1 day', '36:00:00' or 'P1DT12H'")
    return value


def moment_of(text: str) -> Any:
    """Read an ISO date or a date and time; nothing gives None. Raises: ValueError."""
    if not text:
        return None
    try:
        value = parse_datetime(text) or parse_date(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date: {error}") from error
    if value is None:
        raise ValueError(f"{text!r} is not a date; write 2026-01-31 or 2026-01-31T08:00:00+00:00")
    return value


def whole(text: str) -> int:
    """Read a whole number. Raises: ValueError."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def yes_or_no(text: str) -> bool:
    """Read a switch; a misspelled word is not taken for "no". Raises: ValueError."""
    if text.strip().lower() not in (*YES, *NO):
        raise ValueError(f"{text!r} is neither 1 nor 0")
    return text.strip().lower() in YES


class Environment(environ.Env):  # type: ignore[misc] # untyped
    """The variables, each read once by its name. Every method raises ImproperlyConfigured, naming the variable."""

    def int(self, var: str, *, default: int) -> int:
        """Read a whole number."""
        return self.named(var, lambda: whole(self.str(var, default=str(default))))

    def bool(self, var: str, *, default: bool) -> bool:
        """Read a switch."""
        return self.named(var, lambda: yes_or_no(self.str(var, default=str(default))))

    def duration(self, var: str, *, default: str) -> timedelta:
        """Read a time span."""
        return self.named(var, lambda: duration_of(self.str(var, default=default)))

    def moment(self, var: str) -> Any:
        """Read a date, or a date and time; None when there is none."""
        return self.named(var, lambda: moment_of(self.str(var, default="")))

    def database(self, var: str, *, default: str) -> dict[str, Any] | None:
        """Read a database URL into Django's dict; None when there is none."""
        url = self.str(var, default=default) or default
        if not url:
            return None
        known = "://" in url and url.partition(":")[0] in self.DB_SCHEMES
        read = self.quietly(lambda: dict(self.db_url_config(url))) if known else None
        if read is None:
            raise ImproperlyConfigured(
                f"{var}: no URL of a database; write sqlite:///…, postgresql://… or mssql://…, {ENCODE}"
            )
        return read

    def email_url(self, var: str, *, default: str) -> dict[str, Any]:
        """Read how mail is sent."""
        url = self.str(var, default=default) or default
        read = self.quietly(lambda: dict(self.email_url_config(url)))
        if read is None:
            raise ImproperlyConfigured(
                f"{var}: no URL of a mail server; write smtp+tls://user:password@host:587, {ENCODE}"
            )
        return read

    def quietly(self, read: Callable[[], Value]) -> Value | None:
        """Return what is read, None when it cannot be: the parser's words quote parts of what may be a password."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return read()
        except (ValueError, KeyError, ImproperlyConfigured, UserWarning):
            return None

    def named(self, var: str, read: Callable[[], Value]) -> Value:
        """Return what is read; an error gets the variable's name. Raises: ImproperlyConfigured."""
        try:
            return read()
        except ValueError as error:
            raise ImproperlyConfigured(f"{var}: {error}") from error
