"""What the tests of the pages share: addresses, rows that stand behind them, and a page's text."""

from typing import Any

from django.test import Client
from django.urls import reverse
from django.utils import timezone

from notify.conf import conf
from notify.delivery.channels import pause_channel
from notify.models import Attempt, Channel, Control, MailQueue
from tests.factories import NOW

EVIL = "<script>alert(1)</script>"
MAILS, CHANNELS = "/admin/notify/mailqueue/", "/admin/notify/channel/"
LIST, EXPLAIN = "/admin/notify/suppression/", "/admin/notify/control/explain/"


def address(model: Any, page: str = "changelist", *args: Any) -> str:
    return reverse(f"admin:notify_{model._meta.model_name}_{page}", args=args)


def text_of(client: Client, url: str, **query: Any) -> str:
    page = client.get(url, query)
    assert page.status_code == 200, page.content[:500]
    return page.content.decode()


def queue_mail(key: int, **fields: Any) -> MailQueue:
    control = Control.objects.create(kind="comment", key=key, key2=1)
    values = {"subject": f"Subject {key}", "recipients": ["a@example.org"]} | fields
    return MailQueue.objects.create(control=control, **values)


def of_mail(mail: MailQueue, page: str = "change") -> str:
    return f"{MAILS}{mail.pk}/{page}/"


def try_once(mail: MailQueue, *, outcome: str = "refused", **fields: Any) -> Attempt:
    values = {"number": 1, "recipient": "ann@example.org", "code": 550, "enhanced": "5.1.1", "text": "no such user"}
    values |= {"outcome": outcome, "worker": "app-1:7:x", "channel": "smtp", "at": NOW}
    return Attempt.objects.create(mail=mail, **values | fields)


def pause(name: str = "smtp", *, reason: str = "535 wrong password") -> Channel:
    pause_channel(name, reason=reason, now=timezone.now(), conf=conf())
    return Channel.objects.get(name=name)
