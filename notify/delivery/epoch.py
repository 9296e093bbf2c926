"""
Recognise a database that was restored from a backup, and let delivery wait for a person then.

A restored database has mails in its queue that were sent after the backup. Nothing in it says so: what does is a file
outside. Each run of delivery that has something to send counts up a number in ``notify_epoch`` and then writes it to
``NOTIFY_EPOCH_FILE``. A file that is ahead of its database, or that knows another database, means a restore.
"""

import json
import logging
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

from django.db import IntegrityError, router, transaction
from django.db.models import F

from ..conf import Conf
from ..models import Epoch, MailQueue
from ..notes import Note, note

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Mark:
    """What the file keeps: which database, and the number of its last delivery."""

    database: UUID
    number: int

    def is_ahead_of(self, epoch: Epoch | None) -> bool:
        """Return whether the file knows more than its database, or another one: the database was restored."""
        return epoch is None or self.database != epoch.database or self.number > epoch.number


def try_begin_delivery(*, using: str, now: datetime, settings: Conf) -> Note | None:
    """
    Count a delivery, if mails are due; return why nothing may be sent, None when it may.

    Transaction: its own.
    """
    epoch = Epoch.objects.using(using).filter(pk=Epoch.ONLY).first()
    if epoch is not None and epoch.waiting_since is not None:
        return waiting_note(epoch)
    if not settings.EPOCH_FILE or not MailQueue.objects.using(using).due(now).exists():
        return None
    if epoch is None:
        create_epoch(using)
    # The row is read again, after the file: another worker may have counted up both since.
    if (mark := try_mark_ahead(using=using, settings=settings)) is not None:
        Epoch.objects.using(using).filter(pk=Epoch.ONLY).update(waiting_since=now, file_number=mark.number)
        return waiting_note(Epoch.objects.using(using).get(pk=Epoch.ONLY))
    advance(path_for(settings, using), using=using)
    return None


def waiting_note(epoch: Epoch) -> Note:
    """Return why delivery waits."""
    return note("restored", number=epoch.number, file_number=epoch.file_number)


def create_epoch(using: str) -> Epoch:
    """Return the one row, made now unless another worker has just made it."""
    try:
        with transaction.atomic(using=using):
            return Epoch.objects.using(using).create(pk=Epoch.ONLY, database=uuid4())
    except IntegrityError:
        return Epoch.objects.using(using).get(pk=Epoch.ONLY)


def advance(path: Path, *, using: str) -> None:
    """Count up the number in the database, then in the file."""
    with transaction.atomic(using=using, durable=True):
        rows = Epoch.objects.using(using).filter(pk=Epoch.ONLY)
        rows.update(number=F("number") + 1)
        epoch = rows.get()
    # A crash in between leaves the file behind its database, which is no sign of a restore.
    try:
        write_mark(path, Mark(epoch.database, epoch.number))
    except OSError as error:
        logger.error("a restored database cannot be recognised: %s cannot be written: %s", path, error)


def accept_restored(*, using: str | None = None, settings: Conf) -> bool:
    """
    Let delivery go on with the database as it is; return whether it was waiting, or the next one would have.

    Transaction: its own. Raises: OSError or ValueError, when the file cannot be read or written.
    """
    using = using or router.db_for_write(Epoch)
    is_waiting = try_waiting(using) is not None
    mark = None if is_waiting else try_mark_ahead(using=using, settings=settings)
    if not is_waiting and mark is None:
        return False
    rows = Epoch.objects.using(using).filter(pk=Epoch.ONLY)
    if not rows.exists():
        create_epoch(using)
    with transaction.atomic(using=using, durable=True):
        epoch = rows.select_for_update().get()
        number = max(epoch.number, epoch.file_number or 0, mark.number if mark else 0)
        rows.update(waiting_since=None, file_number=None, number=number)
    if settings.EPOCH_FILE:
        write_mark(path_for(settings, using), Mark(epoch.database, number))
    return True


def try_mark_ahead(*, using: str, settings: Conf) -> Mark | None:
    """Return what the file keeps when the database is behind it, None when it is not. Raises: OSError, ValueError."""
    if not settings.EPOCH_FILE:
        return None
    # The file first: a delivery in between counts up the database before its file.
    mark = read_mark(path_for(settings, using))
    epoch = Epoch.objects.using(using).filter(pk=Epoch.ONLY).first()
    return mark if mark is not None and mark.is_ahead_of(epoch) else None


def path_for(settings: Conf, using: str) -> Path:
    """Return the file of a database; each alias has its own."""
    path = Path(settings.EPOCH_FILE)
    return path.with_name(f"{path.name}.{using}")


def read_mark(path: Path) -> Mark | None:
    """Return what the file keeps; None when it is not there. Raises: ValueError, when it is not ours."""
    try:
        found = json.loads(path.read_text())
        return Mark(UUID(found["database"]), int(found["number"]))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is no file of NOTIFY_EPOCH_FILE: {error}") from error


def write_mark(path: Path, mark: Mark) -> None:
    """Replace the file whole, so that no reader finds half of it. Raises: OSError."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    with fresh.open("w") as file:
        json.dump({"database": str(mark.database), "number": mark.number}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def try_waiting(using: str) -> Epoch | None:
    """Return the row of a database whose delivery waits; None when it does not."""
    return Epoch.objects.using(using).filter(pk=Epoch.ONLY, waiting_since__isnull=False).first()


__all__ = ["accept_restored", "try_begin_delivery", "try_mark_ahead", "try_waiting"]
