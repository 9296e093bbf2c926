"""The flags of flagged steps: raised for rows whose event has had its message."""

from django.db import DatabaseError, connections, transaction

from ..notes import note
from ..steps import FlaggedStep
from .context import PassContext, StepProgress
from .retry import with_retry

#: Statements of one marking; 1,000 of 2,000 rows are more than a pass prepares. What is left, the next pass marks.
MARK_ROUNDS_MAX = 1000


def repair_flags(step: FlaggedStep, context: PassContext, progress: StepProgress) -> None:
    """Raise the flags that an earlier pass left down; rows that others hold must not keep new events waiting."""
    try:
        progress.repaired = raise_flags(step, context)
    except DatabaseError as error:
        if not context.dialect.is_transient(error):
            raise
        progress.warnings.append(note("not_repaired", error=error))


def raise_flags(step: FlaggedStep, context: PassContext) -> int:
    """
    Raise the flag of rows whose event has had its message; return how many.

    Transaction: one per statement of at most MARK_BATCH rows, outside that of the messages.
    """
    marked, batch = 0, context.conf.MARK_BATCH
    # Bounded, lest something that takes the flag back keeps the pass, and its lock, for ever.
    for _ in range(MARK_ROUNDS_MAX):
        try:
            changed = with_retry(lambda: raise_batch(step, context, rows=batch), context)  # noqa: B023 - called at once
        except DatabaseError as error:
            if not context.dialect.is_timeout(error) or batch == 1:
                raise
            batch //= 2
            continue
        marked += changed
        if changed < batch or context.is_stopping():
            break
    return marked


def raise_batch(step: FlaggedStep, context: PassContext, *, rows: int) -> int:
    """
    Raise the flag of one batch; return how many rows it had.

    Transaction: its own, durable.
    """
    # The business writes these rows too, in primary-key order like us; the outer UPDATE alone would lock them in the
    # order of its plan.
    left = step.left_behind(using=context.using).select_for_update().values("pk")
    with transaction.atomic(using=context.using, durable=context.is_durable):
        context.dialect.yield_to_others(connections[context.using])
        context.guard()
        batch = step.flagged().using(context.using).filter(pk__in=left[:rows])
        return batch.update(**{step.flag: True})
