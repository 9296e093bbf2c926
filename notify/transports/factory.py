"""Which transport a site has, by its settings; the only reader of Django's mail settings."""

from dataclasses import replace
from typing import Any, cast

from django.conf import settings
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..conf import Conf
from .base import Transport
from .django import BackendTransport
from .smtp import SmtpOptions, SmtpTransport

DJANGO_SMTP = "django.core.mail.backends.smtp.EmailBackend"


def find_transport(conf: Conf) -> Transport:
    """
    Return the transport that the settings name; no connection is opened.

    Raises: ImproperlyConfigured.
    """
    name = conf.TRANSPORT
    if name == "auto":
        name = "smtp" if backend_path(conf.MAILER) == DJANGO_SMTP else "backend"
    if name == "smtp":
        options = smtp_options(conf.MAILER)
        return SmtpTransport(replace(options, allow_clear_auth=conf.SMTP_ALLOW_CLEAR_AUTH))
    if name == "backend":
        return BackendTransport(lambda: django_connection(conf.MAILER))
    try:
        return cast(Transport, import_string(name)())
    except ImportError as error:
        raise ImproperlyConfigured(f"NOTIFY['TRANSPORT']: {error}") from error


def has_mailers() -> bool:
    """Whether this Django knows MAILERS (6.1) and this site uses them."""
    return hasattr(mail, "mailers") and getattr(settings, "MAILERS", None) is not None


def mailer(alias: str) -> dict[str, Any]:
    """Return one entry of MAILERS. Raises: ImproperlyConfigured."""
    known: dict[str, dict[str, Any]] = settings.MAILERS  # type: ignore[misc]
    if alias not in known:
        raise ImproperlyConfigured(f"NOTIFY['MAILER'] is {alias!r}, but MAILERS has {sorted(known)}")
    return known[alias]


def backend_path(alias: str) -> str:
    """Return the dotted path of the site's mail backend."""
    return str(mailer(alias).get("BACKEND", DJANGO_SMTP) if has_mailers() else settings.EMAIL_BACKEND)


def django_connection(alias: str) -> Any:
    """Return a connection of the site's mail backend, not yet open."""
    return mail.mailers[alias] if has_mailers() else mail.get_connection()  # type: ignore[attr-defined,unused-ignore]


def smtp_options(alias: str) -> SmtpOptions:
    """Return where the site's SMTP server is. Raises: ImproperlyConfigured."""
    if not has_mailers():
        return SmtpOptions(
            host=settings.EMAIL_HOST,
            port=settings.EMAIL_PORT or 25,
            username=settings.EMAIL_HOST_USER or "",
            password=settings.EMAIL_HOST_PASSWORD or "",
            use_tls=settings.EMAIL_USE_TLS,
            use_ssl=settings.EMAIL_USE_SSL,
            timeout=settings.EMAIL_TIMEOUT,
            ssl_keyfile=settings.EMAIL_SSL_KEYFILE,
            ssl_certfile=settings.EMAIL_SSL_CERTFILE,
        )
    given = {name: value for name, value in mailer(alias).get("OPTIONS", {}).items() if value is not None}
    if not given.get("port"):
        given["port"] = 465 if given.get("use_ssl") else 587 if given.get("use_tls") else 25
    known = {name: value for name, value in given.items() if name in SmtpOptions.__dataclass_fields__}
    return SmtpOptions(**known)
