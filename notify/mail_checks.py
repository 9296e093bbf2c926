"""System checks of how mails go out."""

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import NoReverseMatch, reverse

from .addresses import is_address, parse_mailbox
from .checks import DOCTOR, on_database
from .conf import conf
from .delivery.epoch import try_mark_ahead, try_waiting
from .errors import WrongAddress
from .steps import Step, registered
from .transports.factory import find_transport
from .transports.smtp import TIMEOUT_S, SmtpTransport

#: The characters of an address of RFC 3986.
URI = re.compile(r"[A-Za-z0-9:/?#@!$&'()*+,;=._~%\[\]-]{1,900}")


#: Characters before the @ of the address for reports: 64 (RFC 5321) without the longest token.
BOUNCE_LOCAL_CHARS_MAX = 26


@register("notify")
def check_lease(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W005: a worker may lose a mail to another one while it still waits for the server's answer."""
    try:
        limits = conf()
        transport = find_transport(limits)
    except (ImproperlyConfigured, TypeError):
        return []  # E001 or the delivery itself says so
    if not isinstance(transport, SmtpTransport):
        return []
    timeout_s = transport.options.timeout or TIMEOUT_S
    if limits.LEASE.total_seconds() >= 2 * timeout_s:
        return []
    text = f"NOTIFY['LEASE'] is {limits.LEASE}, less than twice the {timeout_s:g} s that SMTP may wait for an answer"
    hint = "Make the lease longer, or the timeout of the mail settings shorter; else slow mails are left uncertain."
    return [Warning(text, hint=hint, id="notify.W005")]


@register("notify", DOCTOR)
def check_sender(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E030: no mail can be sent from what the settings name as the sender."""
    try:
        sender = conf().FROM_EMAIL or settings.DEFAULT_FROM_EMAIL
    except (ImproperlyConfigured, TypeError):
        return []  # E001 says so
    try:
        parse_mailbox(sender)
    except WrongAddress as error:
        text = f"the sender (NOTIFY['FROM_EMAIL'], or DEFAULT_FROM_EMAIL) is none: {error}"
        return [Error(text, hint="Every mail would be blocked.", id="notify.E030")]
    return []


@register("notify", DOCTOR)
def check_unsubscribe(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E031: the address for unsubscribing makes no lawful header."""
    try:
        given = conf().UNSUBSCRIBE
    except (ImproperlyConfigured, TypeError):
        return []
    if not given or is_unsubscribe_address(given):
        return []
    text = f"NOTIFY['UNSUBSCRIBE'] is {given!r}, which is no mailto:, https: or http: address in ASCII"
    hint = "Write mailto:name@example.org or https://example.org/path, special characters %-encoded."
    return [Error(text, hint=hint, id="notify.E031")]


@register("notify", DOCTOR, deploy=True)
def check_clear_auth(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E032, W030: the password of the mail server would go, or does go, over an unencrypted connection."""
    try:
        transport = find_transport(conf())
    except (ImproperlyConfigured, TypeError):
        return []
    if not isinstance(transport, SmtpTransport):
        return []
    options = transport.options
    if not options.signs_in or options.is_encrypted or is_loopback(options.host):
        return []
    hint = "Turn TLS on: smtp+tls:// in EMAIL_URL, use_tls or use_ssl in Django's mail settings."
    if options.allow_clear_auth:
        text = f"the password for {options.host} goes over an unencrypted connection"
        return [Warning(text, hint=hint, id="notify.W030")]
    text = f"the connection to {options.host} is not encrypted, so the password is not sent and no mail goes out"
    return [Error(text, hint=hint, id="notify.E032")]


@register("notify", DOCTOR)
def check_feedback(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E033: no report could come back; E034: no link to unsubscribe could be made."""
    try:
        settings_now = conf()
    except (ImproperlyConfigured, TypeError):
        return []
    found: list[CheckMessage] = []
    address = settings_now.BOUNCE_ADDRESS
    if address and not (is_address(address) and len(address.partition("@")[0]) <= BOUNCE_LOCAL_CHARS_MAX):
        text = f"NOTIFY['BOUNCE_ADDRESS'] is {address!r}, which is no address that a token can be added to"
        hint = f"Write bounces@example.org, at most {BOUNCE_LOCAL_CHARS_MAX} characters before the @."
        found.append(Error(text, hint=hint, id="notify.E033"))
    if settings_now.UNSUBSCRIBE_LINKS and (flaw := link_flaw(settings_now.SITE_URL)):
        text = f"NOTIFY['UNSUBSCRIBE_LINKS'] is on, but {flaw}"
        found.append(Error(text, hint="Each mail with a link would be blocked.", id="notify.E034"))
    return found


def link_flaw(site_url: str) -> str:
    """Return why no link to unsubscribe can be made, empty when one can."""
    if urlsplit(site_url).scheme != "https":
        return "NOTIFY['SITE_URL'] is no https: address, which RFC 8058 asks for"
    if find_spec("cryptography") is None:
        return "cryptography is not installed: pip install kwit[links]"
    try:
        reverse("notify:unsubscribe", args=["token"])
    except NoReverseMatch:
        return 'the URL configuration lacks path("", include("notify.urls"))'
    return ""


def is_unsubscribe_address(given: str) -> bool:
    """Whether a setting makes a header of RFC 2369: a mailto: or web address in the characters of RFC 3986."""
    text = given.replace("{kind}", "kind")
    if not URI.fullmatch(text):
        return False
    parts = urlsplit(text)
    if parts.scheme == "mailto":
        return is_address(unquote(parts.path))
    return parts.scheme in ("https", "http") and bool(parts.hostname)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, as far as its name says."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


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


@register(Tags.database, DOCTOR, deploy=True)
@on_database
def check_epoch(alias: str) -> Iterator[CheckMessage]:
    """E024: the database was restored from a backup: delivery waits, or the next one will; E027: nobody can know."""
    hint = "Follow docs/restoring.md; at its end: manage.py notify_release --restored"
    if (waiting := try_waiting(alias)) is not None:
        text = f"the database looks restored from a backup: delivery waits since {waiting.waiting_since:%Y-%m-%d %H:%M}"
        yield Error(text, hint=hint, obj=alias, id="notify.E024")
        return
    try:
        mark = try_mark_ahead(using=alias, settings=conf())
    except ImproperlyConfigured:
        return  # E001 says so
    except (OSError, ValueError) as error:
        text = f"the file of EPOCH_FILE cannot be read: {error}"
        yield Error(text, hint="Let the services read and write it.", obj=alias, id="notify.E027")
        return
    if mark is not None:
        text = "the database looks restored from a backup: the next delivery will wait"
        yield Error(text, hint=hint, obj=alias, id="notify.E024")
