"""The second queue: who has to do what, due when, done by whom. Each verb one transaction."""

from collections.abc import Collection
from datetime import datetime

from django.db import connections, router, transaction

from ..dialects import dialect_of
from ..errors import UnknownMail
from ..models import TaskQueue


def complete_task(task_id: int, *, by: str, using: str | None = None) -> bool:
    """
    Mark a task as done; return False when somebody had done it already.

    Raises: UnknownMail, when there is no such task.
    """
    using = using or router.db_for_write(TaskQueue)
    with transaction.atomic(using=using, durable=True):
        tasks = TaskQueue.objects.using(using)
        is_won = tasks.try_complete(task_id, by=by, at=dialect_of(connections[using]).now(connections[using]))
        if not is_won and not tasks.filter(pk=task_id).exists():
            raise UnknownMail(f"there is no task {task_id}")
        return is_won


def complete_tasks(task_ids: Collection[int], *, by: str, using: str | None = None) -> int:
    """Mark the open ones of these tasks as done; return how many somebody had not done already."""
    using = using or router.db_for_write(TaskQueue)
    with transaction.atomic(using=using, durable=True):
        now = dialect_of(connections[using]).now(connections[using])
        return TaskQueue.objects.using(using).open().filter(pk__in=task_ids).update(done_at=now, done_by=by)


def reopen_task(task_id: int, *, using: str | None = None) -> bool:
    """Take "done" back; return False when it was not done."""
    using = using or router.db_for_write(TaskQueue)
    with transaction.atomic(using=using, durable=True):
        done = TaskQueue.objects.using(using).filter(pk=task_id, done_at__isnull=False)
        return done.update(done_at=None, done_by="") == 1


def assign_task(task_id: int, *, to: str, due_at: datetime | None = None, using: str | None = None) -> bool:
    """Give an open task to somebody, due at a moment or whenever; return False when it is done or not there."""
    using = using or router.db_for_write(TaskQueue)
    with transaction.atomic(using=using, durable=True):
        return TaskQueue.objects.using(using).open().filter(pk=task_id).update(assignee=to, due_at=due_at) == 1
