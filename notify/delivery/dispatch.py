"""Who delivers: this process, or an engine the site already has, fed from the queue."""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from django.db import connections, router, transaction
from django.utils.module_loading import import_string

from ..conf import Conf, conf
from ..dialects import dialect_of
from ..errors import SinkUnusable
from ..models import MailQueue, MailState
from ..transports.factory import find_transport
from .channels import get_pause
from .epoch import try_begin_delivery
from .recovery import rescue
from .results import DeliveryReport
from .runner import deliver_due, make_worker
from .sinks.base import Sink

SINKS = {
    "celery": "notify.delivery.sinks.celery.CelerySink",
    "tasks": "notify.delivery.sinks.tasks.TasksSink",
}


def send_due(
    *,
    using: str | None = None,
    limit: int | None = None,
    lanes: int | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> DeliveryReport:
    """
    Deliver what is due, or hand it to the site's sink where NOTIFY_SINK names one.

    Raises: what deliver_due raises; SinkUnusable.
    """
    settings = conf()
    if not settings.SINK:
        return deliver_due(using=using, limit=limit, lanes=lanes, is_stopping=is_stopping)
    return hand_over_due(find_sink(settings), using=using, limit=limit, is_stopping=is_stopping)


def find_sink(settings: Conf) -> Sink:
    """Return the sink that the settings name. Raises: SinkUnusable."""
    path = SINKS.get(settings.SINK, settings.SINK)
    try:
        import_module(path.rpartition(".")[0])
        return cast(Sink, import_string(path)())
    except (ImportError, ValueError) as error:
        raise SinkUnusable(f"NOTIFY['SINK'] is {settings.SINK!r}: {error}") from error


def hand_over_due(
    sink: Sink,
    *,
    using: str | None = None,
    limit: int | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> DeliveryReport:
    """
    Lease what is due to the sink, in portions; return how many mails.

    The queue stays the truth: what the engine loses is handed over again when its lease has run out, and what it
    delivers twice finds its mails gone.

    Transaction: its own, one per portion, before the portion leaves.
    """
    using, settings, report, left = using or router.db_for_write(MailQueue), conf(), DeliveryReport(), limit
    connection = connections[using]
    dialect = dialect_of(connection)
    rescued = rescue(using=using, now=dialect.now(connection), conf=settings)
    report.uncertain += rescued.uncertain
    if rescued.refused:
        report.error = f"the database refuses to record {'; '.join(rescued.refused)}"
    if waiting := try_begin_delivery(using=using, now=dialect.now(connection), settings=settings):
        report.error = waiting.english
        return report
    pause = get_pause(find_transport(settings).name, now=dialect.now(connection), using=using)
    report.paused_until, report.pause_reason = pause.until, pause.reason
    # While the channel is paused, a sink could only return its portion.
    while pause.is_over and not is_stopping() and (left is None or left > 0):
        now, worker = dialect.now(connection), make_worker()
        size = settings.CLAIM_BATCH if left is None else min(left, settings.CLAIM_BATCH)
        ids = dialect.claim_mails(
            connection, worker=worker, now=now, lease_until=now + settings.HANDOVER_LEASE, limit=size
        )
        if not ids:
            break
        try:
            sink.hand_over(worker=worker, ids=ids, using=using)
        except (OSError, SinkUnusable) as error:
            free(worker, using)
            report.error = f"nothing can be handed over: {type(error).__name__}: {error}"
            break
        report.handed_over += len(ids)
        left = None if left is None else left - len(ids)
    return report


def free(worker: str, using: str) -> None:
    """Give a portion back that never left."""
    with transaction.atomic(using=using, durable=True):
        portion = MailQueue.objects.using(using).filter(worker=worker, state=MailState.QUEUED)
        portion.update(worker="", lease_until=None)
