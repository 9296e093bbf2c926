"""System checks of how mails go out."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Warning, register
from django.core.exceptions import ImproperlyConfigured

from .conf import conf
from .transports.finding import find_transport
from .transports.smtp import TIMEOUT_S, SmtpTransport


@register("notify")
def check_lease(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W005: a worker may lose a mail to another one while it still waits for the server's answer."""
    try:
        settings = conf()
        transport = find_transport(settings)
    except (ImproperlyConfigured, TypeError):
        return []  # E001 or the delivery itself says so
    if not isinstance(transport, SmtpTransport):
        return []
    timeout_s = transport.options.timeout or TIMEOUT_S
    if settings.LEASE.total_seconds() >= 2 * timeout_s:
        return []
    text = f"NOTIFY['LEASE'] is {settings.LEASE}, less than twice the {timeout_s:g} s that SMTP may wait for an answer"
    hint = "Make the lease longer, or the timeout of the mail settings shorter; else slow mails are left uncertain."
    return [Warning(text, hint=hint, id="notify.W005")]
