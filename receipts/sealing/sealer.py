"""
Append committed receipts to the log, and sign a checkpoint.

``apply`` knows nothing of it and waits for nobody. Whoever seals takes a lock, which saves work; the constraints of
``receipts_leaf`` and ``receipts_checkpoint`` decide: of two sealers with one position, one commits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import IntegrityError, connections, router, transaction
from django.db.models import Exists, OuterRef, QuerySet

from kwit.db.fields import JSONItems

from ..dialects import dialect_of
from ..models import Change, Checkpoint, Leaf
from .keys import Keys, origin_of
from .log import Inconsistent, count_leaves, newest_checkpoint, read_entries, read_root, read_tree
from .notes import Head, Note

#: Receipts in one transaction, and targets of all of them together: a transaction stays short, and memory bounded.
BATCH_RECEIPTS, BATCH_TARGETS = 500, 20_000
#: Receipts found by one query; what is beyond is found by the next.
SCAN_ROWS = 50_000
#: An ordinary run looks at receipts from the last full scan on, by their own time. One whose transaction was open for
#: longer than the margin is found by the next full scan.
FULL_EVERY = timedelta(days=1)
MARGIN = timedelta(hours=1)


@dataclass
class SealReport:
    """What one run did."""

    sealed: int = 0
    size: int = 0
    #: The checkpoint that was made; None when there was nothing new, or another process was sealing.
    checkpoint: Checkpoint | None = None
    signed_by: tuple[str, ...] = ()
    is_busy: bool = False
    #: What was published where, and what could not be.
    published: list[str] = field(default_factory=list)
    cosigned_by: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def unsealed(alias: str, *, since: datetime | None) -> QuerySet[Change]:
    """Return receipts without a leaf in the order in which they are sealed; all, or those from a moment on."""
    receipts: QuerySet[Change] = Change.objects.using(alias)
    if since is not None:
        receipts = receipts.filter(created_at__gte=since)
    sealed = Leaf.objects.using(alias).filter(change_id=OuterRef("pk"))
    return receipts.filter(~Exists(sealed)).order_by("created_at", "change_id")


def scan_start(alias: str, *, is_full: bool | None = None) -> datetime | None:
    """Return from when on receipts are looked at; None for all, which is due once a day."""
    full = Checkpoint.objects.using(alias).filter(is_full=True).order_by("-number").first()
    if is_full or full is None:
        return None
    is_due = is_full is None and dialect_of(connections[alias]).now(connections[alias]) - full.created_at >= FULL_EVERY
    return None if is_due else full.created_at - MARGIN


def append_receipts(
    alias: str,
    *,
    since: datetime | None,
    is_stopping: Callable[[], bool] = lambda: False,
    progress: Callable[[int], object] = lambda number: None,
) -> tuple[int, bool]:
    """
    Append the committed receipts that are not sealed; return how many, and whether another process was first.

    Transaction: one for each batch.
    """
    appended = 0
    while ids := list(unsealed(alias, since=since).values_list("pk", flat=True)[:SCAN_ROWS]):
        for batch in batches(ids, alias):
            if is_stopping():
                return appended, False
            number = append_batch(batch, alias)
            if number is None:
                return appended, True
            appended += number
            progress(number)
    return appended, False


def batches(ids: Sequence[str], alias: str) -> Iterator[list[str]]:
    """Yield change_ids in their order, so many that their targets stay within the limit."""
    for start in range(0, len(ids), BATCH_RECEIPTS):
        some = ids[start : start + BATCH_RECEIPTS]
        counted = Change.objects.using(alias).filter(pk__in=some).values_list("pk", JSONItems("targets"))
        targets = {pk: items or 0 for pk, items in counted}
        batch: list[str] = []
        held = 0
        for change_id in some:
            if batch and held + targets.get(change_id, 0) > BATCH_TARGETS:
                yield batch
                batch, held = [], 0
            batch.append(change_id)
            held += targets.get(change_id, 0)
        yield batch


def append_batch(ids: Sequence[str], alias: str) -> int | None:
    """Append these receipts as leaves; return how many, None when another process is sealing."""
    # Before the transaction: what is committed does not change, and on SQLite nobody can write during it.
    entries = read_entries(ids, alias)
    try:
        with transaction.atomic(using=alias, durable=True):
            if not dialect_of(connections[alias]).try_seal_lock(connections[alias]):
                return None
            # Another process may have been there between the scan and the lock.
            there = set(Leaf.objects.using(alias).filter(change_id__in=list(ids)).values_list("change_id", flat=True))
            wanted = [entries[change_id] for change_id in ids if change_id in entries and change_id not in there]
            tree, leaves = read_tree(alias), []
            for entry in wanted:
                position = tree.size
                leaves.append(
                    Leaf(
                        position=position,
                        previous_id=position - 1 if position else None,
                        change_id=entry.change_id,
                        digest=entry.digest,
                        audit_digest=entry.audit_digest,
                        hashes="".join(one.hex() for one in tree.append(entry.leaf_hash)),
                    )
                )
            Leaf.objects.using(alias).bulk_create(leaves)
    except IntegrityError:
        # Somebody without the lock has taken these positions, and has committed.
        return None
    return len(leaves)


def sign_checkpoint(alias: str, *, keys: Keys, is_full: bool) -> Checkpoint | None:
    """
    Sign the tree as it stands; return None when that has been done, when it is empty, or when another is sealing.

    A full scan makes a checkpoint even of a tree that has not grown: once a day the log says that it is alive.

    Transaction: its own, durable.
    Raises: Inconsistent.
    """
    try:
        with transaction.atomic(using=alias, durable=True):
            if not dialect_of(connections[alias]).try_seal_lock(connections[alias]):
                return None
            tree, last = read_tree(alias), newest_checkpoint(alias)
            if tree.size == 0:
                return None
            if last is not None:
                check_continues(head_of(last), alias)
                is_new = tree.size > last.size or is_full or signers_differ(last, keys)
                if not is_new:
                    return None
            text = str(Head(origin_of(keys), tree.size, tree.root))
            note = Note(text, tuple(key.sign(text) for key in keys.signing))
            number = last.number + 1 if last else 1
            made = Checkpoint.objects.using(alias).create(
                number=number,
                previous_id=last.number if last else None,
                size=tree.size,
                last_leaf_id=tree.size - 1,
                root=tree.root.hex(),
                note=str(note),
                is_full=is_full,
            )
            made.refresh_from_db(using=alias)
            return made
    except IntegrityError:
        return None  # somebody without the lock has made the checkpoint of this number


def head_of(checkpoint: Checkpoint) -> Head:
    """Return what a stored checkpoint has signed."""
    return Head.parse(Note.parse(checkpoint.note).text)


def signers_differ(last: Checkpoint, keys: Keys) -> bool:
    """Whether a checkpoint lacks a signature that a key of today would give: a new key signs at once."""
    given = {(line.name, line.key_id) for line in Note.parse(last.note).signatures}
    return any((key.name, key.public.id) not in given for key in keys.signing)


def check_continues(head: Head, alias: str) -> None:
    """Refuse a log that does not begin with the tree that a checkpoint signed. Raises: Inconsistent."""
    size = count_leaves(alias)
    if head.size > size:
        raise Inconsistent(
            f"a checkpoint of {head.size} leaves was signed, but the log has {size}: an older backup was restored, or "
            "leaves were deleted; run manage.py receipts_audit_log"
        )
    if read_root(head.size, alias) != head.root:
        raise Inconsistent(
            f"the first {head.size} leaves are not those that a checkpoint signed; run manage.py receipts_audit_log"
        )


def default_alias(using: str | None) -> str:
    """Return the database to work on."""
    return using or router.db_for_write(Change)
