"""System checks of how mails go out."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template

from .conf import conf
from .steps import Step, registered
from .transports.factory import find_transport
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


@register("notify")
def check_bodies(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W006: mails are queued whose body cannot be made, so that none of them could be delivered."""
    return [finding for step in registered() for finding in body_findings(step)]


def body_findings(step: Step) -> Iterator[CheckMessage]:
    """Yield what is wrong with a step's body; a step without a good subject is E007's."""
    hint = "Put it beside the subject. A site that delivers the queue by other means silences this check."
    try:
        get_template(f"notify/mail/{step.template}.subject.txt")
    except (TemplateDoesNotExist, TemplateSyntaxError):
        return
    name = f"notify/mail/{step.template}.body.txt"
    try:
        get_template(name)
    except TemplateDoesNotExist:
        yield Warning(f"the template {name} does not exist", hint=hint, obj=type(step), id="notify.W006")
    except TemplateSyntaxError as error:
        yield Warning(f"the template {name} is faulty: {error}", hint="Correct it.", obj=type(step), id="notify.W006")
