"""The verb: append what is committed, sign, have it witnessed, publish."""

from collections.abc import Callable, Sequence

from ..conf import load_settings
from ..errors import ReceiptsError
from ..models import Checkpoint
from .keys import Keys, load_keys
from .log import count_leaves, newest_checkpoint
from .notes import Note
from .publishing import check_published, publish
from .sealer import SealReport, append_receipts, default_alias, scan_start, sign_checkpoint
from .witnesses import cosign


def seal_receipts(
    *,
    using: str | None = None,
    is_full: bool | None = None,
    witnesses: Sequence[str] = (),
    keys: Keys | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    progress: Callable[[int], object] = lambda number: None,
) -> SealReport:
    """
    Seal every committed receipt that is not sealed yet, and publish the checkpoint; return what was done.

    ``is_full`` looks at all receipts, not only at the recent ones; None: when a day has passed since that was done.
    May be run at any time, by several processes at once, and be killed at any moment: the next run completes it.

    Transaction: several of its own, durable.
    Raises: Inconsistent, before anything is signed; InvalidNote for keys that are none.
    """
    alias, settings = default_alias(using), load_settings()
    keys = load_keys(settings) if keys is None else keys
    targets = settings.log_publish.split()
    # What is outside has the last word: a restored or forged log is not continued.
    for target in targets:
        check_published(target, alias)
    since = scan_start(alias, is_full=is_full)
    report = SealReport()
    report.sealed, report.is_busy = append_receipts(alias, since=since, is_stopping=is_stopping, progress=progress)
    if not report.is_busy:
        # A scan that was broken off has not seen all.
        made = sign_checkpoint(alias, keys=keys, is_full=since is None and not is_stopping())
        report.checkpoint = made
    report.size = count_leaves(alias)
    newest = report.checkpoint or newest_checkpoint(alias)
    if newest is not None:
        report.signed_by = tuple(line.name for line in Note.parse(newest.note).signatures)
        hand_out(newest, report, witnesses=[*settings.log_witnesses.split(), *witnesses], keys=keys, alias=alias)
    return report


def hand_out(checkpoint: Checkpoint, report: SealReport, *, witnesses: Sequence[str], keys: Keys, alias: str) -> None:
    """
    Have a checkpoint cosigned, then published; a place that fails keeps no other from having it.

    What has failed is tried again by the next run, as long as the checkpoint is the newest.
    """
    for witness in dict.fromkeys(witnesses):
        try:
            report.cosigned_by += cosign(checkpoint, witness, keys=keys, alias=alias)
        except (OSError, ValueError, ReceiptsError) as error:
            report.errors.append(f"witness {witness}: {error}")
    for target in load_settings().log_publish.split():
        try:
            if publish(checkpoint, target, alias=alias, is_renewed=bool(report.cosigned_by)):
                report.published.append(target)
        except (OSError, ValueError) as error:
            report.errors.append(f"publishing to {target}: {error}")
