"""What the commands of notify share."""

from collections.abc import Collection

from django.core.management.base import CommandError
from django.db import router
from django.db.models import QuerySet

from kwit.commands import KwitCommand

from ..models import Control, MailQueue


class NotifyCommand(KwitCommand):
    """Works on the database that holds the control table and the queues."""

    content, content_setting = "notifications", "NOTIFY_DATABASE_URL"

    def home(self) -> str:
        return router.db_for_write(Control)


def mails_of(ids: Collection[int], using: str | None) -> QuerySet[MailQueue, MailQueue]:
    """Return the mails of these ids. Raises: CommandError, when one is not there."""
    mails = MailQueue.objects.filter(pk__in=ids)
    if missing := sorted(set(ids) - set(mails.using(using).values_list("pk", flat=True))):
        raise CommandError(f"there is no mail {', '.join(map(str, missing))}; nothing was changed")
    return mails
