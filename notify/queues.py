"""What people decide about the queues: each verb changes the rows that still allow it and returns how many."""

from collections.abc import Sequence

from django.db import transaction
from django.db.models.functions import Now

from .addresses import parse_recipients
from .conf import conf
from .errors import WrongAddress
from .models import MailQueue, MailState, TaskQueue


def hold_mails(pks: Sequence[int], *, actor: str, using: str, reason: str = "") -> int:
    """
    Hold waiting mails back until somebody releases them.

    Transaction: its own, durable.
    """
    problem = f"held by {actor}: {reason}" if reason else f"held by {actor}"
    with transaction.atomic(using=using, durable=True):
        waiting = MailQueue.objects.using(using).holdable().filter(pk__in=pks)
        return waiting.update(state=MailState.BLOCKED, problem=problem)


def release_mails(pks: Sequence[int], *, actor: str, using: str) -> int:
    """
    Put held mails back into the queue, due now.

    Transaction: its own, durable.
    """
    with transaction.atomic(using=using, durable=True):
        held = MailQueue.objects.using(using).releasable().filter(pk__in=pks)
        return held.update(state=MailState.QUEUED, problem="", due_at=Now())


def correct_mails(pks: Sequence[int], *, actor: str, using: str, recipients: str) -> int:
    """
    Give blocked mails these recipients and put them into the queue, due now.

    Transaction: its own, durable.
    Raises: WrongAddress, naming what is nobody's address.
    """
    good = good_addresses(recipients)
    with transaction.atomic(using=using, durable=True):
        blocked = MailQueue.objects.using(using).correctable().filter(pk__in=pks)
        return blocked.update(recipients=good, state=MailState.QUEUED, problem="", due_at=Now())


def good_addresses(text: str) -> list[str]:
    """Return the addresses of a text, each once. Raises: WrongAddress, naming what is none."""
    found = parse_recipients(text, fold_local_part=conf().FOLD_LOCAL_PART)
    if found.bad or not found.good:
        raise WrongAddress(", ".join(found.bad) or "there is no address")
    return list(found.good)


def finish_tasks(pks: Sequence[int], *, actor: str, using: str) -> int:
    """
    Mark open tasks as done by this person, now.

    Transaction: its own, durable.
    """
    with transaction.atomic(using=using, durable=True):
        return TaskQueue.objects.using(using).open().filter(pk__in=pks).update(done_at=Now(), done_by=actor)
